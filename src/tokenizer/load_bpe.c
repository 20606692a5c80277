/* Fills a byte-level BPE from the parsed parts of its files. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/quote.h"
#include "tokenizer/tokenizer.h"

enum kvad_status kvad_tokenizer_check_id(const char *name, const char *token, size_t size,
                                         int64_t id, size_t n_tokens, struct kvad_error *err) {
    uint64_t limit = 2 * (uint64_t)n_tokens + 4096;
    if (id >= 0 && (uint64_t)id < limit && id < INT32_MAX) return KVAD_OK;
    return kvad_fail(
        err, KVAD_ERR_FORMAT, "%s: token %s has id %lld; ids of %zu tokens must be 0 to %llu", name,
        kvad_quote(token, size).text, (long long)id, n_tokens, (unsigned long long)limit - 1);
}

/* Number of ids and bytes of all tokens, so that the vocabulary is allocated once. */
static enum kvad_status measure(const struct kvad_bpe_source *source, uint32_t *n_ids,
                                size_t *n_bytes, struct kvad_error *err) {
    size_t n_tokens = json_object_size(source->vocab) + source->n_added;
    *n_ids = 0;
    *n_bytes = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)source->vocab, key, value) {
        size_t size = strlen(key);
        if (!json_is_integer(value))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: the id of token %s must be a whole number",
                             source->name, kvad_quote(key, size).text);
        json_int_t id = json_integer_value(value);
        KVAD_TRY(kvad_tokenizer_check_id(source->name, key, size, id, n_tokens, err));
        if ((uint32_t)id >= *n_ids) *n_ids = (uint32_t)id + 1;
        *n_bytes += size;
    }
    for (size_t i = 0; i < source->n_added; i++) {
        const struct kvad_added_source *added = &source->added[i];
        KVAD_TRY(kvad_tokenizer_check_id(source->name, added->text, added->size, added->id,
                                         n_tokens, err));
        if (added->id >= *n_ids) *n_ids = added->id + 1;
        *n_bytes += added->size;
    }
    if (n_tokens == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: the vocabulary is empty", source->name);
    if (*n_bytes > INT32_MAX)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: tokens of %zu bytes in all are too many",
                         source->name, *n_bytes);
    return KVAD_OK;
}

/* Tokens outside of the byte alphabet can be decoded, as their own text, but merging cannot make
 * them: they stay out of the index. */
static enum kvad_status put_tokens(struct kvad_tokenizer *t, const struct kvad_bpe_source *source,
                                   struct kvad_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)source->vocab, key, value) {
        size_t key_size = strlen(key), size;
        uint32_t id = (uint32_t)json_integer_value(value);
        char *room = kvad_vocab_room(&t->vocab);
        bool mapped = kvad_alphabet_to_bytes(key, key_size, room, &size);
        if (!kvad_vocab_set(&t->vocab, id, mapped ? room : key, mapped ? size : key_size))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: token %s is empty or shares its id %u",
                             source->name, kvad_quote(key, key_size).text, id);
        if (mapped && !kvad_vocab_index(&t->vocab, id))
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: token %s cannot be indexed: too many tokens with equal hashes",
                             source->name, kvad_quote(key, key_size).text);
    }
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->bpe.byte_ids[byte] = kvad_vocab_find(&t->vocab, &text, 1);
    }
    return KVAD_OK;
}

static enum kvad_status put_added(struct kvad_tokenizer *t, const struct kvad_bpe_source *source,
                                  const struct kvad_added_source *added, struct kvad_error *err) {
    const json_t *known = json_object_get(source->vocab, added->text);
    const struct kvad_piece *piece = &t->vocab.pieces[added->id];
    struct kvad_quote quote = kvad_quote(added->text, added->size);
    if (known && json_integer_value(known) != added->id)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: added token %s has id %u, but the vocabulary gives it %lld",
                         source->name, quote.text, added->id, (long long)json_integer_value(known));
    if (!piece->size && !kvad_vocab_set(&t->vocab, added->id, added->text, added->size))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: added token with id %u is empty", source->name,
                         added->id);
    /* The text that is matched and the text that is printed must be one. */
    if (piece->size != added->size ||
        memcmp(kvad_vocab_bytes(&t->vocab, added->id), added->text, added->size) != 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: added token %s has the id %u of another token",
                         source->name, quote.text, added->id);
    kvad_added_put(&t->added, added->id, added->special, added->normalized);
    return KVAD_OK;
}

