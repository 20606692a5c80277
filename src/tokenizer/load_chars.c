/* The two forms of a character vocabulary: JSON and nanoGPT's meta.pkl. Each becomes two plain
 * arrays. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/pickle.h"
#include "tokenizer/chars.h"
#include "tokenizer/quote.h"

static enum kvad_status wrong_entry(const char *name, const char *table, struct kvad_error *err) {
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: \"%s\" must map %s; another kind of entry is in it",
                     name, table, strcmp(table, "stoi") == 0 ? "texts to ids" : "ids to texts");
}

/* Loads from two arrays in one piece of memory of `n` entries. */
static enum kvad_status finish(struct kvad_tokenizer *t, const char *name,
                               const struct kvad_char_source *entries, size_t n_stoi, size_t n_itos,
                               struct kvad_error *err) {
    struct kvad_chars_source source = {name, entries, entries + n_stoi, n_stoi, n_itos};
    return kvad_chars_load(t, &source, err);
}

static bool json_entry(const char *text, size_t size, const json_t *id,
                       struct kvad_char_source *out) {
    *out = (struct kvad_char_source){text, size, json_integer_value(id)};
    return json_is_integer(id);
}

static enum kvad_status read_json_stoi(const json_t *stoi, const char *name,
                                       struct kvad_char_source *out, struct kvad_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)stoi, key, value) {
        if (!json_entry(key, strlen(key), value, out++)) return wrong_entry(name, "stoi", err);
    }
    return KVAD_OK;
}

/* An object with the ids as strings, or an array. */
static enum kvad_status read_json_itos(const json_t *itos, const char *name,
                                       struct kvad_char_source *out, struct kvad_error *err) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)itos, key, value) {
        int64_t id;
        if (!kvad_chars_parse_id(key, strlen(key), &id) || !json_is_string(value))
            return wrong_entry(name, "itos", err);
        *out++ = (struct kvad_char_source){json_string_value(value), json_string_length(value), id};
    }
    json_array_foreach(itos, i, value) {
        if (!json_is_string(value)) return wrong_entry(name, "itos", err);
        *out++ = (struct kvad_char_source){json_string_value(value), json_string_length(value),
                                           (int64_t)i};
    }
    return KVAD_OK;
}

enum kvad_status kvad_tokenizer_load_chars_json(struct kvad_tokenizer *t, const json_t *root,
                                                const char *name, struct kvad_error *err) {
    const json_t *stoi = json_object_get(root, "stoi"), *itos = json_object_get(root, "itos");
    const char *tokenization = NULL;
    KVAD_TRY(kvad_json_get_string(root, name, "tokenization", &tokenization, err));
    KVAD_TRY(kvad_chars_check_tokenization(name, tokenization, err));
    size_t n_stoi = json_object_size(stoi), n_itos = json_object_size(itos) + json_array_size(itos);
    size_t bytes = (n_stoi + n_itos) * sizeof(struct kvad_char_source);
    struct kvad_char_source *entries = kvad_alloc(&t->heap, bytes);
    if (!entries) return kvad_fail_memory(err, "the characters", bytes);
    enum kvad_status status = read_json_stoi(stoi, name, entries, err);
    if (status == KVAD_OK) status = read_json_itos(itos, name, entries + n_stoi, err);
    if (status == KVAD_OK) status = finish(t, name, entries, n_stoi, n_itos, err);
    kvad_free(&t->heap, entries, bytes);
    return status;
}

typedef bool pickle_entry_fn(const struct kvad_pickle_value *key,
                             const struct kvad_pickle_value *value, struct kvad_char_source *out);

static bool pickle_stoi_entry(const struct kvad_pickle_value *key,
                              const struct kvad_pickle_value *value, struct kvad_char_source *out) {
    if (key->kind != KVAD_PICKLE_STRING || value->kind != KVAD_PICKLE_INT) return false;
    *out = (struct kvad_char_source){key->as.string.bytes, key->as.string.size, value->as.integer};
    return true;
}

