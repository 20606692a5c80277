#include "formats/tensor.h"

#include <stdio.h>

#include "base/bytes.h"
#include "base/error.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define DTYPE_ENTRY(suffix, name, bytes) {name, bytes},
    KVAD_DTYPE_LIST(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};

size_t kvad_dtype_bytes(enum kvad_dtype dtype) {
    return dtypes[dtype].bytes;
}

const char *kvad_dtype_name(enum kvad_dtype dtype) {
    return dtypes[dtype].name;
}

const char *kvad_tensor_shape_text(const struct kvad_tensor *tensor, char *text, size_t size) {
    if (size == 0) return text;
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < tensor->n_dims && used < size; d++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%zu", d ? ", " : "", tensor->shape[d]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}

static inline float load_f32(const unsigned char *p) {
    return kvad_float_from_bits(kvad_load_u32le(p));
}
static inline float load_f16(const unsigned char *p) {
    return kvad_float_from_f16(kvad_load_u16le(p));
}
static inline float load_bf16(const unsigned char *p) {
    return kvad_float_from_bf16(kvad_load_u16le(p));
}
static inline float load_f64(const unsigned char *p) {
    uint64_t bits = kvad_load_u64le(p);
    double number;
    memcpy(&number, &bits, sizeof number);
    return (float)number;
}

/* The step is a constant in the common case, so that the compiler can use whole vectors. */
#define READ_LOOP(load, bytes)                                                                     \
    do {                                                                                           \
        if (stride == 1)                                                                           \
            for (size_t i = 0; i < n; i++)                                                         \
                out[i] = load(at + i * (bytes));                                                   \
        else                                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                out[i] = load(at + i * stride * (bytes));                                          \
    } while (0)

static size_t row_length(const struct kvad_tensor *tensor) {
    return tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1;
}

enum kvad_status kvad_tensor_read_row(const struct kvad_tensor *tensor, size_t row, float *out,
                                      struct kvad_error *err) {
    return kvad_tensor_read(tensor, row, 0, row_length(tensor), out, err);
}

enum kvad_status kvad_tensor_read(const struct kvad_tensor *tensor, size_t row, size_t first,
                                  size_t n, float *out, struct kvad_error *err) {
    if (tensor->n_dims > 2)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s: tensor %s has %u dimensions; rows are read from at most 2",
                         tensor->file, tensor->name, (unsigned)tensor->n_dims);
    bool is_matrix = tensor->n_dims == 2;
    size_t n_rows = is_matrix ? tensor->shape[0] : 1;
    if (row >= n_rows)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%s: tensor %s: row %zu is outside its %zu rows",
                         tensor->file, tensor->name, row, n_rows);
    size_t n_columns = row_length(tensor);
    if (first > n_columns || n > n_columns - first)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s: tensor %s: columns %zu to %zu are outside its %zu", tensor->file,
                         tensor->name, first, first + n, n_columns);
    size_t stride = tensor->n_dims ? tensor->stride[tensor->n_dims - 1] : 1;
    if (n == 0) return KVAD_OK;
    size_t at_element = first * stride + (is_matrix ? row * tensor->stride[0] : 0);
    const unsigned char *at = tensor->data + at_element * kvad_dtype_bytes(tensor->dtype);
    switch (tensor->dtype) {
    case KVAD_DTYPE_F32: READ_LOOP(load_f32, 4); return KVAD_OK;
    case KVAD_DTYPE_F16: READ_LOOP(load_f16, 2); return KVAD_OK;
    case KVAD_DTYPE_BF16: READ_LOOP(load_bf16, 2); return KVAD_OK;
    case KVAD_DTYPE_F64: READ_LOOP(load_f64, 8); return KVAD_OK;
    default:
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: tensor %s at offset %llu holds %s; weights must be F32, F16, BF16 "
                         "or F64: convert them before saving",
                         tensor->file, tensor->name, (unsigned long long)tensor->offset,
                         kvad_dtype_name(tensor->dtype));
    }
}
