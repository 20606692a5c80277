/* Reads every byte that a value tree promises, so that a sanitizer sees a broken promise. */
#ifndef KVAD_FUZZ_PICKLE_WALK_H
#define KVAD_FUZZ_PICKLE_WALK_H

#include <stdlib.h>
#include <string.h>

#include "formats/pickle.h"

/* Works in builds without assert() too. */
static inline void fuzz_check(int condition) {
    if (!condition) abort();
}

struct pickle_walk {
    size_t n_left;  /* values to visit: shared ones are visited each time */
    uint64_t total; /* keeps the reads alive */
};

static inline void walk_tensor(struct pickle_walk *walk, const struct kvad_tensor *tensor) {
    size_t bytes = kvad_dtype_bytes(tensor->dtype), last = 0, n = 1;
    fuzz_check(tensor->n_dims <= KVAD_MAX_DIMS && tensor->data != NULL);
    for (uint32_t d = 0; d < tensor->n_dims; d++) {
        n *= tensor->shape[d];
        if (tensor->shape[d] > 1) last += (tensor->shape[d] - 1) * tensor->stride[d];
    }
    fuzz_check(n == tensor->n_elements);
    if (n == 0) return;
    walk->total += tensor->data[0] + tensor->data[last * bytes + bytes - 1];
    if (tensor->n_dims > 2 || n > 4096) return;
    float row[4096];
    for (size_t r = 0; r < (tensor->n_dims == 2 ? tensor->shape[0] : 1); r++)
        kvad_tensor_read_row(tensor, r, row, NULL);
}

/* The depth is bounded by the reader (64), so recursion is what callers may do as well. */
static inline void walk_value(struct pickle_walk *walk, const struct kvad_pickle_value *value,
                              int depth) {
    fuzz_check(depth < 64);
    if (walk->n_left == 0) return;
    walk->n_left--;
    switch (value->kind) {
    case KVAD_PICKLE_STRING:
        fuzz_check(value->as.string.bytes[value->as.string.size] == 0);
        walk->total += strlen(value->as.string.bytes);
        break;
    case KVAD_PICKLE_LIST:
        for (size_t i = 0; i < value->as.list.n; i++)
            walk_value(walk, value->as.list.items[i], depth + 1);
        break;
    case KVAD_PICKLE_DICT:
        for (size_t i = 0; i < value->as.dict.n; i++) {
            walk_value(walk, value->as.dict.keys[i], depth + 1);
            walk_value(walk, value->as.dict.values[i], depth + 1);
        }
        kvad_pickle_get(value, "model");
        break;
    case KVAD_PICKLE_TENSOR: walk_tensor(walk, &value->as.tensor); break;
    case KVAD_PICKLE_INT: walk->total += (uint64_t)value->as.integer; break;
    case KVAD_PICKLE_FLOAT: walk->total += value->as.number > 0; break;
    case KVAD_PICKLE_BOOL: walk->total += value->as.boolean; break;
    case KVAD_PICKLE_NONE:
    case KVAD_PICKLE_OBJECT: break;
    }
}

#endif