static enum kvad_status put_all_added(struct kvad_tokenizer *t,
                                      const struct kvad_bpe_source *source,
                                      struct kvad_error *err) {
    for (size_t i = 0; i < source->n_added; i++)
        KVAD_TRY(put_added(t, source, &source->added[i], err));
    kvad_added_finish(&t->added);
    const struct kvad_added_token *twice = kvad_added_twice(&t->added);
    if (!twice) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: added token with id %u is given twice",
                     source->name, twice->id);
}

/* Turning merges into ids. `buffer` takes the bytes of a whole merge. */
struct merge_reader {
    struct kvad_tokenizer *t;
    const char *name;
    char *buffer;
    size_t buffer_size;
    struct kvad_error *err;
};

struct merge {
    const char *left, *right;
    size_t left_size, right_size;
    size_t number; /* from 1, for errors */
};

static enum kvad_status bad_merge(const struct merge_reader *reader, const struct merge *m,
                                  const char *why) {
    return kvad_fail(reader->err, KVAD_ERR_FORMAT, "%s: merge %zu (%s + %s) %s", reader->name,
                     m->number, kvad_quote(m->left, m->left_size).text,
                     kvad_quote(m->right, m->right_size).text, why);
}

static enum kvad_status add_merge(const struct merge_reader *reader, const struct merge *m) {
    static const char not_tokens[] =
        "is not of tokens of the vocabulary, to give one; the two must belong together";
    const struct kvad_vocab *vocab = &reader->t->vocab;
    size_t n_left, n_right;
    /* A character of the byte alphabet has at most 2 bytes: what is longer is no token. */
    if (m->left_size > reader->buffer_size || m->right_size > reader->buffer_size - m->left_size ||
        !kvad_alphabet_to_bytes(m->left, m->left_size, reader->buffer, &n_left) ||
        !kvad_alphabet_to_bytes(m->right, m->right_size, reader->buffer + n_left, &n_right))
        return bad_merge(reader, m, not_tokens);
    int32_t left = kvad_vocab_find(vocab, reader->buffer, n_left);
    int32_t right = kvad_vocab_find(vocab, reader->buffer + n_left, n_right);
    int32_t merged = kvad_vocab_find(vocab, reader->buffer, n_left + n_right);
    if (left < 0 || right < 0 || merged < 0) return bad_merge(reader, m, not_tokens);
    switch (kvad_bpe_add(&reader->t->bpe, (uint32_t)left, (uint32_t)right, (uint32_t)merged)) {
    case KVAD_BPE_ADDED: return KVAD_OK;
    case KVAD_BPE_COLLISIONS: return bad_merge(reader, m, "has a hash that too many others have");
    case KVAD_BPE_DUPLICATE: break;
    }
    return bad_merge(reader, m,
                     "is given twice; readers disagree on which rank counts, so remove one");
}

/* One line of merges.txt without its end; an empty one and "#version" at the top are no merges. */
static bool next_line(const struct kvad_tokenizer_file *file, size_t *at, const char **line,
                      size_t *size) {
    const char *text = file->data;
    size_t head = kvad_utf8_mark(text, file->size);
    if (*at < head) *at = head;
    while (*at < file->size) {
        size_t begin = *at;
        const char *end = memchr(text + begin, '\n', file->size - begin);
        *size = end ? (size_t)(end - text) - begin : file->size - begin;
        *at = begin + *size + (end ? 1 : 0);
        *line = text + begin;
        if (*size && (*line)[*size - 1] == '\r') --*size;
        bool is_version = begin == head && *size >= 8 && memcmp(*line, "#version", 8) == 0;
        if (*size && !is_version) return true;
    }
    return false;
}

