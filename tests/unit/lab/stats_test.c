#include "lab/stats.h"
#include "test.h"

static void assert_near(double got, double wanted) {
    assert_true(got > wanted - 1e-12 && got < wanted + 1e-12);
}

static void test_median_of_odd_and_even_numbers(void **state) {
    (void)state;
    double odd[] = {5, 1, 4}, even[] = {4, 1, 3, 2};
    assert_near(kvad_stats_of(odd, 3).median, 4);
    assert_near(kvad_stats_of(even, 4).median, 2.5);
}

static void test_one_outlier_moves_neither_median_nor_quartiles(void **state) {
    (void)state;
    double calm[] = {1, 2, 3, 4, 5}, wild[] = {1, 2, 3, 4, 1000};
    struct kvad_stats a = kvad_stats_of(calm, 5), b = kvad_stats_of(wild, 5);
    assert_near(a.median, b.median);
    assert_near(a.low, b.low);
    assert_near(a.high, b.high);
    assert_near(b.max, 1000);
}

static void test_quartiles_are_interpolated(void **state) {
    (void)state;
    double values[] = {4, 3, 2, 1};
    struct kvad_stats stats = kvad_stats_of(values, 4);
    assert_near(stats.low, 1.75);
    assert_near(stats.high, 3.25);
    assert_near(stats.min, 1);
    assert_near(kvad_stats_spread(&stats), 50 * 1.5 / 2.5);
}

static void test_one_number_has_no_spread(void **state) {
    (void)state;
    double value = 7;
    struct kvad_stats stats = kvad_stats_of(&value, 1);
    assert_near(stats.median, 7);
    assert_near(stats.low, 7);
    assert_near(kvad_stats_spread(&stats), 0);
}

static void test_nothing_gives_zeros(void **state) {
    (void)state;
    struct kvad_stats stats = kvad_stats_of(NULL, 0);
    assert_near(stats.median, 0);
    assert_int_equal(stats.n, 0);
    assert_near(kvad_stats_spread(&stats), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_of_odd_and_even_numbers),
        cmocka_unit_test(test_one_outlier_moves_neither_median_nor_quartiles),
        cmocka_unit_test(test_quartiles_are_interpolated),
        cmocka_unit_test(test_one_number_has_no_spread),
        cmocka_unit_test(test_nothing_gives_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
