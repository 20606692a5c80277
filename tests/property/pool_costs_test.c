/* What sharing costs and saves: microseconds that do not grow with the pool, and prompts in
 * proportion to the tokens that are not there yet. The bounds are wide: a walk over all blocks, or
 * a prefix computed again, is far outside of them. */
#include "base/clock.h"
#include "bits.h"
#include "test.h"
#include "world.h"

enum { N_ROUNDS = 60 };

static int make_long_world(void **state) {
    (void)state;
    make_world_of(&tiny_long, 4096);
    return 0;
}

/* The allocator is the ordinary one, which touches no block. */
static struct kvad_engine *open_untouched(size_t n_blocks, uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = n_sequences;
    options.kv_bytes = n_blocks * tiny_block_bytes(&tiny_long);
    options.allocator = (struct kvad_allocator){0};
    struct kvad_engine *engine = open_engine(world.model, &options);
    assert_int_equal(engine->pool.n_blocks, n_blocks);
    return engine;
}

/* ---------------------------------------------------------------- constant costs */

enum cost { NOTHING, FORK, CUT, HIT, MISS, EVICT, N_COSTS };
static const char *const cost_names[N_COSTS] = {
    "nothing (the clock)", "fork of 40 tokens", "rollback to 7 and end",
    "find 48 tokens",      "find none of 48",   "evict a block",
};

/* Medians and minima in nanoseconds. */
struct costs {
    uint64_t median[N_COSTS], least[N_COSTS];
};

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

/* Between two operations of a server lies a step, which reads all weights: drive everything out of
 * the CPU's caches. */
static void read_much(void) {
    enum { BYTES = 48 << 20 };
    static volatile unsigned char much[BYTES];
    for (size_t i = 0; i < BYTES; i += 64)
        much[i]++;
}

static void take_sample(struct kvad_engine *e, struct kvad_sequence *sequence, enum cost cost,
                        const int32_t *unknown, uint64_t *ns) {
    struct kvad_sequence *fork = NULL;
    struct kvad_prefix_match match = {0};
    uint32_t block = 0;
    if (cost == CUT) assert_int_equal(kvad_sequence_fork(sequence, &fork, NULL), KVAD_OK);
    uint64_t start = kvad_clock_ns();
    switch (cost) {
    case FORK: (void)kvad_sequence_fork(sequence, &fork, NULL); break;
    case CUT:
        cut(fork, 7);
        kvad_sequence_destroy(&fork);
        break;
    case HIT:
        match = kvad_prefix_find(&e->prefix, &e->prefix.plain, world.tokens, 48, e->found);
        break;
    case MISS: match = kvad_prefix_find(&e->prefix, &e->prefix.plain, unknown, 48, e->found); break;
    case EVICT: (void)kvad_kv_pool_acquire(&e->pool, &block); break;
    case NOTHING:
    case N_COSTS: break;
    }
    *ns = kvad_clock_ns() - start;
    kvad_sequence_destroy(&fork);
    assert_int_equal(match.n_tokens, cost == HIT ? 48 : 0);
    if (cost == EVICT) kvad_kv_pool_release(&e->pool, block);
}

static int compare_ns(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* With n_blocks held, all of them but four by texts of their own. `is_cold`: as after a step. */
static void measure(size_t n_blocks, bool is_cold, struct costs *costs) {
    static uint64_t samples[N_COSTS][N_ROUNDS];
    struct kvad_engine *e = open_untouched(n_blocks, 4);
    struct outcome outcome;
    struct kvad_request_options options = greedy_options(world.tokens, 48, 1);
    int32_t next_id = 1000000, unknown[48] = {-1};
    uint32_t found[3];
    outcome_init(&outcome, tiny_long.n_vocab);
    fill_index(e, &next_id);
    run_request(e, &options, &outcome);
    struct kvad_sequence *sequence = new_sequence(e);
    feed(sequence, world.tokens, 40, NULL, NULL);
    assert_int_equal(
        kvad_prefix_find(&e->prefix, &e->prefix.plain, world.tokens, 48, found).n_tokens, 48);
    for (size_t round = 0; round < N_ROUNDS; round++)
        for (enum cost cost = NOTHING; cost < N_COSTS; cost++) {
            fill_index(e, &next_id);
            for (size_t i = 0; i < 3; i++) /* used again, so that these are not the next to go */
                kvad_kv_pool_retain(&e->pool, found[i]);
            for (size_t i = 3; i > 0; i--)
                kvad_kv_pool_release(&e->pool, found[i - 1]);
            if (is_cold) read_much();
            take_sample(e, sequence, cost, unknown, &samples[cost][round]);
        }
    for (size_t cost = 0; cost < N_COSTS; cost++) {
        qsort(samples[cost], N_ROUNDS, sizeof **samples, compare_ns);
        costs->median[cost] = samples[cost][N_ROUNDS / 2];
        costs->least[cost] = samples[cost][0];
    }
    kvad_sequence_destroy(&sequence);
    outcome_free(&outcome);
    kvad_engine_close(&e);
}

static void test_the_cost_of_sharing_does_not_grow_with_the_pool(void **state) {
    (void)state;
    struct costs small, large;
    measure(100, false, &small);
    measure(9000, false, &large);
    for (size_t i = 0; i < N_COSTS; i++) {
        print_message("%-22s %6llu ns with 100 blocks, %6llu ns with 9000\n", cost_names[i],
                      (unsigned long long)small.least[i], (unsigned long long)large.least[i]);
        assert_true(large.least[i] < 4 * small.least[i] + 2000);
    }
}

/* For docs/benchmarks.md: pool_costs_test --table. */
static int print_table(void) {
    static const size_t numbers[] = {100, 1000, 10000, 100000};
    struct costs costs[4];
    make_long_world(NULL);
    for (int is_cold = 0; is_cold <= 1; is_cold++) {
        for (size_t i = 0; i < 4; i++)
            measure(numbers[i], is_cold, &costs[i]);
        printf("\n%s, median ns with so many blocks held\n\n| | 100 | 1000 | 10000 | 100000 |\n"
               "|---|---|---|---|---|\n",
               is_cold ? "After a step (nothing in the CPU's caches)" : "Again and again");
        for (size_t cost = 0; cost < N_COSTS; cost++) {
            printf("| %s |", cost_names[cost]);
            for (size_t i = 0; i < 4; i++)
                printf(" %llu |", (unsigned long long)costs[i].median[cost]);
            printf("\n");
        }
    }
    return free_world(NULL);
}

/* ---------------------------------------------------------------- time to the first token */

/* Nanoseconds until 16 requests, whose prompts have 512 of 528 tokens in common, have their first.
 */
static uint64_t first_tokens(bool shares, uint64_t *n_computed) {
    enum { N = 16, N_COMMON = 512, N_PROMPT = 528 };
    static int32_t prompts[N][N_PROMPT];
    struct kvad_engine *engine = open_untouched(N * 35, N);
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
    kvad_engine_close(&engine);
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

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--table") == 0) return print_table();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cost_of_sharing_does_not_grow_with_the_pool),
        cmocka_unit_test(test_a_shared_beginning_saves_time_in_proportion_to_its_tokens),
    };
    return cmocka_run_group_tests(tests, make_long_world, free_world);
}
