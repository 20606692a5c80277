/* The public calls on an open tokenizer. */
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/error.h"
#include "tokenizer/chars.h"
#include "tokenizer/pretokenize.h"

struct kvad_tokenizer *kvad_tokenizer_retain(struct kvad_tokenizer *tokenizer) {
    /* Relaxed: the caller holds a reference, so nothing can be freed meanwhile. */
    if (tokenizer) atomic_fetch_add_explicit(&tokenizer->n_references, 1, memory_order_relaxed);
    return tokenizer;
}

void kvad_tokenizer_release(struct kvad_tokenizer **tokenizer) {
    struct kvad_tokenizer *t = tokenizer ? *tokenizer : NULL;
    if (!t) return;
    *tokenizer = NULL;
    /* Release pairs with acquire in the thread that frees: it sees all that others did before. */
    if (atomic_fetch_sub_explicit(&t->n_references, 1, memory_order_acq_rel) != 1) return;
    kvad_added_deinit(&t->added);
    kvad_bpe_deinit(&t->bpe);
    kvad_vocab_deinit(&t->vocab);
    struct kvad_allocator hook = t->heap.hook;
    hook.release(hook.user, t, sizeof *t);
}

uint32_t kvad_tokenizer_size(const struct kvad_tokenizer *tokenizer) {
    return tokenizer->vocab.n_ids;
}

int32_t kvad_tokenizer_eos(const struct kvad_tokenizer *tokenizer) {
    return tokenizer->eos;
}

size_t kvad_tokenizer_longest(const struct kvad_tokenizer *tokenizer) {
    return tokenizer->vocab.longest;
}

enum kvad_status kvad_tokenizer_piece(const struct kvad_tokenizer *tokenizer, int32_t id,
                                      const char **bytes, size_t *size, struct kvad_error *err) {
    const struct kvad_vocab *vocab = &tokenizer->vocab;
    if (id < 0 || (uint32_t)id >= vocab->n_ids)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "token id %d is outside [0, %u)", id,
                         vocab->n_ids);
    *bytes = kvad_vocab_bytes(vocab, (uint32_t)id);
    *size = vocab->pieces[id].size;
    return KVAD_OK;
}

/* One call of encode. */
struct encoding {
    const struct kvad_tokenizer *t;
    const char *text;
    bool with_special;
    struct kvad_bpe_scratch scratch;
    struct kvad_id_sink sink;
    struct kvad_error *err;
};

/* Text without added tokens, piece by piece. `offset` is where it lies in the caller's text. */
static enum kvad_status encode_pieces(struct encoding *e, const char *text, size_t size,
                                      size_t offset) {
    const struct kvad_tokenizer *t = e->t;
    for (size_t at = 0, length; at < size; at += length) {
        length = kvad_pretokenize(text + at, size - at);
        if (t->ignore_merges) {
            int32_t id = kvad_vocab_find(&t->vocab, text + at, length);
            /* The text of a special token must not give its id. */
            if (id >= 0 && !kvad_added_find(&t->added, text + at, length)) {
                kvad_id_push(&e->sink, (uint32_t)id);
                continue;
            }
        }
        KVAD_TRY(kvad_bpe_encode(&t->bpe, text + at, length, offset + at, &e->scratch, &e->sink,
                                 e->err));
    }
    return KVAD_OK;
}

/* The same with a space before it: a copy, since pieces must lie in one run of bytes. */
static enum kvad_status encode_prefixed(struct encoding *e, const char *text, size_t size,
                                        size_t offset) {
    struct kvad_heap *heap = e->t->scratch_heap;
    char *copy = size < SIZE_MAX ? kvad_alloc(heap, size + 1) : NULL;
    if (!copy) return kvad_fail_memory(e->err, "a copy of the text", size);
    copy[0] = ' ';
    memcpy(copy + 1, text, size);
    enum kvad_status status = encode_pieces(e, copy, size + 1, offset - 1);
    kvad_free(heap, copy, size + 1);
    return status;
}

static enum kvad_status encode_plain(struct encoding *e, size_t begin, size_t size) {
    const char *text = e->text + begin;
    if (size == 0) return KVAD_OK;
    if (e->t->kind == KVAD_TOKENIZER_CHARS)
        return kvad_chars_encode(e->t, text, size, begin, &e->sink, e->err);
    if (e->t->add_prefix_space && text[0] != ' ') return encode_prefixed(e, text, size, begin);
    return encode_pieces(e, text, size, begin);
}

/* Cut text[begin..end) at the added tokens of a pass; what lies between goes to the next pass, and
 * after the last one is plain. */
static enum kvad_status encode_pass(struct encoding *e, unsigned pass, size_t begin, size_t end) {
    if (pass == 2) return encode_plain(e, begin, end - begin);
    for (;;) {
        size_t gap;
        const struct kvad_added_token *token = kvad_added_match(&e->t->added, pass, e->with_special,
                                                                e->text + begin, end - begin, &gap);
        KVAD_TRY(encode_pass(e, pass + 1, begin, token ? begin + gap : end));
        if (!token) return KVAD_OK;
        kvad_id_push(&e->sink, token->id);
        begin += gap + e->t->vocab.pieces[token->id].size;
    }
}

enum kvad_status kvad_tokenizer_encode(const struct kvad_tokenizer *tokenizer, const char *text,
                                       size_t size, unsigned flags, int32_t *ids, size_t capacity,
                                       size_t *n_ids, struct kvad_error *err) {
    /* What kvad_model_tokenizer() gives for a model that came without one. */
    if (!tokenizer)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "there is no tokenizer: put its files beside the model, name them, or "
                         "give token ids");
    if (flags & ~(unsigned)KVAD_ENCODE_SPECIAL)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "encode flags 0x%x are unknown", flags);
    if (size > PTRDIFF_MAX)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a text of %zu bytes cannot exist", size);
    struct encoding e = {
        .t = tokenizer,
        .text = text,
        .with_special = flags & KVAD_ENCODE_SPECIAL,
        .sink = {ids, capacity, 0},
        .err = err,
    };
    /* No pass over no text: `text` may be NULL then. */
    enum kvad_status status = size ? encode_pass(&e, 0, 0, size) : KVAD_OK;
    kvad_bpe_scratch_free(&e.scratch, tokenizer->scratch_heap);
    if (status == KVAD_OK) *n_ids = e.sink.n;
    return status;
}
