#include "lab/accuracy.h"

#include <math.h> /* NAN alone */

#include "base/math.h"
#include "sampling/logprob.h"

static double mean(double sum, size_t n) {
    return n ? sum / (double)n : (double)NAN;
}

static size_t top_of(const float *logits, size_t n) {
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    return top;
}

double kvad_accuracy_logprob(const float *logits, size_t n, int32_t id) {
    return kvad_logprob(logits, n, id);
}

double kvad_accuracy_perplexity(double logprob_sum, size_t n) {
    return kvad_exp(-mean(logprob_sum, n));
}

void kvad_accuracy_add(struct kvad_accuracy *accuracy, const float *reference, const float *row,
                       size_t n) {
    struct kvad_log_softmax of_reference = kvad_log_softmax(reference, n);
    struct kvad_log_softmax of_row = kvad_log_softmax(row, n);
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        double p = kvad_log_softmax_at(&of_reference, reference[i]);
        double difference = (double)row[i] - (double)reference[i];
        kl += kvad_exp(p) * (p - kvad_log_softmax_at(&of_row, row[i]));
        accuracy->logit_square_sum += difference * difference;
        if (difference < 0) difference = -difference;
        if (difference > accuracy->logit_max) accuracy->logit_max = difference;
    }
    accuracy->kl_sum += kl;
    if (kl > accuracy->kl_max) accuracy->kl_max = kl;
    accuracy->n_same_top += top_of(reference, n) == top_of(row, n);
    accuracy->n_rows++;
    accuracy->n_logits += n;
}

double kvad_accuracy_rms(const struct kvad_accuracy *accuracy) {
    return __builtin_sqrt(mean(accuracy->logit_square_sum, accuracy->n_logits));
}

double kvad_accuracy_kl(const struct kvad_accuracy *accuracy) {
    return mean(accuracy->kl_sum, accuracy->n_rows);
}

double kvad_accuracy_top1(const struct kvad_accuracy *accuracy) {
    return mean((double)accuracy->n_same_top, accuracy->n_rows);
}
