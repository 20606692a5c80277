/* Building a model from a description and something that reads rows of parameters: what the loader
 * and the tests use. */
#ifndef KVAD_MODEL_BUILD_H
#define KVAD_MODEL_BUILD_H

#include "model/model.h"

/* The parameters of a model. X(enum suffix, name for errors, per layer)
 * Shapes, row-major, as y = W x reads them:
 *   EMBEDDING [n_vocab][d_model]   POSITIONS [n_ctx][d_model]
 *   QKV [(n_heads + 2 n_kv_heads) * head_dim][d_model]   OUT [d_model][n_heads * head_dim]
 *   UP [d_ff][d_model]   DOWN [d_model][d_ff]   HEAD [n_vocab][d_model]   biases and norms: one row
 */
#define KVAD_PARAMETER_LIST(X)                                                                     \
    X(EMBEDDING, "token embedding", 0)                                                             \
    X(POSITIONS, "position table", 0)                                                              \
    X(NORM1_WEIGHT, "first norm weight", 1)                                                        \
    X(NORM1_BIAS, "first norm bias", 1)                                                            \
    X(QKV_WEIGHT, "qkv weight", 1)                                                                 \
    X(QKV_BIAS, "qkv bias", 1)                                                                     \
    X(OUT_WEIGHT, "attention output weight", 1)                                                    \
    X(OUT_BIAS, "attention output bias", 1)                                                        \
    X(NORM2_WEIGHT, "second norm weight", 1)                                                       \
    X(NORM2_BIAS, "second norm bias", 1)                                                           \
    X(UP_WEIGHT, "mlp up weight", 1)                                                               \
    X(UP_BIAS, "mlp up bias", 1)                                                                   \
    X(DOWN_WEIGHT, "mlp down weight", 1)                                                           \
    X(DOWN_BIAS, "mlp down bias", 1)                                                               \
    X(FINAL_NORM_WEIGHT, "final norm weight", 0)                                                   \
    X(FINAL_NORM_BIAS, "final norm bias", 0)                                                       \
    X(HEAD_WEIGHT, "head weight", 0)                                                               \
    X(HEAD_BIAS, "head bias", 0)

enum kvad_parameter {
#define KVAD_PARAMETER_ENUM(suffix, name, per_layer) KVAD_PARAMETER_##suffix,
    KVAD_PARAMETER_LIST(KVAD_PARAMETER_ENUM)
#undef KVAD_PARAMETER_ENUM
        KVAD_PARAMETER_COUNT
};

/* Where the values come from. `present` says which of the biases exist (weights always do; with
 * head_tied HEAD_WEIGHT is never read, the embedding is). `read` writes the columns [first, first +
 * n) of row `row` of a parameter; several threads call it at once; a failure ends the build. Where
 * `transposed[p]` is set, the source has W of that parameter as [k][n] and `row` is an input. */
struct kvad_model_source {
    bool present[KVAD_PARAMETER_COUNT];
    bool transposed[KVAD_PARAMETER_COUNT];
    enum kvad_status (*read)(void *user, enum kvad_parameter parameter, uint32_t layer, size_t row,
                             size_t first, size_t n, float *out, struct kvad_error *err);
    void *user;
};

/** Build a model with one reference. `options` may be NULL; of it the allocator, log, progress and
 * threads are used. No tokenizer: n_tokens = n_vocab. KVAD_ERR_NO_MEMORY, KVAD_ERR_CANCELLED, what
 * kvad_description_check() or the source says. */
enum kvad_status kvad_model_build(const struct kvad_description *description,
                                  const struct kvad_model_source *source,
                                  const struct kvad_model_options *options, struct kvad_model **out,
                                  struct kvad_error *err);

/** The same from plain arrays: parameters[0][p] for those of the whole model, parameters[1 + l][p]
 * for those of layer l, each in the shape above; NULL where a bias (or a tied head) is absent. */
enum kvad_status kvad_model_build_arrays(const struct kvad_description *description,
                                         const float *const (*parameters)[KVAD_PARAMETER_COUNT],
                                         const struct kvad_model_options *options,
                                         struct kvad_model **out, struct kvad_error *err);

/** The workers of a load with one reference: the caller's, or a new pool of as many as options say.
 * `options` may be NULL. */
enum kvad_status kvad_model_threads(const struct kvad_model_options *options,
                                    struct kvad_threads **out, struct kvad_error *err);

/** Rows and columns of a parameter as y = W x reads it; biases and norms have one row. */
void kvad_parameter_shape(const struct kvad_description *description, enum kvad_parameter parameter,
                          size_t *n_rows, size_t *n_columns);
bool kvad_parameter_is_per_layer(enum kvad_parameter parameter);
const char *kvad_parameter_name(enum kvad_parameter parameter);

/** What a model of this description costs and counts, without building it: fills n_parameters,
 * area_bytes and has_bias of `model`, whose type of weights is set. KVAD_ERR_FORMAT if the sizes
 * overflow this machine. */
enum kvad_status kvad_model_measure(const struct kvad_description *description,
                                    const bool present[KVAD_PARAMETER_COUNT],
                                    struct kvad_model *model, struct kvad_error *err);

/** Reserve the area of a model whose description and type of weights are set, and place every array
 * in it. KVAD_ERR_NO_MEMORY or what kvad_model_measure() says. */
enum kvad_status kvad_model_allocate(struct kvad_model *model,
                                     const bool present[KVAD_PARAMETER_COUNT],
                                     struct kvad_error *err);

/** Place every array of a model in its area, which is there. KVAD_ERR_NO_MEMORY for the list of
 * layers. */
enum kvad_status kvad_model_place(struct kvad_model *model,
                                  const bool present[KVAD_PARAMETER_COUNT], struct kvad_error *err);

static inline size_t kvad_panel_count(size_t n) {
    return (n + KVAD_PANEL - 1) / KVAD_PANEL;
}

#endif
