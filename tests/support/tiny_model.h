/* Small random models, asymmetrical in every way that a mistake could hide behind: no two sizes
 * equal, no weight matrix symmetrical, biases and norms far from 0 and 1. */
#ifndef KVAD_TEST_TINY_MODEL_H
#define KVAD_TEST_TINY_MODEL_H

#include "model/build.h"

struct tiny_sizes {
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_ctx;
    enum kvad_activation activation; /* AUTO: tanh GELU */
    bool no_bias;                    /* neither linears nor norms have one */
    bool untied;                     /* the head has weights (and, unless no_bias, a bias) */
    bool no_scale, scale_by_layer;   /* of the attention scores */
    uint64_t seed;
};

/* Ready-made sizes. heads, head_dim, layers and lengths differ; d_ff != 4 d_model; the vocabulary
 * is no multiple of 16. */
extern const struct tiny_sizes tiny_odd;  /* context 61 */
extern const struct tiny_sizes tiny_wide; /* inputs longer than a segment of 128; context 40 */
extern const struct tiny_sizes tiny_long; /* context 560: across 256 and 512 */
extern const struct tiny_sizes tiny_gqa;  /* 6 query heads on 2 kv heads; untied head */

/** Bytes of K and V of such a model in float32: of a token, of a block of 16. */
size_t tiny_token_bytes(const struct tiny_sizes *sizes);
size_t tiny_block_bytes(const struct tiny_sizes *sizes);

struct tiny_model {
    struct kvad_description description;
    bool present[KVAD_PARAMETER_COUNT];
    /* [1 + n_layers][KVAD_PARAMETER_COUNT] row-major as y = W x reads them: the form that
     * kvad_model_build_arrays() takes and that the oracle computes with. NULL: absent. */
    float *(*parameters)[KVAD_PARAMETER_COUNT];
};

struct tiny_model *tiny_model_create(const struct tiny_sizes *sizes);
void tiny_model_destroy(struct tiny_model *tiny);
/** The same model with as many kv heads as query heads: rows of K and V repeated. */
struct tiny_model *tiny_model_repeat_kv(const struct tiny_model *tiny);

/** Elements of a parameter. */
size_t tiny_model_size(const struct tiny_model *tiny, enum kvad_parameter parameter);
/** Pack it for the engine; fails the test on an error. The caller owns one reference. */
struct kvad_model *tiny_model_build(const struct tiny_model *tiny);
enum kvad_status tiny_model_try_build(const struct tiny_model *tiny,
                                      const struct kvad_model_options *options,
                                      struct kvad_model **out, struct kvad_error *err);

/** `n` random ids of a vocabulary; free() it. */
int32_t *tiny_tokens(uint32_t n_vocab, size_t n, uint64_t seed);

#endif
