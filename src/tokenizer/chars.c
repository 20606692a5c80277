#include "tokenizer/chars.h"

#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/quote.h"

bool kvad_chars_parse_id(const char *text, size_t size, int64_t *id) {
    int64_t value = 0;
    if (size == 0 || size > 10) return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = 10 * value + (text[i] - '0');
    }
    *id = value;
    return true;
}

enum kvad_status kvad_chars_check_tokenization(const char *name, const char *value,
                                               struct kvad_error *err) {
    if (!value || strcmp(value, "char") == 0 || strcmp(value, "character") == 0) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: \"tokenization\" is %s, only character vocabularies are supported; give "
                     "token ids instead of text",
                     name, kvad_quote(value, strlen(value)).text);
}

/* Characters of a text; 0 if it is not UTF-8 or empty. */
static size_t count_chars(const char *text, size_t size) {
    size_t n = 0;
    for (size_t at = 0; at < size; n++) {
        uint32_t code_point;
        at += kvad_utf8_decode(text + at, size - at, &code_point);
        if (code_point > 0x10ffff) return 0;
    }
    return n;
}

static enum kvad_status measure(const struct kvad_chars_source *source,
                                const struct kvad_char_source *tokens, size_t n, uint32_t *n_ids,
                                uint32_t *n_bytes, uint32_t *n_long, struct kvad_error *err) {
    size_t bytes = 0;
    *n_ids = *n_long = *n_bytes = 0;
    if (n == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: \"stoi\" and \"itos\" are empty", source->name);
    for (size_t i = 0; i < n; i++) {
        const struct kvad_char_source *token = &tokens[i];
        KVAD_TRY(
            kvad_tokenizer_check_id(source->name, token->text, token->size, token->id, n, err));
        size_t n_chars = count_chars(token->text, token->size);
        if (n_chars == 0)
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: the text of id %lld, %s, is empty or not UTF-8", source->name,
                             (long long)token->id, kvad_quote(token->text, token->size).text);
        if (n_chars > 1) ++*n_long;
        if ((uint32_t)token->id >= *n_ids) *n_ids = (uint32_t)token->id + 1;
        bytes += token->size;
    }
    if (bytes > INT32_MAX)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: tokens of %zu bytes in all are too many",
                         source->name, bytes);
    *n_bytes = (uint32_t)bytes;
    return KVAD_OK;
}

/* Where both tables are given, each entry of itos must be what stoi says: encode and decode must
 * not disagree. */
static enum kvad_status check_agreement(const struct kvad_tokenizer *t,
                                        const struct kvad_chars_source *source,
                                        struct kvad_error *err) {
    if (source->n_stoi == 0 || source->n_itos == 0) return KVAD_OK;
    for (size_t i = 0; i < source->n_itos; i++) {
        const struct kvad_char_source *token = &source->itos[i];
        if (kvad_vocab_find(&t->vocab, token->text, token->size) != token->id)
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: itos gives id %lld the text %s, but stoi does not", source->name,
                             (long long)token->id, kvad_quote(token->text, token->size).text);
    }
    if (source->n_stoi != source->n_itos)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: stoi has %zu entries, but itos has %zu",
                         source->name, source->n_stoi, source->n_itos);
    return KVAD_OK;
}

enum kvad_status kvad_chars_load(struct kvad_tokenizer *t, const struct kvad_chars_source *source,
                                 struct kvad_error *err) {
    const struct kvad_char_source *tokens = source->n_stoi ? source->stoi : source->itos;
    size_t n = source->n_stoi ? source->n_stoi : source->n_itos;
    uint32_t n_ids, n_bytes, n_long;
    t->kind = KVAD_TOKENIZER_CHARS;
    KVAD_TRY(measure(source, tokens, n, &n_ids, &n_bytes, &n_long, err));
    KVAD_TRY(kvad_vocab_init(&t->vocab, &t->heap, n_ids, n_bytes, err));
    KVAD_TRY(kvad_added_init(&t->added, &t->heap, &t->vocab, n_long, err));
    for (size_t i = 0; i < n; i++) {
        const struct kvad_char_source *token = &tokens[i];
        uint32_t id = (uint32_t)token->id;
        if (!kvad_vocab_set(&t->vocab, id, token->text, token->size) ||
            !kvad_vocab_index(&t->vocab, id))
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: %s and another token share their id %u or their text",
                             source->name, kvad_quote(token->text, token->size).text, id);
        if (count_chars(token->text, token->size) > 1) kvad_added_put(&t->added, id, true, false);
    }
    kvad_added_finish(&t->added);
    return check_agreement(t, source, err);
}

static enum kvad_status unknown_char(const struct kvad_tokenizer *t, const char *text, size_t size,
                                     uint32_t code_point, size_t offset, struct kvad_error *err) {
    if (code_point > 0x10ffff)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "the text is not UTF-8 at byte offset %zu (%s), which a character "
                         "vocabulary cannot express",
                         offset, kvad_quote(text, size).text);
    return kvad_fail(err, KVAD_ERR_ARGUMENT,
                     "character %s (U+%04X) at byte offset %zu is not in the vocabulary of %u "
                     "characters; remove it, or use a model that was trained with it",
                     kvad_quote(text, size).text, code_point, offset, t->vocab.n_ids);
}

enum kvad_status kvad_chars_encode(const struct kvad_tokenizer *t, const char *text, size_t size,
                                   size_t offset, struct kvad_id_sink *sink,
                                   struct kvad_error *err) {
    for (size_t at = 0; at < size;) {
        uint32_t code_point;
        size_t length = kvad_utf8_decode(text + at, size - at, &code_point);
        int32_t id = kvad_vocab_find(&t->vocab, text + at, length);
        if (id < 0) return unknown_char(t, text + at, length, code_point, offset + at, err);
        kvad_id_push(sink, (uint32_t)id);
        at += length;
    }
    return KVAD_OK;
}
