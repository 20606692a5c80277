#include "oracle.h"

#include <math.h>

#include "test.h"

static double *new_doubles(size_t n) {
    double *values = calloc(n, sizeof *values);
    assert_non_null(values);
    return values;
}

/* y[t][n] = sum_k x[t][k] w[n][k] + b[n] */
static void linear(double *y, const double *x, const float *w, const float *b, size_t n_tokens,
                   size_t n, size_t k) {
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t i = 0; i < n; i++) {
            double sum = b ? (double)b[i] : 0;
            for (size_t j = 0; j < k; j++)
                sum += x[t * k + j] * (double)w[i * k + j];
            y[t * n + i] = sum;
        }
}

static void norm(double *y, const double *x, const float *w, const float *b, size_t n_tokens,
                 size_t n, double eps) {
    for (size_t t = 0; t < n_tokens; t++) {
        const double *row = x + t * n;
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; i++)
            mean += row[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            variance += (row[i] - mean) * (row[i] - mean) / (double)n;
        for (size_t i = 0; i < n; i++)
            y[t * n + i] =
                (row[i] - mean) / sqrt(variance + eps) * (double)w[i] + (b ? (double)b[i] : 0);
    }
}

static double activate(double x, enum kvad_activation activation) {
    switch (activation) {
    case KVAD_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case KVAD_ACTIVATION_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case KVAD_ACTIVATION_RELU: return x > 0 ? x : 0;
    case KVAD_ACTIVATION_SILU: return x / (1 + exp(-x));
    case KVAD_ACTIVATION_TANH: return tanh(x);
    case KVAD_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    case KVAD_ACTIVATION_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    case KVAD_ACTIVATION_AUTO:
    case KVAD_ACTIVATION_LINEAR:
    case KVAD_ACTIVATION_COUNT: break;
    }
    return x;
}

/* Split the qkv rows [t][q heads | k heads | v heads] into k and v of this layer. */
static void split_kv(const struct kvad_description *d, const double *qkv, size_t n_tokens,
                     double *k, double *v) {
    size_t width = ((size_t)d->n_heads + 2 * d->n_kv_heads) * d->head_dim;
    for (size_t h = 0; h < d->n_kv_heads; h++)
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t i = 0; i < d->head_dim; i++) {
                size_t out = (h * n_tokens + t) * d->head_dim + i;
                k[out] = qkv[t * width + (d->n_heads + h) * d->head_dim + i];
                v[out] = qkv[t * width + (d->n_heads + d->n_kv_heads + h) * d->head_dim + i];
            }
}

/* y[t] = softmax over s <= t of (q[t] . k[s] * scale) times v[s] */
static void attend_head(double *y, size_t y_stride, const double *q, size_t q_stride,
                        const double *k, const double *v, size_t n_tokens, size_t head_dim,
                        double scale) {
    double *p = new_doubles(n_tokens);
    for (size_t t = 0; t < n_tokens; t++) {
        double largest = -INFINITY, total = 0;
        for (size_t s = 0; s <= t; s++) {
            p[s] = 0;
            for (size_t i = 0; i < head_dim; i++)
                p[s] += q[t * q_stride + i] * k[s * head_dim + i] * scale;
            largest = fmax(largest, p[s]);
        }
        for (size_t s = 0; s <= t; s++)
            total += p[s] = exp(p[s] - largest);
        for (size_t i = 0; i < head_dim; i++) {
            double sum = 0;
            for (size_t s = 0; s <= t; s++)
                sum += p[s] / total * v[s * head_dim + i];
            y[t * y_stride + i] = sum;
        }
    }
    free(p);
}

static void attention(double *y, const struct kvad_description *d, const double *qkv,
                      const double *k, const double *v, size_t n_tokens, size_t layer) {
    size_t width = ((size_t)d->n_heads + 2 * d->n_kv_heads) * d->head_dim;
    size_t n_attended = (size_t)d->n_heads * d->head_dim, n_group = d->n_heads / d->n_kv_heads;
    double scale = d->scale_attn ? 1 / sqrt((double)d->head_dim) : 1;
    if (d->scale_attn_by_layer) scale /= (double)(layer + 1);
    for (size_t h = 0; h < d->n_heads; h++) {
        size_t first = h / n_group * n_tokens * d->head_dim;
        attend_head(y + h * d->head_dim, n_attended, qkv + h * d->head_dim, width, k + first,
                    v + first, n_tokens, d->head_dim, scale);
    }
}

