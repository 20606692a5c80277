#include "formats/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "formats/locate.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

/* One weight file: the only one, or a shard. */
struct weight_file {
    char *path; /* on the heap */
    struct kvad_file_map map;
    size_t size;                          /* of its bytes, mapped or in memory */
    struct kvad_safetensors *safetensors; /* one of the two */
    struct kvad_torch *torch;
    const struct kvad_pickle_value *state_dict; /* of torch */
};

struct checkpoint {
    struct kvad_checkpoint public; /* first: the handle points here */
    struct kvad_heap *heap;
    struct weight_file *files;
    size_t n_files, n_files_allocated;
    struct kvad_tensor *tensors;
    size_t n_tensors_allocated;
    json_t *index, *config;
    char *path, *folder, *config_name;
};

/* ---- torch: where the state_dict is */

static bool holds_tensors(const struct kvad_pickle_value *value) {
    if (!value || value->kind != KVAD_PICKLE_DICT) return false;
    for (size_t i = 0; i < value->as.dict.n; i++)
        if (value->as.dict.values[i]->kind == KVAD_PICKLE_TENSOR) return true;
    return false;
}

static enum kvad_status find_state_dict(struct weight_file *file, struct kvad_error *err) {
    static const char *const keys[] = {"model", "state_dict", "model_state_dict", "model_state"};
    const struct kvad_pickle_value *root = kvad_torch_root(file->torch);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct kvad_pickle_value *value = kvad_pickle_get(root, keys[i]);
        if (!holds_tensors(value)) continue;
        file->state_dict = value;
        return KVAD_OK;
    }
    if (!holds_tensors(root))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: no dict of named tensors in it, neither at the top nor under "
                         "\"model\", \"state_dict\", \"model_state_dict\" or \"model_state\"; save "
                         "model.state_dict()",
                         file->path);
    file->state_dict = root;
    return KVAD_OK;
}

/* ---- one file */

static enum kvad_status open_bytes(struct weight_file *file, const unsigned char *data, size_t size,
                                   struct kvad_heap *heap, struct kvad_error *err) {
    file->size = size;
    if (kvad_torch_probe(data, size)) {
        KVAD_TRY(kvad_torch_open(data, size, file->path, heap, &file->torch, err));
        return find_state_dict(file, err);
    }
    const char *name = kvad_path_name(file->path);
    size_t length = strlen(name);
    bool named_safetensors = length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
    if (named_safetensors || kvad_safetensors_probe(data, size))
        return kvad_safetensors_open(data, size, file->path, heap, &file->safetensors, err);
    static const char lfs[] = "version https://git-lfs";
    if (size >= sizeof lfs - 1 && memcmp(data, lfs, sizeof lfs - 1) == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: a Git LFS pointer, not the weights; run git lfs pull", file->path);
    return kvad_fail(err, KVAD_ERR_FORMAT,
                     "%s: neither a safetensors nor a torch file (%zu bytes)%s", file->path, size,
                     size < 1000 ? "; is the download complete?" : "");
}

static enum kvad_status open_file(struct weight_file *file, struct kvad_heap *heap,
                                  struct kvad_error *err) {
    KVAD_TRY(kvad_file_map_open(&file->map, file->path, err));
    return open_bytes(file, file->map.data, file->map.size, heap, err);
}

static void close_file(struct weight_file *file, struct kvad_heap *heap) {
    kvad_safetensors_close(&file->safetensors);
    kvad_torch_close(&file->torch);
    kvad_file_map_close(&file->map);
    kvad_path_free(heap, file->path);
}

static size_t entry_count(const struct weight_file *file) {
    return file->safetensors ? kvad_safetensors_count(file->safetensors)
                             : file->state_dict->as.dict.n;
}

/* Entry i as a tensor; *is_tensor is false for what a torch dict holds besides tensors. */
static enum kvad_status get_entry(const struct weight_file *file, size_t i,
                                  struct kvad_tensor *tensor, bool *is_tensor,
                                  struct kvad_error *err) {
    *is_tensor = true;
    if (file->safetensors) {
        *tensor = *kvad_safetensors_tensor(file->safetensors, i);
        return KVAD_OK;
    }
    const struct kvad_pickle_value *key = file->state_dict->as.dict.keys[i];
    const struct kvad_pickle_value *value = file->state_dict->as.dict.values[i];
    *is_tensor = value->kind == KVAD_PICKLE_TENSOR;
    if (!*is_tensor) return KVAD_OK;
    if (key->kind != KVAD_PICKLE_STRING || strlen(key->as.string.bytes) != key->as.string.size)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: entry %zu of the state_dict has no proper name",
                         file->path, i);
    *tensor = value->as.tensor;
    tensor->name = key->as.string.bytes;
    tensor->file = file->path;
    return KVAD_OK;
}

