#include "sampling/logprob.h"

#include "base/fp_state.h"
#include "base/math.h"

struct kvad_log_softmax kvad_log_softmax(const float *logits, size_t n) {
    struct kvad_fp_state host = kvad_fp_enter();
    double best = (double)logits[0];
    for (size_t i = 1; i < n; ++i)
        best = (double)logits[i] > best ? (double)logits[i] : best;
    /* exp by blocks, so that the compiler vectorises it and the sum keeps its order. A NaN anywhere
     * reaches the sum; an infinite maximum makes one by infinity - infinity. */
    enum { BLOCK = 256 };
    double sum = 0, block[BLOCK];
    for (size_t from = 0; from < n; from += BLOCK) {
        size_t size = n - from < BLOCK ? n - from : BLOCK;
        for (size_t i = 0; i < size; ++i)
            block[i] = kvad_exp((double)logits[from + i] - best);
        for (size_t i = 0; i < size; ++i)
            sum += block[i];
    }
    double log_sum = kvad_log(sum);
    kvad_fp_leave(host);
    return (struct kvad_log_softmax){best, log_sum};
}

double kvad_logprob(const float *logits, size_t n, int32_t id) {
    struct kvad_log_softmax row = kvad_log_softmax(logits, n);
    return kvad_log_softmax_at(&row, logits[id]);
}
