/* The forward pass once more, in double precision, as plain loops over whole matrices: no cache, no
 * blocks, no batch, no code of src/. What the engine computes must lie within rounding of it.
 *
 * Follows GPT-2 as published (Radford et al. 2019; pre-norm blocks, learned positions) and, for
 * fewer kv heads, Ainslie et al. 2023. */
#ifndef KVAD_TEST_ORACLE_H
#define KVAD_TEST_ORACLE_H

#include "tiny_model.h"

struct oracle {
    size_t n_tokens;
    double *logits; /* [n_tokens][n_vocab] */
    double *hidden; /* [n_layers + 1][n_tokens][d_model]; the last after the final norm */
    double *k, *v;  /* [n_layers][n_kv_heads][n_tokens][head_dim] */
};

struct oracle *oracle_run(const struct tiny_model *tiny, const int32_t *tokens, size_t n_tokens);
void oracle_destroy(struct oracle *oracle);

#endif