/* ---- all files as one set */

static int by_name(const void *left, const void *right) {
    return strcmp(((const struct kvad_tensor *)left)->name,
                  ((const struct kvad_tensor *)right)->name);
}

/* Whether the index says that `name` comes from `file`; without an index everything does. */
static bool is_listed(const json_t *weight_map, const char *name, const struct weight_file *file) {
    if (!weight_map) return true;
    const char *shard = json_string_value(json_object_get(weight_map, name));
    return shard && strcmp(shard, kvad_path_name(file->path)) == 0;
}

static enum kvad_status collect(struct checkpoint *c, const json_t *weight_map,
                                struct kvad_error *err) {
    size_t total = 0;
    for (size_t f = 0; f < c->n_files; f++) {
        total += entry_count(&c->files[f]);
        c->public.n_bytes += c->files[f].size;
    }
    c->tensors = kvad_alloc_zero(c->heap, total, sizeof *c->tensors);
    if (!c->tensors) return kvad_fail_memory(err, "a list of tensors", total * sizeof *c->tensors);
    c->n_tensors_allocated = total;

    size_t n = 0;
    for (size_t f = 0; f < c->n_files; f++)
        for (size_t i = 0; i < entry_count(&c->files[f]); i++) {
            bool is_tensor;
            KVAD_TRY(get_entry(&c->files[f], i, &c->tensors[n], &is_tensor, err));
            if (is_tensor && is_listed(weight_map, c->tensors[n].name, &c->files[f])) n++;
        }
    qsort(c->tensors, n, sizeof *c->tensors, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(c->tensors[i - 1].name, c->tensors[i].name) == 0)
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s is there twice",
                             c->tensors[i].file, c->tensors[i].name);
    c->public.tensors = c->tensors;
    c->public.n_tensors = n;
    return KVAD_OK;
}

/* ---- shards */

/* Names come from the file: a plain name in the same folder, nothing else. */
static bool is_plain_name(const char *name) {
    return *name && *name != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static enum kvad_status add_shard(struct checkpoint *c, const char *name, struct kvad_error *err) {
    if (!is_plain_name(name))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: shard name \"%s\" must be a plain file name in the same folder",
                         c->path, name);
    for (size_t f = 0; f < c->n_files; f++)
        if (strcmp(kvad_path_name(c->files[f].path), name) == 0) return KVAD_OK;
    struct weight_file *file = &c->files[c->n_files];
    file->path = kvad_path_format(c->heap, "%s/%s", c->folder, name);
    if (!file->path) return kvad_fail_memory(err, "a path", strlen(name));
    c->n_files++;
    return open_file(file, c->heap, err);
}

static enum kvad_status open_index(struct checkpoint *c, struct kvad_error *err) {
    struct kvad_file_map map;
    KVAD_TRY(kvad_file_map_open(&map, c->path, err));
    enum kvad_status status =
        kvad_json_parse_object((const char *)map.data, map.size, c->path, &c->index, err);
    kvad_file_map_close(&map);
    KVAD_TRY(status);

    const json_t *weight_map = json_object_get(c->index, "weight_map");
    size_t n_names = json_object_size(weight_map);
    if (n_names == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: field weight_map must be an object of tensor names", c->path);
    c->files = kvad_alloc_zero(c->heap, n_names, sizeof *c->files);
    if (!c->files) return kvad_fail_memory(err, "a list of shards", n_names * sizeof *c->files);
    c->n_files_allocated = n_names;

    const char *tensor;
    json_t *shard;
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, shard) {
        if (!json_is_string(shard))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: weight_map \"%s\" must be a file name",
                             c->path, tensor);
        KVAD_TRY(add_shard(c, json_string_value(shard), err));
    }
    KVAD_TRY(collect(c, weight_map, err));
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, shard) {
        if (!kvad_checkpoint_find(&c->public, tensor))
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: tensor %s should be in %s, but is not there", c->path, tensor,
                             json_string_value(shard));
    }
    return KVAD_OK;
}

/* ---- opening */

static enum kvad_status open_single(struct checkpoint *c, const void *data, size_t size,
                                    struct kvad_error *err) {
    c->files = kvad_alloc_zero(c->heap, 1, sizeof *c->files);
    if (!c->files) return kvad_fail_memory(err, c->path, sizeof *c->files);
    c->n_files_allocated = 1;
    struct weight_file *file = &c->files[0];
    file->path = kvad_path_format(c->heap, "%s", c->path);
    if (!file->path) return kvad_fail_memory(err, "a path", strlen(c->path));
    c->n_files = 1;
    KVAD_TRY(data ? open_bytes(file, data, size, c->heap, err) : open_file(file, c->heap, err));
    if (file->torch) c->public.root = kvad_torch_root(file->torch);
    return collect(c, NULL, err);
}

