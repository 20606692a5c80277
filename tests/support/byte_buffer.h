/* A growing string of bytes, for files built in tests. */
#ifndef KVAD_TEST_BYTE_BUFFER_H
#define KVAD_TEST_BYTE_BUFFER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct byte_buffer {
    unsigned char *data;
    size_t size, capacity;
};

static inline void put_bytes(struct byte_buffer *b, const void *bytes, size_t n) {
    if (b->size + n > b->capacity) {
        b->capacity = 2 * (b->size + n);
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    if (n) memcpy(b->data + b->size, bytes, n);
    b->size += n;
}
static inline void put_text(struct byte_buffer *b, const char *text) {
    put_bytes(b, text, strlen(text));
}
/** `number` in n bytes, little-endian. */
static inline void put_number(struct byte_buffer *b, uint64_t number, size_t n) {
    for (; n > 0; n--, number >>= 8) {
        unsigned char byte = (unsigned char)number;
        put_bytes(b, &byte, 1);
    }
}
static inline void set_number(struct byte_buffer *b, size_t at, uint64_t number, size_t n) {
    for (size_t i = 0; i < n; i++, number >>= 8)
        b->data[at + i] = (unsigned char)number;
}
static inline void free_bytes(struct byte_buffer *b) {
    free(b->data);
    *b = (struct byte_buffer){0};
}
/** A copy of exactly `size` bytes, so that a sanitizer sees any read behind them. */
static inline unsigned char *exact_copy(const void *data, size_t size) {
    unsigned char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    return copy;
}
/** A whole file; stops the program if it cannot be read. */
static inline struct byte_buffer read_whole_file(const char *path) {
    struct byte_buffer b = {0};
    char block[65536];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file) abort();
    while ((n = fread(block, 1, sizeof block, file)) > 0)
        put_bytes(&b, block, n);
    fclose(file);
    return b;
}

#endif
