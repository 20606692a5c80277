/* Inside the sampler. (The public functions are in kvad.h, the meaning of all in docs/sampling.md.)
 *
 * A draw holds its tokens in one of two forms:
 *
 *   scores   scores[id] for every id, -infinity where excluded      stages that change scores
 *   ranked   the n_ranked best of them, best first, and nothing else    filters, drawing
 *
 * Most draws go from the first to the second once. */
#ifndef KVAD_SAMPLING_SAMPLER_H
#define KVAD_SAMPLING_SAMPLER_H

#include "base/alloc.h"
#include "sampling/rank.h"

/* What one call is about; all borrowed. */
struct kvad_sampler_input {
    const float *logits; /* [n_vocab] */
    const int32_t *history, *banned;
    size_t n_history, n_banned;
};

struct kvad_sampler {
    struct kvad_heap heap;
    struct kvad_sampler_options options; /* checked; logit_bias is our copy */
    uint32_t n_vocab, n_tokens;          /* ids in [0, n_tokens) may be sampled */
    bool is_greedy;
    unsigned char stages[KVAD_STAGE_COUNT]; /* those that do something, in order, then END */

    /* Scratch, reserved at create; NULL where no stage needs it. */
    double *scores;                     /* [n_tokens] */
    uint32_t *counts;                   /* [n_vocab]; all 0 between uses */
    struct kvad_ranked *ranked, *spare; /* [n_tokens] */
    double *weights;                    /* [n_tokens], of the ranked tokens */

    /* The draw in hand. */
    double divisor; /* temperature that is not yet in `scores` or the keys; else 1 */
    bool is_ranked, has_weights;
    size_t n_ranked;
    double total; /* sum of the weights, best first */
};

/* ---------------------------------------------------------------- options.c */

/** Check all values and the order; copies what is given into sampler->options (logit_bias still
 * borrowed) and fills n_tokens, is_greedy and stages. KVAD_ERR_ARGUMENT names field and value. */
enum kvad_status kvad_sampler_read_options(struct kvad_sampler *sampler,
                                           const struct kvad_sampler_options *given,
                                           struct kvad_error *err);

/* ---------------------------------------------------------------- scores.c */

/** scores = logits, without the banned ids. KVAD_ERR_NOT_FINITE names the id; KVAD_ERR_ARGUMENT for
 * a banned id outside the vocabulary. */
enum kvad_status kvad_sampler_load_scores(struct kvad_sampler *sampler,
                                          const struct kvad_sampler_input *input,
                                          struct kvad_error *err);
/** Bias, penalties or n-grams. KVAD_ERR_ARGUMENT for a history id outside the vocabulary. */
enum kvad_status kvad_sampler_change_scores(struct kvad_sampler *sampler, unsigned stage,
                                            const struct kvad_sampler_input *input,
                                            struct kvad_error *err);
/** KVAD_ERR_NOT_FINITE and a text for logits[id], which is NaN or +infinity. */
enum kvad_status kvad_sampler_fail_logit(const float *logits, uint32_t id, struct kvad_error *err);
/** KVAD_ERR_ARGUMENT: everything is excluded. */
enum kvad_status kvad_sampler_fail_empty(const struct kvad_sampler *sampler,
                                         struct kvad_error *err);
/** KVAD_ERR_ARGUMENT if an id is outside the vocabulary; `what` names the list. */
enum kvad_status kvad_sampler_check_ids(const struct kvad_sampler *sampler, const char *what,
                                        const int32_t *ids, size_t n, struct kvad_error *err);

/* ---------------------------------------------------------------- filters.c */

/** Rank what has a score: all, or (the same beginning) at least the best `wanted` and everything
 * that equals the last of them. KVAD_ERR_ARGUMENT if all ids are excluded. */
enum kvad_status kvad_sampler_rank(struct kvad_sampler *sampler, size_t wanted,
                                   struct kvad_error *err);
/** From the ranked form back to scores: ids that are not ranked become excluded. */
void kvad_sampler_unrank(struct kvad_sampler *sampler);
/** weights[i] = exp((score[i] - best) / temperature) and their sum, best first. */
void kvad_sampler_weigh(struct kvad_sampler *sampler);
/** Top-k, typical, top-p or min-p; at least one token stays. */
enum kvad_status kvad_sampler_filter(struct kvad_sampler *sampler, unsigned stage,
                                     struct kvad_error *err);

#endif