/* h += one transformer block of it */
static void block(const struct tiny_model *tiny, size_t layer, double *h, double *k, double *v,
                  size_t n_tokens) {
    const struct kvad_description *d = &tiny->description;
    float *const *p = tiny->parameters[1 + layer];
    size_t d_model = d->d_model, n_attended = (size_t)d->n_heads * d->head_dim;
    size_t width = ((size_t)d->n_heads + 2 * d->n_kv_heads) * d->head_dim;
    double *x = new_doubles(n_tokens * d_model), *qkv = new_doubles(n_tokens * width);
    double *attended = new_doubles(n_tokens * n_attended), *ff = new_doubles(n_tokens * d->d_ff);
    norm(x, h, p[KVAD_PARAMETER_NORM1_WEIGHT], p[KVAD_PARAMETER_NORM1_BIAS], n_tokens, d_model,
         (double)d->norm_eps);
    linear(qkv, x, p[KVAD_PARAMETER_QKV_WEIGHT], p[KVAD_PARAMETER_QKV_BIAS], n_tokens, width,
           d_model);
    split_kv(d, qkv, n_tokens, k, v);
    attention(attended, d, qkv, k, v, n_tokens, layer);
    linear(x, attended, p[KVAD_PARAMETER_OUT_WEIGHT], p[KVAD_PARAMETER_OUT_BIAS], n_tokens, d_model,
           n_attended);
    for (size_t i = 0; i < n_tokens * d_model; i++)
        h[i] += x[i];
    norm(x, h, p[KVAD_PARAMETER_NORM2_WEIGHT], p[KVAD_PARAMETER_NORM2_BIAS], n_tokens, d_model,
         (double)d->norm_eps);
    linear(ff, x, p[KVAD_PARAMETER_UP_WEIGHT], p[KVAD_PARAMETER_UP_BIAS], n_tokens, d->d_ff,
           d_model);
    for (size_t i = 0; i < n_tokens * d->d_ff; i++)
        ff[i] = activate(ff[i], d->activation);
    linear(x, ff, p[KVAD_PARAMETER_DOWN_WEIGHT], p[KVAD_PARAMETER_DOWN_BIAS], n_tokens, d_model,
           d->d_ff);
    for (size_t i = 0; i < n_tokens * d_model; i++)
        h[i] += x[i];
    free(x);
    free(qkv);
    free(attended);
    free(ff);
}

struct oracle *oracle_run(const struct tiny_model *tiny, const int32_t *tokens, size_t n_tokens) {
    const struct kvad_description *d = &tiny->description;
    float *const *p = tiny->parameters[0];
    size_t d_model = d->d_model, n_hidden = n_tokens * d_model;
    size_t n_kv = (size_t)d->n_kv_heads * n_tokens * d->head_dim;
    struct oracle *oracle = calloc(1, sizeof *oracle);
    assert_non_null(oracle);
    *oracle = (struct oracle){.n_tokens = n_tokens,
                              .logits = new_doubles(n_tokens * d->n_vocab),
                              .hidden = new_doubles((d->n_layers + 1) * n_hidden),
                              .k = new_doubles(d->n_layers * n_kv),
                              .v = new_doubles(d->n_layers * n_kv)};
    double *h = new_doubles(n_hidden);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t i = 0; i < d_model; i++)
            h[t * d_model + i] =
                (double)p[KVAD_PARAMETER_EMBEDDING][(size_t)tokens[t] * d_model + i] +
                (double)p[KVAD_PARAMETER_POSITIONS][t * d_model + i];
    for (size_t layer = 0; layer < d->n_layers; layer++) {
        memcpy(oracle->hidden + layer * n_hidden, h, n_hidden * sizeof *h);
        block(tiny, layer, h, oracle->k + layer * n_kv, oracle->v + layer * n_kv, n_tokens);
    }
    double *last = oracle->hidden + d->n_layers * n_hidden;
    norm(last, h, p[KVAD_PARAMETER_FINAL_NORM_WEIGHT], p[KVAD_PARAMETER_FINAL_NORM_BIAS], n_tokens,
         d_model, (double)d->norm_eps);
    const float *head = d->head_tied ? p[KVAD_PARAMETER_EMBEDDING] : p[KVAD_PARAMETER_HEAD_WEIGHT];
    linear(oracle->logits, last, head, p[KVAD_PARAMETER_HEAD_BIAS], n_tokens, d->n_vocab, d_model);
    free(h);
    return oracle;
}

void oracle_destroy(struct oracle *oracle) {
    if (!oracle) return;
    free(oracle->logits);
    free(oracle->hidden);
    free(oracle->k);
    free(oracle->v);
    free(oracle);
}