static enum kvad_status open_config(struct checkpoint *c, struct kvad_error *err) {
    c->config_name = kvad_path_format(c->heap, "%s/config.json", c->folder);
    if (!c->config_name) return kvad_fail_memory(err, "a path", strlen(c->folder));
    if (!kvad_path_is_file(c->config_name)) return KVAD_OK;
    struct kvad_file_map map;
    KVAD_TRY(kvad_file_map_open(&map, c->config_name, err));
    enum kvad_status status =
        kvad_json_parse_object((const char *)map.data, map.size, c->config_name, &c->config, err);
    kvad_file_map_close(&map);
    return status;
}

static enum kvad_status open_from_disk(struct checkpoint *c, const char *path,
                                       struct kvad_error *err) {
    KVAD_TRY(kvad_locate_weights(path, c->heap, &c->path, err));
    c->folder = kvad_path_folder(c->heap, c->path);
    if (!c->folder) return kvad_fail_memory(err, "a path", strlen(c->path));
    KVAD_TRY(open_config(c, err));
    size_t length = strlen(c->path);
    bool is_index = length > 11 && strcmp(c->path + length - 11, ".index.json") == 0;
    return is_index ? open_index(c, err) : open_single(c, NULL, 0, err);
}

static enum kvad_status open_from_memory(struct checkpoint *c, const void *data, size_t size,
                                         const char *config_json, struct kvad_error *err) {
    if (!data) return kvad_fail(err, KVAD_ERR_ARGUMENT, "data is NULL");
    c->path = kvad_path_format(c->heap, "(memory)");
    c->config_name = kvad_path_format(c->heap, "config.json");
    if (!c->path || !c->config_name) return kvad_fail_memory(err, "a name", 16);
    if (config_json)
        KVAD_TRY(kvad_json_parse_object(config_json, strlen(config_json), c->config_name,
                                        &c->config, err));
    return open_single(c, data, size, err);
}

static struct checkpoint *create(struct kvad_heap *heap, struct kvad_error *err) {
    struct checkpoint *c = kvad_alloc_zero(heap, 1, sizeof *c);
    if (c)
        c->heap = heap;
    else
        kvad_fail_memory(err, "a checkpoint", sizeof *c);
    return c;
}

/* Publish what was opened, or close it. */
static enum kvad_status finish(struct checkpoint *c, enum kvad_status status,
                               const struct kvad_checkpoint **out) {
    const struct kvad_checkpoint *public = &c->public;
    if (status != KVAD_OK) {
        kvad_checkpoint_close(&public);
        return status;
    }
    c->public.config = c->config;
    c->public.config_name = c->config_name;
    c->public.path = c->path;
    c->public.folder = c->folder;
    *out = public;
    return KVAD_OK;
}

enum kvad_status kvad_checkpoint_open(const char *path, struct kvad_heap *heap,
                                      const struct kvad_checkpoint **out, struct kvad_error *err) {
    struct checkpoint *c = create(heap, err);
    if (!c) return KVAD_ERR_NO_MEMORY;
    return finish(c, open_from_disk(c, path, err), out);
}

enum kvad_status kvad_checkpoint_open_memory(const void *data, size_t size, const char *config_json,
                                             struct kvad_heap *heap,
                                             const struct kvad_checkpoint **out,
                                             struct kvad_error *err) {
    struct checkpoint *c = create(heap, err);
    if (!c) return KVAD_ERR_NO_MEMORY;
    return finish(c, open_from_memory(c, data, size, config_json, err), out);
}

void kvad_checkpoint_close(const struct kvad_checkpoint **checkpoint) {
    struct checkpoint *c = (struct checkpoint *)(uintptr_t)*checkpoint;
    if (!c) return;
    struct kvad_heap *heap = c->heap;
    kvad_free(heap, c->tensors, c->n_tensors_allocated * sizeof *c->tensors);
    for (size_t f = 0; f < c->n_files; f++)
        close_file(&c->files[f], heap);
    kvad_free(heap, c->files, c->n_files_allocated * sizeof *c->files);
    json_decref(c->index);
    json_decref(c->config);
    kvad_path_free(heap, c->path);
    kvad_path_free(heap, c->folder);
    kvad_path_free(heap, c->config_name);
    kvad_free(heap, c, sizeof *c);
    *checkpoint = NULL;
}

const struct kvad_tensor *kvad_checkpoint_find(const struct kvad_checkpoint *checkpoint,
                                               const char *name) {
    struct kvad_tensor key = {.name = name};
    if (checkpoint->n_tensors == 0) return NULL;
    return bsearch(&key, checkpoint->tensors, checkpoint->n_tensors, sizeof key, by_name);
}
