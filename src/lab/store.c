#include "lab/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/new_file.h"
#include "model/model.h"

enum { PATH_BYTES = KVAD_NEW_FILE_PATH };

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum kvad_status kvad_store_make_folder(const char *path, struct kvad_error *err) {
    char part[PATH_BYTES];
    size_t size = strlen(path);
    if (size == 0) return kvad_fail(err, KVAD_ERR_ARGUMENT, "the folder's name is empty");
    if (size >= sizeof part)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%.80s...: the name is too long", path);
    for (size_t i = 1; i <= size; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) == 0 || is_folder(part)) continue;
        return kvad_fail(err, KVAD_ERR_IO, "%s: cannot make the folder: %s", part,
                         errno == EEXIST ? "a file of this name is in the way" : strerror(errno));
    }
    if (access(path, W_OK | X_OK) == 0) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_IO, "%s: nothing can be written there: %s", path,
                     strerror(errno));
}

enum kvad_status kvad_store_write(const char *folder, const char *name, const char *bytes,
                                  size_t size, struct kvad_error *err) {
    char path[PATH_BYTES];
    struct kvad_new_file file;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_BYTES)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%.80s...: the name is too long", folder);
    bool ok = kvad_new_file_open(&file, path);
    if (ok && kvad_write_all(file.fd, bytes, size)) {
        ok = kvad_new_file_keep(&file);
    } else if (ok) {
        kvad_new_file_drop(&file);
        ok = false;
    }
    if (ok) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

enum kvad_status kvad_store_write_json(const char *folder, const char *name, const json_t *value,
                                       struct kvad_error *err) {
    char *text = value ? json_dumps(value, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) return kvad_fail_memory(err, name, 1 << 20);
    size_t size = strlen(text);
    text[size] = '\n'; /* in place of the NUL: the size is given */
    enum kvad_status status = kvad_store_write(folder, name, text, size + 1, err);
    free(text);
    return status;
}

void kvad_store_remove(const char *folder, const char *name) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n > 0 && n < PATH_BYTES) unlink(path);
}

enum kvad_status kvad_store_read_json(const char *path, json_t **out, struct kvad_error *err) {
    struct kvad_file_map map;
    KVAD_TRY(kvad_file_map_open(&map, path, err));
    enum kvad_status status;
    if (map.size > KVAD_STORE_MAX_BYTES)
        status = kvad_fail(err, KVAD_ERR_FORMAT, "%s: %zu bytes, a report has at most %d", path,
                           map.size, (int)KVAD_STORE_MAX_BYTES);
    else
        status = kvad_json_parse_object((const char *)map.data, map.size, path, out, err);
    kvad_file_map_close(&map);
    return status;
}

static void part_name(const char *part, char out[64]) {
    snprintf(out, 64, "%s.part.json", part);
}

/* Of a value as it is written, whatever the order of its members. False when memory is out. */
static bool checksum_of(const json_t *value, char out[KVAD_STORE_FINGERPRINT]) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!text) return false;
    snprintf(out, KVAD_STORE_FINGERPRINT, "%016llx",
             (unsigned long long)XXH64(text, strlen(text), 0));
    free(text);
    return true;
}

enum kvad_status kvad_store_keep(const char *folder, const char *part, const json_t *key,
                                 const json_t *result, struct kvad_error *err) {
    char name[64], checksum[KVAD_STORE_FINGERPRINT];
    part_name(part, name);
    if (!checksum_of(result, checksum)) return kvad_fail_memory(err, name, 1 << 20);
    json_t *kept = json_pack("{s:O, s:s, s:O}", "key", key, "checksum", checksum, "result", result);
    enum kvad_status status = kvad_store_write_json(folder, name, kept, err);
    json_decref(kept);
    return status;
}

json_t *kvad_store_kept(const char *folder, const char *part, const json_t *key) {
    char name[64], path[PATH_BYTES], checksum[KVAD_STORE_FINGERPRINT];
    json_t *kept = NULL, *result;
    part_name(part, name);
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_BYTES || kvad_store_read_json(path, &kept, NULL) != KVAD_OK) return NULL;
    const char *said = json_string_value(json_object_get(kept, "checksum"));
    result = json_object_get(kept, "result");
    bool is_good = json_is_object(result) && said &&
                   json_equal(json_object_get(kept, "key"), key) && checksum_of(result, checksum) &&
                   strcmp(said, checksum) == 0;
    result = is_good ? json_incref(result) : NULL;
    json_decref(kept);
    return result;
}

void kvad_store_fingerprint(const struct kvad_model *model, char out[KVAD_STORE_FINGERPRINT]) {
    const struct kvad_description *d = &model->description;
    char text[512];
    int n = snprintf(text, sizeof text, "%u %u %u %u %u %u %u %u %d %d %d %a %d %d %d %d %d %u",
                     d->n_layers, d->n_heads, d->n_kv_heads, d->head_dim, d->d_model, d->d_ff,
                     d->n_vocab, d->n_ctx, (int)d->norm, (int)d->position, (int)d->activation,
                     (double)d->norm_eps, d->scale_attn, d->scale_attn_by_layer, d->head_tied,
                     (int)d->eos, (int)model->weights, model->n_tokens);
    XXH64_hash_t meaning = XXH64(text, (size_t)n, 0);
    snprintf(out, KVAD_STORE_FINGERPRINT, "%016llx",
             (unsigned long long)XXH64(model->area, model->area_bytes, meaning));
}

void kvad_store_program(char out[KVAD_STORE_FINGERPRINT]) {
    struct kvad_file_map map = {0};
    XXH64_hash_t hash = 0;
    if (kvad_file_map_open(&map, "/proc/self/exe", NULL) == KVAD_OK)
        hash = XXH64(map.data, map.size, 0);
    kvad_file_map_close(&map);
    snprintf(out, KVAD_STORE_FINGERPRINT, "%016llx", (unsigned long long)hash);
}
