/* Reading a request: events and their text, and readers that are slow. */
#include "bits.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 128, N_TOKENS = 65, N_CTX = 61 };

/* A model whose vocabulary is larger than its tokenizer: 65 characters of 128 ids. */
static int make_reading_world(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    sizes.n_vocab = N_VOCAB;
    world.tiny = tiny_model_create(&sizes);
    world.model = tiny_model_build(world.tiny);
    struct kvad_error err;
    assert_ok(kvad_tokenizer_open("models/shakespeare-char/meta.pkl", NULL, &world.model->tokenizer,
                                  &err),
              &err);
    world.model->n_tokens = N_TOKENS;
    assert_int_equal(kvad_tokenizer_size(world.model->tokenizer), N_TOKENS);
    world.tokens = tiny_tokens(N_TOKENS, 20 * N_CTX, 3);
    return 0;
}

static struct kvad_engine *open_alone(uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = n_sequences;
    return open_engine(world.model, &options);
}

/* Sampling that meets every id sooner or later. */
static struct kvad_sampler_options hot(uint64_t seed) {
    struct kvad_sampler_options sampler;
    kvad_sampler_options_init(&sampler);
    sampler.temperature = 50;
    sampler.seed = seed;
    return sampler;
}

static void check_text(const struct outcome *outcome) {
    size_t at = 0;
    for (size_t i = 0; i < outcome->n_ids; i++) {
        const char *bytes;
        size_t size;
        struct kvad_error err;
        assert_in_range(outcome->ids[i], 0, N_TOKENS - 1);
        assert_ok(
            kvad_tokenizer_piece(world.model->tokenizer, outcome->ids[i], &bytes, &size, &err),
            &err);
        assert_true(at + size <= outcome->text_size);
        assert_memory_equal(outcome->text + at, bytes, size);
        at += size;
    }
    assert_int_equal(at, outcome->text_size);
}

/* ---------------------------------------------------------------- text */

/* bugs.md LOAD-16, BATCH-4 */
static void test_text_is_that_of_the_ids_and_padding_ids_never_come(void **state) {
    (void)state;
    struct kvad_engine *engine = open_alone(2);
    struct kvad_sampler_options sampler = hot(1);
    struct kvad_request_options options = greedy_options(world.tokens, 3, 400);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    options.sampler = &sampler;
    struct outcome outcome;
    outcome_init(&outcome, N_VOCAB);
    run_request(engine, &options, &outcome);
    assert_int_equal(outcome.n_ids, 400);
    check_text(&outcome);
    outcome_free(&outcome);
    close_engine(&engine);
}

static void test_a_stop_string_cuts_the_text_and_ends_the_request(void **state) {
    (void)state;
    struct kvad_engine *engine = open_alone(1);
    struct kvad_sampler_options sampler = hot(2);
    struct kvad_request_options options = greedy_options(world.tokens, 3, 40);
    options.sampler = &sampler;
    struct outcome whole;
    outcome_init(&whole, N_VOCAB);
    run_request(engine, &options, &whole);
    for (size_t n = 1; n <= 4; n++) { /* the n characters before the 20th */
        char stop[8] = {0};
        memcpy(stop, whole.text + 20 - n, n);
        const char *const stops[] = {stop};
        options.stop_strings = stops;
        options.n_stop_strings = 1;
        struct outcome outcome;
        outcome_init(&outcome, N_VOCAB);
        run_request(engine, &options, &outcome);
        assert_int_equal(outcome.finish, KVAD_FINISH_STOP);
        size_t end = (size_t)(strstr(whole.text, stop) - whole.text);
        assert_int_equal(outcome.text_size, end);
        assert_memory_equal(outcome.text, whole.text, end);
        assert_int_equal(outcome.n_ids, end + n); /* the tokens of the stop are told */
        outcome_free(&outcome);
        assert_idle(engine);
    }
    outcome_free(&whole);
    close_engine(&engine);
}

/* Texts that piled up to the limit and were then all read must not leave the request asleep. */
static void test_a_reader_may_come_late_at_any_rhythm(void **state) {
    (void)state;
    struct kvad_sampler_options sampler = hot(3);
    struct kvad_request_options options = greedy_options(world.tokens, 3, 200);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    options.sampler = &sampler;
    struct outcome wanted;
    outcome_init(&wanted, N_VOCAB);
    struct kvad_engine *engine = open_alone(1);
    run_request(engine, &options, &wanted);
    for (size_t rhythm = 2; rhythm <= 70; rhythm += 17) {
        struct outcome outcome;
        outcome_init(&outcome, N_VOCAB);
        struct kvad_request *request = submit(engine, &options, &outcome);
        for (size_t n_steps = 1; outcome.finish == KVAD_FINISH_NONE; n_steps++) {
            step_engine(engine);
            if (n_steps % rhythm == 0) (void)take_events(request, &outcome);
            assert_true(n_steps < 200 * rhythm);
        }
        assert_same_outcome(&outcome, &wanted, label("rhythm %zu", rhythm));
        check_text(&outcome);
        kvad_request_destroy(&request);
        outcome_free(&outcome);
    }
    outcome_free(&wanted);
    close_engine(&engine);
}