/* Keys are integers, or strings in the files of some trainers. */
static bool pickle_itos_entry(const struct kvad_pickle_value *key,
                              const struct kvad_pickle_value *value, struct kvad_char_source *out) {
    if (value->kind != KVAD_PICKLE_STRING) return false;
    *out = (struct kvad_char_source){value->as.string.bytes, value->as.string.size, 0};
    if (key->kind == KVAD_PICKLE_STRING)
        return kvad_chars_parse_id(key->as.string.bytes, key->as.string.size, &out->id);
    if (key->kind == KVAD_PICKLE_INT) out->id = key->as.integer;
    return key->kind == KVAD_PICKLE_INT;
}

static enum kvad_status read_pickle_dict(const struct kvad_pickle_value *dict, const char *name,
                                         const char *table, pickle_entry_fn *read,
                                         struct kvad_char_source *out, struct kvad_error *err) {
    if (!dict || dict->kind != KVAD_PICKLE_DICT) return KVAD_OK;
    for (size_t i = 0; i < dict->as.dict.n; i++)
        if (!read(dict->as.dict.keys[i], dict->as.dict.values[i], out++))
            return wrong_entry(name, table, err);
    return KVAD_OK;
}

static enum kvad_status read_pickle_list(const struct kvad_pickle_value *list, const char *name,
                                         struct kvad_char_source *out, struct kvad_error *err) {
    if (!list || list->kind != KVAD_PICKLE_LIST) return KVAD_OK;
    for (size_t i = 0; i < list->as.list.n; i++) {
        const struct kvad_pickle_value *text = list->as.list.items[i];
        if (text->kind != KVAD_PICKLE_STRING) return wrong_entry(name, "itos", err);
        *out++ = (struct kvad_char_source){text->as.string.bytes, text->as.string.size, (int64_t)i};
    }
    return KVAD_OK;
}

static size_t count_entries(const struct kvad_pickle_value *value) {
    if (value && value->kind == KVAD_PICKLE_DICT) return value->as.dict.n;
    return value && value->kind == KVAD_PICKLE_LIST ? value->as.list.n : 0;
}

static enum kvad_status load_pickle_root(struct kvad_tokenizer *t,
                                         const struct kvad_pickle_value *root, const char *name,
                                         struct kvad_error *err) {
    const struct kvad_pickle_value *stoi = kvad_pickle_get(root, "stoi");
    const struct kvad_pickle_value *itos = kvad_pickle_get(root, "itos");
    const struct kvad_pickle_value *kind = kvad_pickle_get(root, "tokenization");
    KVAD_TRY(kvad_chars_check_tokenization(
        name, kind && kind->kind == KVAD_PICKLE_STRING ? kind->as.string.bytes : NULL, err));
    if (stoi && stoi->kind != KVAD_PICKLE_DICT) return wrong_entry(name, "stoi", err);
    if (!stoi && !count_entries(itos))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: has neither \"stoi\" nor \"itos\": it is not nanoGPT's meta.pkl",
                         name);
    size_t n_stoi = count_entries(stoi), n_itos = count_entries(itos);
    size_t bytes = (n_stoi + n_itos) * sizeof(struct kvad_char_source);
    struct kvad_char_source *entries = kvad_alloc(&t->heap, bytes);
    if (!entries) return kvad_fail_memory(err, "the characters", bytes);
    enum kvad_status status = read_pickle_dict(stoi, name, "stoi", pickle_stoi_entry, entries, err);
    if (status == KVAD_OK)
        status = read_pickle_dict(itos, name, "itos", pickle_itos_entry, entries + n_stoi, err);
    if (status == KVAD_OK) status = read_pickle_list(itos, name, entries + n_stoi, err);
    if (status == KVAD_OK) status = finish(t, name, entries, n_stoi, n_itos, err);
    kvad_free(&t->heap, entries, bytes);
    return status;
}

enum kvad_status kvad_tokenizer_load_chars_pickle(struct kvad_tokenizer *t,
                                                  const struct kvad_tokenizer_file *file,
                                                  struct kvad_error *err) {
    struct kvad_pickle *pickle = NULL;
    KVAD_TRY(kvad_pickle_open(file->data, file->size, file->name, &t->heap, &pickle, err));
    enum kvad_status status = load_pickle_root(t, kvad_pickle_root(pickle), file->name, err);
    kvad_pickle_close(&pickle);
    return status;
}
