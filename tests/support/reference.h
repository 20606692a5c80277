/* What one text must give: logits, hidden states, K and V of every position, from one step over the
 * whole text, alone, on one thread, on contiguous pages; compared with the oracle first. All other
 * ways to compute the same must give these bits. */
#ifndef KVAD_TEST_REFERENCE_H
#define KVAD_TEST_REFERENCE_H

#include "engines.h"
#include "tiny_model.h"

struct reference {
    struct tiny_model *tiny;
    struct kvad_model *model;
    bool owns_model;
    size_t n;        /* tokens */
    int32_t *tokens; /* [n] */
    float *logits;   /* [n][n_vocab] */
    float *hidden;   /* [n_layers + 1][n][d_model] */
    float *k, *v;    /* [n_layers][n_kv_heads][n][head_dim] */
};

/** A model of these sizes and a random text of `n` tokens. */
struct reference *reference_create(const struct tiny_sizes *sizes, size_t n);
/** Another text for the same model, which stays owned by `first`. */
struct reference *reference_more(const struct reference *first, size_t n, uint64_t seed);
/** The text `tokens` (copied) for a model, both borrowed. */
struct reference *reference_of(struct tiny_model *tiny, struct kvad_model *model,
                               const int32_t *tokens, size_t n);
void reference_destroy(struct reference *reference);

static inline size_t reference_vocab(const struct reference *reference) {
    return reference->tiny->description.n_vocab;
}

/** Append the next `n` tokens of the text to the sequence, and compare their logits and the cache.
 */
void follow(const struct reference *reference, struct kvad_sequence *sequence, size_t n,
            const char *where);

/** Logits [n][n_vocab] of the positions [first, first + n) have the reference's bits. */
void assert_rows(const struct reference *reference, size_t first, size_t n, const float *logits,
                 const char *where);
/** The same for hidden states [n_layers + 1][n][d_model]. */
void assert_hidden(const struct reference *reference, size_t first, size_t n, const float *hidden,
                   const char *where);
/** K and V of all positions in the sequence have the reference's bits, in every layer. */
void assert_cache(const struct reference *reference, const struct kvad_sequence *sequence,
                  const char *where);

#endif
