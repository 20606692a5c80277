#include <math.h> /* INFINITY alone */

#include "base/error.h"
#include "sampling/sampler.h"

/* ---------------------------------------------------------------- ranking */

/* Buckets of the distance to the best score, finest near it: its exponent and four bits more.
 * Distances below 2^-8 share the first, those from 2^24 on the last. */
enum { BUCKET_FIRST = (1023 - 8) << 4, N_BUCKETS = (8 + 24) << 4, BUCKET_SHIFT = 48 };

static size_t bucket_of(double distance) {
    uint64_t step = kvad_bits_from_double(distance) >> BUCKET_SHIFT;
    if (step < BUCKET_FIRST) return 0;
    return kvad_min_size((size_t)(step - BUCKET_FIRST), N_BUCKETS - 1);
}

/* The last bucket that may hold one of the `wanted` best. */
static size_t last_bucket(const struct kvad_sampler *sampler, double best, size_t wanted) {
    size_t counts[N_BUCKETS] = {0}, n = 0, bucket = 0;
    for (uint32_t id = 0; id < sampler->n_tokens; ++id)
        if (sampler->scores[id] > -INFINITY) ++counts[bucket_of(best - sampler->scores[id])];
    for (; bucket < N_BUCKETS - 1; ++bucket)
        if ((n += counts[bucket]) >= wanted) break;
    return bucket;
}

enum kvad_status kvad_sampler_rank(struct kvad_sampler *sampler, size_t wanted,
                                   struct kvad_error *err) {
    const double *scores = sampler->scores;
    double best = -INFINITY;
    for (uint32_t id = 0; id < sampler->n_tokens; ++id)
        best = scores[id] > best ? scores[id] : best;
    if (best == -INFINITY) return kvad_sampler_fail_empty(sampler, err);
    size_t n = 0;
    size_t last = wanted < sampler->n_tokens ? last_bucket(sampler, best, wanted) : N_BUCKETS - 1;
    for (uint32_t id = 0; id < sampler->n_tokens; ++id) {
        if (!(scores[id] > -INFINITY)) continue;
        if (last < N_BUCKETS - 1 && bucket_of(best - scores[id]) > last) continue;
        sampler->ranked[n++] = (struct kvad_ranked){kvad_key_from_score(scores[id]), id};
    }
    kvad_rank_sort(sampler->ranked, n, sampler->spare); /* ids ascend: equal scores keep that */
    sampler->n_ranked = n;
    sampler->is_ranked = true;
    return KVAD_OK;
}

void kvad_sampler_unrank(struct kvad_sampler *sampler) {
    for (uint32_t id = 0; id < sampler->n_tokens; ++id)
        sampler->scores[id] = -INFINITY;
    for (size_t i = 0; i < sampler->n_ranked; ++i)
        sampler->scores[sampler->ranked[i].id] = kvad_score_from_key(sampler->ranked[i].key);
    sampler->is_ranked = sampler->has_weights = false;
}

/* ---------------------------------------------------------------- weights */

/* The exponent of the i-th ranked token: at most 0, and 0 for the first. */
static double exponent_of(const struct kvad_sampler *sampler, size_t i) {
    double best = kvad_score_from_key(sampler->ranked[0].key);
    return (kvad_score_from_key(sampler->ranked[i].key) - best) / sampler->divisor;
}

static void add_up(struct kvad_sampler *sampler) {
    sampler->total = 0;
    for (size_t i = 0; i < sampler->n_ranked; ++i)
        sampler->total += sampler->weights[i];
}

void kvad_sampler_weigh(struct kvad_sampler *sampler) {
    if (sampler->has_weights) return;
    for (size_t i = 0; i < sampler->n_ranked; ++i)
        sampler->weights[i] = kvad_exp(exponent_of(sampler, i));
    sampler->has_weights = true;
    add_up(sampler);
}

/* Keep the first n ranked tokens. */
static void keep(struct kvad_sampler *sampler, size_t n) {
    sampler->n_ranked = n;
    if (sampler->has_weights) add_up(sampler);
}

/* ---------------------------------------------------------------- filters */

