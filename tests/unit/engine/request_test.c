/* One request: how it ends, after how many tokens, at the edges of the context, and that every
 * token comes from the logits of a fresh run over the same window. */
#include <math.h>

#include "bits.h"
#include "random.h"
#include "sampling/logprob.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61 };

static struct kvad_engine *open_policy(enum kvad_cache_policy policy) {
    struct kvad_engine_options options = engine_options(policy, 2);
    options.n_sequences = 2;
    options.n_batch_tokens = 16; /* longer prompts come in chunks */
    return open_engine(world.model, &options);
}

/* Run a request with each policy and compare with `wanted`. */
static void check_all_policies(const struct kvad_request_options *options,
                               const struct outcome *wanted, const char *where) {
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct kvad_engine *engine = open_policy(policies[p]);
        struct outcome outcome;
        outcome_init(&outcome, N_VOCAB);
        run_request(engine, options, &outcome);
        assert_same_outcome(&outcome, wanted,
                            label("%s: %s", kvad_cache_policy_name(policies[p]), where));
        outcome_free(&outcome);
        close_engine(&engine);
    }
}

/* ---------------------------------------------------------------- number of tokens */

/* bugs.md SERV-20, SERV-27, SERV-21, SERV-22, GROW-3, POS-1, POS-5 */
static void test_max_tokens_is_exact(void **state) {
    (void)state;
    static const size_t max_tokens[] = {0, 1, 2, 5, N_CTX - 9};
    for (size_t i = 0; i < 5; i++) {
        struct outcome wanted;
        expect_greedy(world.model, world.tokens, 9, max_tokens[i], false, &wanted);
        assert_int_equal(wanted.n_ids, max_tokens[i]);
        struct kvad_request_options options = greedy_options(world.tokens, 9, max_tokens[i]);
        check_all_policies(&options, &wanted, label("%zu tokens", max_tokens[i]));
        outcome_free(&wanted);
    }
}

/* bugs.md GROW-2, GROW-3, GROW-4, GROW-8, SERV-7 */
static void test_context_edges_end_with_length_at_exactly_the_limit(void **state) {
    (void)state;
    static const size_t prompts[] = {1, N_CTX - 2, N_CTX - 1, N_CTX};
    static const size_t max_tokens[] = {N_CTX, N_CTX + 1, INT32_MAX, SIZE_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct outcome wanted;
        expect_greedy(world.model, world.tokens, prompts[i], N_CTX, false, &wanted);
        assert_int_equal(wanted.n_ids, N_CTX - prompts[i]);
        for (size_t m = 0; m < 4; m++) {
            struct kvad_request_options options =
                greedy_options(world.tokens, prompts[i], max_tokens[m]);
            check_all_policies(&options, &wanted, label("prompt of %zu", prompts[i]));
        }
        outcome_free(&wanted);
    }
}

static void test_prompts_beyond_the_context_are_refused_unless_they_slide(void **state) {
    (void)state;
    struct kvad_engine *engine = open_policy(KVAD_CACHE_PAGED);
    static const size_t prompts[] = {N_CTX + 1, 10 * N_CTX};
    static const enum kvad_overflow kinds[] = {KVAD_OVERFLOW_STOP, KVAD_OVERFLOW_ERROR};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) {
            struct kvad_request_options options = greedy_options(world.tokens, prompts[i], 3);
            options.on_overflow = kinds[k];
            struct kvad_request *request = NULL;
            struct kvad_error err;
            assert_fails(kvad_request_submit(engine, &options, &request, &err),
                         KVAD_ERR_CONTEXT_FULL, &err, "61");
            assert_null(request);
        }
    close_engine(&engine);
}

