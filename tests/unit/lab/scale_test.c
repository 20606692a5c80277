#include "lab/scale.h"

#include <math.h>

#include "test.h"

static void assert_near(double got, double wanted) {
    if (fabs(got - wanted) > 1e-9 * fmax(1, fabs(wanted)))
        print_error("%.17g instead of %.17g\n", got, wanted);
    assert_true(fabs(got - wanted) <= 1e-9 * fmax(1, fabs(wanted)));
}

/* Widened to round ends. */
static struct kvad_scale widened(double low, double high, bool is_log, double from, double to) {
    return kvad_scale_make(low, high, (struct kvad_scale_options){is_log, false, true}, from, to);
}

static void test_linear_scale_widens_to_round_values(void **state) {
    (void)state;
    struct kvad_scale scale = widened(0, 1023, false, 10, 110);
    assert_near(scale.low, 0);
    assert_near(scale.high, 1500);
    assert_near(kvad_scale_at(&scale, 0), 10);
    assert_near(kvad_scale_at(&scale, 750), 60);
}

static void test_log_scale_puts_powers_at_equal_distances(void **state) {
    (void)state;
    struct kvad_scale scale = widened(1, 1000, true, 0, 300);
    assert_near(scale.low, 1);
    assert_near(scale.high, 1000);
    for (int power = 0; power <= 3; power++)
        assert_near(kvad_scale_at(&scale, pow(10, power)), 100 * power);
    scale = widened(0.3, 1016, true, 0, 1);
    assert_near(scale.low, 0.2);
    assert_near(scale.high, 2000);
}

static void test_values_outside_end_at_the_ends(void **state) {
    (void)state;
    struct kvad_scale log_scale = widened(1, 100, true, 50, 0);
    assert_near(kvad_scale_at(&log_scale, 0), 50);
    assert_near(kvad_scale_at(&log_scale, -3), 50);
    assert_near(kvad_scale_at(&log_scale, 1e9), 0);
    assert_near(kvad_scale_at(&log_scale, NAN), 50);
}

static void test_hostile_ranges_give_a_usable_scale(void **state) {
    (void)state;
    const double ends[][2] = {{NAN, 1},    {1, NAN},         {-INFINITY, INFINITY},
                              {5, 1},      {0, 0},           {7, 7},
                              {-4, -4},    {1e300, 1.5e308}, {-1e308, 0},
                              {5e-324, 1}, {1, 1 + 1e-15},   {-1e-9, 1e99}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int is_log = 0; is_log < 2; is_log++) {
            double ticks[KVAD_SCALE_TICKS];
            struct kvad_scale scale = widened(ends[i][0], ends[i][1], is_log, 0, 100);
            assert_true(isfinite(scale.low) && isfinite(scale.high) && scale.low < scale.high);
            size_t n = kvad_scale_ticks(&scale, 7, ticks);
            assert_in_range(n, 2, 7);
            for (size_t t = 0; t < n; t++)
                assert_true(ticks[t] >= scale.low - fabs(scale.low) * 1e-6 - 1e-12 &&
                            (t == 0 || ticks[t] > ticks[t - 1]));
        }
}

static void test_ticks_are_round_and_few(void **state) {
    (void)state;
    double ticks[KVAD_SCALE_TICKS];
    struct kvad_scale scale = widened(0, 48, false, 0, 1);
    size_t n = kvad_scale_ticks(&scale, 7, ticks);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++)
        assert_near(ticks[i], 10.0 * (double)i);
    scale = widened(1, 100, true, 0, 1);
    n = kvad_scale_ticks(&scale, 9, ticks);
    const double fine[] = {1, 2, 5, 10, 20, 50, 100};
    assert_int_equal(n, 7);
    for (size_t i = 0; i < n; i++)
        assert_near(ticks[i], fine[i]);
    scale = widened(1, 1e12, true, 0, 1);
    n = kvad_scale_ticks(&scale, 7, ticks);
    assert_in_range(n, 4, 7);
    assert_near(ticks[1] / ticks[0], 100);
}

static void test_ends_stay_where_they_are_unless_widened(void **state) {
    (void)state;
    double ticks[KVAD_SCALE_TICKS];
    struct kvad_scale scale = kvad_scale_make(0, 1024, (struct kvad_scale_options){0}, 0, 1024);
    assert_near(kvad_scale_at(&scale, 1024), 1024);
    size_t n = kvad_scale_ticks(&scale, 7, ticks);
    assert_int_equal(n, 6);
    assert_near(ticks[5], 1000);
    assert_false(signbit(ticks[0]));
    scale = kvad_scale_make(3, 700, (struct kvad_scale_options){.is_log = true}, 0, 1);
    n = kvad_scale_ticks(&scale, 9, ticks);
    assert_near(ticks[0], 5);
    assert_near(ticks[n - 1], 500);
}

static void test_bytes_are_round_in_powers_of_1024(void **state) {
    (void)state;
    const struct kvad_scale_options options = {.is_bytes = true, .widen = true};
    double ticks[KVAD_SCALE_TICKS];
    struct kvad_scale scale = kvad_scale_make(0, 9 * 1048576.0, options, 0, 1);
    assert_near(scale.high, 10 * 1048576.0);
    assert_int_equal(kvad_scale_ticks(&scale, 7, ticks), 6);
    assert_near(ticks[1], 2 * 1048576.0);
    scale = kvad_scale_make(0, 900, options, 0, 1);
    assert_near(scale.high, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_scale_widens_to_round_values),
        cmocka_unit_test(test_log_scale_puts_powers_at_equal_distances),
        cmocka_unit_test(test_values_outside_end_at_the_ends),
        cmocka_unit_test(test_hostile_ranges_give_a_usable_scale),
        cmocka_unit_test(test_ticks_are_round_and_few),
        cmocka_unit_test(test_ends_stay_where_they_are_unless_widened),
        cmocka_unit_test(test_bytes_are_round_in_powers_of_1024),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