/* Whatever is computed meanwhile, and whoever else is read. */
static void test_text_of_an_event_stays_until_the_next_poll(void **state) {
    (void)state;
    struct kvad_engine *engine = open_alone(2);
    struct kvad_sampler_options sampler = hot(4);
    struct kvad_request_options options = greedy_options(world.tokens, 3, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    options.sampler = &sampler;
    struct outcome mine, others;
    outcome_init(&mine, N_VOCAB);
    outcome_init(&others, N_VOCAB);
    struct kvad_request *request = submit(engine, &options, &mine);
    sampler.seed = 5;
    struct kvad_request *other = submit(engine, &options, &others);
    size_t n_read = 0;
    for (int round = 0; round < 20; round++) {
        struct kvad_event event;
        char copy[16];
        step_engine(engine);
        assert_true(kvad_request_poll(request, &event));
        assert_in_range(event.text_size, 1, sizeof copy);
        memcpy(copy, event.text, event.text_size);
        for (int i = 0; i <= round; i++)
            step_engine(engine);
        (void)take_events(other, &others);
        assert_memory_equal(copy, event.text, event.text_size);
        n_read += event.text_size;
        while (round % 2 && kvad_request_poll(request, &event))
            n_read += event.text_size;
    }
    assert_true(n_read > 20);
    kvad_request_destroy(&request);
    kvad_request_destroy(&other);
    outcome_free(&mine);
    outcome_free(&others);
    close_engine(&engine);
}

/* ---------------------------------------------------------------- slow readers */

/* bugs.md SERV-17 */
static void test_a_request_that_nobody_reads_pauses_and_holds_up_no_one(void **state) {
    (void)state;
    enum { N = 150 };
    struct kvad_engine *engine = open_alone(3);
    struct kvad_request_options options = greedy_options(world.tokens, 3, N);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    struct kvad_request_options short_one = greedy_options(world.tokens + 9, 20, 5);
    struct outcome slow, wanted, wanted_quick;
    expect_greedy(world.model, world.tokens + 9, 20, 5, false, &wanted_quick);
    outcome_init(&slow, N_VOCAB);
    expect_greedy(world.model, world.tokens, 3, N, true, &wanted);
    struct kvad_request *request = submit(engine, &options, &slow);
    for (int round = 0; round < 12; round++) {
        struct outcome quick;
        outcome_init(&quick, N_VOCAB);
        for (int i = 0; i < 80; i++)
            step_engine(engine);
        assert_true(slow.n_rows <= (size_t)(63 * (round + 1))); /* it waits */
        run_request(engine, &short_one, &quick);
        assert_same_outcome(&quick, &wanted_quick, "beside a slow reader");
        outcome_free(&quick);
        if (take_events(request, &slow)) break;
    }
    assert_same_outcome(&slow, &wanted, "slow reader");
    kvad_request_destroy(&request);
    outcome_free(&slow);
    outcome_free(&wanted);
    outcome_free(&wanted_quick);
    close_engine(&engine);
}

/* A full ring has room for the end: a paused request can be cancelled. */
static void test_a_paused_request_can_be_cancelled(void **state) {
    (void)state;
    struct kvad_engine *engine = open_alone(1);
    struct kvad_request_options options = greedy_options(world.tokens, 3, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    struct outcome outcome;
    outcome_init(&outcome, N_VOCAB);
    struct kvad_request *request = submit(engine, &options, &outcome);
    for (int i = 0; i < 100; i++)
        assert_int_equal(step_engine(engine), 1);
    kvad_request_cancel(request);
    assert_int_equal(step_engine(engine), 0);
    assert_idle(engine);
    assert_true(take_events(request, &outcome));
    assert_int_equal(outcome.finish, KVAD_FINISH_CANCELLED);
    assert_in_range(outcome.n_ids, 20, 63); /* by number or by length of text */
    kvad_request_destroy(&request);
    outcome_free(&outcome);
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_that_of_the_ids_and_padding_ids_never_come),
        cmocka_unit_test(test_a_stop_string_cuts_the_text_and_ends_the_request),
        cmocka_unit_test(test_a_reader_may_come_late_at_any_rhythm),
        cmocka_unit_test(test_text_of_an_event_stays_until_the_next_poll),
        cmocka_unit_test(test_a_request_that_nobody_reads_pauses_and_holds_up_no_one),
        cmocka_unit_test(test_a_paused_request_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, make_reading_world, free_world);
}
