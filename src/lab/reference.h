/* The forward pass once more, in double precision, as plain loops over whole matrices: no cache, no
 * mask, no blocks, no batch, no kernel. It shares nothing with what it is held against but the
 * weights where they lie, widened exactly (quantised ones to what quants and scales mean).
 *
 *   h = embedding + position
 *   for each layer:  h += W_out attention(W_qkv norm1(h)),  h += W_down f(W_up norm2(h))
 *   logits = W_head final_norm(h)
 *
 * as GPT-2 has it (Radford et al. 2019) and, for fewer kv heads, Ainslie et al. 2023. */
#ifndef KVAD_LAB_REFERENCE_H
#define KVAD_LAB_REFERENCE_H

#include "model/model.h"

struct kvad_reference {
    struct kvad_heap *heap; /* borrowed */
    size_t n_tokens;
    double *hidden; /* [n_layers + 1][n_tokens][d_model]: embedding, then after each layer; the last
                       one after the final norm */
    double *k, *v;  /* [n_layers][n_kv_heads][n_tokens][head_dim] */
    double *logits; /* [n_tokens][n_vocab] */
    size_t n_hidden, n_kv, n_logits; /* elements of each */
};

/** Compute a text of at most n_ctx tokens, ids in [0, n_vocab). `go_on` (may be NULL) is asked
 * before each layer; false cancels. One thread; some 2 n_parameters n_tokens operations.
 * KVAD_ERR_ARGUMENT for an empty or too long text, KVAD_ERR_NO_MEMORY, KVAD_ERR_CANCELLED.
 * kvad_reference_deinit() follows in any case. */
enum kvad_status kvad_reference_run(const struct kvad_model *model, const int32_t *tokens,
                                    size_t n_tokens, struct kvad_heap *heap,
                                    bool (*go_on)(void *user), void *user,
                                    struct kvad_reference *out, struct kvad_error *err);
/** A zeroed reference is allowed. */
void kvad_reference_deinit(struct kvad_reference *reference);

#endif
