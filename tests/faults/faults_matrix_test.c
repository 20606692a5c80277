/* The matrix of faults and checks itself: a catch is a verdict. */
#include "lab/fault_matrix.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

static bool is(const char *fault, const char *wanted_fault, const char *check,
               const char *wanted_check) {
    return strcmp(fault, wanted_fault) == 0 && strcmp(check, wanted_check) == 0;
}

/* One check dies with the first fault, another one never ends with the second. */
static void break_two(const char *fault, const char *check) {
    if (is(fault, "reversed-append", check, "chunks")) raise(SIGKILL);
    while (is(fault, "append-off-by-one", check, "order"))
        pause();
}

static void run(const struct kvad_matrix_options *options, struct kvad_matrix *matrix) {
    struct kvad_error err;
    assert_ok(kvad_matrix_run(options, matrix, &err), &err);
    if (matrix->is_void) fail_msg("%s", matrix->void_why);
}

static void test_a_check_that_dies_or_never_ends_has_caught_nothing(void **state) {
    (void)state;
    struct kvad_matrix matrix;
    run(&(struct kvad_matrix_options){.n_faults = 2, .trial_seconds = 10, .before = break_two},
        &matrix);
    assert_int_equal(matrix.n_rows, 2);
    static const enum kvad_trial broken[] = {KVAD_TRIAL_CRASHED, KVAD_TRIAL_TIMED_OUT};
    static const char *const where[] = {"chunks", "order"};
    for (size_t i = 0; i < 2; i++) {
        const struct kvad_matrix_row *row = &matrix.rows[i];
        assert_int_equal(row->trials[kvad_matrix_column(&matrix, where[i])], broken[i]);
        assert_int_equal(row->n_broken, 1);
        assert_false(kvad_matrix_row_is_good(row));
        /* The checks behind it ran all the same. */
        assert_int_equal(row->trials[kvad_matrix_column(&matrix, "greedy")], KVAD_TRIAL_CAUGHT);
        assert_int_equal(row->trials[kvad_matrix_column(&matrix, "classic")], KVAD_TRIAL_MISSED);
    }
    kvad_matrix_deinit(&matrix);
}

static bool refuse(void *user, size_t n_done, size_t n_rows) {
    (void)user;
    (void)n_done;
    (void)n_rows;
    return false;
}

static void test_it_can_be_cancelled(void **state) {
    (void)state;
    struct kvad_matrix matrix;
    struct kvad_error err;
    struct kvad_matrix_options options = {.report = refuse};
    assert_fails(kvad_matrix_run(&options, &matrix, &err), KVAD_ERR_CANCELLED, &err, "interrupted");
    kvad_matrix_deinit(&matrix);
}

static void test_a_good_row_is_reached_and_caught_twice_without_a_crash(void **state) {
    (void)state;
    struct kvad_matrix_row row = {.reached = 1, .n_caught = 2};
    assert_true(kvad_matrix_row_is_good(&row));
    row.n_caught = 1;
    assert_false(kvad_matrix_row_is_good(&row));
    row = (struct kvad_matrix_row){.reached = 1, .n_caught = 17, .n_broken = 1};
    assert_false(kvad_matrix_row_is_good(&row));
    row = (struct kvad_matrix_row){.n_caught = 17};
    assert_false(kvad_matrix_row_is_good(&row));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_check_that_dies_or_never_ends_has_caught_nothing),
        cmocka_unit_test(test_it_can_be_cancelled),
        cmocka_unit_test(test_a_good_row_is_reached_and_caught_twice_without_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
