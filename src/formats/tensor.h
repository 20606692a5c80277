/* A tensor as it lies in a file, and exact widening to float32. */
#ifndef KVAD_FORMATS_TENSOR_H
#define KVAD_FORMATS_TENSOR_H

#include "kvad/kvad.h"

/* X(enum suffix, name as in safetensors, bytes) */
#define KVAD_DTYPE_LIST(X)                                                                         \
    X(BOOL, "BOOL", 1)                                                                             \
    X(U8, "U8", 1)                                                                                 \
    X(I8, "I8", 1)                                                                                 \
    X(U16, "U16", 2)                                                                               \
    X(I16, "I16", 2)                                                                               \
    X(F16, "F16", 2)                                                                               \
    X(BF16, "BF16", 2)                                                                             \
    X(U32, "U32", 4)                                                                               \
    X(I32, "I32", 4)                                                                               \
    X(F32, "F32", 4)                                                                               \
    X(U64, "U64", 8)                                                                               \
    X(I64, "I64", 8)                                                                               \
    X(F64, "F64", 8)

enum kvad_dtype {
#define KVAD_DTYPE_ENUM(suffix, name, bytes) KVAD_DTYPE_##suffix,
    KVAD_DTYPE_LIST(KVAD_DTYPE_ENUM)
#undef KVAD_DTYPE_ENUM
};

enum { KVAD_MAX_DIMS = 8 };

/* Borrowed from the file object that made it; `data` points into the mapped file and need not be
 * aligned. Every element that shape and stride can name lies inside the file: readers check that
 * before they make one. Little-endian. */
struct kvad_tensor {
    const char *name; /* "" where the file gives none */
    enum kvad_dtype dtype;
    uint32_t n_dims;
    size_t shape[KVAD_MAX_DIMS];
    size_t stride[KVAD_MAX_DIMS]; /* in elements */
    size_t n_elements;
    const unsigned char *data;
    const char *file; /* for errors */
    uint64_t offset;  /* of `data` in that file */
};

size_t kvad_dtype_bytes(enum kvad_dtype dtype);
const char *kvad_dtype_name(enum kvad_dtype dtype);

/** Write [768, 2304] style text of the shape into `text` (always terminated); returns `text`. */
const char *kvad_tensor_shape_text(const struct kvad_tensor *tensor, char *text, size_t size);

/** Row `row` (index of the first dimension of a 1-D or 2-D tensor; a 1-D tensor is one row 0, a 0-D
 * tensor one row of one) as float32, exactly: F32, F16, BF16, and F64 rounded to nearest. `out` has
 * as many floats as the last dimension. KVAD_ERR_UNSUPPORTED names other dtypes. */
enum kvad_status kvad_tensor_read_row(const struct kvad_tensor *tensor, size_t row, float *out,
                                      struct kvad_error *err);
/** The columns [first, first + n) of that row. Any number of threads. */
enum kvad_status kvad_tensor_read(const struct kvad_tensor *tensor, size_t row, size_t first,
                                  size_t n, float *out, struct kvad_error *err);

#endif