static enum kvad_status add_pair_text(const struct merge_reader *reader, const char *text,
                                      size_t size, size_t number) {
    const char *space = memchr(text, ' ', size);
    size_t left = space ? (size_t)(space - text) : size;
    if (!space || left == 0 || left + 1 == size || memchr(space + 1, ' ', size - left - 1))
        return kvad_fail(reader->err, KVAD_ERR_FORMAT,
                         "%s: merge %zu is %s; it must be two tokens with one space between",
                         reader->name, number, kvad_quote(text, size).text);
    return add_merge(reader, &(struct merge){text, space + 1, left, size - left - 1, number});
}

static enum kvad_status add_pair_json(const struct merge_reader *reader, const json_t *pair,
                                      size_t number) {
    if (json_is_string(pair))
        return add_pair_text(reader, json_string_value(pair), json_string_length(pair), number);
    const json_t *left = json_array_get(pair, 0), *right = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(left) || !json_is_string(right))
        return kvad_fail(reader->err, KVAD_ERR_FORMAT,
                         "%s: merge %zu must be \"A B\" or [\"A\", \"B\"]", reader->name, number);
    return add_merge(reader,
                     &(struct merge){json_string_value(left), json_string_value(right),
                                     json_string_length(left), json_string_length(right), number});
}

static enum kvad_status add_merges(const struct merge_reader *reader,
                                   const struct kvad_bpe_source *source) {
    size_t number = 0, at = 0, size;
    const char *line;
    if (!source->merges) {
        while (next_line(&source->merges_file, &at, &line, &size))
            KVAD_TRY(add_pair_text(reader, line, size, ++number));
        return KVAD_OK;
    }
    for (; number < json_array_size(source->merges); number++)
        KVAD_TRY(add_pair_json(reader, json_array_get(source->merges, number), number + 1));
    return KVAD_OK;
}

static size_t count_merges(const struct kvad_bpe_source *source) {
    if (source->merges) return json_array_size(source->merges);
    size_t n = 0, at = 0, size;
    const char *line;
    while (next_line(&source->merges_file, &at, &line, &size))
        n++;
    return n;
}

enum kvad_status kvad_tokenizer_load_bpe(struct kvad_tokenizer *t,
                                         const struct kvad_bpe_source *source,
                                         struct kvad_error *err) {
    uint32_t n_ids;
    size_t n_bytes, n_merges = count_merges(source);
    t->kind = KVAD_TOKENIZER_BPE;
    if (n_merges > INT32_MAX / 4)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: %zu merges are too many", source->name,
                         n_merges);
    KVAD_TRY(measure(source, &n_ids, &n_bytes, err));
    KVAD_TRY(kvad_vocab_init(&t->vocab, &t->heap, n_ids, (uint32_t)n_bytes, err));
    KVAD_TRY(kvad_bpe_init(&t->bpe, &t->heap, (uint32_t)n_merges, err));
    KVAD_TRY(kvad_added_init(&t->added, &t->heap, &t->vocab, (uint32_t)source->n_added, err));
    KVAD_TRY(put_tokens(t, source, err));
    if (t->add_prefix_space && t->bpe.byte_ids[' '] < 0)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: add_prefix_space is set, but the space has no token", source->name);
    KVAD_TRY(put_all_added(t, source, err));
    struct merge_reader reader = {
        .t = t,
        .name = source->merges ? source->name : source->merges_file.name,
        .buffer_size = 2 * (size_t)t->vocab.longest,
        .err = err,
    };
    reader.buffer = kvad_alloc(&t->heap, reader.buffer_size);
    if (!reader.buffer) return kvad_fail_memory(err, "reading merges", reader.buffer_size);
    enum kvad_status status = add_merges(&reader, source);
    kvad_free(&t->heap, reader.buffer, reader.buffer_size);
    return status;
}
