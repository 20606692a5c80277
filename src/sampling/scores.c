#include <math.h> /* INFINITY alone */

#include "base/error.h"
#include "sampling/sampler.h"

enum kvad_status kvad_sampler_check_ids(const struct kvad_sampler *sampler, const char *what,
                                        const int32_t *ids, size_t n, struct kvad_error *err) {
    for (size_t i = 0; i < n; ++i)
        if (ids[i] < 0 || (uint32_t)ids[i] >= sampler->n_vocab)
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sampler: %s[%zu] is %d, wanted 0 to %u", what,
                             i, ids[i], sampler->n_vocab - 1);
    return KVAD_OK;
}

enum kvad_status kvad_sampler_fail_logit(const float *logits, uint32_t id, struct kvad_error *err) {
    return kvad_fail(err, KVAD_ERR_NOT_FINITE, "sampler: the logit of id %u is %g", id,
                     (double)logits[id]);
}

enum kvad_status kvad_sampler_fail_empty(const struct kvad_sampler *sampler,
                                         struct kvad_error *err) {
    return kvad_fail(err, KVAD_ERR_ARGUMENT,
                     "sampler: no token is left: logits, bias, banned ids and n-grams exclude all "
                     "%u",
                     sampler->n_tokens);
}

enum kvad_status kvad_sampler_load_scores(struct kvad_sampler *sampler,
                                          const struct kvad_sampler_input *input,
                                          struct kvad_error *err) {
    double *scores = sampler->scores;
    unsigned n_bad = 0;
    for (uint32_t id = 0; id < sampler->n_tokens; ++id) {
        scores[id] = (double)input->logits[id];
        n_bad += !(input->logits[id] < INFINITY); /* NaN too */
    }
    for (uint32_t id = 0; n_bad > 0; ++id)
        if (!(input->logits[id] < INFINITY)) return kvad_sampler_fail_logit(input->logits, id, err);
    KVAD_TRY(kvad_sampler_check_ids(sampler, "banned", input->banned, input->n_banned, err));
    for (size_t i = 0; i < input->n_banned; ++i)
        if ((uint32_t)input->banned[i] < sampler->n_tokens) scores[input->banned[i]] = -INFINITY;
    sampler->divisor = 1;
    sampler->is_ranked = sampler->has_weights = false;
    return KVAD_OK;
}

static void add_bias(struct kvad_sampler *sampler) {
    for (size_t i = 0; i < sampler->options.n_logit_bias; ++i) {
        struct kvad_logit_bias entry = sampler->options.logit_bias[i];
        if ((uint32_t)entry.id < sampler->n_tokens) sampler->scores[entry.id] += (double)entry.bias;
    }
}

/* Repetition: Keskar et al., "CTRL", 2019, section 4.1, with the later correction for negative
 * scores (a division would raise them); once per distinct id. Presence and frequency: OpenAI's
 * score - count * frequency - (count > 0) * presence. */
static double penalise(const struct kvad_sampler_options *o, double score, uint32_t count) {
    double repetition = o->repetition_penalty;
    if (repetition != 1) score = score < 0 ? score * repetition : score / repetition;
    return score - ((double)count * o->frequency_penalty + o->presence_penalty);
}

static void apply_penalties(struct kvad_sampler *sampler, const int32_t *history, size_t n) {
    size_t window = sampler->options.penalty_window;
    if (window > 0 && n > window) {
        history += n - window;
        n = window;
    }
    uint32_t *counts = sampler->counts;
    for (size_t i = 0; i < n; ++i)
        ++counts[history[i]];
    for (size_t i = 0; i < n; ++i) {
        uint32_t id = (uint32_t)history[i], count = counts[id];
        counts[id] = 0;
        if (count > 0 && id < sampler->n_tokens)
            sampler->scores[id] = penalise(&sampler->options, sampler->scores[id], count);
    }
}

/* Exclude each id that followed an earlier occurrence of the last size - 1 ids. */
static void exclude_repeated_ngrams(struct kvad_sampler *sampler, const int32_t *history,
                                    size_t n) {
    size_t size = sampler->options.no_repeat_ngram;
    if (n < size) return;
    const int32_t *last = history + n - (size - 1);
    for (size_t start = 0; start + size <= n; ++start) {
        size_t equal = 0;
        while (equal < size - 1 && history[start + equal] == last[equal])
            ++equal;
        uint32_t next = (uint32_t)history[start + size - 1];
        if (equal == size - 1 && next < sampler->n_tokens) sampler->scores[next] = -INFINITY;
    }
}

enum kvad_status kvad_sampler_change_scores(struct kvad_sampler *sampler, unsigned stage,
                                            const struct kvad_sampler_input *input,
                                            struct kvad_error *err) {
    if (stage != KVAD_STAGE_BIAS)
        KVAD_TRY(kvad_sampler_check_ids(sampler, "history", input->history, input->n_history, err));
    if (sampler->is_ranked) kvad_sampler_unrank(sampler);
    if (sampler->divisor != 1) {
        for (uint32_t id = 0; id < sampler->n_tokens; ++id)
            sampler->scores[id] /= sampler->divisor;
        sampler->divisor = 1;
    }
    if (stage == KVAD_STAGE_BIAS)
        add_bias(sampler);
    else if (stage == KVAD_STAGE_PENALTIES)
        apply_penalties(sampler, input->history, input->n_history);
    else
        exclude_repeated_ngrams(sampler, input->history, input->n_history);
    return KVAD_OK;
}
