#include "formats/pickle.h"

#include <string.h>

#include "base/error.h"
#include "formats/pickle_vm.h"

const struct kvad_pickle_value *kvad_pickle_get(const struct kvad_pickle_value *dict,
                                                const char *key) {
    if (!dict || dict->kind != KVAD_PICKLE_DICT) return NULL;
    size_t size = strlen(key);
    for (size_t i = dict->as.dict.n; i-- > 0;) {
        const struct kvad_pickle_value *name = dict->as.dict.keys[i];
        if (name->kind == KVAD_PICKLE_STRING && name->as.string.size == size &&
            memcmp(name->as.string.bytes, key, size) == 0)
            return dict->as.dict.values[i];
    }
    return NULL;
}

struct kvad_pickle *kvad_pickle_create(const char *name, size_t file_size, struct kvad_heap *heap) {
    struct kvad_pickle *pickle = kvad_alloc_zero(heap, 1, sizeof *pickle);
    if (!pickle) return NULL;
    pickle->heap = pickle->arena.heap = heap;
    pickle->file_size = file_size;
    size_t size = strlen(name) + 1;
    char *copy = kvad_arena_alloc(&pickle->arena, size);
    if (copy)
        pickle->name = memcpy(copy, name, size);
    else
        kvad_pickle_close(&pickle);
    return pickle;
}

enum kvad_status kvad_pickle_open(const void *data, size_t size, const char *name,
                                  struct kvad_heap *heap, struct kvad_pickle **out,
                                  struct kvad_error *err) {
    if (size > KVAD_PICKLE_MAX_BYTES)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: pickle of %zu bytes (at most %d)", name,
                         size, KVAD_PICKLE_MAX_BYTES);
    struct kvad_pickle *pickle = kvad_pickle_create(name, size, heap);
    if (!pickle) return kvad_fail_memory(err, "a pickle", sizeof *pickle + strlen(name) + 1);
    size_t used = 0;
    struct kvad_pickle_stream in = {.data = data, .size = size, .what = "pickle"};
    enum kvad_status status = kvad_pickle_read(pickle, &in, &pickle->root, &used, err);
    if (status == KVAD_OK && used != size)
        status = kvad_fail(err, KVAD_ERR_FORMAT, "%s: %zu bytes follow the end of the pickle", name,
                           size - used);
    if (status != KVAD_OK)
        kvad_pickle_close(&pickle);
    else
        *out = pickle;
    return status;
}

const struct kvad_pickle_value *kvad_pickle_root(const struct kvad_pickle *pickle) {
    return pickle->root;
}

void kvad_pickle_close(struct kvad_pickle **pickle) {
    if (!*pickle) return;
    struct kvad_heap *heap = (*pickle)->heap;
    kvad_arena_free(&(*pickle)->arena);
    kvad_free(heap, *pickle, sizeof **pickle);
    *pickle = NULL;
}