/* One past the last token whose key equals that of token n - 1. */
static size_t with_ties(const struct kvad_sampler *sampler, size_t n) {
    while (n < sampler->n_ranked && sampler->ranked[n].key == sampler->ranked[n - 1].key)
        ++n;
    return n;
}

static void filter_top_k(struct kvad_sampler *sampler) {
    size_t n = kvad_min_size(sampler->options.top_k, sampler->n_ranked);
    keep(sampler, sampler->options.top_k_rule == KVAD_TOP_K_VALUE ? with_ties(sampler, n) : n);
}

/* A token stays if the sum of those before it is below top_p: the one that crosses it is kept, and
 * none after a sum that equals it. Holtzman et al., "The curious case of neural text degeneration",
 * 2020. */
static void filter_top_p(struct kvad_sampler *sampler) {
    kvad_sampler_weigh(sampler);
    double threshold = sampler->options.top_p * sampler->total, sum = 0;
    size_t n = 0;
    do {
        sum += sampler->weights[n++];
    } while (n < sampler->n_ranked && sum < threshold);
    keep(sampler, n);
}

/* Nguyen et al., "Turning up the heat: min-p sampling", 2024; the first weight is the largest. */
static void filter_min_p(struct kvad_sampler *sampler) {
    kvad_sampler_weigh(sampler);
    double threshold = sampler->options.min_p * sampler->weights[0];
    size_t n = 1;
    while (n < sampler->n_ranked && sampler->weights[n] >= threshold)
        ++n;
    keep(sampler, n);
}

/* Meister et al., "Locally typical sampling", 2022: the tokens whose surprise is nearest to the
 * entropy, until their sum reaches typical_p; all that are as near as the last one stay. */
static void filter_typical(struct kvad_sampler *sampler) {
    kvad_sampler_weigh(sampler);
    struct kvad_ranked *ranked = sampler->ranked;
    size_t n = sampler->n_ranked;
    double total = sampler->total, log_total = kvad_log(total), entropy = 0;
    for (size_t i = 0; i < n; ++i)
        entropy += sampler->weights[i] / total * (log_total - exponent_of(sampler, i));

    /* Sort by |surprise - entropy|, whose bits are a key; `scores` still hold the ranked ids'. */
    double best = sampler->scores[ranked[0].id];
    for (size_t i = 0; i < n; ++i) {
        double exponent = (sampler->scores[ranked[i].id] - best) / sampler->divisor;
        double off = log_total - exponent - entropy;
        ranked[i].key = kvad_bits_from_double(off < 0 ? -off : off + 0.0);
    }
    kvad_rank_sort(ranked, n, sampler->spare);
    double sum = 0;
    size_t n_below = 0; /* tokens up to which the sum is below typical_p */
    for (; n_below < n; ++n_below) {
        double exponent = (sampler->scores[ranked[n_below].id] - best) / sampler->divisor;
        sum += kvad_exp(exponent) / total;
        if (!(sum < sampler->options.typical_p)) break;
    }
    n = with_ties(sampler, kvad_min_size(n_below + 1, n));

    for (size_t i = 0; i < n; ++i)
        ranked[i].key = kvad_key_from_score(sampler->scores[ranked[i].id]);
    kvad_rank_sort(ranked, n, sampler->spare); /* equal scores are still in order of their ids */
    sampler->n_ranked = n;
    sampler->has_weights = false;
}

enum kvad_status kvad_sampler_filter(struct kvad_sampler *sampler, unsigned stage,
                                     struct kvad_error *err) {
    size_t wanted = stage == KVAD_STAGE_TOP_K ? sampler->options.top_k : SIZE_MAX;
    if (!sampler->is_ranked) KVAD_TRY(kvad_sampler_rank(sampler, wanted, err));
    switch (stage) {
    case KVAD_STAGE_TOP_K: filter_top_k(sampler); break;
    case KVAD_STAGE_TOP_P: filter_top_p(sampler); break;
    case KVAD_STAGE_MIN_P: filter_min_p(sampler); break;
    default: filter_typical(sampler); break;
    }
    return KVAD_OK;
}
