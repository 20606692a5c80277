/* kvad_exp and kvad_log against the C library's long double. */
#include "base/math.h"

#include <float.h>
#include <math.h>

#include "random.h"
#include "test.h"

/* Distance from the exact value in units of the last place of a double near it. */
static double error_in_ulp(double got, long double exact) {
    int exponent;
    frexpl(exact, &exponent);
    if (exponent < DBL_MIN_EXP) exponent = DBL_MIN_EXP; /* subnormals share one ulp */
    return (double)(fabsl((long double)got - exact) / ldexpl(1, exponent - DBL_MANT_DIG));
}

static double worst_exp(double low, double high, int n, uint64_t seed) {
    struct test_random random = {seed};
    double worst = 0;
    for (int i = 0; i < n; ++i) {
        double x = low + (high - low) * (0.5 + 0.5 * random_unit(&random));
        worst = fmax(worst, error_in_ulp(kvad_exp(x), expl((long double)x)));
    }
    return worst;
}

static void test_exp_is_within_its_bound(void **state) {
    (void)state;
    static const double ranges[][2] = {
        {-1, 1}, {-0.35, 0.35}, {-40, 0}, {-708, 709.7}, {-745, -708}};
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; ++r) {
        double worst = worst_exp(ranges[r][0], ranges[r][1], 300000, r + 1);
        print_message("exp on [%g, %g]: %.3f ulp\n", ranges[r][0], ranges[r][1], worst);
        assert_true(worst < 1.1);
    }
}

static void test_exp_of_special_values(void **state) {
    (void)state;
    assert_true(kvad_exp(0) == 1 && kvad_exp(-0.0) == 1);
    assert_true(kvad_exp(-INFINITY) == 0 && kvad_exp(-1e300) == 0 && kvad_exp(-745.14) == 0);
    assert_true(kvad_exp(-745.13) == 5e-324);
    assert_true(kvad_exp(INFINITY) == INFINITY && kvad_exp(709.79) == INFINITY);
    assert_true(kvad_exp(709.78) < INFINITY);
    assert_true(isnan(kvad_exp(NAN)));
}

static void test_log_is_within_its_bound(void **state) {
    (void)state;
    struct test_random random = {9};
    double worst = 0;
    for (int i = 0; i < 1000000; ++i) {
        double x = i % 2
                       ? 1 + 0.5 * random_unit(&random)
                       : kvad_double_from_bits(random_u64(&random) % UINT64_C(0x7ff0000000000000));
        if (x == 0) continue;
        worst = fmax(worst, error_in_ulp(kvad_log(x), logl((long double)x)));
    }
    print_message("log: %.3f ulp\n", worst);
    assert_true(worst < 1);
}

static void test_log_of_special_values(void **state) {
    (void)state;
    assert_true(kvad_log(1) == 0);
    assert_true(kvad_log(0) == -INFINITY && kvad_log(-0.0) == -INFINITY);
    assert_true(kvad_log(INFINITY) == INFINITY);
    assert_true(isnan(kvad_log(-1)) && isnan(kvad_log(NAN)));
    assert_true(fabs(kvad_log(5e-324) + 744.4400719213812) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_within_its_bound),
        cmocka_unit_test(test_exp_of_special_values),
        cmocka_unit_test(test_log_is_within_its_bound),
        cmocka_unit_test(test_log_of_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
