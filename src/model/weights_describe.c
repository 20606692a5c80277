/* The third step of weights.h: the description, and every shape against it. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/weights.h"

static bool is_linear_weight(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_QKV_WEIGHT || p == KVAD_PARAMETER_OUT_WEIGHT ||
           p == KVAD_PARAMETER_UP_WEIGHT || p == KVAD_PARAMETER_DOWN_WEIGHT;
}

static bool is_matrix(enum kvad_parameter p) {
    return is_linear_weight(p) || p == KVAD_PARAMETER_EMBEDDING || p == KVAD_PARAMETER_POSITIONS ||
           p == KVAD_PARAMETER_HEAD_WEIGHT;
}

/* ---- sizes */

/* One dimension of a matrix, or the failure that it is none. */
static enum kvad_status read_size(const struct kvad_tensor *tensor, uint32_t dim, uint32_t *out,
                                  struct kvad_error *err) {
    char shape[128];
    if (tensor->n_dims != 2)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: shape %s, expected a matrix",
                         tensor->file, tensor->name,
                         kvad_tensor_shape_text(tensor, shape, sizeof shape));
    if (tensor->shape[dim] == 0 || tensor->shape[dim] > 1u << 30)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: shape %s, sizes must be 1 to %u",
                         tensor->file, tensor->name,
                         kvad_tensor_shape_text(tensor, shape, sizeof shape), 1u << 30);
    *out = (uint32_t)tensor->shape[dim];
    return KVAD_OK;
}

/* minGPT of 2020 has the table as [1][n_ctx][d_model]. */
static struct kvad_tensor as_matrix(const struct kvad_tensor *tensor) {
    struct kvad_tensor view = *tensor;
    if (view.n_dims == 3 && view.shape[0] == 1) {
        view.n_dims = 2;
        memmove(view.shape, view.shape + 1, 2 * sizeof *view.shape);
        memmove(view.stride, view.stride + 1, 2 * sizeof *view.stride);
    }
    return view;
}

static enum kvad_status read_sizes(struct kvad_weights *w, const struct kvad_config *config,
                                   struct kvad_error *err) {
    struct kvad_description *d = &w->description;
    const struct kvad_tensor *embedding = *kvad_weights_slot(w, KVAD_PARAMETER_EMBEDDING, 0, 0);
    const struct kvad_tensor *up = *kvad_weights_slot(w, KVAD_PARAMETER_UP_WEIGHT, 0, 0);
    w->positions = as_matrix(*kvad_weights_slot(w, KVAD_PARAMETER_POSITIONS, 0, 0));
    KVAD_TRY(read_size(embedding, 0, &d->n_vocab, err));
    KVAD_TRY(read_size(embedding, 1, &d->d_model, err));
    KVAD_TRY(read_size(&w->positions, 0, &d->n_ctx, err));
    KVAD_TRY(read_size(up, w->family->conv1d ? 1 : 0, &d->d_ff, err));
    d->n_layers = w->n_layers;
    /* What the configuration says is what the shapes are checked against. */
    if (config->n_vocab) d->n_vocab = config->n_vocab;
    if (config->d_model) d->d_model = config->d_model;
    if (config->n_ctx) d->n_ctx = config->n_ctx;
    if (config->d_ff) d->d_ff = config->d_ff;
    return KVAD_OK;
}

static enum kvad_status decide_heads(struct kvad_weights *w, const struct kvad_config *config,
                                     uint32_t wanted, struct kvad_error *err) {
    struct kvad_description *d = &w->description;
    uint32_t known = w->n_named_heads ? w->n_named_heads : config->n_heads;
    if (!known && !wanted)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s: the file does not say how many attention heads the model has%s; pass "
                         "--n-head N",
                         w->checkpoint->path,
                         w->family->conv1d ? " (no config.json beside it)" : "");
    if (known && wanted && known != wanted)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s: has %u attention heads, but %u were asked for", config->source, known,
                         wanted);
    d->n_heads = known ? known : wanted;
    d->n_kv_heads = d->n_heads;
    if (d->d_model % d->n_heads != 0)
        return kvad_fail(err, known ? KVAD_ERR_FORMAT : KVAD_ERR_ARGUMENT,
                         "%s: width %u is not divisible by %u heads", config->source, d->d_model,
                         d->n_heads);
    d->head_dim = d->d_model / d->n_heads;
    return KVAD_OK;
}

/* ---- shapes */

static bool has_shape(const struct kvad_tensor *tensor, const size_t *shape, uint32_t n_dims) {
    return tensor->n_dims == n_dims && memcmp(tensor->shape, shape, n_dims * sizeof *shape) == 0;
}

