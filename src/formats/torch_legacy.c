/* The format of torch < 1.6 (and of _use_new_zipfile_serialization=False): five pickles - magic,
 * version, system, object, list of storage keys - then for each key in the list's order an int64
 * count and the elements. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/torch_file.h"

enum { LEGACY_VERSION = 1001 };

struct legacy {
    struct kvad_pickle *pickle;
    const unsigned char *data;
    size_t size, at;
    struct kvad_pickle_storage **storages; /* [n_storages], sorted by key */
    size_t n_storages;
    struct kvad_error *err;
};

static enum kvad_status read_pickle(struct legacy *file, const char *what, bool is_torch,
                                    const struct kvad_pickle_value **value) {
    struct kvad_pickle_stream in = {.data = file->data + file->at,
                                    .size = file->size - file->at,
                                    .offset = file->at,
                                    .what = what,
                                    .is_torch = is_torch};
    size_t used = 0;
    KVAD_TRY(kvad_pickle_read(file->pickle, &in, value, &used, file->err));
    file->at += used;
    return KVAD_OK;
}

static enum kvad_status read_header(struct legacy *file) {
    const struct kvad_pickle_value *version = NULL, *system = NULL;
    const char *name = file->pickle->name;
    file->at = KVAD_TORCH_LEGACY_MAGIC_SIZE;
    KVAD_TRY(read_pickle(file, "version", false, &version));
    if (version->kind != KVAD_PICKLE_INT || version->as.integer != LEGACY_VERSION)
        return kvad_fail(file->err, KVAD_ERR_UNSUPPORTED,
                         "%s: legacy torch file of another version than %d", name, LEGACY_VERSION);
    KVAD_TRY(read_pickle(file, "system info", false, &system));
    const struct kvad_pickle_value *little = kvad_pickle_get(system, "little_endian");
    if (!little || little->kind != KVAD_PICKLE_BOOL)
        return kvad_fail(file->err, KVAD_ERR_FORMAT,
                         "%s: system info of the legacy torch file does not say little_endian",
                         name);
    if (!little->as.boolean)
        return kvad_fail(file->err, KVAD_ERR_UNSUPPORTED,
                         "%s: byte order is big; only little is read: save the model again on a "
                         "little-endian machine",
                         name);
    return KVAD_OK;
}

static int by_key(const void *left, const void *right) {
    const struct kvad_pickle_storage *const *a = left, *const *b = right;
    return strcmp((*a)->key, (*b)->key);
}

static enum kvad_status sort_storages(struct legacy *file) {
    size_t n = 0;
    for (struct kvad_pickle_storage *s = file->pickle->storages; s; s = s->next)
        n++;
    file->storages = kvad_alloc_zero(file->pickle->heap, n, sizeof *file->storages);
    if (!file->storages) return kvad_fail_memory(file->err, "storages", n * sizeof(void *));
    file->n_storages = n;
    n = 0;
    for (struct kvad_pickle_storage *s = file->pickle->storages; s; s = s->next)
        file->storages[n++] = s;
    if (n) qsort(file->storages, n, sizeof *file->storages, by_key);
    return KVAD_OK;
}

/* Index of the first storage that is not below `key`. */
static size_t lower_bound(const struct legacy *file, const char *key) {
    size_t low = 0, high = file->n_storages;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(file->storages[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum kvad_status fail_storage(const struct legacy *file, const char *key, const char *what) {
    return kvad_fail(file->err, KVAD_ERR_FORMAT, "%s: offset %zu: storage %.100s %s",
                     file->pickle->name, file->at, key, what);
}

/* The elements of one key; all mentions of it must agree on type and size. */
static enum kvad_status read_storage(struct legacy *file, const struct kvad_pickle_value *key) {
    if (key->kind != KVAD_PICKLE_STRING || strlen(key->as.string.bytes) != key->as.string.size)
        return kvad_fail(file->err, KVAD_ERR_FORMAT, "%s: list of storages holds no plain strings",
                         file->pickle->name);
    const char *name = key->as.string.bytes;
    size_t i = lower_bound(file, name);
    if (i == file->n_storages || strcmp(file->storages[i]->key, name) != 0)
        return fail_storage(file, name, "is stored, but the object does not use it");
    const struct kvad_pickle_storage *first = file->storages[i];
    if (first->data) return fail_storage(file, name, "is stored twice");
    if (file->size - file->at < 8) return fail_storage(file, name, "is cut short");
    uint64_t count = kvad_load_u64le(file->data + file->at);
    if (count != first->n_elements)
        return fail_storage(file, name, "holds another number of elements than the object says");
    if (file->size - file->at - 8 < first->bytes) return fail_storage(file, name, "is cut short");
    file->at += 8;
    size_t bytes = first->bytes;
    for (; i < file->n_storages && strcmp(file->storages[i]->key, name) == 0; i++) {
        struct kvad_pickle_storage *storage = file->storages[i];
        if (storage->n_elements != count || storage->dtype != first->dtype)
            return fail_storage(file, name, "is described in two ways");
        storage->data = file->data + file->at;
        storage->offset = file->at;
    }
    file->at += bytes;
    return KVAD_OK;
}

static enum kvad_status read_storages(struct legacy *file, const struct kvad_pickle_value *keys) {
    if (keys->kind != KVAD_PICKLE_LIST)
        return kvad_fail(file->err, KVAD_ERR_FORMAT, "%s: list of storages is no list",
                         file->pickle->name);
    KVAD_TRY(sort_storages(file));
    for (size_t i = 0; i < keys->as.list.n; i++)
        KVAD_TRY(read_storage(file, keys->as.list.items[i]));
    for (size_t i = 0; i < file->n_storages; i++)
        if (!file->storages[i]->data)
            return fail_storage(file, file->storages[i]->key, "is used, but not stored");
    if (file->at != file->size)
        return kvad_fail(file->err, KVAD_ERR_FORMAT,
                         "%s: %zu bytes follow the last storage: damaged, or several objects were "
                         "saved into one file",
                         file->pickle->name, file->size - file->at);
    return KVAD_OK;
}

enum kvad_status kvad_torch_read_legacy(struct kvad_pickle *pickle, const unsigned char *data,
                                        size_t size, struct kvad_error *err) {
    struct legacy file = {.pickle = pickle, .data = data, .size = size, .err = err};
    const struct kvad_pickle_value *root = NULL, *keys = NULL;
    enum kvad_status status = read_header(&file);
    if (status == KVAD_OK) status = read_pickle(&file, "object", true, &root);
    if (status == KVAD_OK) status = read_pickle(&file, "storage keys", false, &keys);
    if (status == KVAD_OK) status = read_storages(&file, keys);
    kvad_free(pickle->heap, file.storages, file.n_storages * sizeof *file.storages);
    if (status != KVAD_OK) return status;
    kvad_pickle_bind_tensors(pickle);
    pickle->root = root;
    return KVAD_OK;
}
