/* Small helpers of the sampler's tests. */
#ifndef KVAD_TEST_SAMPLING_H
#define KVAD_TEST_SAMPLING_H

#include "test.h"

enum { TEST_MAX_VOCAB = 8192 };

static inline struct kvad_sampler_options neutral(void) {
    struct kvad_sampler_options options;
    kvad_sampler_options_init(&options);
    return options;
}

static inline struct kvad_sampler *make_sampler(const struct kvad_sampler_options *options,
                                                size_t n_vocab) {
    struct kvad_error err;
    struct kvad_sampler *sampler = NULL;
    assert_ok(kvad_sampler_create(options, (uint32_t)n_vocab, NULL, &sampler, &err), &err);
    return sampler;
}

/** Probabilities [n] of one row, with a history. */
static inline void probabilities_after(const struct kvad_sampler_options *options,
                                       const float *logits, size_t n, const int32_t *history,
                                       size_t n_history, double *probabilities) {
    struct kvad_sampler *sampler = make_sampler(options, n);
    struct kvad_error err;
    assert_ok(kvad_sampler_probabilities(sampler, logits, history, n_history, NULL, 0,
                                         probabilities, &err),
              &err);
    kvad_sampler_destroy(&sampler);
}

static inline void probabilities_of(const struct kvad_sampler_options *options, const float *logits,
                                    size_t n, double *probabilities) {
    probabilities_after(options, logits, n, NULL, 0, probabilities);
}

static inline int32_t draw_at(struct kvad_sampler *sampler, const float *logits,
                              uint64_t output_index) {
    struct kvad_error err;
    int32_t token = -1;
    assert_ok(kvad_sampler_draw(sampler, logits, NULL, 0, NULL, 0, output_index, &token, &err),
              &err);
    return token;
}

/** The ids with a probability are exactly these. */
static inline void assert_survivors(const double *probabilities, size_t n, const int32_t *ids,
                                    size_t n_ids) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        bool wanted = false;
        for (size_t j = 0; j < n_ids; ++j)
            wanted = wanted || (size_t)ids[j] == i;
        if ((probabilities[i] > 0) != wanted)
            print_error("id %zu: probability %g\n", i, probabilities[i]);
        assert_int_equal(probabilities[i] > 0, wanted);
        sum += probabilities[i];
    }
    assert_true(sum > 1 - 1e-12 && sum < 1 + 1e-12);
}

#define ASSERT_SURVIVORS(probabilities, n, ...)                                                    \
    do {                                                                                           \
        const int32_t wanted_ids_[] = {__VA_ARGS__};                                               \
        assert_survivors(probabilities, n, wanted_ids_,                                            \
                         sizeof wanted_ids_ / sizeof wanted_ids_[0]);                              \
    } while (0)

#endif
