#include "lab/reference.h"

#include <math.h>

#include "base/error.h"

/* Tokens that share one pass over the weights. */
enum { TILE = 16 };

struct forward {
    const struct kvad_model *model;
    const struct kvad_description *d;
    struct kvad_reference *out;
    size_t n;        /* tokens */
    size_t n_widest; /* inputs of any linear */
    size_t n_scratch;
    double *scratch; /* [n_scratch] from h to scores */
    double *h, *x;   /* [n][d_model] the residual stream; input of a linear, or its output */
    double *qkv, *attended, *ff;
    double *scores;  /* [n] */
    double *columns; /* [n_widest][TILE] inputs of a linear, tokens side by side */
    float *row;      /* [n_widest] one row of weights */
};

/* ---------------------------------------------------------------- the parts */

/* y[t][i] = sum_k x[t][k] w[i][k] + bias[i], for the tokens [first, first + n) */
static void linear_tile(const struct forward *f, const struct kvad_linear_weights *w,
                        const double *x, double *y, size_t first, size_t n) {
    for (size_t k = 0; k < w->k; k++)
        for (size_t t = 0; t < TILE; t++)
            f->columns[k * TILE + t] = t < n ? x[(first + t) * w->k + k] : 0;
    for (size_t i = 0; i < w->n; i++) {
        double sums[TILE] = {0};
        kvad_panel_row(w->type, w->panels + i / KVAD_PANEL * w->panel_bytes, i % KVAD_PANEL, w->k,
                       f->row);
        for (size_t k = 0; k < w->k; k++)
            for (size_t t = 0; t < TILE; t++)
                sums[t] += f->columns[k * TILE + t] * (double)f->row[k];
        for (size_t t = 0; t < n; t++)
            y[(first + t) * w->n + i] = sums[t] + (w->bias ? (double)w->bias[i] : 0);
    }
}

static void linear(const struct forward *f, const struct kvad_linear_weights *w, const double *x,
                   double *y) {
    for (size_t first = 0; first < f->n; first += TILE)
        linear_tile(f, w, x, y, first, f->n - first < TILE ? f->n - first : TILE);
}

static void norm(const struct forward *f, const struct kvad_norm_weights *w, const double *x,
                 double *y) {
    size_t n = f->d->d_model;
    for (size_t t = 0; t < f->n; t++) {
        const double *in = x + t * n;
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; i++)
            mean += in[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            variance += (in[i] - mean) * (in[i] - mean) / (double)n;
        double r = 1 / sqrt(variance + (double)f->d->norm_eps);
        for (size_t i = 0; i < n; i++)
            y[t * n + i] =
                (in[i] - mean) * r * (double)w->weight[i] + (w->bias ? (double)w->bias[i] : 0);
    }
}

