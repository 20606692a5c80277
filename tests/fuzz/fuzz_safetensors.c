/* A safetensors file: whatever opens lies inside the bytes and can be read. */
#include "fuzz.h"

#include <stdlib.h>

#include "formats/safetensors.h"

static void read_ends(const struct kvad_tensor *t) {
    size_t n_rows = t->n_dims == 2 ? t->shape[0] : 1;
    size_t n = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    if (t->n_dims > 2 || n_rows == 0 || n == 0) return;
    float *row = malloc(n * sizeof *row);
    if (!row) abort(); /* n is bounded by the file */
    kvad_tensor_read_row(t, 0, row, NULL);
    kvad_tensor_read_row(t, n_rows - 1, row, NULL);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kvad_heap heap;
    struct kvad_safetensors *file = NULL;
    struct kvad_error err = {0};
    kvad_heap_init(&heap, NULL);
    kvad_safetensors_probe(data, size);
    if (kvad_safetensors_open(data, size, "fuzz", &heap, &file, &err) == KVAD_OK) {
        for (size_t i = 0; i < kvad_safetensors_count(file); i++) {
            const struct kvad_tensor *t = kvad_safetensors_tensor(file, i);
            size_t bytes = t->n_elements * kvad_dtype_bytes(t->dtype);
            if (t->data < data || bytes > size - (size_t)(t->data - data)) abort();
            read_ends(t);
        }
        kvad_safetensors_close(&file);
    } else if (!err.text[0] || file) {
        abort();
    }
    if (heap.bytes != 0) abort();
    return 0;
}
