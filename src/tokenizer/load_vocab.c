/* vocab.json + merges.txt, with what Hugging Face keeps beside them. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/quote.h"
#include "tokenizer/tokenizer.h"

static const char end_of_text[] = "<|endoftext|>";

/* A text that is matched as special if the vocabulary has it. */
static size_t take_special(struct kvad_added_source *sources, size_t n, const json_t *vocab,
                           const char *text) {
    const json_t *id = json_object_get(vocab, text);
    if (!json_is_integer(id)) return n;
    for (size_t i = 0; i < n; i++)
        if (strcmp(sources[i].text, text) == 0) return n;
    json_int_t value = json_integer_value(id);
    if (value < 0 || value > INT32_MAX) return n; /* refused with the vocabulary */
    sources[n] = (struct kvad_added_source){text, strlen(text), (uint32_t)value, true, false};
    return n + 1;
}

/* added_tokens.json does not say which tokens are special: all are, so that plain text never gives
 * a control id. `sources` holds the *n (at most 2) texts taken before. */
static enum kvad_status take_added(struct kvad_added_source *sources, size_t *n,
                                   const json_t *added, const char *name, struct kvad_error *err) {
    size_t n_before = *n;
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)added, text, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > INT32_MAX)
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: the id of %s must be 0 to 2^31 - 1", name,
                             kvad_quote(text, strlen(text)).text);
        bool known = false;
        for (size_t i = 0; i < n_before; i++)
            known = known || strcmp(sources[i].text, text) == 0;
        if (known) continue;
        sources[(*n)++] = (struct kvad_added_source){text, strlen(text), (uint32_t)id, true, false};
    }
    return KVAD_OK;
}

static enum kvad_status load(struct kvad_tokenizer *t, const json_t *vocab,
                             const struct kvad_tokenizer_files *files, const json_t *added,
                             struct kvad_added_source *sources, const char *eos,
                             struct kvad_error *err) {
    size_t n = take_special(sources, 0, vocab, end_of_text);
    if (eos) n = take_special(sources, n, vocab, eos);
    KVAD_TRY(take_added(sources, &n, added, files->added.name, err));
    struct kvad_bpe_source source = {
        .name = files->main.name,
        .vocab = vocab,
        .merges_file = files->merges,
        .added = sources,
        .n_added = n,
    };
    return kvad_tokenizer_load_bpe(t, &source, err);
}

enum kvad_status kvad_tokenizer_load_vocab(struct kvad_tokenizer *t, const json_t *vocab,
                                           const struct kvad_tokenizer_files *files,
                                           const json_t *config, const char *eos,
                                           struct kvad_error *err) {
    if (!files->merges.data)
        return kvad_fail(err, KVAD_ERR_NOT_FOUND,
                         "%s: is a vocabulary without merges; put merges.txt (or vocab.bpe) beside "
                         "it",
                         files->main.name);
    KVAD_TRY(kvad_json_get_bool(config, files->config.name, "add_prefix_space",
                                &t->add_prefix_space, err));
    json_t *added = NULL;
    if (files->added.data)
        KVAD_TRY(kvad_json_parse_object(files->added.data, files->added.size, files->added.name,
                                        &added, err));
    size_t bytes = (json_object_size(added) + 2) * sizeof(struct kvad_added_source);
    struct kvad_added_source *sources = kvad_alloc(&t->heap, bytes);
    enum kvad_status status = sources ? load(t, vocab, files, added, sources, eos, err)
                                      : kvad_fail_memory(err, "the added tokens", bytes);
    kvad_free(&t->heap, sources, bytes);
    json_decref(added);
    return status;
}
