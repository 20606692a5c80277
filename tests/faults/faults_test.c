/* The fault macros themselves. Whether every fault is caught is asked by scripts/check_faults. */
#include "base/faults.h"
#include "test.h"

#ifdef KVAD_FAULTS

static int value(void) {
    return KVAD_FAULT(TABLE_SWAPPED, 1, 2);
}

static void test_only_the_active_fault_takes_the_bad_branch(void **state) {
    (void)state;
    kvad_fault_set(KVAD_FAULT_NONE);
    assert_int_equal(value(), 1);
    kvad_fault_set(KVAD_FAULT_K_OF_ONE_HEAD);
    assert_int_equal(value(), 1);
    kvad_fault_set(KVAD_FAULT_TABLE_SWAPPED);
    assert_int_equal(value(), 2);
    kvad_fault_set(KVAD_FAULT_NONE);
    assert_int_equal(value(), 1);
}

static void test_reached_counts_the_place_also_when_its_fault_sleeps(void **state) {
    (void)state;
    kvad_fault_set(KVAD_FAULT_NONE);
    value();
    value();
    assert_int_equal(kvad_fault_reached(KVAD_FAULT_TABLE_SWAPPED), 2);
    assert_int_equal(kvad_fault_reached(KVAD_FAULT_K_OF_ONE_HEAD), 0);
    kvad_fault_set(KVAD_FAULT_TABLE_SWAPPED);
    assert_int_equal(kvad_fault_reached(KVAD_FAULT_TABLE_SWAPPED), 0);
    kvad_fault_set(KVAD_FAULT_NONE);
}

static void test_every_fault_has_a_name_that_finds_it_again(void **state) {
    (void)state;
    for (int i = KVAD_FAULT_NONE + 1; i < KVAD_FAULT_COUNT; i++) {
        enum kvad_fault fault = (enum kvad_fault)i;
        assert_non_null(kvad_fault_name(fault));
        assert_non_null(kvad_fault_area(fault));
        assert_non_null(kvad_fault_meaning(fault));
        assert_non_null(kvad_fault_report(fault));
        assert_int_equal(kvad_fault_from_name(kvad_fault_name(fault)), fault);
    }
    assert_null(kvad_fault_name(KVAD_FAULT_COUNT));
    assert_int_equal(kvad_fault_from_name("no-such-fault"), KVAD_FAULT_NONE);
}

static void test_tolerance_begins_with_any_fault(void **state) {
    (void)state;
    kvad_fault_set(KVAD_FAULT_NONE);
    assert_int_equal(KVAD_WHILE_FAULTY(1, 2), 1);
    kvad_fault_set(KVAD_FAULT_K_OF_ONE_HEAD);
    assert_int_equal(KVAD_WHILE_FAULTY(1, 2), 2);
    kvad_fault_set(KVAD_FAULT_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tolerance_begins_with_any_fault),
        cmocka_unit_test(test_only_the_active_fault_takes_the_bad_branch),
        cmocka_unit_test(test_reached_counts_the_place_also_when_its_fault_sleeps),
        cmocka_unit_test(test_every_fault_has_a_name_that_finds_it_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_ordinary_builds_do_not_even_compile_the_bad_branch(void **state) {
    (void)state;
    assert_int_equal(KVAD_FAULT(NO_SUCH_FAULT, 1, no_such_function(no_such_variable)), 1);
    assert_int_equal(KVAD_WHILE_FAULTY(1, no_such_function(no_such_variable)), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary_builds_do_not_even_compile_the_bad_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
