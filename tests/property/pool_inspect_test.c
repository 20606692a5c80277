/* Looking inside: why a prompt missed, and bytes by owner that add up to what was allocated. */
#include "bits.h"
#include "engine/pin.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, B = 16 };

/* ---------------------------------------------------------------- why a prompt missed */

/* Run a request to its end; its number goes to *number (or NULL). */
static struct kvad_miss_info miss_of(struct kvad_engine *engine, const int32_t *prompt, size_t n,
                                     const char *salt, uint64_t *number) {
    struct kvad_request_options options = greedy_options(prompt, n, 1);
    struct kvad_miss_info info;
    struct outcome outcome;
    outcome_init(&outcome, N_VOCAB);
    options.cache_salt = salt;
    struct kvad_request *request = submit(engine, &options, &outcome);
    while (step_engine(engine) > 0)
        continue;
    kvad_request_get_miss(request, &info);
    if (number) *number = kvad_request_number(request);
    kvad_request_destroy(&request);
    outcome_free(&outcome);
    return info;
}

static void assert_miss(struct kvad_miss_info got, enum kvad_cache_miss miss, size_t position,
                        int32_t wanted, int32_t cached) {
    assert_int_equal(got.miss, miss);
    assert_int_equal(got.position, position);
    assert_int_equal(got.wanted, wanted);
    assert_int_equal(got.cached, cached);
}

static void test_a_miss_names_the_first_token_that_differs_and_what_is_cached(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(40, 1);
    const int32_t *t = world.tokens;
    assert_miss(miss_of(engine, t, 48, NULL, NULL), KVAD_MISS_COLD, 0, t[0], -1);
    assert_miss(miss_of(engine, t, 48, NULL, NULL), KVAD_MISS_NONE, 48, -1, -1);
    assert_miss(miss_of(engine, t, 52, NULL, NULL), KVAD_MISS_DIFFERS, 48, t[48], -1);
    for (size_t n = 0; n < 48; n++) { /* at any token of any block */
        int32_t prompt[48];
        memcpy(prompt, t, sizeof prompt);
        prompt[n] = (t[n] + 1) % N_VOCAB;
        kvad_cache_clear(engine);
        miss_of(engine, t, 48, NULL, NULL);
        assert_miss(miss_of(engine, prompt, 48, NULL, NULL), KVAD_MISS_DIFFERS, n, prompt[n], t[n]);
    }
    close_engine(&engine);
}

static void test_a_miss_says_that_the_salt_is_another(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(40, 1);
    const int32_t *t = world.tokens;
    assert_miss(miss_of(engine, t, 33, "a", NULL), KVAD_MISS_COLD, 0, t[0], -1);
    assert_miss(miss_of(engine, t, 33, NULL, NULL), KVAD_MISS_SALT, 0, t[0], -1);
    assert_miss(miss_of(engine, t, 33, "b", NULL), KVAD_MISS_SALT, 0, t[0], -1);
    assert_miss(miss_of(engine, t + 100, 33, "c", NULL), KVAD_MISS_COLD, 0, t[100], -1);
    assert_int_equal(miss_of(engine, t, 33, "b", NULL).position, 32); /* its own by now */
    close_engine(&engine);
}

static void test_a_miss_says_when_and_for_whom_the_block_was_evicted(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(4, 1);
    uint64_t taker;
    const int32_t *t = world.tokens;
    miss_of(engine, t, 40, NULL, NULL);
    miss_of(engine, t + 100, 55, NULL, &taker); /* takes all four */
    step_engine(engine);
    step_engine(engine);
    struct kvad_miss_info info = miss_of(engine, t, 40, NULL, NULL);
    assert_miss(info, KVAD_MISS_EVICTED, 0, t[0], t[100]);
    assert_int_equal(info.evicted_for, taker);
    assert_int_equal(taker, 1);
    assert_int_equal(info.evicted_steps, 3);
    close_engine(&engine);
}

