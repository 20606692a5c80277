#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"

enum { PREFIX_BYTES = 8 };
static const uint64_t max_header_bytes = 100000000; /* the reference reader's limit */

struct kvad_safetensors {
    struct kvad_heap *heap;
    json_t *header; /* owns the names */
    struct kvad_tensor *tensors;
    size_t n_tensors, n_allocated;
};

/* What an entry of the header is checked against. */
struct buffer {
    const unsigned char *data;
    size_t size;
    uint64_t file_offset; /* of the buffer */
    const char *file;
};

bool kvad_safetensors_probe(const unsigned char *data, size_t size) {
    return size > PREFIX_BYTES && data[PREFIX_BYTES] == '{' &&
           kvad_load_u64le(data) <= max_header_bytes;
}

static enum kvad_status parse_header(const unsigned char *data, size_t size, const char *name,
                                     json_t **header, uint64_t *header_bytes,
                                     struct kvad_error *err) {
    if (size < PREFIX_BYTES)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: %zu bytes, a safetensors file begins with an 8-byte header length",
                         name, size);
    uint64_t n = kvad_load_u64le(data);
    if (n > max_header_bytes)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: header length %llu is above the limit of %llu",
                         name, (unsigned long long)n, (unsigned long long)max_header_bytes);
    if (n > size - PREFIX_BYTES)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: truncated: the header needs %llu bytes, the file has %zu after its "
                         "length field",
                         name, (unsigned long long)n, size - PREFIX_BYTES);
    if (n == 0 || data[PREFIX_BYTES] != '{')
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: offset 8: the header must begin with '{'",
                         name);
    *header_bytes = n;
    return kvad_json_parse_object((const char *)data + PREFIX_BYTES, (size_t)n, name, header, err);
}

static enum kvad_status check_metadata(const json_t *metadata, const char *file,
                                       struct kvad_error *err) {
    if (!json_is_object(metadata))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: __metadata__ must be an object", file);
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: __metadata__ \"%s\" must be a string", file,
                             key);
    }
    return KVAD_OK;
}

static enum kvad_status read_dtype(const json_t *entry, struct kvad_tensor *tensor,
                                   struct kvad_error *err) {
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: field dtype must be a string",
                         tensor->file, tensor->name);
#define CASE(suffix, dtype_name, bytes)                                                            \
    if (strcmp(text, dtype_name) == 0) {                                                           \
        tensor->dtype = KVAD_DTYPE_##suffix;                                                       \
        return KVAD_OK;                                                                            \
    }
    KVAD_DTYPE_LIST(CASE)
#undef CASE
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: tensor %s: dtype %s is not supported; save it as F32, F16 or BF16",
                     tensor->file, tensor->name, text);
}

/* A JSON integer that fits size_t; anything else is refused. */
static bool get_size(const json_t *value, size_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    uint64_t number = (uint64_t)json_integer_value(value);
    if (number > SIZE_MAX) return false;
    *out = (size_t)number;
    return true;
}

static enum kvad_status read_shape(const json_t *entry, struct kvad_tensor *tensor,
                                   struct kvad_error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: field shape must be a list",
                         tensor->file, tensor->name);
    size_t n_dims = json_array_size(shape);
    if (n_dims > KVAD_MAX_DIMS)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: tensor %s: %zu dimensions, at most %d",
                         tensor->file, tensor->name, n_dims, KVAD_MAX_DIMS);
    tensor->n_dims = (uint32_t)n_dims;
    for (size_t i = 0; i < n_dims; i++)
        if (!get_size(json_array_get(shape, i), &tensor->shape[i]))
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: tensor %s: shape[%zu] must be a whole number that fits memory",
                             tensor->file, tensor->name, i);
    /* As the reference does it, in order: a later zero does not excuse an overflow before it. */
    size_t n = 1;
    for (size_t i = 0; i < n_dims; i++)
        if (!kvad_mul_size(n, tensor->shape[i], &n))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: product of shape overflows",
                             tensor->file, tensor->name);
    tensor->n_elements = n;
    size_t stride = 1;
    for (size_t i = n_dims; i-- > 0;) {
        tensor->stride[i] = stride;
        if (!kvad_mul_size(stride, tensor->shape[i], &stride)) stride = 0; /* only if n == 0 */
    }
    return KVAD_OK;
}

