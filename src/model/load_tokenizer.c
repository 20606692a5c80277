#include "model/load_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/locate.h"

struct search {
    const struct kvad_checkpoint *checkpoint;
    const struct kvad_model_options *options;
    struct kvad_heap *heap;
    struct kvad_tokenizer *found;
    char *path; /* where, on the heap */
    struct kvad_error *err;
};

/* Open if it is there; NOT_FOUND is no failure of the search, unless the user named the place. */
static enum kvad_status try_path(struct search *s, const char *path) {
    struct kvad_error why;
    enum kvad_status status = kvad_tokenizer_open(path, &s->options->allocator, &s->found, &why);
    if (status == KVAD_OK) {
        s->path = kvad_path_format(s->heap, "%s", path);
        if (s->path) return KVAD_OK;
        kvad_tokenizer_release(&s->found);
        return kvad_fail_memory(s->err, "a path", strlen(path) + 1);
    }
    if (status == KVAD_ERR_NOT_FOUND && !s->options->tokenizer_path) return KVAD_OK;
    if (s->err) *s->err = why;
    return status;
}

/* Takes `path`, which may be NULL for lack of memory. */
static enum kvad_status try_owned_path(struct search *s, char *path) {
    if (!path) return kvad_fail_memory(s->err, "a path", 0);
    enum kvad_status status = try_path(s, path);
    kvad_path_free(s->heap, path);
    return status;
}

/* The checkpoint's config.dataset: a relative path without "..", or NULL. */
static const char *dataset_name(const struct kvad_checkpoint *checkpoint) {
    const struct kvad_pickle_value *dataset =
        kvad_pickle_get(kvad_pickle_get(checkpoint->root, "config"), "dataset");
    if (!dataset || dataset->kind != KVAD_PICKLE_STRING) return NULL;
    const char *name = dataset->as.string.bytes;
    bool is_plain = *name && *name != '/' && !strstr(name, "..") &&
                    strlen(name) == dataset->as.string.size && dataset->as.string.size < 256;
    return is_plain ? name : NULL;
}

/* nanoGPT runs in its own folder and writes out-x/ckpt.pt beside data/. */
static enum kvad_status try_nanogpt(struct search *s) {
    const char *name = dataset_name(s->checkpoint);
    if (!name || !s->checkpoint->folder) return KVAD_OK;
    char *folder = realpath(s->checkpoint->folder, NULL);
    if (!folder) return KVAD_OK;
    enum kvad_status status = KVAD_OK;
    for (char *end = folder + strlen(folder); status == KVAD_OK && !s->found && end;) {
        *end = 0;
        status = try_owned_path(s, kvad_path_format(s->heap, "%s/data/%s/meta.pkl", folder, name));
        end = strrchr(folder, '/');
    }
    free(folder);
    if (status != KVAD_OK || s->found) return status;
    return try_owned_path(s, kvad_path_format(s->heap, "data/%s/meta.pkl", name));
}

static enum kvad_status try_caches(struct search *s) {
    char *snapshot = NULL;
    if (kvad_locate_snapshot("gpt2", s->heap, &snapshot, NULL) == KVAD_OK)
        KVAD_TRY(try_owned_path(s, snapshot));
    if (s->found) return KVAD_OK;
    return try_owned_path(s, kvad_locate_tiktoken(s->heap));
}

/* GPT-2's 50257 ids, with a few added ones or nanoGPT's padding to 50304. */
static bool is_gpt2_size(uint32_t n_vocab) {
    return n_vocab >= 50257 && n_vocab <= 50304;
}

static void say_none_found(const struct kvad_log *log) {
    if (log->write)
        log->write(log->user, KVAD_LOG_INFO,
                   "no tokenizer found beside the model or in the local caches");
}

/* The places in their order. */
static enum kvad_status search(struct search *s, uint32_t n_vocab) {
    if (s->options->tokenizer_path) return try_path(s, s->options->tokenizer_path);
    if (s->checkpoint->folder) KVAD_TRY(try_path(s, s->checkpoint->folder));
    if (!s->found) KVAD_TRY(try_nanogpt(s));
    if (!s->found && is_gpt2_size(n_vocab)) KVAD_TRY(try_caches(s));
    if (!s->found) say_none_found(&s->options->log);
    return KVAD_OK;
}

enum kvad_status kvad_model_find_tokenizer(const struct kvad_checkpoint *checkpoint,
                                           const struct kvad_model_options *options,
                                           uint32_t n_vocab, struct kvad_heap *heap,
                                           struct kvad_tokenizer **out, char **path,
                                           struct kvad_error *err) {
    struct search s = {.checkpoint = checkpoint, .options = options, .heap = heap, .err = err};
    if (!options->no_tokenizer) KVAD_TRY(search(&s, n_vocab));
    *out = s.found;
    *path = s.path;
    return KVAD_OK;
}

/* Ids that may be sampled. Rows beyond the tokenizer's are padding and were never trained. */
static uint32_t token_count(const struct kvad_tokenizer *tokenizer, uint32_t n_vocab) {
    uint32_t n = n_vocab;
    if (tokenizer)
        n = kvad_tokenizer_size(tokenizer);
    else if (n_vocab == 50304)
        n = 50257; /* nanoGPT pads GPT-2's vocabulary to a multiple of 64 */
    return n < n_vocab ? n : n_vocab;
}

void kvad_model_decide_tokens(const struct kvad_tokenizer *tokenizer, struct kvad_model *model) {
    struct kvad_description *d = &model->description;
    model->n_tokens = token_count(tokenizer, d->n_vocab);
    if (d->eos < 0 && tokenizer) {
        int32_t eos = kvad_tokenizer_eos(tokenizer);
        if (eos >= 0 && (uint32_t)eos < d->n_vocab) d->eos = eos;
    }
}