static enum kvad_status wrong_shape(const struct kvad_tensor *tensor, const size_t *want,
                                    uint32_t n_dims, const char *source, struct kvad_error *err) {
    char shape[128], wanted[64];
    if (n_dims == 1)
        snprintf(wanted, sizeof wanted, "[%zu]", want[0]);
    else
        snprintf(wanted, sizeof wanted, "[%zu, %zu]", want[0], want[1]);
    bool turned = tensor->n_dims == 2 && n_dims == 2 && tensor->shape[0] == want[1] &&
                  tensor->shape[1] == want[0];
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s: shape %s, expected %s by %s%s",
                     tensor->file, tensor->name,
                     kvad_tensor_shape_text(tensor, shape, sizeof shape), wanted, source,
                     turned ? "; the matrix is stored the other way round (nn.Linear against "
                              "Hugging Face's Conv1D)"
                            : "");
}

static enum kvad_status check_tensor(struct kvad_weights *w, enum kvad_parameter parameter,
                                     const struct kvad_tensor *tensor, const char *source,
                                     struct kvad_error *err) {
    size_t want[2], n_pieces = kvad_weights_pieces(w, parameter);
    kvad_parameter_shape(&w->description, parameter, &want[0], &want[1]);
    if (is_matrix(parameter)) {
        want[0] /= n_pieces;
        if (w->source.transposed[parameter]) {
            size_t rows = want[0];
            want[0] = want[1];
            want[1] = rows;
        }
        if (!has_shape(tensor, want, 2)) return wrong_shape(tensor, want, 2, source, err);
    } else {
        want[0] = want[1] / n_pieces;
        if (!has_shape(tensor, want, 1)) return wrong_shape(tensor, want, 1, source, err);
    }
    if (tensor->dtype != KVAD_DTYPE_F32 && tensor->dtype != KVAD_DTYPE_F16 &&
        tensor->dtype != KVAD_DTYPE_BF16 && tensor->dtype != KVAD_DTYPE_F64)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: tensor %s: weights must be F32, F16, BF16 or F64, not %s",
                         tensor->file, tensor->name, kvad_dtype_name(tensor->dtype));
    w->n_elements += tensor->n_elements;
    return KVAD_OK;
}

static enum kvad_status check_shapes(struct kvad_weights *w, enum kvad_parameter parameter,
                                     const char *source, struct kvad_error *err) {
    if (!w->source.present[parameter]) return KVAD_OK;
    if (parameter == KVAD_PARAMETER_HEAD_WEIGHT && w->description.head_tied) return KVAD_OK;
    if (parameter == KVAD_PARAMETER_POSITIONS)
        return check_tensor(w, parameter, &w->positions, source, err);
    uint32_t n_layers = kvad_parameter_is_per_layer(parameter) ? w->n_layers : 1;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (size_t piece = 0; piece < kvad_weights_pieces(w, parameter); piece++)
            KVAD_TRY(check_tensor(w, parameter, *kvad_weights_slot(w, parameter, layer, piece),
                                  source, err));
    return KVAD_OK;
}

/* Tensors of a torch file may share their bytes, so a small file could ask for much memory. An
 * element takes at least 2 bytes of its own; twice that is allowed, and anything small. */
static enum kvad_status check_sharing(const struct kvad_weights *w, struct kvad_error *err) {
    static const uint64_t small = 1u << 24;
    if (w->n_elements <= small || w->n_elements <= w->checkpoint->n_bytes) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_FORMAT,
                     "%s: %llu parameters out of %llu bytes: the tensors share too many of them",
                     w->checkpoint->path, (unsigned long long)w->n_elements,
                     (unsigned long long)w->checkpoint->n_bytes);
}

enum kvad_status kvad_weights_describe(struct kvad_weights *w, const struct kvad_config *config,
                                       uint32_t n_heads, enum kvad_activation activation,
                                       struct kvad_error *err) {
    struct kvad_description *d = &w->description;
    snprintf(d->family, sizeof d->family, "%s", w->family->name);
    KVAD_TRY(read_sizes(w, config, err));
    KVAD_TRY(decide_heads(w, config, n_heads, err));
    d->activation = activation != KVAD_ACTIVATION_AUTO           ? activation
                    : config->activation != KVAD_ACTIVATION_AUTO ? config->activation
                                                                 : w->family->activation;
    d->norm_eps = config->norm_eps;
    d->scale_attn = config->scale_attn;
    d->scale_attn_by_layer = config->scale_attn_by_layer;
    d->eos = (int32_t)config->eos;
    KVAD_TRY(kvad_description_check(d, config->source, err));
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
        w->source.transposed[p] = w->family->conv1d && is_linear_weight(p);
        KVAD_TRY(check_shapes(w, p, config->source, err));
    }
    return check_sharing(w, err);
}
