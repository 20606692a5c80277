#include "lab/figures.h"

#include <math.h>

#include "test.h"

static const char *figure(enum kvad_figure kind, double value) {
    static char out[KVAD_FIGURE_SIZE];
    return kvad_figure(kind, value, out);
}

static void test_three_digits_count(void **state) {
    (void)state;
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 0), "0.00");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 1.2345), "1.23");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 9.999), "10.0");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 99.96), "100");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 0.031249), "0.0312");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, -0.5), "-0.500");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 1234567), "1,234,567");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 1e-7), "1.00e-07");
    assert_string_equal(figure(KVAD_FIGURE_NUMBER, 1e300), "1.00e+300");
}

static void test_units_fit_the_size(void **state) {
    (void)state;
    assert_string_equal(figure(KVAD_FIGURE_BYTES, 0), "0\u00a0bytes");
    assert_string_equal(figure(KVAD_FIGURE_BYTES, 512), "512\u00a0bytes");
    assert_string_equal(figure(KVAD_FIGURE_BYTES, 72 * 1024), "72\u00a0KiB");
    assert_string_equal(figure(KVAD_FIGURE_BYTES, 75497472), "72\u00a0MiB");
    assert_string_equal(figure(KVAD_FIGURE_BYTES, 1000 * 1024), "0.977\u00a0MiB");
    assert_string_equal(figure(KVAD_FIGURE_BYTES, -2048), "-2\u00a0KiB");
    assert_string_equal(figure(KVAD_FIGURE_MS, 14660), "14.7\u00a0s");
    assert_string_equal(figure(KVAD_FIGURE_MS, 0.48), "480\u00a0µs");
    assert_string_equal(figure(KVAD_FIGURE_MS, 0), "0\u00a0ms");
    assert_string_equal(figure(KVAD_FIGURE_MS, 999.4), "999\u00a0ms");
    assert_string_equal(figure(KVAD_FIGURE_MS, -999.6), "-1\u00a0s");
    assert_string_equal(figure(KVAD_FIGURE_MS, 1e308), "1.00e+305\u00a0s");
    assert_string_equal(figure(KVAD_FIGURE_FLOPS, 5.73e6), "5.73\u00a0MFLOP");
    assert_string_equal(figure(KVAD_FIGURE_RATIO, 6.314), "6.31×");
    assert_string_equal(figure(KVAD_FIGURE_PERCENT, 100), "100\u00a0%");
    assert_string_equal(figure(KVAD_FIGURE_ERROR, 3.14e-6), "3.1e-06");
    assert_string_equal(figure(KVAD_FIGURE_ERROR, 0), "0");
    assert_string_equal(figure(KVAD_FIGURE_COUNT, 1016), "1,016");
    assert_string_equal(figure(KVAD_FIGURE_COUNT, -1e6), "-1,000,000");
}

static void test_what_is_no_number_is_a_dash(void **state) {
    (void)state;
    for (int kind = KVAD_FIGURE_NUMBER; kind <= KVAD_FIGURE_GFLOP_S; kind++) {
        assert_string_equal(figure((enum kvad_figure)kind, NAN), "–");
        assert_string_equal(figure((enum kvad_figure)kind, -INFINITY), "–");
    }
}

static void test_any_size_of_number_fits(void **state) {
    (void)state;
    for (int kind = KVAD_FIGURE_NUMBER; kind <= KVAD_FIGURE_GFLOP_S; kind++)
        for (int power = -320; power <= 308; power++)
            for (int sign = -1; sign <= 1; sign += 2)
                assert_in_range(
                    strlen(figure((enum kvad_figure)kind, sign * 9.999 * pow(10, power))), 1,
                    KVAD_FIGURE_SIZE - 1);
}

static void test_exact_digits_read_back(void **state) {
    (void)state;
    const double values[] = {
        0.1, 1.0 / 3, 1e-5, 5e-324, 1.7976931348623157e308, 123456789012345678.0};
    char out[KVAD_FIGURE_SIZE];
    kvad_figure_exact(0.1, out);
    assert_string_equal(out, "0.1");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        kvad_figure_exact(values[i], out);
        assert_true(strtod(out, NULL) == values[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_digits_count),
        cmocka_unit_test(test_units_fit_the_size),
        cmocka_unit_test(test_what_is_no_number_is_a_dash),
        cmocka_unit_test(test_any_size_of_number_fits),
        cmocka_unit_test(test_exact_digits_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
