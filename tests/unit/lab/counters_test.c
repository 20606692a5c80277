/* The CPU's counters: there, or with a reason that helps. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "lab/counters.h"
#include "test.h"

static const char *reason(int error, int paranoid) {
    static char text[sizeof((struct kvad_counters){0}.why)];
    kvad_counters_explain(error, paranoid, text, sizeof text);
    assert_true(strlen(text) > 20 && strlen(text) + 1 < sizeof text);
    return text;
}

static void assert_says(const char *text, const char *wanted) {
    if (!strstr(text, wanted)) fail_msg("'%s' does not say '%s'", text, wanted);
}

static void test_kernel_that_forbids_is_named_with_the_setting_and_its_limit(void **state) {
    (void)state;
    assert_says(reason(EACCES, 4), "kernel.perf_event_paranoid is 4, and must be 2 or less");
    assert_says(reason(EPERM, 3), "kernel.perf_event_paranoid is 3, and must be 2 or less");
}

static void test_setting_that_allows_is_not_blamed(void **state) {
    (void)state;
    const int allows[] = {-1, 0, 2, INT_MAX};
    for (size_t i = 0; i < sizeof allows / sizeof *allows; i++) {
        assert_null(strstr(reason(EPERM, allows[i]), "must be"));
        assert_says(reason(EPERM, allows[i]), "container");
    }
}

static void test_machine_without_counters_is_told_from_one_that_forbids(void **state) {
    (void)state;
    const int absent[] = {ENOENT, ENODEV, EOPNOTSUPP};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        assert_says(reason(absent[i], 4), "virtual machines");
        assert_null(strstr(reason(absent[i], 4), "forbids"));
    }
    assert_says(reason(ENOSYS, 4), "sandbox");
    assert_says(reason(EMFILE, 2), strerror(EMFILE));
}

static void test_counters_count_or_say_why_not(void **state) {
    (void)state;
    struct kvad_counters counters;
    double values[KVAD_COUNTERS];
    kvad_counters_open(&counters);
    assert_true(counters.is_any == !*counters.why);
    kvad_counters_read(&counters, values);
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        assert_true(counters.files[i] >= 0 || values[i] == -1);
    kvad_counters_close(&counters);
    assert_false(counters.is_any);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_that_forbids_is_named_with_the_setting_and_its_limit),
        cmocka_unit_test(test_setting_that_allows_is_not_blamed),
        cmocka_unit_test(test_machine_without_counters_is_told_from_one_that_forbids),
        cmocka_unit_test(test_counters_count_or_say_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
