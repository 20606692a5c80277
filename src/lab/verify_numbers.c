/* Checks with a tolerance: the engine against a forward pass in double precision, and the classic
 * test of a cache. */
#include <math.h>

#include "lab/verify_internal.h"

/* ---------------------------------------------------------------- bounds */

/* Rounding, relative to the RMS of what is rounded. A linear of normal data errs by 2.2e-7 of its
 * RMS (docs/numerics.md, linear); a layer has four, and attention, and what it adds goes through
 * all later norms. Quantised weights bring quantised activations, whose rounding double precision
 * does not share: half a step of 1/127 of the largest of 32. Types of the cache round once: 2^-12,
 * 2^-9, or half of 1/127. */
static double weights_noise(enum kvad_weight_type type) {
    return type == KVAD_WEIGHTS_Q8 || type == KVAD_WEIGHTS_Q4 ? 6e-2 : 4e-6;
}

static double kv_noise(enum kvad_kv_type type) {
    switch (type) {
    case KVAD_KV_F16: return 1e-3;
    case KVAD_KV_BF16: return 8e-3;
    case KVAD_KV_Q8: return 2e-2;
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    return 0;
}

/* Errors of layers are independent and add like their squares; the largest of many thousands lies
 * far out. */
static struct kvad_verify_error bound_of(const struct kvad_verify *v) {
    double noise = weights_noise(v->model->weights) + kv_noise(v->options.kv);
    double rms = noise * sqrt(1 + (double)v->model->description.n_layers);
    return (struct kvad_verify_error){.rms = rms, .max = 32 * rms};
}

/* ---------------------------------------------------------------- reference */

/* Sums of squares, and where the largest difference is. */
struct errors {
    double wanted, difference, largest;
    size_t n;
    struct kvad_verify_difference at;
};

/* `at` says where the row begins. */
static void add_row(struct errors *e, struct kvad_verify_difference at, const float *got,
                    const double *wanted, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - wanted[i]);
        e->wanted += wanted[i] * wanted[i];
        e->difference += difference * difference;
        /* What is not a number is further away than anything. */
        if (e->at.is_known && difference <= e->largest) continue;
        e->largest = difference;
        e->at = at;
        e->at.is_known = true;
        e->at.element += i;
        e->at.got = (double)got[i];
        e->at.wanted = wanted[i];
        if (isnan(difference)) e->largest = INFINITY;
    }
    e->n += n;
}

/* Whether they are within the bound; else the check fails with the largest one. */
static bool judge(struct verify_run *run, const struct errors *e, struct kvad_verify_error *out) {
    double rms = sqrt(e->wanted / (double)e->n);
    if (rms == 0) rms = 1;
    struct kvad_verify_error bound = run->result->bound;
    *out = (struct kvad_verify_error){.rms = sqrt(e->difference / (double)e->n) / rms,
                                      .max = e->largest / rms};
    run->result->n_compared += e->n;
    if (out->rms <= bound.rms && out->max <= bound.max) return true;
    run->result->difference = e->at;
    return verify_fail(run, "RMS error %.2g, largest %.2g of the RMS; at most %.2g and %.2g",
                       out->rms, out->max, bound.rms, bound.max);
}

static bool reserve_layers(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    struct kvad_verify_result *result = run->result;
    size_t n = (size_t)v->model->description.n_layers + 1;
    result->layers = kvad_alloc_zero(&v->heap, n, sizeof *result->layers);
    if (!result->layers) return verify_no_memory(run, n * sizeof *result->layers);
    result->n_layers = n;
    return true;
}

static bool compare_hidden(struct verify_run *run, size_t level) {
    const struct kvad_verify *v = run->v;
    size_t d_model = v->model->description.d_model, n = v->n_reference;
    struct errors e = {0};
    for (size_t t = 0; t < n; t++) {
        struct kvad_verify_difference at = {.position = t, .layer = (uint32_t)level};
        add_row(&e, at, v->texts[0].hidden + (level * v->n + t) * d_model,
                v->reference.hidden + (level * n + t) * d_model, d_model);
    }
    return judge(run, &e, &run->result->layers[level]);
}

static bool compare_logits(struct verify_run *run) {
    const struct kvad_verify *v = run->v;
    size_t n_vocab = v->model->description.n_vocab;
    struct errors e = {0};
    for (size_t t = 0; t < v->n_reference; t++) {
        struct kvad_verify_difference at = {.position = t, .place = KVAD_VERIFY_LOGITS};
        add_row(&e, at, v->texts[0].logits + t * n_vocab, v->reference.logits + t * n_vocab,
                n_vocab);
    }
    return judge(run, &e, &run->result->logits);
}

bool verify_reference(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    run->result->bound = bound_of(v);
    if (!verify_expect(run, 0) || !verify_case(run, "float64") || !verify_expect_reference(run) ||
        !reserve_layers(run))
        return false;
    for (size_t level = 0; level < run->result->n_layers; level++)
        if (!compare_hidden(run, level)) return false;
    if (!compare_logits(run)) return false;
    const struct kvad_verify_error *e = &run->result->logits;
    verify_note(run, "logits: RMS error %.1e, largest %.1e", e->rms, e->max);
    return true;
}

/* ---------------------------------------------------------------- order */

