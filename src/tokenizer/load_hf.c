/* tokenizer.json of the Hugging Face tokenizers library: what GPT-2's needs, the rest refused by
 * name. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/quote.h"
#include "tokenizer/tokenizer.h"

/* The "type" of a part of the file, "" if it has none. */
static const char *type_of(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "";
}

static enum kvad_status unsupported(const char *name, const char *field, const json_t *part,
                                    struct kvad_error *err) {
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: %s %s is not supported; kvad reads GPT-2's byte-level BPE (ByteLevel "
                     "with use_regex, no normalizer)",
                     name, field, kvad_quote(type_of(part), strlen(type_of(part))).text);
}

/* null, or a Sequence of nothing. */
static bool is_nothing(const json_t *part, const char *list) {
    if (!part || json_is_null(part)) return true;
    return strcmp(type_of(part), "Sequence") == 0 &&
           json_array_size(json_object_get(part, list)) == 0;
}

/* Parts that do not change ids: offsets of ByteLevel, a template that adds no token. */
static bool is_harmless_post_processor(const json_t *part) {
    if (is_nothing(part, "processors") || strcmp(type_of(part), "ByteLevel") == 0) return true;
    return strcmp(type_of(part), "TemplateProcessing") == 0 &&
           json_object_size(json_object_get(part, "special_tokens")) == 0;
}

static enum kvad_status check_post_processor(const json_t *root, const char *name,
                                             struct kvad_error *err) {
    const json_t *post = json_object_get(root, "post_processor");
    const json_t *parts = json_object_get(post, "processors");
    if (strcmp(type_of(post), "Sequence") != 0) {
        if (is_harmless_post_processor(post)) return KVAD_OK;
        return unsupported(name, "post_processor", post, err);
    }
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        if (!is_harmless_post_processor(part))
            return unsupported(name, "post_processor", part, err);
    }
    return KVAD_OK;
}

static enum kvad_status check_parts(struct kvad_tokenizer *t, const json_t *root, const char *name,
                                    struct kvad_error *err) {
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *decoder = json_object_get(root, "decoder");
    if (!is_nothing(normalizer, "normalizers"))
        return unsupported(name, "normalizer", normalizer, err);
    if (strcmp(type_of(pre), "ByteLevel") != 0) return unsupported(name, "pre_tokenizer", pre, err);
    if (decoder && !json_is_null(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0)
        return unsupported(name, "decoder", decoder, err);
    KVAD_TRY(check_post_processor(root, name, err));
    bool use_regex = true;
    KVAD_TRY(kvad_json_get_bool(pre, name, "use_regex", &use_regex, err));
    if (!use_regex)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: pre_tokenizer ByteLevel with use_regex false is not supported", name);
    /* Readers have had both defaults: do not guess. */
    if (!json_is_boolean(json_object_get(pre, "add_prefix_space")))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: pre_tokenizer ByteLevel must say add_prefix_space true or false",
                         name);
    return kvad_json_get_bool(pre, name, "add_prefix_space", &t->add_prefix_space, err);
}

static enum kvad_status check_model(struct kvad_tokenizer *t, const json_t *model, const char *name,
                                    struct kvad_error *err) {
    if (*type_of(model) && strcmp(type_of(model), "BPE") != 0)
        return unsupported(name, "model", model, err);
    double dropout = 0;
    bool byte_fallback = false;
    const char *prefix = "", *suffix = "";
    KVAD_TRY(kvad_json_get_double(model, name, "dropout", 0, 1, &dropout, err));
    KVAD_TRY(kvad_json_get_bool(model, name, "byte_fallback", &byte_fallback, err));
    KVAD_TRY(kvad_json_get_bool(model, name, "ignore_merges", &t->ignore_merges, err));
    KVAD_TRY(kvad_json_get_string(model, name, "continuing_subword_prefix", &prefix, err));
    KVAD_TRY(kvad_json_get_string(model, name, "end_of_word_suffix", &suffix, err));
    const char *field = dropout != 0    ? "dropout"
                        : byte_fallback ? "byte_fallback"
                        : *prefix       ? "continuing_subword_prefix"
                        : *suffix       ? "end_of_word_suffix"
                                        : NULL;
    if (field)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: field \"%s\" of the BPE model is not supported", name, field);
    if (!json_is_object(json_object_get(model, "vocab")) ||
        !json_is_array(json_object_get(model, "merges")))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: model must have \"vocab\" (an object) and \"merges\" (an array)",
                         name);
    return KVAD_OK;
}

