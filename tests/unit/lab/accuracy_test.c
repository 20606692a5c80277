/* Distances between rows of logits, against values worked out by hand. */
#include "lab/accuracy.h"

#include <math.h>

#include "test.h"

static void assert_near(double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-12)) print_error("%.17g, wanted %.17g\n", got, wanted);
    assert_true(fabs(got - wanted) <= 1e-12);
}

static void test_a_row_is_no_distance_from_itself(void **state) {
    (void)state;
    static const float row[] = {1, -2, 3.5f};
    struct kvad_accuracy a = {0};
    kvad_accuracy_add(&a, row, row, 3);
    assert_true(kvad_accuracy_kl(&a) == 0 && a.kl_max == 0 && a.logit_max == 0);
    assert_true(kvad_accuracy_rms(&a) == 0 && kvad_accuracy_top1(&a) == 1);
}

static void test_two_rows_have_the_distances_of_their_definitions(void **state) {
    (void)state;
    /* (1/2, 1/2) against (3/4, 1/4), and (3/4, 1/4) against (1/2, 1/2). */
    const float even[] = {0, 0}, odd[] = {logf(3), 0};
    double kl = 0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25);
    double back = 0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5);
    struct kvad_accuracy a = {0};
    kvad_accuracy_add(&a, even, odd, 2);
    assert_true(fabs(kvad_accuracy_kl(&a) - kl) < 1e-7); /* log 3 is rounded to float */
    kvad_accuracy_add(&a, odd, even, 2);
    assert_true(fabs(kvad_accuracy_kl(&a) - (kl + back) / 2) < 1e-7);
    assert_true(fabs(a.kl_max - kl) < 1e-7);
    assert_near(a.logit_max, (double)odd[0]);
    assert_near(kvad_accuracy_rms(&a), sqrt((double)odd[0] * (double)odd[0] / 2));
    assert_true(a.n_rows == 2 && a.n_same_top == 2); /* of equal logits the first is the top */
    const float other[] = {0, 1};
    kvad_accuracy_add(&a, odd, other, 2);
    assert_near(kvad_accuracy_top1(&a), 2.0 / 3);
}

static void test_perplexity_of_a_uniform_guess_is_the_number_of_choices(void **state) {
    (void)state;
    static const float row[8];
    double sum = 0;
    for (int32_t i = 0; i < 5; i++)
        sum += kvad_accuracy_logprob(row, 8, i);
    assert_near(kvad_accuracy_perplexity(sum, 5), 8);
}

static void test_nothing_measured_is_not_a_number(void **state) {
    (void)state;
    struct kvad_accuracy a = {0};
    assert_true(isnan(kvad_accuracy_kl(&a)) && isnan(kvad_accuracy_rms(&a)));
    assert_true(isnan(kvad_accuracy_top1(&a)) && isnan(kvad_accuracy_perplexity(0, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_is_no_distance_from_itself),
        cmocka_unit_test(test_two_rows_have_the_distances_of_their_definitions),
        cmocka_unit_test(test_perplexity_of_a_uniform_guess_is_the_number_of_choices),
        cmocka_unit_test(test_nothing_measured_is_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
