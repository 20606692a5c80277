#include <math.h> /* isfinite, isnan and INFINITY alone */
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "sampling/sampler.h"

/* Below it, logits that differ at all in float32 differ by many temperatures: a draw could only
 * return the best one. */
static const double greedy_below = 1e-6;

/* As Hugging Face's generate(): what changes scores, temperature, then the filters. */
static const unsigned char default_order[KVAD_STAGE_COUNT] = {
    KVAD_STAGE_BIAS,        KVAD_STAGE_PENALTIES, KVAD_STAGE_NGRAM,
    KVAD_STAGE_TEMPERATURE, KVAD_STAGE_TOP_K,     KVAD_STAGE_TOP_P,
    KVAD_STAGE_MIN_P,       KVAD_STAGE_TYPICAL,   KVAD_STAGE_END,
};

static const char *const stage_names[KVAD_STAGE_COUNT] = {
    [KVAD_STAGE_BIAS] = "bias",   [KVAD_STAGE_PENALTIES] = "penalties",
    [KVAD_STAGE_NGRAM] = "ngram", [KVAD_STAGE_TEMPERATURE] = "temperature",
    [KVAD_STAGE_TOP_K] = "top_k", [KVAD_STAGE_TYPICAL] = "typical",
    [KVAD_STAGE_TOP_P] = "top_p", [KVAD_STAGE_MIN_P] = "min_p",
};

void kvad_sampler_options_init_sized(struct kvad_sampler_options *options, size_t size) {
    struct kvad_sampler_options ours = {
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_penalty = 1,
    };
    kvad_growing_give_options(options, size, &ours, sizeof ours);
}

static enum kvad_status check_range(const char *field, double value, double low, double high,
                                    struct kvad_error *err) {
    if (value >= low && value <= high) return KVAD_OK; /* false for NaN */
    return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler options: %s is %g, wanted %g to %g", field,
                     value, low, high);
}

static enum kvad_status check_values(const struct kvad_sampler_options *o, struct kvad_error *err) {
    KVAD_TRY(check_range("temperature", o->temperature, 0, 1e30, err));
    KVAD_TRY(check_range("top_p", o->top_p, 0, 1, err));
    KVAD_TRY(check_range("min_p", o->min_p, 0, 1, err));
    KVAD_TRY(check_range("typical_p", o->typical_p, 0, 1, err));
    KVAD_TRY(check_range("repetition_penalty", o->repetition_penalty, 1e-3, 1e3, err));
    KVAD_TRY(check_range("presence_penalty", o->presence_penalty, -1e3, 1e3, err));
    KVAD_TRY(check_range("frequency_penalty", o->frequency_penalty, -1e3, 1e3, err));
    if (o->top_k_rule != KVAD_TOP_K_RANK && o->top_k_rule != KVAD_TOP_K_VALUE)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler options: top_k_rule is %d, wanted 0 or 1",
                         (int)o->top_k_rule);
    return KVAD_OK;
}

static enum kvad_status check_bias(const struct kvad_sampler_options *o, uint32_t n_vocab,
                                   struct kvad_error *err) {
    if (o->n_logit_bias > 0 && !o->logit_bias)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "sampler options: logit_bias is NULL, n_logit_bias %zu", o->n_logit_bias);
    for (size_t i = 0; i < o->n_logit_bias; ++i) {
        struct kvad_logit_bias entry = o->logit_bias[i];
        if (entry.id < 0 || (uint32_t)entry.id >= n_vocab)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "sampler options: logit_bias[%zu] has id %d, wanted 0 to %u", i,
                             entry.id, n_vocab - 1);
        if (isnan(entry.bias) || entry.bias == INFINITY)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "sampler options: logit_bias[%zu] (id %d) is %g, wanted a number or "
                             "-infinity",
                             i, entry.id, (double)entry.bias);
    }
    return KVAD_OK;
}

/* Would this stage change anything? */
static bool is_stage_on(const struct kvad_sampler_options *o, unsigned stage) {
    switch (stage) {
    case KVAD_STAGE_BIAS: return o->n_logit_bias > 0;
    case KVAD_STAGE_PENALTIES:
        return o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
    case KVAD_STAGE_NGRAM: return o->no_repeat_ngram > 0;
    case KVAD_STAGE_TEMPERATURE: return o->temperature != 1;
    case KVAD_STAGE_TOP_K: return o->top_k > 0;
    case KVAD_STAGE_TYPICAL: return o->typical_p < 1;
    case KVAD_STAGE_TOP_P: return o->top_p < 1;
    case KVAD_STAGE_MIN_P: return o->min_p > 0;
    default: return false;
    }
}

static bool changes_scores(unsigned stage) {
    return stage == KVAD_STAGE_BIAS || stage == KVAD_STAGE_PENALTIES || stage == KVAD_STAGE_NGRAM;
}

/* Fill `stages` with those of the order that are on. Greedy needs only those that change scores:
 * no filter removes the best. */
static enum kvad_status read_order(struct kvad_sampler *sampler, struct kvad_error *err) {
    const struct kvad_sampler_options *o = &sampler->options;
    const unsigned char *order = o->order[0] == KVAD_STAGE_END ? default_order : o->order;
    bool listed[KVAD_STAGE_COUNT] = {false};
    size_t n = 0;
    for (size_t i = 0; i < KVAD_STAGE_COUNT && order[i] != KVAD_STAGE_END; ++i) {
        unsigned stage = order[i];
        if (stage >= KVAD_STAGE_COUNT)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "sampler options: order[%zu] is %u, wanted 0 to %d", i, stage,
                             KVAD_STAGE_COUNT - 1);
        if (listed[stage])
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler options: order lists %s twice",
                             stage_names[stage]);
        listed[stage] = true;
        if (is_stage_on(o, stage) && (changes_scores(stage) || !sampler->is_greedy))
            sampler->stages[n++] = (unsigned char)stage;
    }
    for (unsigned stage = 1; stage < KVAD_STAGE_COUNT; ++stage)
        if (!listed[stage] && is_stage_on(o, stage))
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "sampler options: order leaves out %s, which the options set",
                             stage_names[stage]);
    sampler->stages[n] = KVAD_STAGE_END;
    return KVAD_OK;
}

enum kvad_status kvad_sampler_read_options(struct kvad_sampler *sampler,
                                           const struct kvad_sampler_options *given,
                                           struct kvad_error *err) {
    struct kvad_sampler_options *o = &sampler->options;
    kvad_sampler_options_init(o);
    KVAD_TRY(kvad_growing_take_options(o, sizeof *o, given, "sampler", err));
    KVAD_TRY(check_values(o, err));
    KVAD_TRY(check_bias(o, sampler->n_vocab, err));
    if (o->n_tokens > sampler->n_vocab)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "sampler options: n_tokens is %u, wanted at most %u (n_vocab)",
                         o->n_tokens, sampler->n_vocab);
    sampler->n_tokens = o->n_tokens ? o->n_tokens : sampler->n_vocab;
    sampler->is_greedy = o->temperature < greedy_below;
    return read_order(sampler, err);
}
