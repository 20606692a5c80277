/* What a request of kvad verify must give: as many tokens, and as many rows of logits. */
#include <string.h>

#include "lab/verify_internal.h"
#include "test.h"

enum { N = 3, VOCAB = 2 };

/* A job for N tokens whose answer is known. */
struct fixture {
    struct kvad_verify_result result;
    struct verify_run run;
    int32_t ids[N];
    float logits[N * VOCAB];
    struct verify_answer answer;
    struct verify_job job;
};

static void set_up(struct fixture *f) {
    *f = (struct fixture){.logits = {1, 2, 3, 4, 5, 6}};
    f->result.verdict = KVAD_VERDICT_PASS;
    f->run.result = &f->result;
    f->answer =
        (struct verify_answer){.is_known = true, .n = N, .ids = f->ids, .logits = f->logits};
    f->job = (struct verify_job){.answer = &f->answer, .run = &f->run};
}

static void give_rows(struct fixture *f, size_t first, size_t n) {
    for (size_t i = first; i < first + n; i++)
        verify_job_logits(&f->job, i, f->logits + i % N * VOCAB, VOCAB);
}

static void assert_wrong(const struct fixture *f, const char *words) {
    assert_int_equal(f->result.verdict, KVAD_VERDICT_FAIL);
    if (!strstr(f->result.text, words)) print_error("%s\n", f->result.text);
    assert_non_null(strstr(f->result.text, words));
}

static void test_a_request_with_all_rows_and_tokens_passes(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f);
    give_rows(&f, 0, N);
    f.job.n_got = N;
    assert_true(verify_job_end(&f.job, KVAD_FINISH_LENGTH));
    assert_true(f.job.is_done && !f.job.is_wrong);
    assert_int_equal(f.result.verdict, KVAD_VERDICT_PASS);
    assert_int_equal(f.result.n_compared, N * VOCAB);
}

static void test_rows_that_never_come_are_missed_at_the_end(void **state) {
    (void)state;
    for (size_t n = 0; n < N; n++) {
        struct fixture f;
        set_up(&f);
        give_rows(&f, 0, n);
        f.job.n_got = N;
        assert_false(verify_job_end(&f.job, KVAD_FINISH_LENGTH));
        assert_wrong(&f, "rows of logits with 3 tokens");
    }
}

static void test_a_request_that_ends_too_early_fails(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f);
    give_rows(&f, 0, N);
    f.job.n_got = N - 1;
    assert_false(verify_job_end(&f.job, KVAD_FINISH_LENGTH));
    assert_wrong(&f, "ends after 2 of 3 tokens");
}

static void test_a_row_too_many_twice_or_left_out_fails(void **state) {
    (void)state;
    static const struct { size_t n_before, index; } cases[] = {{N, N}, {2, 1}, {1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        set_up(&f);
        give_rows(&f, 0, cases[i].n_before);
        assert_false(f.job.is_wrong);
        give_rows(&f, cases[i].index, 1);
        assert_true(f.job.is_wrong);
        assert_wrong(&f, "gives logits");
    }
}

static void test_a_row_with_another_bit_fails(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f);
    verify_job_logits(&f.job, 0, (const float[]){1, 2.0000002f}, VOCAB);
    assert_true(f.job.is_wrong);
    assert_int_equal(f.result.difference.element, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_with_all_rows_and_tokens_passes),
        cmocka_unit_test(test_rows_that_never_come_are_missed_at_the_end),
        cmocka_unit_test(test_a_request_that_ends_too_early_fails),
        cmocka_unit_test(test_a_row_too_many_twice_or_left_out_fails),
        cmocka_unit_test(test_a_row_with_another_bit_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
