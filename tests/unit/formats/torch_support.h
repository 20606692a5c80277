/* Opening torch files from bytes in tests, and building small ones. */
#ifndef KVAD_TEST_TORCH_SUPPORT_H
#define KVAD_TEST_TORCH_SUPPORT_H

#include "test.h"

#include "failing_heap.h"
#include "formats/torch.h"
#include "pickle_writer.h"
#include "zip_writer.h"

struct opened {
    struct failing_heap heap;
    unsigned char *copy;
    struct kvad_torch *torch;
    const struct kvad_pickle_value *root;
    struct kvad_error err;
};

static inline enum kvad_status open_bytes(struct opened *o, const void *data, size_t size) {
    *o = (struct opened){0};
    failing_heap_init(&o->heap, 0);
    o->copy = exact_copy(data, size);
    enum kvad_status status =
        kvad_torch_open(o->copy, size, "x.pt", &o->heap.heap, &o->torch, &o->err);
    if (status == KVAD_OK)
        o->root = kvad_torch_root(o->torch);
    else
        assert_null(o->torch);
    return status;
}
static inline void close_bytes(struct opened *o) {
    kvad_torch_close(&o->torch);
    assert_null(o->torch);
    assert_int_equal(o->heap.n_live, 0);
    free(o->copy);
}
static inline enum kvad_status try_bytes(const struct byte_buffer *b, struct kvad_error *err) {
    struct opened o;
    enum kvad_status status = open_bytes(&o, b->data, b->size);
    *err = o.err;
    close_bytes(&o);
    return status;
}

/* Sixteen float32, 0.5, 1.5 ... */
static inline struct byte_buffer sixteen_floats(void) {
    struct byte_buffer b = {0};
    for (int i = 0; i < 16; i++) {
        float number = (float)i + 0.5f;
        uint32_t bits;
        memcpy(&bits, &number, 4);
        put_number(&b, bits, 4);
    }
    return b;
}

/** The pickle inside archive "top" with storage "0" (or a name with a NULL pickle for what else
 * should be there). */
static inline struct byte_buffer zip_of(const struct byte_buffer *pickle,
                                        const struct byte_buffer *storage) {
    const struct zip_member members[] = {{"top/data.pkl", pickle->data, pickle->size},
                                         {"top/byteorder", "little", 6},
                                         {"top/data/0", storage->data, storage->size},
                                         {"top/version", "3\n", 2}};
    struct zip_places at;
    return write_zip(members, 4, &(struct zip_style){0}, &at);
}

/** A zip of {"w": tensor} over sixteen floats. */
static inline struct byte_buffer zip_of_tensor(const struct pickled_tensor *tensor) {
    struct byte_buffer pickle = {0}, storage = sixteen_floats();
    put_ops(&pickle, "\x80\x02}");
    put_string(&pickle, "w");
    put_tensor(&pickle, tensor);
    put_text(&pickle, "s.");
    struct byte_buffer file = zip_of(&pickle, &storage);
    free_bytes(&pickle);
    free_bytes(&storage);
    return file;
}

/** A zip whose data.pkl is these opcodes (PROTO in front, STOP behind) over sixteen floats. */
static inline struct byte_buffer zip_of_ops(const struct byte_buffer *ops) {
    struct byte_buffer pickle = {0}, storage = sixteen_floats();
    put_ops(&pickle, "\x80\x02");
    put_bytes(&pickle, ops->data, ops->size);
    put_text(&pickle, ".");
    struct byte_buffer file = zip_of(&pickle, &storage);
    free_bytes(&pickle);
    free_bytes(&storage);
    return file;
}

/* The parts of a legacy file, each of which a test may replace. */
struct legacy_parts {
    const char *version, *system, *keys; /* opcodes without PROTO and STOP */
    size_t version_size, system_size, keys_size;
    uint64_t count; /* in front of the storage */
    size_t n_floats;
};
#define LEGACY_LITTLE "}X\x0d\0\0\0little_endian\x88s"
#define LEGACY_BIG    "}X\x0d\0\0\0little_endian\x89s"
#define PART(literal) literal, sizeof(literal) - 1
static inline struct legacy_parts legacy_parts(void) {
    return (struct legacy_parts){.version = "M\xe9\x03",
                                 .version_size = 3,
                                 .system = LEGACY_LITTLE,
                                 .system_size = sizeof LEGACY_LITTLE - 1,
                                 .keys = "]X\1\0\0\0"
                                         "0a",
                                 .keys_size = 8,
                                 .count = 16,
                                 .n_floats = 16};
}

/** A legacy file of an object's opcodes. */
static inline struct byte_buffer legacy_of(const struct byte_buffer *object,
                                           const struct legacy_parts *parts) {
    struct byte_buffer b = {0}, floats = sixteen_floats();
    put_ops(&b, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02");
    put_bytes(&b, parts->version, parts->version_size);
    put_ops(&b, ".\x80\x02");
    put_bytes(&b, parts->system, parts->system_size);
    put_ops(&b, ".\x80\x02");
    put_bytes(&b, object->data, object->size);
    put_ops(&b, ".\x80\x02");
    put_bytes(&b, parts->keys, parts->keys_size);
    put_text(&b, ".");
    put_number(&b, parts->count, 8);
    put_bytes(&b, floats.data, 4 * parts->n_floats);
    free_bytes(&floats);
    return b;
}

/** {"w": tensor of shape [4, 4]} as opcodes. */
static inline struct byte_buffer square_object(void) {
    struct byte_buffer b = {0};
    struct pickled_tensor tensor = {.n_stored = 16, .n_dims = 2, .shape = {4, 4}, .stride = {4, 1}};
    put_text(&b, "}");
    put_string(&b, "w");
    put_tensor(&b, &tensor);
    put_text(&b, "s");
    return b;
}

#endif