/* unk_token stands for bytes without a token; with all 256 there are none. */
static enum kvad_status check_unknown(const struct kvad_tokenizer *t, const json_t *model,
                                      const char *name, struct kvad_error *err) {
    const char *unknown = NULL;
    KVAD_TRY(kvad_json_get_string(model, name, "unk_token", &unknown, err));
    for (int byte = 0; byte < 256 && unknown; byte++)
        if (t->bpe.byte_ids[byte] < 0)
            return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                             "%s: unk_token is not supported where a byte has no token, as 0x%02X "
                             "here",
                             name, (unsigned)byte);
    return KVAD_OK;
}

static enum kvad_status read_added(const json_t *item, const char *name,
                                   struct kvad_added_source *out, struct kvad_error *err) {
    const char *text = NULL;
    uint32_t id = UINT32_MAX;
    bool special = false, single_word = false, lstrip = false, rstrip = false;
    if (!json_is_object(item))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: added_tokens must be objects", name);
    KVAD_TRY(kvad_json_get_string(item, name, "content", &text, err));
    KVAD_TRY(kvad_json_get_u32(item, name, "id", 0, INT32_MAX, &id, err));
    KVAD_TRY(kvad_json_get_bool(item, name, "special", &special, err));
    bool normalized = !special;
    KVAD_TRY(kvad_json_get_bool(item, name, "normalized", &normalized, err));
    KVAD_TRY(kvad_json_get_bool(item, name, "single_word", &single_word, err));
    KVAD_TRY(kvad_json_get_bool(item, name, "lstrip", &lstrip, err));
    KVAD_TRY(kvad_json_get_bool(item, name, "rstrip", &rstrip, err));
    if (!text || !*text || id == UINT32_MAX)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: an added token needs \"content\" that is not empty and \"id\"", name);
    if (single_word || lstrip || rstrip)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: added token %s: %s is not supported", name,
                         kvad_quote(text, strlen(text)).text,
                         single_word ? "single_word"
                         : lstrip    ? "lstrip"
                                     : "rstrip");
    *out = (struct kvad_added_source){text, strlen(text), id, special, normalized};
    return KVAD_OK;
}

static enum kvad_status load(struct kvad_tokenizer *t, const json_t *model, const json_t *added,
                             const char *name, struct kvad_added_source *sources,
                             struct kvad_error *err) {
    size_t i;
    const json_t *item;
    json_array_foreach(added, i, item) {
        KVAD_TRY(read_added(item, name, &sources[i], err));
    }
    struct kvad_bpe_source source = {
        .name = name,
        .vocab = json_object_get(model, "vocab"),
        .merges = json_object_get(model, "merges"),
        .added = sources,
        .n_added = json_array_size(added),
    };
    KVAD_TRY(kvad_tokenizer_load_bpe(t, &source, err));
    return check_unknown(t, model, name, err);
}

enum kvad_status kvad_tokenizer_load_hf(struct kvad_tokenizer *t, const json_t *root,
                                        const char *name, struct kvad_error *err) {
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_null(added) && !json_is_array(added))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: added_tokens must be an array", name);
    KVAD_TRY(check_model(t, model, name, err));
    KVAD_TRY(check_parts(t, root, name, err));
    size_t bytes = json_array_size(added) * sizeof(struct kvad_added_source);
    struct kvad_added_source *sources = kvad_alloc(&t->heap, bytes);
    if (!sources) return kvad_fail_memory(err, "the added tokens", bytes);
    enum kvad_status status = load(t, model, added, name, sources, err);
    kvad_free(&t->heap, sources, bytes);
    return status;
}