static void test_overflow_error_ends_with_an_error_after_the_last_token_that_fits(void **state) {
    (void)state;
    for (size_t n_prompt = N_CTX - 3; n_prompt <= N_CTX; n_prompt++) {
        struct kvad_engine *engine = open_policy(KVAD_CACHE_STATIC);
        struct kvad_request_options options = greedy_options(world.tokens, n_prompt, 10);
        options.on_overflow = KVAD_OVERFLOW_ERROR;
        struct outcome outcome, wanted;
        outcome_init(&outcome, N_VOCAB);
        struct kvad_request *request = submit(engine, &options, &outcome);
        while (!take_events(request, &outcome))
            step_engine(engine);
        struct kvad_error err;
        assert_fails(kvad_request_error(request, &err), KVAD_ERR_CONTEXT_FULL, &err, "61");
        expect_greedy(world.model, world.tokens, n_prompt, 10, false, &wanted);
        wanted.finish = KVAD_FINISH_ERROR;
        assert_same_outcome(&outcome, &wanted, label("prompt of %zu", n_prompt));
        kvad_request_destroy(&request);
        outcome_free(&outcome);
        outcome_free(&wanted);
        close_engine(&engine);
    }
}

/* bugs.md GROW-13, GROW-14 */
static void test_sliding_equals_a_fresh_run_over_the_cropped_window_at_every_token(void **state) {
    (void)state;
    static const size_t prompts[] = {1, N_CTX - 2, N_CTX - 1, N_CTX, N_CTX + 1, 3 * N_CTX + 5};
    for (size_t i = 0; i < 6; i++) {
        size_t n = prompts[i] == 1 ? N_CTX + 9 : 7;
        struct outcome wanted;
        expect_greedy(world.model, world.tokens, prompts[i], n, true, &wanted);
        assert_int_equal(wanted.n_ids, n);
        struct kvad_request_options options = greedy_options(world.tokens, prompts[i], n);
        options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
        check_all_policies(&options, &wanted, label("sliding, prompt of %zu", prompts[i]));
        outcome_free(&wanted);
    }
}