/* Two requests run at the same time: the one that grew took the block, not the one that began. */
static void test_the_request_that_took_a_block_is_named_among_others(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(6, 2);
    const int32_t *t = world.tokens;
    struct outcome outcomes[2];
    struct kvad_request *requests[2];
    miss_of(engine, t, 17, NULL, NULL); /* one cached block */
    for (size_t i = 0; i < 2; i++) {
        /* The first stays within its two blocks, the second grows to four. */
        struct kvad_request_options options = greedy_options(t + 100 * (i + 1), 17, i ? 44 : 8);
        outcome_init(&outcomes[i], N_VOCAB);
        requests[i] = submit(engine, &options, &outcomes[i]);
    }
    while (step_engine(engine) > 0)
        for (size_t i = 0; i < 2; i++)
            take_events(requests[i], &outcomes[i]);
    uint64_t second = kvad_request_number(requests[1]);
    for (size_t i = 0; i < 2; i++) {
        kvad_request_destroy(&requests[i]);
        outcome_free(&outcomes[i]);
    }
    assert_true(engine->pool.n_evictions + engine->pool.n_free > 0);
    struct kvad_miss_info info = miss_of(engine, t + 300, 60, NULL, NULL); /* drives all out */
    info = miss_of(engine, t, 17, NULL, NULL);
    assert_int_equal(info.miss, KVAD_MISS_EVICTED);
    assert_int_equal(info.evicted_for, second + 1);
    close_engine(&engine);
}

static void test_blocks_that_no_request_took_name_none(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(4, 2);
    const int32_t *t = world.tokens;
    miss_of(engine, t, 40, NULL, NULL);
    kvad_cache_clear(engine);
    assert_int_equal(miss_of(engine, t, 40, NULL, NULL).evicted_for, KVAD_NO_REQUEST);
    struct kvad_sequence *sequence = new_sequence(engine);
    feed(sequence, t + 100, 55, NULL, NULL);
    kvad_sequence_destroy(&sequence);
    struct kvad_miss_info info = miss_of(engine, t, 40, NULL, NULL);
    assert_int_equal(info.miss, KVAD_MISS_EVICTED);
    assert_int_equal(info.evicted_for, KVAD_NO_REQUEST);
    close_engine(&engine);
}

/* Rows of a request that runs: where that one goes on differently. */
static void test_a_miss_beside_a_running_request_names_its_token(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(40, 3);
    int32_t prompts[2][50];
    struct outcome outcomes[2];
    struct kvad_request *requests[2];
    for (size_t i = 0; i < 2; i++) {
        memcpy(prompts[i], world.tokens, sizeof prompts[i]);
        prompts[i][37] = (int32_t)i;
        struct kvad_request_options options = greedy_options(prompts[i], 50, 3);
        outcome_init(&outcomes[i], N_VOCAB);
        requests[i] = submit(engine, &options, &outcomes[i]);
    }
    while (step_engine(engine) > 0)
        continue;
    struct kvad_miss_info info;
    kvad_request_get_miss(requests[1], &info);
    assert_miss(info, KVAD_MISS_DIFFERS, 37, 1, 0);
    for (size_t i = 0; i < 2; i++) {
        kvad_request_destroy(&requests[i]);
        outcome_free(&outcomes[i]);
    }
    close_engine(&engine);
}

/* ---------------------------------------------------------------- bytes by owner */

/* Of an engine without requests: all that its heap holds is the step's, or has an owner. */
static void assert_bytes_add_up(const struct kvad_engine *e) {
    struct kvad_cache_stats s;
    kvad_cache_get_stats(e, &s);
    uint64_t sum = s.live_bytes + s.shared_bytes + s.idle_bytes + s.free_bytes + s.table_bytes;
    uint64_t queue = e->queue.capacity * sizeof *e->queue.items;
    assert_int_equal(sum + queue + e->step_bytes, atomic_load(&e->heap.bytes));
}

static void test_bytes_by_owner_add_up_to_what_was_allocated(void **state) {
    (void)state;
    for (size_t i = 0; i < N_POLICIES; i++) {
        struct kvad_engine_options options = engine_options(policies[i], 1);
        options.n_sequences = 3;
        struct kvad_engine *engine = open_engine(world.model, &options);
        bool is_paged = policies[i] == KVAD_CACHE_PAGED;
        assert_bytes_add_up(engine);
        struct kvad_sequence *a = new_sequence(engine), *b = NULL;
        assert_bytes_add_up(engine);
        for (size_t n = 0; n < 50; n += 5) {
            feed(a, world.tokens + n, 5, NULL, NULL);
            assert_bytes_add_up(engine);
        }
        if (is_paged) assert_int_equal(kvad_sequence_fork(a, &b, NULL), KVAD_OK);
        assert_bytes_add_up(engine);
        cut(a, 20);
        assert_bytes_add_up(engine);
        kvad_sequence_destroy(&a);
        kvad_sequence_destroy(&b);
        uint64_t id = 0;
        size_t n_pinned = 0;
        miss_of(engine, world.tokens, 40, "a salt", NULL);
        assert_bytes_add_up(engine);
        if (is_paged)
            assert_int_equal(
                kvad_cache_pin(engine, world.tokens, 40, "a salt", 0, &id, &n_pinned, NULL),
                KVAD_OK);
        assert_int_equal(n_pinned, is_paged ? 32 : 0);
        assert_bytes_add_up(engine);
        kvad_cache_unpin(engine, id);
        kvad_cache_clear(engine);
        assert_bytes_add_up(engine);
        close_engine(&engine);
    }
}

