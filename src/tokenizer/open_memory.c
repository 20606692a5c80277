/* Finds out what a tokenizer file is by what it holds, and makes a tokenizer of it. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

/* Offsets of pieces are 32 bits; no vocabulary comes near. */
enum { MAX_FILE_BYTES = 1 << 30 };

/* The text of eos_token: a string, or an object with "content"; NULL if there is none. */
static const char *eos_text(const json_t *config) {
    const json_t *eos = json_object_get(config, "eos_token");
    if (json_is_object(eos)) eos = json_object_get(eos, "content");
    return json_string_value(eos);
}

/* The id of an end token: an added one, or a token of a character vocabulary. */
static int32_t find_eos(const struct kvad_tokenizer *t, const char *text) {
    if (!text) return -1;
    const struct kvad_added_token *token = kvad_added_find(&t->added, text, strlen(text));
    return token ? (int32_t)token->id : kvad_vocab_find(&t->vocab, text, strlen(text));
}

static enum kvad_status load_json(struct kvad_tokenizer *t, const json_t *root,
                                  const struct kvad_tokenizer_files *files, const json_t *config,
                                  const json_t *special, struct kvad_error *err) {
    const char *name = files->main.name, *eos = eos_text(config);
    const json_t *itos = json_object_get(root, "itos");
    if (!eos) eos = eos_text(special);
    if (json_is_object(json_object_get(root, "model")))
        KVAD_TRY(kvad_tokenizer_load_hf(t, root, name, err));
    else if (json_is_object(json_object_get(root, "stoi")) || json_is_object(itos) ||
             json_is_array(itos))
        KVAD_TRY(kvad_tokenizer_load_chars_json(t, root, name, err));
    else
        KVAD_TRY(kvad_tokenizer_load_vocab(t, root, files, config, eos, err));
    t->eos = find_eos(t, eos);
    if (t->eos < 0) t->eos = find_eos(t, "<|endoftext|>");
    return KVAD_OK;
}

static enum kvad_status parse_optional(const struct kvad_tokenizer_file *file, json_t **out,
                                       struct kvad_error *err) {
    if (!file->data) return KVAD_OK;
    return kvad_json_parse_object(file->data, file->size, file->name, out, err);
}

static enum kvad_status open_json(struct kvad_tokenizer *t,
                                  const struct kvad_tokenizer_files *files,
                                  struct kvad_error *err) {
    json_t *root = NULL, *config = NULL, *special = NULL;
    enum kvad_status status =
        kvad_json_parse_object(files->main.data, files->main.size, files->main.name, &root, err);
    if (status == KVAD_OK) status = parse_optional(&files->config, &config, err);
    if (status == KVAD_OK) status = parse_optional(&files->special, &special, err);
    if (status == KVAD_OK) status = load_json(t, root, files, config, special, err);
    json_decref(root);
    json_decref(config);
    json_decref(special);
    return status;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static enum kvad_status open_any(struct kvad_tokenizer *t, const struct kvad_tokenizer_files *files,
                                 struct kvad_error *err) {
    const unsigned char *data = files->main.data;
    size_t size = files->main.size, at = kvad_utf8_mark(files->main.data, size);
    if (size > MAX_FILE_BYTES || files->merges.size > MAX_FILE_BYTES)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: too large for a tokenizer file",
                         files->main.name);
    if ((size > 0 && data[0] == 0x80) || ends_with(files->main.name, ".pkl"))
        return kvad_tokenizer_load_chars_pickle(t, &files->main, err);
    while (at < size && memchr(" \t\r\n", data[at], 4))
        at++;
    if (at < size && data[at] == '{') return open_json(t, files, err);
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: is not a tokenizer file that kvad reads: tokenizer.json, vocab.json with "
                     "merges.txt, meta.pkl, or JSON with \"stoi\"",
                     files->main.name);
}

enum kvad_status kvad_tokenizer_open_memory(const struct kvad_tokenizer_files *files,
                                            const struct kvad_allocator *allocator,
                                            struct kvad_tokenizer **out, struct kvad_error *err) {
    struct kvad_heap heap;
    kvad_heap_init(&heap, allocator);
    struct kvad_tokenizer *t = kvad_alloc_zero(&heap, 1, sizeof *t);
    if (!t) return kvad_fail_memory(err, "a tokenizer", sizeof *t);
    kvad_heap_init(&t->heap, allocator);
    t->scratch_heap = &t->heap;
    atomic_init(&t->n_references, 1);
    t->eos = -1;
    enum kvad_status status = open_any(t, files, err);
    if (status != KVAD_OK) {
        kvad_tokenizer_release(&t);
        return status;
    }
    *out = t;
    return KVAD_OK;
}
