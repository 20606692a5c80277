/* Log-probabilities of the model itself, before any sampling option. */
#ifndef KVAD_SAMPLING_LOGPROB_H
#define KVAD_SAMPLING_LOGPROB_H

#include <stddef.h>
#include <stdint.h>

/** Natural log of softmax(logits)[id]: (logits[id] - max) - log(sum of exp(logit - max)), in
 * double, summed in ascending order of id; the same bits everywhere. logits [n], 0 <= id < n.
 * -infinity is allowed among logits; if one is NaN or +infinity, or all are -infinity, the result
 * is NaN. */
double kvad_logprob(const float *logits, size_t n, int32_t id);

/* What all log-probabilities of a row have in common. */
struct kvad_log_softmax {
    double best, log_sum; /* largest logit; log of the sum of exp(logit - best) */
};
struct kvad_log_softmax kvad_log_softmax(const float *logits, size_t n);
/** kvad_logprob() of one logit of that row, to the bit. */
static inline double kvad_log_softmax_at(const struct kvad_log_softmax *row, float logit) {
    return ((double)logit - row->best) - row->log_sum;
}

#endif
