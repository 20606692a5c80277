/* One budget of bytes for every policy: never exceeded, and no answer depends on it. */
#include "bits.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61, B = 16, N = 7 };

static struct kvad_engine_options options_for(enum kvad_cache_policy policy, size_t n_blocks) {
    struct kvad_engine_options options = engine_options(policy, 2);
    options.n_sequences = N;
    options.n_batch_tokens = 8;
    options.kv_bytes = n_blocks * tiny_block_bytes(&tiny_odd);
    return options;
}

static size_t prompt_length(size_t i) {
    return 3 + 7 * i;
}

/* Run N requests of all lengths under a budget; preemptions. */
static uint64_t run_all(enum kvad_cache_policy policy, size_t n_blocks) {
    struct kvad_engine_options options = options_for(policy, n_blocks);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct kvad_request *requests[N];
    struct outcome got[N], wanted;
    for (size_t i = 0; i < N; i++) {
        struct kvad_request_options request =
            greedy_options(world.tokens + 61 * i, prompt_length(i), 30);
        request.no_prefix_cache = true;
        outcome_init(&got[i], N_VOCAB);
        requests[i] = submit(engine, &request, &got[i]);
    }
    uint64_t before = atomic_load(&engine->heap.bytes);
    while (step_engine(engine) > 0) {
        assert_true(kvad_engine_kv_bytes(engine) <= options.kv_bytes);
        for (size_t i = 0; i < N; i++)
            take_events(requests[i], &got[i]);
    }
    /* Old and new areas of `grow` at the same time included. */
    size_t tables = sizeof(struct kvad_sequence) + kvad_kv_blocks_for(&engine->shape, N_CTX) * 4;
    uint64_t areas = engine->pool.heap ? 0 : options.kv_bytes;
    assert_true(atomic_load(&engine->heap.bytes_peak) <= before + areas + N * tables);
    for (size_t i = 0; i < N; i++) {
        take_events(requests[i], &got[i]);
        expect_greedy(world.model, world.tokens + 61 * i, prompt_length(i), 30, false, &wanted);
        assert_same_outcome(
            &got[i], &wanted,
            label("%s, %zu blocks, %zu", kvad_cache_policy_name(policy), n_blocks, i));
        kvad_request_destroy(&requests[i]);
        outcome_free(&got[i]);
        outcome_free(&wanted);
    }
    uint64_t n_preemptions = engine->counters.n_preemptions;
    close_engine(&engine);
    return n_preemptions;
}

static void test_every_policy_keeps_to_the_bytes_and_gives_the_answers_of_a_cold_run(void **state) {
    (void)state;
    uint64_t n_preemptions[N_POLICIES] = {0};
    for (size_t i = 0; i < N_POLICIES; i++)
        for (size_t n_blocks = 8; n_blocks <= 24; n_blocks += 4)
            n_preemptions[policies[i]] += run_all(policies[i], n_blocks);
    assert_int_equal(n_preemptions[KVAD_CACHE_STATIC], 0); /* it reserves what may come */
    assert_true(n_preemptions[KVAD_CACHE_GROW] > 0);
    assert_true(n_preemptions[KVAD_CACHE_PAGED] > 0);
}

static void test_a_static_context_that_does_not_fit_is_refused_at_open(void **state) {
    (void)state;
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    struct kvad_engine_options options = options_for(KVAD_CACHE_STATIC, 4);
    options.kv_bytes--;
    assert_fails(kvad_engine_open(world.model, &options, &engine, &err), KVAD_ERR_NO_BLOCKS, &err,
                 "each sequence of 61 tokens");
    options.kv_bytes++;
    engine = open_engine(world.model, &options);
    struct kvad_sequence *one = new_sequence(engine), *other = NULL;
    assert_fails(kvad_sequence_create(engine, &other, &err), KVAD_ERR_NO_BLOCKS, &err,
                 "1 static sequences hold all");
    kvad_sequence_destroy(&one);
    one = new_sequence(engine);
    kvad_sequence_destroy(&one);
    close_engine(&engine);
}

/* Growing from 3 to 4 blocks holds 7 at once. */
static void
test_growing_beyond_the_budget_changes_nothing_and_says_how_much_is_missing(void **state) {
    (void)state;
    struct kvad_error err;
    struct kvad_engine_options options = options_for(KVAD_CACHE_GROW, 6);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    feed(sequence, world.tokens, 48, NULL, NULL);
    struct kvad_eval_item item = {.sequence = sequence, .tokens = world.tokens, .n_tokens = 1};
    assert_fails(kvad_eval(engine, &item, 1, &err), KVAD_ERR_NO_BLOCKS, &err, "1 blocks more");
    assert_int_equal(kvad_sequence_length(sequence), 48);
    assert_int_equal(kvad_engine_kv_bytes(engine), 3 * tiny_block_bytes(&tiny_odd));
    kvad_sequence_destroy(&sequence);
    struct kvad_request *request = NULL;
    struct kvad_request_options wanted = greedy_options(world.tokens, 48, 2);
    assert_fails(kvad_request_submit(engine, &wanted, &request, &err), KVAD_ERR_NO_BLOCKS, &err,
                 "49 tokens need");
    wanted.max_tokens = 1;
    assert_ok(kvad_request_submit(engine, &wanted, &request, &err), &err);
    while (step_engine(engine) > 0)
        continue;
    kvad_request_destroy(&request);
    close_engine(&engine);
}

/* Every append of `grow` moves all that is there. */
static void test_what_growing_moves_is_counted(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(KVAD_CACHE_GROW, 0);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    uint64_t n_blocks = 0;
    for (size_t n = 0; n < 40; n++) {
        n_blocks += (n + B - 1) / B;
        feed(sequence, world.tokens + n, 1, NULL, NULL);
    }
    assert_int_equal(engine->moves.n_bytes, n_blocks * tiny_block_bytes(&tiny_odd));
    assert_int_equal(engine->moves.n_moves, 39);
    assert_int_equal(engine->moves.twice_peak, 3 * tiny_block_bytes(&tiny_odd));
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_policy_keeps_to_the_bytes_and_gives_the_answers_of_a_cold_run),
        cmocka_unit_test(test_a_static_context_that_does_not_fit_is_refused_at_open),
        cmocka_unit_test(
            test_growing_beyond_the_budget_changes_nothing_and_says_how_much_is_missing),
        cmocka_unit_test(test_what_growing_moves_is_counted),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
