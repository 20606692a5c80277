/* Writes stored zip archives in torch's style, with places to break them. */
#ifndef KVAD_TEST_ZIP_WRITER_H
#define KVAD_TEST_ZIP_WRITER_H

#include <stdbool.h>
#include <stdio.h>

#include "byte_buffer.h"

struct zip_member {
    const char *name;
    const void *data;
    size_t size;
};

struct zip_style {
    bool no_zip64;       /* without zip64 end record and locator */
    bool wide_fields;    /* sizes and offset of every entry in zip64 extra fields */
    bool local_sizes;    /* sizes in local headers too (torch writes zeros) */
    const char *comment; /* behind the end record */
};

/* Where things lie in the archive that was written last. */
struct zip_places {
    size_t local[64], data[64], central[64];
    size_t directory, directory_end, locator, end;
};

static inline uint32_t zip_crc(const unsigned char *data, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static inline void zip_put_local(struct byte_buffer *b, const struct zip_member *m,
                                 const struct zip_style *style, struct zip_places *at, size_t i) {
    at->local[i] = b->size;
    put_number(b, 0x04034b50, 4);
    put_number(b, 0, 2);
    put_number(b, 0x0808, 2);
    put_number(b, 0, 2); /* stored */
    put_number(b, 0, 8); /* time, date, crc */
    put_number(b, style->local_sizes ? m->size : 0, 4);
    put_number(b, style->local_sizes ? m->size : 0, 4);
    size_t name_size = strlen(m->name);
    size_t padding = 64 - (b->size + 4 + name_size + 4) % 64;
    put_number(b, name_size, 2);
    put_number(b, 4 + padding, 2);
    put_text(b, m->name);
    put_text(b, "FB");
    put_number(b, padding, 2);
    for (size_t k = 0; k < padding; k++)
        put_text(b, "Z");
    at->data[i] = b->size;
    put_bytes(b, m->data, m->size);
    put_number(b, 0x08074b50, 4); /* data descriptor */
    put_number(b, zip_crc(m->data, m->size), 4);
    put_number(b, m->size, 4);
    put_number(b, m->size, 4);
}

static inline void zip_put_central(struct byte_buffer *b, const struct zip_member *m,
                                   const struct zip_style *style, struct zip_places *at, size_t i) {
    bool wide = style->wide_fields;
    at->central[i] = b->size;
    put_number(b, 0x02014b50, 4);
    put_number(b, 0, 4);
    put_number(b, 0x0808, 2);
    put_number(b, 0, 6); /* stored, time, date */
    put_number(b, zip_crc(m->data, m->size), 4);
    put_number(b, wide ? 0xffffffffu : m->size, 4);
    put_number(b, wide ? 0xffffffffu : m->size, 4);
    put_number(b, strlen(m->name), 2);
    put_number(b, wide ? 4 + 4 + 28 : 0, 2);
    put_number(b, 0, 2 + 2 + 2 + 4);
    put_number(b, wide ? 0xffffffffu : at->local[i], 4);
    put_text(b, m->name);
    if (!wide) return;
    put_text(b, "xx"); /* an unknown field in front */
    put_number(b, 0, 2);
    put_number(b, 1, 2);
    put_number(b, 28, 2);
    put_number(b, m->size, 8);
    put_number(b, m->size, 8);
    put_number(b, at->local[i], 8);
    put_number(b, 0, 4); /* disk */
}

/** Up to 64 members. */
static inline struct byte_buffer write_zip(const struct zip_member *members, size_t n,
                                           const struct zip_style *style, struct zip_places *at) {
    struct byte_buffer b = {0};
    for (size_t i = 0; i < n; i++)
        zip_put_local(&b, &members[i], style, at, i);
    at->directory = b.size;
    for (size_t i = 0; i < n; i++)
        zip_put_central(&b, &members[i], style, at, i);
    at->directory_end = b.size;
    size_t bytes = b.size - at->directory;
    if (!style->no_zip64) {
        put_number(&b, 0x06064b50, 4);
        put_number(&b, 44, 8);
        put_number(&b, 0, 2 + 2 + 4 + 4);
        put_number(&b, n, 8);
        put_number(&b, n, 8);
        put_number(&b, bytes, 8);
        put_number(&b, at->directory, 8);
        at->locator = b.size;
        put_number(&b, 0x07064b50, 4);
        put_number(&b, 0, 4);
        put_number(&b, at->directory_end, 8);
        put_number(&b, 1, 4);
    }
    bool wide = style->wide_fields;
    at->end = b.size;
    put_number(&b, 0x06054b50, 4);
    put_number(&b, 0, 4);
    put_number(&b, wide ? 0xffff : n, 2);
    put_number(&b, wide ? 0xffff : n, 2);
    put_number(&b, wide ? 0xffffffffu : bytes, 4);
    put_number(&b, wide ? 0xffffffffu : at->directory, 4);
    put_number(&b, style->comment ? strlen(style->comment) : 0, 2);
    if (style->comment) put_text(&b, style->comment);
    return b;
}

#endif
