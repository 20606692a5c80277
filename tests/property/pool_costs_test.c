/* What sharing costs and saves: microseconds that do not grow with the pool, and prompts in
 * proportion to the tokens that are not there yet. The bounds are wide: a walk over all blocks, or
 * a prefix computed again, is far outside of them. */
#include "base/clock.h"
#include "bits.h"
#include "requests.h"
#include "test.h"
#include "tiny_model.h"

enum { N_ROUNDS = 60 };

static struct {
    struct tiny_model *tiny;
    struct kvad_model *model;
    int32_t *tokens;
} world;

static int make_world(void **state) {
    (void)state;
    world.tiny = tiny_model_create(&tiny_long);
    world.model = tiny_model_build(world.tiny);
    world.tokens = tiny_tokens(tiny_long.n_vocab, 4096, 3);
    return 0;
}

static int free_world(void **state) {
    kvad_model_release(&world.model);
    tiny_model_destroy(world.tiny);
    free(world.tokens);
    return release_test_threads(state);
}

static struct kvad_engine *open_blocks(size_t n_blocks, uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    size_t row = 2 * sizeof(float) * tiny_long.n_kv_heads * tiny_long.head_dim;
    options.n_sequences = n_sequences;
    options.kv_bytes = (uint64_t)n_blocks * 16 * tiny_long.n_layers * row;
    struct kvad_engine *engine = open_engine(world.model, &options);
    assert_int_equal(engine->pool.n_blocks, n_blocks);
    return engine;
}

/* ---------------------------------------------------------------- constant costs */

enum { FORK, CUT, HIT, EVICT, N_COSTS };

/* Fill the index with one-block texts of their own until no block is free. */
static void fill_index(struct kvad_engine *e, int32_t *next_id) {
    int32_t tokens[16] = {0};
    while (e->pool.n_free > 0) {
        uint32_t block;
        tokens[0] = (*next_id)++;
        assert_true(kvad_kv_pool_acquire(&e->pool, &block));
        assert_int_equal(
            kvad_prefix_publish(&e->prefix, &e->prefix.plain, KVAD_KV_NO_BLOCK, tokens, block),
            block);
        kvad_kv_pool_release(&e->pool, block);
    }
}

static void note(uint64_t *best, uint64_t start) {
    uint64_t ns = kvad_clock_ns() - start;
    if (ns < *best) *best = ns;
}

/* The fastest of many: a fork of 40 tokens, its end, finding a prompt of 48, evicting a block. */
static void measure(size_t n_blocks, uint64_t best[N_COSTS]) {
    struct kvad_engine *e = open_blocks(n_blocks, 4);
    struct outcome outcome;
    struct kvad_request_options options = greedy_options(world.tokens, 48, 1);
    outcome_init(&outcome, tiny_long.n_vocab);
    int32_t next_id = 1000000;
    fill_index(e, &next_id);
    run_request(e, &options, &outcome);
    struct kvad_sequence *sequence = new_sequence(e);
    feed(sequence, world.tokens, 40, NULL, NULL);
    for (size_t i = 0; i < N_COSTS; i++)
        best[i] = UINT64_MAX;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct kvad_sequence *fork;
        uint32_t block;
        uint64_t start = kvad_clock_ns();
        assert_int_equal(kvad_sequence_fork(sequence, &fork, NULL), KVAD_OK);
        note(&best[FORK], start);
        start = kvad_clock_ns();
        cut(fork, 7);
        kvad_sequence_destroy(&fork);
        note(&best[CUT], start);
        start = kvad_clock_ns();
        struct kvad_prefix_match match =
            kvad_prefix_find(&e->prefix, &e->prefix.plain, world.tokens, 48, e->found);
        note(&best[HIT], start);
        assert_int_equal(match.n_tokens, 48);
        start = kvad_clock_ns();
        if (round < 20) assert_true(kvad_kv_pool_acquire(&e->pool, &block));
        if (round < 20) note(&best[EVICT], start);
        if (round < 20) kvad_kv_pool_release(&e->pool, block);
        if (round < 20) fill_index(e, &next_id);
    }
    kvad_sequence_destroy(&sequence);
    outcome_free(&outcome);
    close_engine(&e);
}

static void test_the_cost_of_sharing_does_not_grow_with_the_pool(void **state) {
    (void)state;
    static const char *const names[] = {"fork", "cut and destroy", "find 48 tokens", "evict"};
    uint64_t small[N_COSTS], large[N_COSTS];
    measure(100, small);
    measure(9000, large);
    for (size_t i = 0; i < N_COSTS; i++) {
        print_message("%-16s %6llu ns with 100 blocks, %6llu ns with 9000\n", names[i],
                      (unsigned long long)small[i], (unsigned long long)large[i]);
        assert_true(large[i] < 4 * small[i] + 2000);
    }
}

/* ---------------------------------------------------------------- time to the first token */

/* Nanoseconds until 16 requests, whose prompts have 512 of 528 tokens in common, have their first.
 */
static uint64_t first_tokens(bool shares, uint64_t *n_computed) {
    enum { N = 16, N_COMMON = 512, N_PROMPT = 528 };
    static int32_t prompts[N][N_PROMPT];
    struct kvad_engine *engine = open_blocks(N * 35, N);
    struct kvad_request *requests[N];
    for (size_t i = 0; i < N; i++) {
        memcpy(prompts[i], world.tokens, sizeof prompts[i]);
        for (size_t t = N_COMMON; t < N_PROMPT; t++)
            prompts[i][t] = world.tokens[600 + 20 * i + t - N_COMMON];
        prompts[i][N_COMMON] = (int32_t)i;
        struct kvad_request_options options = greedy_options(prompts[i], N_PROMPT, 1);
        options.no_prefix_cache = !shares;
        assert_int_equal(kvad_request_submit(engine, &options, &requests[i], NULL), KVAD_OK);
    }
    uint64_t start = kvad_clock_ns();
    while (step_engine(engine) > 0)
        continue;
    uint64_t ns = kvad_clock_ns() - start;
    *n_computed = engine->counters.n_prompt_tokens - engine->counters.n_hit_tokens;
    for (size_t i = 0; i < N; i++)
        kvad_request_destroy(&requests[i]);
    close_engine(&engine);
    return ns;
}

static void test_a_shared_beginning_saves_time_in_proportion_to_its_tokens(void **state) {
    (void)state;
    uint64_t n_cold, n_shared, cold = first_tokens(false, &n_cold);
    uint64_t shared = first_tokens(true, &n_shared);
    print_message(
        "16 prompts of 528 tokens, 512 in common: %.1f ms for %llu tokens, shared %.1f ms "
        "for %llu\n",
        (double)cold / 1e6, (unsigned long long)n_cold, (double)shared / 1e6,
        (unsigned long long)n_shared);
    assert_int_equal(n_cold, 16 * 528);
    assert_int_equal(n_shared, 16 * 528 - 15 * 512);
    assert_true(shared * 3 < cold); /* eleven times fewer tokens */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cost_of_sharing_does_not_grow_with_the_pool),
        cmocka_unit_test(test_a_shared_beginning_saves_time_in_proportion_to_its_tokens),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
