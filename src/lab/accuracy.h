/* What logits say of a text, and how far the logits of the same text in another type are from them.
 * Sums run in the order of the calls and use the library's own exp and log, so results are the same
 * bits everywhere and are those of kvad_event.logprob. */
#ifndef KVAD_LAB_ACCURACY_H
#define KVAD_LAB_ACCURACY_H

#include <stddef.h>
#include <stdint.h>

/** Natural log of the softmax of `logits` [n] at `id`. */
double kvad_accuracy_logprob(const float *logits, size_t n, int32_t id);

/** exp(-sum / n) of n log-probabilities; NaN for none. */
double kvad_accuracy_perplexity(double logprob_sum, size_t n);

/* Differences of rows of logits from a reference's. Zero is the empty one. */
struct kvad_accuracy {
    size_t n_rows, n_same_top; /* rows; those whose first largest logit has the same id */
    size_t n_logits;
    double kl_sum, kl_max; /* Kullback-Leibler divergence from the reference, in nats */
    double logit_max, logit_square_sum; /* of the absolute differences */
};

/** Add one pair of rows [n], n > 0. */
void kvad_accuracy_add(struct kvad_accuracy *accuracy, const float *reference, const float *row,
                       size_t n);
/** Root of the mean square of the logits' differences; NaN before the first row. */
double kvad_accuracy_rms(const struct kvad_accuracy *accuracy);
/** Means over rows; NaN before the first. */
double kvad_accuracy_kl(const struct kvad_accuracy *accuracy);
double kvad_accuracy_top1(const struct kvad_accuracy *accuracy);

#endif