static double activate(double x, enum kvad_activation activation) {
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */
    switch (activation) {
    case KVAD_ACTIVATION_GELU_TANH: return x / 2 * (1 + tanh(root * (x + 0.044715 * x * x * x)));
    case KVAD_ACTIVATION_GELU_ERF: return x / 2 * (1 + erf(x / sqrt(2)));
    case KVAD_ACTIVATION_RELU: return x < 0 ? 0 : x;
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

static void add(double *y, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* ---------------------------------------------------------------- attention */

/* Keys and values out of the rows [q heads | k heads | v heads] of this layer. */
static void split(const struct forward *f, size_t layer) {
    const struct kvad_description *d = f->d;
    size_t width = ((size_t)d->n_heads + 2 * d->n_kv_heads) * d->head_dim;
    for (size_t head = 0; head < d->n_kv_heads; head++)
        for (size_t t = 0; t < f->n; t++) {
            size_t to = ((layer * d->n_kv_heads + head) * f->n + t) * d->head_dim;
            const double *k = f->qkv + t * width + (d->n_heads + head) * d->head_dim;
            for (size_t i = 0; i < d->head_dim; i++) {
                f->out->k[to + i] = k[i];
                f->out->v[to + i] = k[d->n_kv_heads * d->head_dim + i];
            }
        }
}

/* attended = softmax(q . k * scale) v of one query over the tokens up to its own */
static void attend(const struct forward *f, const double *q, const double *k, const double *v,
                   size_t token, double scale, double *attended) {
    size_t head_dim = f->d->head_dim;
    double largest = -INFINITY, total = 0;
    for (size_t s = 0; s <= token; s++) {
        double sum = 0;
        for (size_t i = 0; i < head_dim; i++)
            sum += q[i] * k[s * head_dim + i];
        f->scores[s] = sum * scale;
        if (f->scores[s] > largest) largest = f->scores[s];
    }
    for (size_t i = 0; i < head_dim; i++)
        attended[i] = 0;
    for (size_t s = 0; s <= token; s++) {
        double p = exp(f->scores[s] - largest);
        total += p;
        for (size_t i = 0; i < head_dim; i++)
            attended[i] += p * v[s * head_dim + i];
    }
    for (size_t i = 0; i < head_dim; i++)
        attended[i] /= total;
}

static void attention(const struct forward *f, size_t layer) {
    const struct kvad_description *d = f->d;
    size_t width = ((size_t)d->n_heads + 2 * d->n_kv_heads) * d->head_dim;
    double scale = d->scale_attn ? 1 / sqrt((double)d->head_dim) : 1;
    if (d->scale_attn_by_layer) scale /= (double)(layer + 1);
    split(f, layer);
    for (size_t head = 0; head < d->n_heads; head++) {
        size_t kv_head = head * d->n_kv_heads / d->n_heads;
        size_t first = (layer * d->n_kv_heads + kv_head) * f->n * d->head_dim;
        for (size_t t = 0; t < f->n; t++)
            attend(f, f->qkv + t * width + head * d->head_dim, f->out->k + first, f->out->v + first,
                   t, scale, f->attended + (t * d->n_heads + head) * d->head_dim);
    }
}

/* ---------------------------------------------------------------- the whole */

static void embed(const struct forward *f, const int32_t *tokens) {
    const struct kvad_model *model = f->model;
    size_t d_model = f->d->d_model;
    for (size_t t = 0; t < f->n; t++) {
        size_t id = (size_t)tokens[t];
        const float *embedding = f->row;
        if (model->embedding)
            embedding = model->embedding + id * d_model;
        else
            kvad_panel_row(model->head.type,
                           model->head.panels + id / KVAD_PANEL * model->head.panel_bytes,
                           id % KVAD_PANEL, d_model, f->row);
        for (size_t i = 0; i < d_model; i++)
            f->h[t * d_model + i] =
                (double)embedding[i] + (double)model->positions[t * d_model + i];
    }
}

static void layer_of(const struct forward *f, size_t layer) {
    const struct kvad_layer_weights *w = &f->model->layers[layer];
    size_t n = f->n * f->d->d_model;
    norm(f, &w->norm1, f->h, f->x);
    linear(f, &w->qkv, f->x, f->qkv);
    attention(f, layer);
    linear(f, &w->out, f->attended, f->x);
    add(f->h, f->x, n);
    norm(f, &w->norm2, f->h, f->x);
    linear(f, &w->up, f->x, f->ff);
    for (size_t i = 0; i < f->n * f->d->d_ff; i++)
        f->ff[i] = activate(f->ff[i], f->d->activation);
    linear(f, &w->down, f->ff, f->x);
    add(f->h, f->x, n);
}

static enum kvad_status compute(const struct forward *f, const int32_t *tokens,
                                bool (*go_on)(void *user), void *user, struct kvad_error *err) {
    size_t n = f->n * f->d->d_model;
    embed(f, tokens);
    for (size_t layer = 0; layer < f->d->n_layers; layer++) {
        if (go_on && !go_on(user)) return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
        memcpy(f->out->hidden + layer * n, f->h, n * sizeof *f->h);
        layer_of(f, layer);
    }
    double *last = f->out->hidden + f->d->n_layers * n;
    norm(f, &f->model->final_norm, f->h, last);
    linear(f, &f->model->head, last, f->out->logits);
    return KVAD_OK;
}

/* ---------------------------------------------------------------- memory */

static enum kvad_status reserve(struct forward *f, struct kvad_error *err) {
    const struct kvad_description *d = f->d;
    struct kvad_reference *r = f->out;
    size_t n_attended = (size_t)d->n_heads * d->head_dim;
    size_t width = n_attended + 2 * (size_t)d->n_kv_heads * d->head_dim;
    size_t row = 2 * (size_t)d->d_model + width + n_attended + d->d_ff + 1;
    f->n_widest = d->d_model > d->d_ff ? d->d_model : d->d_ff;
    if (n_attended > f->n_widest) f->n_widest = n_attended;
    f->n_scratch = f->n * row;
    f->scratch = kvad_alloc_zero(r->heap, f->n_scratch, sizeof *f->scratch);
    f->columns = kvad_alloc_zero(r->heap, TILE * f->n_widest, sizeof *f->columns);
    f->row = kvad_alloc_zero(r->heap, f->n_widest, sizeof *f->row);
    r->hidden = kvad_alloc_zero(r->heap, r->n_hidden, sizeof *r->hidden);
    r->k = kvad_alloc_zero(r->heap, 2 * r->n_kv, sizeof *r->k);
    r->logits = kvad_alloc_zero(r->heap, r->n_logits, sizeof *r->logits);
    if (!f->scratch || !f->columns || !f->row || !r->hidden || !r->k || !r->logits)
        return kvad_fail_memory(err, "the float64 reference", f->n_scratch * sizeof *f->scratch);
    r->v = r->k + r->n_kv;
    f->h = f->scratch;
    f->x = f->h + f->n * d->d_model;
    f->qkv = f->x + f->n * d->d_model;
    f->attended = f->qkv + f->n * width;
    f->ff = f->attended + f->n * n_attended;
    f->scores = f->ff + f->n * d->d_ff;
    return KVAD_OK;
}

enum kvad_status kvad_reference_run(const struct kvad_model *model, const int32_t *tokens,
                                    size_t n_tokens, struct kvad_heap *heap,
                                    bool (*go_on)(void *user), void *user,
                                    struct kvad_reference *out, struct kvad_error *err) {
    const struct kvad_description *d = &model->description;
    *out = (struct kvad_reference){.heap = heap, .n_tokens = n_tokens};
    if (n_tokens == 0 || n_tokens > d->n_ctx)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a reference of %zu tokens: must be 1 to %u",
                         n_tokens, d->n_ctx);
    out->n_hidden = ((size_t)d->n_layers + 1) * n_tokens * d->d_model;
    out->n_kv = (size_t)d->n_layers * d->n_kv_heads * n_tokens * d->head_dim;
    out->n_logits = n_tokens * d->n_vocab;
    struct forward f = {.model = model, .d = d, .out = out, .n = n_tokens};
    enum kvad_status status = reserve(&f, err);
    if (status == KVAD_OK) status = compute(&f, tokens, go_on, user, err);
    kvad_free(heap, f.scratch, f.n_scratch * sizeof *f.scratch);
    kvad_free(heap, f.columns, TILE * f.n_widest * sizeof *f.columns);
    kvad_free(heap, f.row, f.n_widest * sizeof *f.row);
    return status;
}

void kvad_reference_deinit(struct kvad_reference *reference) {
    struct kvad_reference *r = reference;
    if (!r->heap) return;
    kvad_free(r->heap, r->hidden, r->n_hidden * sizeof *r->hidden);
    kvad_free(r->heap, r->k, 2 * r->n_kv * sizeof *r->k);
    kvad_free(r->heap, r->logits, r->n_logits * sizeof *r->logits);
    *r = (struct kvad_reference){0};
}
