/* What a request holds, saves and pays, to the byte and to the token; what is switched off is off,
 * and what is pinned stays. */
#include "bits.h"
#include "engine/pin.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101 };

static struct kvad_request_info check(struct kvad_engine *engine, const int32_t *prompt,
                                      size_t n_prompt, bool shares) {
    struct kvad_request_options options = greedy_options(prompt, n_prompt, 2);
    options.no_prefix_cache = !shares;
    return check_options(engine, &options);
}

static void test_a_request_that_does_not_share_uses_no_block_of_others(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(20, 2);
    check(engine, world.tokens, 40, true);
    size_t n_entries = engine->prefix.n_entries, n_idle = engine->pool.n_idle;
    assert_int_equal(n_entries, 2);
    struct kvad_request_info info = check(engine, world.tokens, 40, false);
    assert_int_equal(info.n_cached_tokens, 0);
    assert_int_equal(info.miss, KVAD_MISS_OFF);
    check(engine, world.tokens + 100, 40, false);
    assert_int_equal(engine->prefix.n_entries, n_entries); /* and leaves none */
    assert_int_equal(engine->pool.n_idle, n_idle);
    assert_int_equal(check(engine, world.tokens, 40, true).n_cached_tokens, 32);
    close_engine(&engine);
}

/* Nor of one that runs at the same time, nor does that one wait for it. */
static void test_a_request_that_does_not_share_neither_lends_nor_waits(void **state) {
    (void)state;
    for (int first_shares = 0; first_shares <= 1; first_shares++) {
        struct kvad_engine *engine = open_blocks(20, 2);
        struct kvad_request *requests[2];
        struct outcome got[2];
        for (int i = 0; i < 2; i++) {
            struct kvad_request_options options = greedy_options(world.tokens, 40, 2);
            options.no_prefix_cache = (i == 0) != (first_shares == 1);
            outcome_init(&got[i], N_VOCAB);
            requests[i] = submit(engine, &options, &got[i]);
        }
        step_engine(engine);
        assert_int_equal(got[0].n_rows, 1);
        assert_int_equal(got[1].n_rows, 1); /* in the same step */
        assert_int_equal(engine->pool.n_shared, 0);
        while (step_engine(engine) > 0)
            continue;
        for (int i = 0; i < 2; i++)
            assert_true(take_events(requests[i], &got[i]));
        assert_same_outcome(&got[1], &got[0], "the second");
        assert_int_equal(engine->counters.n_hit_tokens, 0);
        for (int i = 0; i < 2; i++) {
            kvad_request_destroy(&requests[i]);
            outcome_free(&got[i]);
        }
        close_engine(&engine);
    }
}

static void test_a_pin_with_an_hour_to_live_outlives_others(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(6, 1);
    struct kvad_error err;
    uint64_t id = 0;
    size_t n_pinned = 0;
    check(engine, world.tokens, 40, true);
    assert_ok(kvad_cache_pin(engine, world.tokens, 40, NULL, 3600000, &id, &n_pinned, &err), &err);
    assert_int_equal(n_pinned, 32);
    for (size_t i = 1; i < 5; i++)
        check(engine, world.tokens + 100 * i, 50, true);
    assert_true(engine->pool.n_evictions > 6);
    assert_int_equal(check(engine, world.tokens, 40, true).n_cached_tokens, 32);
    engine->pins->expires_ns = 1; /* the hour is over */
    for (size_t i = 1; i < 3; i++)
        check(engine, world.tokens + 100 * i, 50, true);
    assert_null(engine->pins);
    assert_int_equal(check(engine, world.tokens, 40, true).n_cached_tokens, 0);
    close_engine(&engine);
}

/* ---------------------------------------------------------------- bytes of a request */

static void assert_bytes(const struct kvad_request *request, uint64_t held, uint64_t saved) {
    struct kvad_request_info info;
    kvad_request_get_info(request, &info);
    assert_int_equal(info.bytes_held, held);
    assert_int_equal(info.bytes_saved, saved);
}