/* Which position's row this is, by the nearest; for the message. */
static size_t nearest_row(const double *rows, size_t n, size_t head_dim, const float *row) {
    size_t best = 0;
    double least = INFINITY;
    for (size_t t = 0; t < n; t++) {
        double distance = 0;
        for (size_t i = 0; i < head_dim; i++) {
            double d = (double)row[i] - rows[t * head_dim + i];
            distance += d * d;
        }
        if (distance >= least) continue;
        least = distance;
        best = t;
    }
    return best;
}

/* One side (K or V) of a layer: rows[n_kv_heads][n][head_dim] as the cache has them. */
static bool compare_cache(struct verify_run *run, enum kvad_verify_place place, uint32_t layer,
                          const float *got) {
    const struct kvad_verify *v = run->v;
    const struct kvad_description *d = &v->model->description;
    size_t n = v->n_reference, n_layer = (size_t)d->n_kv_heads * n * d->head_dim;
    const double *wanted =
        (place == KVAD_VERIFY_K ? v->reference.k : v->reference.v) + layer * n_layer;
    struct errors e = {0};
    for (size_t row = 0; row < (size_t)d->n_kv_heads * n; row++) {
        struct kvad_verify_difference at = {.position = row % n,
                                            .place = place,
                                            .layer = layer + 1,
                                            .element = row / n * d->head_dim};
        add_row(&e, at, got + row * d->head_dim, wanted + row * d->head_dim, d->head_dim);
    }
    struct kvad_verify_error error;
    if (judge(run, &e, &error)) return true;
    size_t head = e.at.element / d->head_dim, first = head * n * d->head_dim;
    size_t is =
        nearest_row(wanted + first, n, d->head_dim, got + first + e.at.position * d->head_dim);
    if (is == e.at.position) return false;
    return verify_fail(run, "the row is that of position %zu", is);
}

static bool compare_caches(struct verify_run *run, const struct verify_rig *rig) {
    struct kvad_verify *v = run->v;
    for (uint32_t layer = 0; layer < v->model->description.n_layers; layer++) {
        struct kvad_error err;
        if (!verify_ok(run,
                       kvad_sequence_read_kv(rig->sequences[0], layer, 0, v->n_reference, v->k,
                                             v->v, &err),
                       &err) ||
            !compare_cache(run, KVAD_VERIFY_K, layer, v->k) ||
            !compare_cache(run, KVAD_VERIFY_V, layer, v->v))
            return false;
    }
    return true;
}

bool verify_order(struct verify_run *run) {
    const struct kvad_verify *v = run->v;
    static const enum kvad_cache_policy policies[] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                      KVAD_CACHE_GROW};
    run->result->bound = bound_of(v);
    if (!verify_expect_reference(run)) return false;
    for (size_t p = 0; p < 3; p++) {
        struct kvad_engine_options options = verify_engine_options(v, policies[p], 1);
        struct verify_rig rig = {.run = run};
        bool ok = verify_case(run, "%s", kvad_cache_policy_name(policies[p])) &&
                  verify_rig_open(run, &rig, &options, 1);
        /* Only what the cache holds is judged here, not what was computed from it. */
        for (size_t i = 0; ok && verify_rig_length(&rig, 0) < v->n_reference; i++)
            ok = verify_rig_append(&rig, 0, &v->texts[0],
                                   kvad_min_size(verify_walk[i % VERIFY_WALK],
                                                 v->n_reference - verify_rig_length(&rig, 0)),
                                   NULL);
        ok = ok && compare_caches(run, &rig);
        verify_rig_close(&rig);
        if (!ok) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- classic */

/* One new token attends to a cached text; what the first layer gives is held against the same
 * without a cache, within 1e-4. This is the test that most caches are shipped with. It is here to
 * show what it does not see: attention does not depend on the order of the rows that it reads, so a
 * cache that was filled in reverse passes. */
static const double CLASSIC_TOLERANCE = 1e-4;

bool verify_classic(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    size_t d_model = v->model->description.d_model, last = v->n - 1;
    if (v->n < 2) return verify_skip(run, "the context of the model is one token");
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_PAGED, 1);
    struct verify_rig rig = {.run = run};
    bool ok = verify_rig_open(run, &rig, &options, 1) &&
              verify_case(run, "token %zu after %zu cached ones", last, last) &&
              verify_rig_append(&rig, 0, &v->texts[0], last, NULL) &&
              verify_rig_append(&rig, 0, &v->texts[0], 1, v->hidden);
    verify_rig_close(&rig);
    if (!ok) return false;
    const float *got = v->hidden + d_model, *wanted = v->texts[0].hidden + (v->n + last) * d_model;
    double largest = 0;
    for (size_t i = 0; i < d_model; i++) {
        double difference = fabs((double)got[i] - (double)wanted[i]);
        run->result->n_compared++;
        if (difference > largest) largest = difference;
        if (difference <= CLASSIC_TOLERANCE) continue;
        run->result->difference = (struct kvad_verify_difference){.is_known = true,
                                                                  .position = last,
                                                                  .layer = 1,
                                                                  .element = i,
                                                                  .got = (double)got[i],
                                                                  .wanted = (double)wanted[i]};
        return verify_fail(run, "more than 1e-4 apart");
    }
    verify_note(run, "largest difference %.1e", largest);
    return true;
}
