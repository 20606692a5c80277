#include "sampling/sampler.h"

#include <math.h> /* INFINITY alone */
#include <string.h>

#include "base/error.h"
#include "base/fp_state.h"
#include "sampling/philox.h"

/* ---------------------------------------------------------------- create, destroy */

/* Scratch of a draw: everything for sampling, the scores alone for greedy with options, else
 * nothing. */
static bool reserve(struct kvad_sampler *s) {
    bool is_plain_greedy = s->is_greedy && s->stages[0] == KVAD_STAGE_END;
    if (is_plain_greedy) return true;
    struct kvad_heap *heap = &s->heap;
    s->scores = kvad_alloc_zero(heap, s->n_tokens, sizeof *s->scores);
    s->counts = kvad_alloc_zero(heap, s->n_vocab, sizeof *s->counts);
    if (!s->scores || !s->counts) return false;
    if (s->is_greedy) return true;
    s->ranked = kvad_alloc_zero(heap, s->n_tokens, sizeof *s->ranked);
    s->spare = kvad_alloc_zero(heap, s->n_tokens, sizeof *s->spare);
    s->weights = kvad_alloc_zero(heap, s->n_tokens, sizeof *s->weights);
    return s->ranked && s->spare && s->weights;
}

static enum kvad_status copy_bias(struct kvad_sampler *s, struct kvad_error *err) {
    size_t n = s->options.n_logit_bias;
    const struct kvad_logit_bias *given = s->options.logit_bias;
    s->options.logit_bias = NULL;
    if (n == 0) return KVAD_OK;
    struct kvad_logit_bias *copy = kvad_alloc_zero(&s->heap, n, sizeof *copy);
    if (!copy) return kvad_fail_memory(err, "logit_bias", n * sizeof *copy);
    memcpy(copy, given, n * sizeof *copy);
    s->options.logit_bias = copy;
    /* The counts are reserved where there is a bias, and 0. */
    for (size_t i = 0; i < n; ++i)
        if (s->counts[copy[i].id]++ > 0)
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler options: logit_bias has id %d twice",
                             copy[i].id);
    for (size_t i = 0; i < n; ++i)
        s->counts[copy[i].id] = 0;
    return KVAD_OK;
}

void kvad_sampler_destroy(struct kvad_sampler **sampler) {
    struct kvad_sampler *s = sampler ? *sampler : NULL;
    if (!s) return;
    *sampler = NULL;
    struct kvad_heap *heap = &s->heap;
    kvad_free(heap, (void *)s->options.logit_bias,
              s->options.n_logit_bias * sizeof *s->options.logit_bias);
    kvad_free(heap, s->weights, s->n_tokens * sizeof *s->weights);
    kvad_free(heap, s->spare, s->n_tokens * sizeof *s->spare);
    kvad_free(heap, s->ranked, s->n_tokens * sizeof *s->ranked);
    kvad_free(heap, s->counts, s->n_vocab * sizeof *s->counts);
    kvad_free(heap, s->scores, s->n_tokens * sizeof *s->scores);
    struct kvad_heap last;
    kvad_heap_init(&last, &s->heap.hook);
    kvad_free(&last, s, sizeof *s);
}

enum kvad_status kvad_sampler_create(const struct kvad_sampler_options *options, uint32_t n_vocab,
                                     const struct kvad_allocator *allocator,
                                     struct kvad_sampler **out, struct kvad_error *err) {
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler: n_vocab is %u, wanted 1 to %d", n_vocab,
                         INT32_MAX);
    struct kvad_heap heap;
    kvad_heap_init(&heap, allocator);
    struct kvad_sampler *s = kvad_alloc_zero(&heap, 1, sizeof *s);
    if (!s) return kvad_fail_memory(err, "a sampler", sizeof *s);
    kvad_heap_init(&s->heap, allocator);
    s->n_vocab = n_vocab;
    enum kvad_status status = kvad_sampler_read_options(s, options, err);
    if (status != KVAD_OK) {
        s->options.logit_bias = NULL; /* the caller's */
        goto fail;
    }
    if (!reserve(s)) {
        s->options.logit_bias = NULL;
        status = kvad_fail_memory(err, "a sampler",
                                  n_vocab * (2 * sizeof *s->ranked + 2 * sizeof(double) + 4));
        goto fail;
    }
    status = copy_bias(s, err);
    if (status != KVAD_OK) goto fail;
    *out = s;
    return KVAD_OK;
