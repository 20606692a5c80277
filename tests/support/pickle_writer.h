/* Writes pickles of protocol 2 opcode by opcode, as torch.save does. */
#ifndef KVAD_TEST_PICKLE_WRITER_H
#define KVAD_TEST_PICKLE_WRITER_H

#include "byte_buffer.h"

/* A literal of opcodes, NULs included. */
#define put_ops(b, literal) put_bytes(b, literal, sizeof(literal) - 1)

static inline void put_string(struct byte_buffer *b, const char *text) {
    put_text(b, "X");
    put_number(b, strlen(text), 4);
    put_text(b, text);
}
static inline void put_int(struct byte_buffer *b, int64_t number) { /* LONG1 of 8 bytes */
    put_ops(b, "\x8a\x08");
    put_number(b, (uint64_t)number, 8);
}
static inline void put_global(struct byte_buffer *b, const char *module, const char *name) {
    put_text(b, "c");
    put_text(b, module);
    put_text(b, "\n");
    put_text(b, name);
    put_text(b, "\n");
}
static inline void put_tuple(struct byte_buffer *b, const int64_t *numbers, size_t n) {
    put_text(b, "(");
    for (size_t i = 0; i < n; i++)
        put_int(b, numbers[i]);
    put_text(b, "t");
}
static inline void put_storage(struct byte_buffer *b, const char *module, const char *class,
                               const char *key, int64_t n_elements) {
    put_text(b, "(");
    put_string(b, "storage");
    put_global(b, module, class);
    put_string(b, key);
    put_string(b, "cpu");
    put_int(b, n_elements);
    put_text(b, "tQ");
}

struct pickled_tensor {
    const char *class, *key; /* class: "FloatStorage" if NULL; key: "0" if NULL */
    int64_t n_stored, offset;
    size_t n_dims;
    int64_t shape[12], stride[12];
};

/** A call of _rebuild_tensor_v2. */
static inline void put_tensor(struct byte_buffer *b, const struct pickled_tensor *t) {
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    put_text(b, "(");
    put_storage(b, "torch", t->class ? t->class : "FloatStorage", t->key ? t->key : "0",
                t->n_stored);
    put_int(b, t->offset);
    put_tuple(b, t->shape, t->n_dims);
    put_tuple(b, t->stride, t->n_dims);
    put_ops(b, "\x89");
    put_global(b, "collections", "OrderedDict");
    put_text(b, ")RtR");
}

#endif
