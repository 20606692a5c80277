/* kvad_model_pack(): a model into a packed file. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/new_file.h"
#include "formats/locate.h"
#include "model/config.h"
#include "model/pack.h"
#include "tokenizer/tokenizer.h"

const char *const kvad_pack_roles[5] = {"main", "merges", "added", "config", "special"};

static json_t *list_biases(const struct kvad_model *model) {
    const struct kvad_layer_weights *layer = &model->layers[0];
    return json_pack("{s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b}", "norm1", layer->norm1.bias != NULL,
                     "qkv", layer->qkv.bias != NULL, "out", layer->out.bias != NULL, "norm2",
                     layer->norm2.bias != NULL, "up", layer->up.bias != NULL, "down",
                     layer->down.bias != NULL, "final_norm", model->final_norm.bias != NULL, "head",
                     model->head.bias != NULL);
}

static json_t *list_files(const struct kvad_tokenizer_maps *maps) {
    json_t *list = json_array();
    for (size_t i = 0; i < 5; i++) {
        if (!maps->maps[i].data) continue;
        const char *name = kvad_path_name(maps->paths[i]);
        json_array_append_new(list, json_pack("{s:s, s:s%, s:I}", "role", kvad_pack_roles[i],
                                              "name", name, strlen(name), "bytes",
                                              (json_int_t)maps->maps[i].size));
    }
    return list;
}

static json_t *describe(const struct kvad_model *model, const struct kvad_tokenizer_maps *maps) {
    const struct kvad_description *d = &model->description;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:b, s:b, s:I, s:I, "
        "s:s, s:o, s:o}",
        "writer", kvad_version(), "family", d->family, "n_layers", (json_int_t)d->n_layers,
        "n_heads", (json_int_t)d->n_heads, "n_kv_heads", (json_int_t)d->n_kv_heads, "head_dim",
        (json_int_t)d->head_dim, "d_model", (json_int_t)d->d_model, "d_ff", (json_int_t)d->d_ff,
        "n_vocab", (json_int_t)d->n_vocab, "n_ctx", (json_int_t)d->n_ctx, "activation",
        kvad_activation_config_name(d->activation), "norm_eps", (double)d->norm_eps, "scale_attn",
        (int)d->scale_attn, "scale_attn_by_layer", (int)d->scale_attn_by_layer, "head_tied",
        (int)d->head_tied, "eos", (json_int_t)d->eos, "n_tokens", (json_int_t)model->n_tokens,
        "weights", kvad_weight_type_name(model->weights), "biases", list_biases(model), "tokenizer",
        list_files(maps));
}

static bool write_zeros(int fd, size_t n) {
    static const char zeros[KVAD_PACK_ALIGNMENT];
    return kvad_write_all(fd, zeros, n);
}

static bool write_file(int fd, const struct kvad_model *model, const char *json, size_t json_bytes,
                       const struct kvad_tokenizer_maps *maps) {
    size_t used = KVAD_PACK_HEADER + json_bytes;
    for (size_t i = 0; i < 5; i++)
        used += maps->maps[i].size;
    size_t data_offset = kvad_round_up(used, KVAD_PACK_ALIGNMENT);
    struct kvad_pack_header header = {.version = KVAD_PACK_VERSION,
                                      .order = KVAD_PACK_ORDER,
                                      .json_bytes = json_bytes,
                                      .data_offset = data_offset,
                                      .data_bytes = model->area_bytes,
                                      .json_hash = XXH64(json, json_bytes, 0),
                                      .data_hash = XXH64(model->area, model->area_bytes, 0)};
    memcpy(header.magic, KVAD_PACK_MAGIC, sizeof header.magic);
    bool ok = kvad_write_all(fd, &header, sizeof header) && kvad_write_all(fd, json, json_bytes);
    for (size_t i = 0; ok && i < 5; i++)
        ok = kvad_write_all(fd, maps->maps[i].data, maps->maps[i].size);
    return ok && write_zeros(fd, data_offset - used) &&
           kvad_write_all(fd, model->area, model->area_bytes) && fsync(fd) == 0;
}

static enum kvad_status write_new(const struct kvad_model *model, const char *path,
                                  const char *json, const struct kvad_tokenizer_maps *maps,
                                  struct kvad_error *err) {
    struct kvad_new_file file;
    if (!kvad_new_file_open(&file, path))
        return kvad_fail(err, KVAD_ERR_IO, "%s: cannot create a file there: %s", path,
                         strerror(errno));
    bool ok = write_file(file.fd, model, json, strlen(json), maps);
    if (ok)
        ok = kvad_new_file_keep(&file);
    else
        kvad_new_file_drop(&file);
    if (ok) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

static enum kvad_status pack(const struct kvad_model *model, const char *path,
                             const struct kvad_tokenizer_maps *maps, struct kvad_error *err) {
    json_t *description = describe(model, maps);
    char *json =
        description ? json_dumps(description, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    enum kvad_status status = json ? write_new(model, path, json, maps, err)
                                   : kvad_fail_memory(err, "the header of a packed file", 4096);
    free(json);
    json_decref(description);
    return status;
}

enum kvad_status kvad_model_pack(const struct kvad_model *model, const char *path,
                                 struct kvad_error *err) {
    if (!path || !*path) return kvad_fail(err, KVAD_ERR_ARGUMENT, "the path to pack to is empty");
    if (model->is_packed)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "the model is from a packed file: copy that");
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return kvad_fail(err, KVAD_ERR_IO, "%s: is not a regular file", path);
    struct kvad_tokenizer_maps maps = {0};
    enum kvad_status status = KVAD_OK;
    if (model->tokenizer_path) status = kvad_tokenizer_maps_open(model->tokenizer_path, &maps, err);
    if (status == KVAD_OK) status = pack(model, path, &maps, err);
    kvad_tokenizer_maps_close(&maps);
    return status;
}