fail:
    kvad_sampler_destroy(&s);
    return status;
}

/* ---------------------------------------------------------------- the chain */

static bool is_banned(const struct kvad_sampler_input *input, uint32_t id) {
    for (size_t i = 0; i < input->n_banned; ++i)
        if ((uint32_t)input->banned[i] == id) return true;
    return false;
}

enum { CHUNK = 512 };

/* The bits of a float as an integer in the order of the floats, and back. */
static int32_t ordered(int32_t bits) {
    uint32_t is_negative = bits < 0;
    return bits ^ (int32_t)((0u - is_negative) >> 1); /* the other way round */
}

/* The largest of n logits, at most CHUNK; false if one of them is +INFINITY or no number. Compared
 * as integers in the order of the floats, which compilers turn into vectors, since their order does
 * not matter: a vocabulary of 50,000 is read at every token. */
static bool find_largest(const float *logits, size_t n, float *largest) {
    const int32_t infinity = 0x7f800000;
    int32_t most = INT32_MIN, least = INT32_MAX;
    for (size_t i = 0; i < n; ++i) {
        int32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        bits = ordered(bits);
        most = bits > most ? bits : most;
        least = bits < least ? bits : least;
    }
    bool is_sound = most < infinity && least >= ordered(INT32_MIN | infinity);
    most = ordered(most);
    memcpy(largest, &most, sizeof most);
    return is_sound;
}

/* The lowest id of the largest of n logits; n if all are -INFINITY or something is wrong. */
static uint32_t find_best(const float *logits, uint32_t n) {
    float best = -INFINITY;
    uint32_t id = n;
    for (uint32_t first = 0; first < n; first += CHUNK) {
        float largest;
        if (!find_largest(logits + first, kvad_min_size(CHUNK, n - first), &largest)) return n;
        if (!(largest > best)) continue;
        best = largest;
        id = first;
    }
    while (id < n && logits[id] != best)
        ++id;
    return id;
}

/* The best logit, the lowest id of equal ones, without scratch. */
static enum kvad_status best_logit(const struct kvad_sampler *s,
                                   const struct kvad_sampler_input *input, int32_t *token,
                                   struct kvad_error *err) {
    KVAD_TRY(kvad_sampler_check_ids(s, "banned", input->banned, input->n_banned, err));
    uint32_t first = find_best(input->logits, s->n_tokens);
    if (first < s->n_tokens && !is_banned(input, first)) {
        *token = (int32_t)first;
        return KVAD_OK;
    }
    /* It is banned, or there is none, or something is wrong: one after the other. */
    float best = -INFINITY;
    int32_t best_id = -1;
    for (uint32_t id = 0; id < s->n_tokens; ++id) {
        float logit = input->logits[id];
        if (!(logit < INFINITY)) return kvad_sampler_fail_logit(input->logits, id, err);
        if (logit > best && !is_banned(input, id)) {
            best = logit;
            best_id = (int32_t)id;
        }
    }
    if (best_id < 0) return kvad_sampler_fail_empty(s, err);
    *token = best_id;
    return KVAD_OK;
}

/* Run all stages; afterwards the tokens are ranked and weighed. */
static enum kvad_status run_chain(struct kvad_sampler *s, const struct kvad_sampler_input *input,
                                  struct kvad_error *err) {
    KVAD_TRY(kvad_sampler_load_scores(s, input, err));
    for (size_t i = 0; s->stages[i] != KVAD_STAGE_END; ++i) {
        switch (s->stages[i]) {
        case KVAD_STAGE_TEMPERATURE:
            s->divisor = s->options.temperature; /* order and ranking stay as they are */
            s->has_weights = false;
            break;
        case KVAD_STAGE_BIAS:
        case KVAD_STAGE_PENALTIES:
        case KVAD_STAGE_NGRAM:
            KVAD_TRY(kvad_sampler_change_scores(s, s->stages[i], input, err));
            break;
        default: KVAD_TRY(kvad_sampler_filter(s, s->stages[i], err));
        }
    }
    if (!s->is_ranked) KVAD_TRY(kvad_sampler_rank(s, SIZE_MAX, err));
    kvad_sampler_weigh(s);
    return KVAD_OK;
}