static enum kvad_status read_offsets(const json_t *entry, const struct buffer *buffer,
                                     struct kvad_tensor *tensor, struct kvad_error *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin, end, bytes;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_size(json_array_get(offsets, 0), &begin) ||
        !get_size(json_array_get(offsets, 1), &end))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensor %s: field data_offsets must be two whole numbers",
                         tensor->file, tensor->name);
    if (end < begin || end > buffer->size)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensor %s: data_offsets [%zu, %zu] do not lie in the data of %zu "
                         "bytes (truncated file?)",
                         tensor->file, tensor->name, begin, end, buffer->size);
    char shape[128];
    if (!kvad_mul_size(tensor->n_elements, kvad_dtype_bytes(tensor->dtype), &bytes))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: size of shape %s overflows",
                         tensor->file, tensor->name,
                         kvad_tensor_shape_text(tensor, shape, sizeof shape));
    if (bytes != end - begin)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensor %s: shape %s of %s needs %zu bytes, data_offsets [%zu, %zu] "
                         "give %zu",
                         tensor->file, tensor->name,
                         kvad_tensor_shape_text(tensor, shape, sizeof shape),
                         kvad_dtype_name(tensor->dtype), bytes, begin, end, end - begin);
    tensor->data = buffer->data + begin;
    tensor->offset = buffer->file_offset + begin;
    return KVAD_OK;
}

static enum kvad_status read_entry(const char *key, const json_t *entry,
                                   const struct buffer *buffer, struct kvad_tensor *tensor,
                                   struct kvad_error *err) {
    *tensor = (struct kvad_tensor){.name = key, .file = buffer->file};
    if (!json_is_object(entry))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: its header entry must be an object",
                         buffer->file, key);
    KVAD_TRY(read_dtype(entry, tensor, err));
    KVAD_TRY(read_shape(entry, tensor, err));
    return read_offsets(entry, buffer, tensor, err);
}

static size_t byte_size(const struct kvad_tensor *tensor) {
    return tensor->n_elements * kvad_dtype_bytes(tensor->dtype);
}

static int by_offset(const void *left, const void *right) {
    const struct kvad_tensor *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    size_t na = byte_size(a), nb = byte_size(b); /* empty tensors come before the one they touch */
    if (na != nb) return na < nb ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The format demands that the tensors tile the buffer: so no two can share bytes. */
static enum kvad_status check_coverage(const struct kvad_safetensors *file,
                                       const struct buffer *buffer, struct kvad_error *err) {
    uint64_t expected = buffer->file_offset;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct kvad_tensor *tensor = &file->tensors[i];
        if (tensor->offset != expected)
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: tensor %s begins at offset %llu, expected %llu: tensors %s",
                             buffer->file, tensor->name, (unsigned long long)tensor->offset,
                             (unsigned long long)expected,
                             tensor->offset < expected ? "overlap" : "leave a hole");
        expected += byte_size(tensor);
    }
    uint64_t end = buffer->file_offset + buffer->size;
    if (expected != end)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: the tensors end at offset %llu, the file at %llu", buffer->file,
                         (unsigned long long)expected, (unsigned long long)end);
    return KVAD_OK;
}

static enum kvad_status read_tensors(struct kvad_safetensors *file, const struct buffer *buffer,
                                     struct kvad_error *err) {
    const char *key;
    json_t *entry;
    json_object_foreach(file->header, key, entry) {
        if (strcmp(key, "__metadata__") == 0) {
            KVAD_TRY(check_metadata(entry, buffer->file, err));
            continue;
        }
        KVAD_TRY(read_entry(key, entry, buffer, &file->tensors[file->n_tensors], err));
        file->n_tensors++;
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_offset);
    return check_coverage(file, buffer, err);
}

enum kvad_status kvad_safetensors_open(const unsigned char *data, size_t size, const char *name,
                                       struct kvad_heap *heap, struct kvad_safetensors **out,
                                       struct kvad_error *err) {
    json_t *header = NULL;
    uint64_t header_bytes = 0;
    KVAD_TRY(parse_header(data, size, name, &header, &header_bytes, err));

    struct kvad_safetensors *file = kvad_alloc_zero(heap, 1, sizeof *file);
    if (!file) {
        json_decref(header);
        return kvad_fail_memory(err, name, sizeof *file);
    }
    file->heap = heap;
    file->header = header;
    file->n_allocated = json_object_size(header);

    enum kvad_status status;
    file->tensors = kvad_alloc_zero(heap, file->n_allocated, sizeof *file->tensors);
    if (!file->tensors) {
        status = kvad_fail_memory(err, name, file->n_allocated * sizeof *file->tensors);
        goto fail;
    }
    uint64_t start = PREFIX_BYTES + header_bytes;
    struct buffer buffer = {data + start, size - (size_t)start, start, name};
    if ((status = read_tensors(file, &buffer, err)) != KVAD_OK) goto fail;
    *out = file;
    return KVAD_OK;
fail:
    kvad_safetensors_close(&file);
    return status;
}

size_t kvad_safetensors_count(const struct kvad_safetensors *file) {
    return file->n_tensors;
}

const struct kvad_tensor *kvad_safetensors_tensor(const struct kvad_safetensors *file, size_t i) {
    return &file->tensors[i];
}

void kvad_safetensors_close(struct kvad_safetensors **file) {
    struct kvad_safetensors *f = *file;
    if (!f) return;
    struct kvad_heap *heap = f->heap;
    kvad_free(heap, f->tensors, f->n_allocated * sizeof *f->tensors);
    json_decref(f->header);
    kvad_free(heap, f, sizeof *f);
    *file = NULL;
}
