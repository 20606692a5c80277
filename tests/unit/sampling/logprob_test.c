#include "sampling/logprob.h"

#include <math.h>

#include "random.h"
#include "test.h"

static long double reference(const float *logits, size_t n, size_t id) {
    long double best = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; ++i)
        best = fmaxl(best, (long double)logits[i]);
    for (size_t i = 0; i < n; ++i)
        sum += expl((long double)logits[i] - best);
    return (long double)logits[id] - best - logl(sum);
}

static void test_logprob_equals_long_double(void **state) {
    (void)state;
    enum { N = 5000 };
    static float logits[N];
    struct test_random random = {1};
    static const size_t sizes[] = {1, 2, 255, 256, 257, N};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
        for (int scale = 1; scale <= 1000; scale *= 10) {
            for (size_t i = 0; i < sizes[s]; ++i)
                logits[i] = (float)(random_unit(&random) * scale - 50);
            for (size_t id = 0; id < sizes[s]; id += sizes[s] / 7 + 1) {
                long double want = reference(logits, sizes[s], id);
                double got = kvad_logprob(logits, sizes[s], (int32_t)id);
                assert_true(fabsl((long double)got - want) <= 1e-13L * (1 + fabsl(want)));
            }
        }
    }
}

static void test_probabilities_of_all_ids_sum_to_one(void **state) {
    (void)state;
    enum { N = 300 };
    float logits[N];
    struct test_random random = {2};
    for (size_t i = 0; i < N; ++i)
        logits[i] = (float)(random_unit(&random) * 5);
    double sum = 0;
    for (int32_t id = 0; id < N; ++id)
        sum += exp(kvad_logprob(logits, N, id));
    assert_true(fabs(sum - 1) < 1e-12);
}

static void test_special_logits(void **state) {
    (void)state;
    const float certain[] = {-INFINITY, 3, -INFINITY}, huge[] = {3e38f, -3e38f};
    assert_true(kvad_logprob(certain, 3, 1) == 0);
    assert_true(kvad_logprob(certain, 3, 0) == -INFINITY);
    assert_true(kvad_logprob(huge, 2, 0) == 0);
    assert_true(isnan(kvad_logprob((const float[]){1, NAN, 2}, 3, 0)));
    assert_true(isnan(kvad_logprob((const float[]){NAN, 1, 2}, 3, 1)));
    assert_true(isnan(kvad_logprob((const float[]){1, INFINITY}, 2, 0)));
    assert_true(isnan(kvad_logprob((const float[]){-INFINITY, -INFINITY}, 2, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprob_equals_long_double),
        cmocka_unit_test(test_probabilities_of_all_ids_sum_to_one),
        cmocka_unit_test(test_special_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