/* The best score after the stages that change scores. */
static enum kvad_status best_score(struct kvad_sampler *s, const struct kvad_sampler_input *input,
                                   int32_t *token, struct kvad_error *err) {
    KVAD_TRY(kvad_sampler_load_scores(s, input, err));
    for (size_t i = 0; s->stages[i] != KVAD_STAGE_END; ++i)
        KVAD_TRY(kvad_sampler_change_scores(s, s->stages[i], input, err));
    uint32_t best = 0;
    for (uint32_t id = 1; id < s->n_tokens; ++id)
        if (s->scores[id] > s->scores[best]) best = id;
    if (s->scores[best] == -INFINITY) return kvad_sampler_fail_empty(s, err);
    *token = (int32_t)best;
    return KVAD_OK;
}

static enum kvad_status greedy(struct kvad_sampler *s, const struct kvad_sampler_input *input,
                               int32_t *token, struct kvad_error *err) {
    bool is_plain = s->stages[0] == KVAD_STAGE_END;
    return is_plain ? best_logit(s, input, token, err) : best_score(s, input, token, err);
}

static enum kvad_status fill_probabilities(struct kvad_sampler *s,
                                           const struct kvad_sampler_input *input,
                                           double *probabilities, struct kvad_error *err) {
    int32_t token = -1;
    if (s->is_greedy)
        KVAD_TRY(greedy(s, input, &token, err));
    else
        KVAD_TRY(run_chain(s, input, err));
    memset(probabilities, 0, s->n_vocab * sizeof *probabilities);
    if (s->is_greedy) {
        probabilities[token] = 1;
        return KVAD_OK;
    }
    for (size_t i = 0; i < s->n_ranked; ++i)
        probabilities[s->ranked[i].id] = s->weights[i] / s->total;
    return KVAD_OK;
}

static enum kvad_status draw(struct kvad_sampler *s, const struct kvad_sampler_input *input,
                             uint64_t output_index, int32_t *token, struct kvad_error *err) {
    if (s->is_greedy) return greedy(s, input, token, err);
    KVAD_TRY(run_chain(s, input, err));
    double uniform = kvad_uniform(s->options.seed, s->options.sample_index, output_index);
    /* target < total unless the product rounds up to it; the walk then ends at its last token. */
    double target = uniform * s->total, sum = s->weights[0];
    size_t i = 0;
    while (sum <= target && i + 1 < s->n_ranked)
        sum += s->weights[++i];
    *token = (int32_t)s->ranked[i].id;
    return KVAD_OK;
}

/* ---------------------------------------------------------------- public */

enum kvad_status kvad_sampler_probabilities(struct kvad_sampler *sampler, const float *logits,
                                            const int32_t *history, size_t n_history,
                                            const int32_t *banned, size_t n_banned,
                                            double *probabilities, struct kvad_error *err) {
    const struct kvad_sampler_input input = {logits, history, banned, n_history, n_banned};
    struct kvad_fp_state host = kvad_fp_enter();
    enum kvad_status status = fill_probabilities(sampler, &input, probabilities, err);
    kvad_fp_leave(host);
    return status;
}

enum kvad_status kvad_sampler_draw(struct kvad_sampler *sampler, const float *logits,
                                   const int32_t *history, size_t n_history, const int32_t *banned,
                                   size_t n_banned, uint64_t output_index, int32_t *token,
                                   struct kvad_error *err) {
    const struct kvad_sampler_input input = {logits, history, banned, n_history, n_banned};
    struct kvad_fp_state host = kvad_fp_enter();
    enum kvad_status status = draw(sampler, &input, output_index, token, err);
    kvad_fp_leave(host);
    return status;
}