/* Two prompts of 50 tokens with 40 in common: two whole blocks, and one that is copied. */
static void test_a_request_tells_what_it_holds_and_what_sharing_saves(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(12, 2);
    struct kvad_request *requests[3];
    struct outcome got[3];
    int32_t prompts[3][50];
    uint64_t block = engine->pool.block_bytes;
    for (size_t i = 0; i < 3; i++) {
        memcpy(prompts[i], world.tokens, sizeof prompts[i]);
        prompts[i][40] = (int32_t)i;
        struct kvad_request_options options = greedy_options(prompts[i], 50, i ? 12 : 4);
        outcome_init(&got[i], N_VOCAB);
        requests[i] = submit(engine, &options, &got[i]);
        assert_bytes(requests[i], 0, 0); /* queued */
    }
    while (got[1].n_rows == 0)
        step_engine(engine);
    assert_bytes(requests[0], 4 * block, 2 * block);
    assert_bytes(requests[1], 4 * block, 2 * block);
    assert_bytes(requests[2], 0, 0);
    struct kvad_cache_stats stats;
    kvad_cache_get_stats(engine, &stats);
    assert_int_equal(stats.shared_bytes, 2 * block);
    assert_int_equal(stats.live_bytes, 4 * block);
    kvad_request_cancel(requests[2]);
    while (!take_events(requests[0], &got[0]))
        step_engine(engine);
    assert_bytes(requests[0], 0, 0);         /* ended */
    assert_bytes(requests[1], 4 * block, 0); /* alone */
    while (step_engine(engine) > 0)
        continue;
    for (size_t i = 0; i < 3; i++) {
        kvad_request_destroy(&requests[i]);
        outcome_free(&got[i]);
    }
    close_engine(&engine);
}

/* ---------------------------------------------------------------- the cost of a preemption */

/* Two requests outgrow five blocks when each has 32 tokens. The second gives its two blocks back;
 * the first takes one of them before it ends, so that one is still there if it was left. */
static void test_what_a_preemption_costs_is_counted_to_the_token(void **state) {
    (void)state;
    for (int shares = 0; shares <= 1; shares++) {
        struct kvad_engine *engine = open_blocks(5, 2);
        struct kvad_request *requests[2];
        struct outcome got[2];
        struct kvad_request_info info;
        for (size_t i = 0; i < 2; i++) {
            struct kvad_request_options options = greedy_options(world.tokens + 99 * i, 20, 30);
            options.no_prefix_cache = !shares;
            outcome_init(&got[i], N_VOCAB);
            requests[i] = submit(engine, &options, &got[i]);
        }
        while (step_engine(engine) > 0)
            continue;
        kvad_request_get_info(requests[0], &info);
        assert_int_equal(info.n_preemptions, 0);
        assert_int_equal(info.n_recomputed_tokens, 0);
        kvad_request_get_info(requests[1], &info);
        assert_int_equal(info.n_preemptions, 1);
        assert_int_equal(info.n_recomputed_tokens, shares ? 16 : 32);
        struct kvad_cache_stats stats;
        kvad_cache_get_stats(engine, &stats);
        assert_int_equal(stats.n_preemptions, 1);
        assert_int_equal(stats.n_recomputed_tokens, info.n_recomputed_tokens);
        for (size_t i = 0; i < 2; i++) {
            kvad_request_destroy(&requests[i]);
            outcome_free(&got[i]);
        }
        close_engine(&engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_that_does_not_share_uses_no_block_of_others),
        cmocka_unit_test(test_a_request_that_does_not_share_neither_lends_nor_waits),
        cmocka_unit_test(test_a_pin_with_an_hour_to_live_outlives_others),
        cmocka_unit_test(test_a_request_tells_what_it_holds_and_what_sharing_saves),
        cmocka_unit_test(test_what_a_preemption_costs_is_counted_to_the_token),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