static void test_sliding_without_a_limit_goes_on_until_it_is_cancelled(void **state) {
    (void)state;
    enum { N = 3 * N_CTX };
    struct kvad_engine *engine = open_policy(KVAD_CACHE_PAGED);
    struct kvad_request_options options = greedy_options(world.tokens, 5, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    struct outcome outcome, wanted;
    outcome_init(&outcome, N_VOCAB);
    struct kvad_request *request = submit(engine, &options, &outcome);
    while (outcome.n_ids < N) {
        step_engine(engine);
        assert_false(take_events(request, &outcome));
    }
    kvad_request_cancel(request);
    step_engine(engine);
    assert_true(take_events(request, &outcome));
    expect_greedy(world.model, world.tokens, 5, N, true, &wanted);
    wanted.finish = KVAD_FINISH_CANCELLED;
    assert_same_outcome(&outcome, &wanted, "without a limit");
    kvad_request_destroy(&request);
    outcome_free(&outcome);
    outcome_free(&wanted);
    close_engine(&engine);
}

/* ---------------------------------------------------------------- ends */

/* The index of the first id that did not come before, so that a stop there is a stop nowhere
 * earlier. */
static size_t first_new_id(const struct outcome *outcome, size_t from) {
    for (size_t i = from; i < outcome->n_ids; i++) {
        bool is_new = true;
        for (size_t j = 0; j < i; j++)
            is_new &= outcome->ids[j] != outcome->ids[i];
        if (is_new) return i;
    }
    fail_msg("every id came before");
    return 0;
}

/* bugs.md BATCH-9, SERV-21, SERV-22 */
static void test_stop_ids_end_the_text_and_are_no_part_of_it(void **state) {
    (void)state;
    struct outcome wanted;
    expect_greedy(world.model, world.tokens, 9, 20, false, &wanted);
    for (size_t from = 0; from < 3; from++) {
        size_t at = first_new_id(&wanted, from);
        int32_t stops[2] = {N_VOCAB - 1, wanted.ids[at]};
        struct kvad_request_options options = greedy_options(world.tokens, 9, 20);
        options.stop_ids = stops;
        options.n_stop_ids = 2;
        struct outcome cut = wanted;
        cut.n_ids = at;
        cut.n_rows = at + 1;
        cut.finish = KVAD_FINISH_STOP;
        check_all_policies(&options, &cut, label("stop at %zu", at));
    }
    outcome_free(&wanted);
}

/* bugs.md BATCH-9 */
static void test_the_models_end_id_stops_unless_it_is_ignored(void **state) {
    (void)state;
    struct outcome wanted;
    expect_greedy(world.model, world.tokens, 9, 20, false, &wanted);
    size_t at = first_new_id(&wanted, 1);
    world.tiny->description.eos = wanted.ids[at];
    struct kvad_model *model = tiny_model_build(world.tiny);
    world.tiny->description.eos = -1;
    for (int ignore = 0; ignore <= 1; ignore++) {
        struct kvad_engine_options engine_options_ = engine_options(KVAD_CACHE_PAGED, 1);
        struct kvad_engine *engine = open_engine(model, &engine_options_);
        struct kvad_request_options options = greedy_options(world.tokens, 9, 20);
        options.ignore_eos = ignore;
        struct outcome outcome, cut = wanted;
        outcome_init(&outcome, N_VOCAB);
        run_request(engine, &options, &outcome);
        if (!ignore) {
            cut.n_ids = at;
            cut.n_rows = at + 1;
            cut.finish = KVAD_FINISH_STOP;
        }
        assert_same_outcome(&outcome, &cut, ignore ? "ignored" : "end id");
        outcome_free(&outcome);
        close_engine(&engine);
    }
    kvad_model_release(&model);
    outcome_free(&wanted);
}

static void test_end_ids_are_banned_before_min_tokens(void **state) {
    (void)state;
    struct outcome wanted;
    expect_greedy(world.model, world.tokens, 9, 1, false, &wanted);
    struct kvad_engine *engine = open_policy(KVAD_CACHE_PAGED);
    struct kvad_request_options options = greedy_options(world.tokens, 9, 10);
    options.stop_ids = wanted.ids; /* the first choice would end it */
    options.n_stop_ids = 1;
    for (size_t min_tokens = 0; min_tokens <= 10; min_tokens++) {
        options.min_tokens = min_tokens;
        struct outcome outcome;
        outcome_init(&outcome, N_VOCAB);
        run_request(engine, &options, &outcome);
        assert_true(outcome.n_ids >= min_tokens);
        for (size_t i = 0; i < outcome.n_ids; i++)
            assert_int_not_equal(outcome.ids[i], wanted.ids[0]);
        if (min_tokens == 0) assert_int_equal(outcome.finish, KVAD_FINISH_STOP);
        if (min_tokens == 10) assert_int_equal(outcome.finish, KVAD_FINISH_LENGTH);
        outcome_free(&outcome);
    }
    close_engine(&engine);
    outcome_free(&wanted);
}

/* bugs.md BATCH-6 */
static void test_logprobs_are_those_of_the_models_own_softmax(void **state) {
    (void)state;
    struct outcome wanted, outcome;
    expect_greedy(world.model, world.tokens, 30, 12, false, &wanted);
    struct kvad_engine *engine = open_policy(KVAD_CACHE_PAGED);
    struct kvad_request_options options = greedy_options(world.tokens, 30, 12);
    options.logprobs = true;
    struct kvad_request_options other = greedy_options(world.tokens + 40, 50, 5);
    struct outcome neighbour;
    outcome_init(&neighbour, N_VOCAB);
    outcome_init(&outcome, N_VOCAB);
    struct kvad_request *beside = submit(engine, &other, &neighbour);
    run_request(engine, &options, &outcome);
    for (size_t i = 0; i < 12; i++) {
        const float *row = wanted.rows + i * N_VOCAB;
        double sum = 0;
        for (size_t j = 0; j < N_VOCAB; j++)
            sum += exp((double)row[j] - (double)row[wanted.ids[i]]);
        assert_true(fabs(outcome.logprobs[i] + log(sum)) < 1e-9);
    }
    kvad_request_destroy(&beside);
    outcome_free(&wanted);
    outcome_free(&outcome);
    outcome_free(&neighbour);
    close_engine(&engine);
}

/* ---------------------------------------------------------------- what is refused */

/* bugs.md SERV-9, SERV-13 */
static void test_wrong_options_are_refused_and_the_next_request_works(void **state) {
    (void)state;
    struct kvad_engine *engine = open_policy(KVAD_CACHE_PAGED);
    static const int32_t bad_ids[][2] = {{3, -1}, {N_VOCAB, 3}, {3, INT32_MAX}, {INT32_MIN, 0}};
    struct kvad_request *request = NULL;
    struct kvad_error err;
    for (size_t i = 0; i < 4; i++) {
        struct kvad_request_options options = greedy_options(bad_ids[i], 2, 3);
        assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                     "vocabulary of 101");
    }
    struct kvad_request_options options = greedy_options(world.tokens, 0, 3);
    assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "empty");
    options = greedy_options(NULL, 2, 3);
    assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "empty");
    options = greedy_options(world.tokens, 2, 3);
    options.on_overflow = (enum kvad_overflow)7;
    assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "on_overflow");
    static const char *const stops[] = {"x"};
    options = greedy_options(world.tokens, 2, 3);
    options.stop_strings = stops;
    options.n_stop_strings = 1;
    assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "tokenizer");
    options = greedy_options(world.tokens, 2, 3);
    options.struct_size = sizeof options + 1;
    assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "kvad_request_options_init");
    assert_fails(kvad_request_submit(engine, NULL, &request, &err), KVAD_ERR_ARGUMENT, &err,
                 "kvad_request_options_init");
    assert_null(request);
    assert_idle(engine);
    struct outcome wanted, outcome;
    expect_greedy(world.model, world.tokens, 2, 3, false, &wanted);
    options = greedy_options(world.tokens, 2, 3);
    outcome_init(&outcome, N_VOCAB);
    run_request(engine, &options, &outcome);
    assert_same_outcome(&outcome, &wanted, "after refusals");
    outcome_free(&wanted);
    outcome_free(&outcome);
    close_engine(&engine);
}