/* bugs.md MEM-1, MEM-2 */
static void test_the_bytes_of_all_owners_add_up_to_what_was_allocated(void **state) {
    (void)state;
    struct kvad_engine_options options = paged_options(3);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct kvad_request *requests[3];
    struct outcome got[3];
    for (size_t i = 0; i < 3; i++) {
        outcome_init(&got[i], N_VOCAB);
        struct kvad_request_options request = greedy_options(world.tokens, 30 + 5 * i, 9);
        requests[i] = submit(engine, &request, &got[i]);
    }
    size_t n_active = 3;
    while (n_active > 0) {
        struct kvad_cache_stats stats;
        struct kvad_engine_info info;
        char map[100];
        n_active = step_engine(engine);
        kvad_cache_get_stats(engine, &stats);
        kvad_engine_get_info(engine, &info);
        assert_int_equal(stats.live_bytes + stats.shared_bytes + stats.idle_bytes +
                             stats.free_bytes,
                         info.kv_pool_bytes);
        assert_int_equal(stats.live_bytes + stats.shared_bytes, info.kv_bytes);
        assert_int_equal(stats.n_running + stats.n_waiting, n_active);
        assert_int_equal(kvad_cache_map(engine, map, sizeof map), engine->pool.n_blocks);
        uint64_t n_free = 0, n_idle = 0;
        for (size_t i = 0; map[i]; i++) {
            n_free += map[i] == '.';
            n_idle += map[i] == 'o';
        }
        assert_int_equal(n_free * engine->pool.block_bytes, stats.free_bytes);
        assert_int_equal(n_idle * engine->pool.block_bytes, stats.idle_bytes);
    }
    for (size_t i = 0; i < 3; i++) {
        kvad_request_destroy(&requests[i]);
        outcome_free(&got[i]);
    }
    close_engine(&engine);
}

/* The budget is that of the blocks: never a byte more, and less than one block less. */
static void test_the_budget_is_obeyed_to_the_byte_and_reserved_at_open(void **state) {
    (void)state;
    size_t block = tiny_block_bytes(&tiny_odd);
    for (uint64_t budget = block; budget < 6 * block; budget += block / 3) {
        struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
        options.kv_bytes = budget;
        options.n_sequences = 4;
        struct kvad_engine *engine = open_engine(world.model, &options);
        struct kvad_cache_stats s;
        kvad_cache_get_stats(engine, &s);
        assert_true(s.free_bytes <= budget && s.free_bytes + block > budget);
        uint64_t before = atomic_load(&engine->heap.bytes);
        struct kvad_sequence *sequence = new_sequence(engine);
        struct kvad_cache_stats with;
        kvad_cache_get_stats(engine, &with);
        feed(sequence, world.tokens, B, NULL, NULL);
        /* A sequence brings its table; its tokens bring nothing. */
        assert_int_equal(atomic_load(&engine->heap.bytes) - before,
                         with.table_bytes - s.table_bytes);
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_miss_names_the_first_token_that_differs_and_what_is_cached),
        cmocka_unit_test(test_a_miss_says_that_the_salt_is_another),
        cmocka_unit_test(test_a_miss_says_when_and_for_whom_the_block_was_evicted),
        cmocka_unit_test(test_the_request_that_took_a_block_is_named_among_others),
        cmocka_unit_test(test_blocks_that_no_request_took_name_none),
        cmocka_unit_test(test_a_miss_beside_a_running_request_names_its_token),
        cmocka_unit_test(test_bytes_by_owner_add_up_to_what_was_allocated),
        cmocka_unit_test(test_the_bytes_of_all_owners_add_up_to_what_was_allocated),
        cmocka_unit_test(test_the_budget_is_obeyed_to_the_byte_and_reserved_at_open),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