/* bugs.md SHARE-4, SHARE-11, SHARE-12, SHARE-15 */
static void test_the_same_prompt_again_and_shorter_ones_give_what_the_first_run_gave(void **state) {
    (void)state;
    static const size_t prompts[] = {1, 16, 32, 35, 35, 35, 16, 1, 1};
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct kvad_engine *engine = open_policy(policies[p]);
        for (size_t i = 0; i < 9; i++) {
            struct outcome wanted, outcome;
            expect_greedy(world.model, world.tokens, prompts[i], 4, false, &wanted);
            struct kvad_request_options options = greedy_options(world.tokens, prompts[i], 4);
            outcome_init(&outcome, N_VOCAB);
            run_request(engine, &options, &outcome);
            assert_same_outcome(&outcome, &wanted, label("send %zu", i));
            assert_idle(engine);
            outcome_free(&wanted);
            outcome_free(&outcome);
        }
        close_engine(&engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_tokens_is_exact),
        cmocka_unit_test(test_context_edges_end_with_length_at_exactly_the_limit),
        cmocka_unit_test(test_prompts_beyond_the_context_are_refused_unless_they_slide),
        cmocka_unit_test(test_overflow_error_ends_with_an_error_after_the_last_token_that_fits),
        cmocka_unit_test(test_sliding_equals_a_fresh_run_over_the_cropped_window_at_every_token),
        cmocka_unit_test(test_sliding_without_a_limit_goes_on_until_it_is_cancelled),
        cmocka_unit_test(test_stop_ids_end_the_text_and_are_no_part_of_it),
        cmocka_unit_test(test_the_models_end_id_stops_unless_it_is_ignored),
        cmocka_unit_test(test_end_ids_are_banned_before_min_tokens),
        cmocka_unit_test(test_logprobs_are_those_of_the_models_own_softmax),
        cmocka_unit_test(test_wrong_options_are_refused_and_the_next_request_works),
        cmocka_unit_test(test_the_same_prompt_again_and_shorter_ones_give_what_the_first_run_gave),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
