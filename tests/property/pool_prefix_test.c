/* Requests that begin alike: each gives what it gives alone, and computes what is not there yet. */
#include <math.h>
#include <time.h>

#include "bits.h"
#include "engine/pin.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61, B = 16 };

static struct kvad_engine_options options_for(uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.n_sequences = n_sequences;
    return options;
}

/* Run one request to its end in `engine`, compare with what it gives cold and alone; what it got.
 */
static struct kvad_request_info check_request(struct kvad_engine *engine, const int32_t *prompt,
                                              size_t n_prompt, size_t n, const char *salt) {
    struct kvad_request_options options = greedy_options(prompt, n_prompt, n);
    struct kvad_request_info info;
    struct outcome got, wanted;
    options.cache_salt = salt;
    outcome_init(&got, N_VOCAB);
    expect_greedy(world.model, prompt, n_prompt, n, false, &wanted);
    struct kvad_request *request = submit(engine, &options, &got);
    for (int i = 0; i < 200 && !take_events(request, &got); i++) {
        kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
        step_engine(engine);
        assert_true(kvad_kv_pool_is_sound(&engine->pool));
        if (engine->prefix.heap) assert_true(kvad_prefix_is_sound(&engine->prefix));
    }
    assert_same_outcome(&got, &wanted, label("prompt of %zu", n_prompt));
    kvad_request_get_info(request, &info);
    kvad_request_destroy(&request);
    outcome_free(&got);
    outcome_free(&wanted);
    return info;
}

/* bugs.md SHARE-4, SHARE-5, SHARE-11, SHARE-15, SHARE-16, SHARE-17, DET-2 */
static void test_the_same_prompt_again_gives_the_same_and_computes_its_last_token(void **state) {
    (void)state;
    for (size_t n = 1; n <= 50; n += n > 17 && n < 31 ? 12 : 1) {
        struct kvad_engine_options options = options_for(1);
        struct kvad_engine *engine = open_engine(world.model, &options);
        for (int round = 0; round < 3; round++) {
            struct kvad_request_info info = check_request(engine, world.tokens, n, 3, NULL);
            /* Of the first round, blocks that are full with the tokens that followed match too. */
            size_t n_full = (n + 2) / B * B;
            assert_int_equal(info.n_cached_tokens, round ? (n_full < n ? n_full : n) : 0);
            assert_int_equal(info.miss == KVAD_MISS_NONE, info.n_cached_tokens == n);
        }
        assert_int_equal(engine->counters.n_preemptions, 0);
        close_engine(&engine);
    }
}

/* K and V in types that round: a hit reads what the cold run read. */
static void test_hits_in_rounded_caches_have_the_bits_of_a_cold_run(void **state) {
    (void)state;
    static const enum kvad_kv_type types[] = {KVAD_KV_F16, KVAD_KV_BF16, KVAD_KV_Q8};
    for (size_t i = 0; i < 3; i++) {
        struct kvad_engine_options options = options_for(1);
        options.k_type = types[i];
        options.v_type = types[(i + 1) % 3];
        struct kvad_engine *engine = open_engine(world.model, &options);
        for (size_t n = 30; n <= 34; n++) {
            struct outcome cold, hit;
            struct kvad_request_options request = greedy_options(world.tokens, n, 6);
            outcome_init(&cold, N_VOCAB);
            outcome_init(&hit, N_VOCAB);
            request.no_prefix_cache = true;
            run_request(engine, &request, &cold);
            request.no_prefix_cache = false;
            run_request(engine, &request, &hit);
            outcome_free(&hit);
            outcome_init(&hit, N_VOCAB);
            run_request(engine, &request, &hit);
            assert_same_outcome(&hit, &cold, label("types %zu, prompt of %zu", i, n));
            outcome_free(&cold);
            outcome_free(&hit);
        }
        assert_true(engine->counters.n_hit_tokens > 0);
        close_engine(&engine);
    }
}

/* bugs.md SHARE-6, SHARE-12, MEM-2 */
static void test_any_beginning_of_a_cached_text_is_found_at_any_token(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    options.kv_bytes = 1 << 22;
    struct kvad_engine *engine = open_engine(world.model, &options);
    check_request(engine, world.tokens, 48, 1, NULL);
    for (size_t n = 1; n <= 48; n++)
        assert_int_equal(check_request(engine, world.tokens, n, 2, NULL).n_cached_tokens, n);
    /* It goes on differently, at any token: the block is copied as far as it fits. */
    for (size_t n = 1; n < 48; n++) {
        int32_t prompt[N_CTX];
        memcpy(prompt, world.tokens, sizeof prompt);
        for (size_t i = n; i < 55; i++)
            prompt[i] = (world.tokens[i] + 1 + (int32_t)n) % N_VOCAB;
        struct kvad_request_info info = check_request(engine, prompt, 55, 2, NULL);
        assert_int_equal(info.n_cached_tokens, n);
        assert_int_equal(info.miss, KVAD_MISS_DIFFERS);
    }
    assert_int_equal(check_request(engine, world.tokens, 60, 1, NULL).n_cached_tokens, 48);
    assert_int_equal(check_request(engine, world.tokens, 60, 1, NULL).n_cached_tokens, 48);
    close_engine(&engine);
}

/* What a request computes after the blocks that it found is there for the next one. */
static void test_a_request_that_began_with_a_hit_leaves_its_later_blocks_too(void **state) {
    (void)state;
    for (size_t n_first = B; n_first <= 2 * B; n_first += B) {
        struct kvad_engine_options options = options_for(1);
        struct kvad_engine *engine = open_engine(world.model, &options);
        struct kvad_request_info info = check_request(engine, world.tokens, n_first, 1, NULL);
        assert_int_equal(info.n_cached_tokens, 0);
        info = check_request(engine, world.tokens, 3 * B + 2, 1, NULL);
        assert_int_equal(info.n_cached_tokens, n_first);
        info = check_request(engine, world.tokens, 3 * B + 2, 1, NULL);
        assert_int_equal(info.n_cached_tokens, 3 * B);
        close_engine(&engine);
    }
}

/* bugs.md SHARE-7, SHARE-19, SHARE-21 */
static void test_evicted_prompts_are_computed_again(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    options.kv_bytes = 4 * 16 * 4 * 2 * tiny_odd.n_layers * 35;
    struct kvad_engine *engine = open_engine(world.model, &options);
    assert_int_equal(engine->pool.n_blocks, 4);
    for (int round = 0; round < 3; round++) {
        struct kvad_request_info info = check_request(engine, world.tokens, 40, 2, NULL);
        assert_int_equal(info.n_cached_tokens, 0);
        assert_int_equal(info.miss, round ? KVAD_MISS_EVICTED : KVAD_MISS_COLD);
        info = check_request(engine, world.tokens, 40, 2, NULL);
        assert_int_equal(info.n_cached_tokens, 32);
        check_request(engine, world.tokens + 100, 55, 2, NULL);
    }
    assert_true(engine->pool.n_evictions > 0);
    close_engine(&engine);
}

/* bugs.md SHARE-2, SEC-1, SEC-2 */
static void test_salts_keep_tenants_apart_and_let_each_reuse_its_own(void **state) {
    (void)state;
    static const char *const salts[] = {NULL, "a", "b", "", "a longer salt"};
    struct kvad_engine_options options = options_for(1);
    options.kv_bytes = 1 << 22;
    struct kvad_engine *engine = open_engine(world.model, &options);
    for (size_t i = 0; i < 5; i++) {
        struct kvad_request_info info = check_request(engine, world.tokens, 33, 1, salts[i]);
        assert_int_equal(info.n_cached_tokens, 0);
        assert_int_equal(info.miss, i ? KVAD_MISS_SALT : KVAD_MISS_COLD);
    }
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(check_request(engine, world.tokens, 33, 1, salts[i]).n_cached_tokens, 32);
    kvad_cache_clear(engine);
    assert_null(engine->prefix.plain.next); /* salts without blocks and requests are gone */
    assert_int_equal(engine->pool.n_idle, 0);
    close_engine(&engine);
}

static void test_sharing_can_be_switched_off_for_an_engine_and_for_a_request(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    options.no_prefix_cache = true;
    struct kvad_engine *engine = open_engine(world.model, &options);
    for (int round = 0; round < 2; round++) {
        struct kvad_request_info info = check_request(engine, world.tokens, 40, 2, NULL);
        assert_int_equal(info.n_cached_tokens, 0);
        assert_int_equal(info.miss, KVAD_MISS_OFF);
        assert_int_equal(engine->pool.n_free, engine->pool.n_blocks);
    }
    close_engine(&engine);
    options.no_prefix_cache = false;
    engine = open_engine(world.model, &options);
    struct kvad_request_options one = greedy_options(world.tokens, 40, 2);
    one.no_prefix_cache = true;
    struct outcome outcome;
    outcome_init(&outcome, N_VOCAB);
    run_request(engine, &one, &outcome);
    assert_int_equal(engine->pool.n_free, engine->pool.n_blocks); /* and left nothing */
    outcome_free(&outcome);
    close_engine(&engine);
}

static uint64_t constant_hash(const void *data, size_t size, uint64_t seed) {
    (void)data;
    (void)size;
    (void)seed;
    return 42;
}

/* bugs.md SHARE-1, SHARE-3, SHARE-10 */
static void test_with_a_constant_hash_answers_are_unchanged(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    struct kvad_engine *engine = open_engine(world.model, &options);
    engine->prefix.hash = constant_hash;
    for (size_t i = 0; i < 12; i++) {
        int32_t prompt[40];
        memcpy(prompt, world.tokens + i % 4 * 50, sizeof prompt);
        if (i % 2) memcpy(prompt, world.tokens + 300, 16 * sizeof *prompt); /* another beginning */
        check_request(engine, prompt, 40, 3, i % 3 ? NULL : "salt");
    }
    assert_true(engine->counters.n_hit_tokens > 0);
    close_engine(&engine);
}

/* ---------------------------------------------------------------- pins */

static uint64_t pin(struct kvad_engine *engine, size_t n, uint64_t ttl_ms, size_t wanted) {
    uint64_t id = 0;
    size_t n_pinned = SIZE_MAX;
    struct kvad_error err;
    assert_ok(kvad_cache_pin(engine, world.tokens, n, NULL, ttl_ms, &id, &n_pinned, &err), &err);
    assert_int_equal(n_pinned, wanted);
    return id;
}

static void test_pinned_prompts_outlive_others_until_their_time_is_over(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    options.kv_bytes = 6 * 16 * 4 * 2 * tiny_odd.n_layers * 35;
    for (uint64_t ttl_ms = 0; ttl_ms <= 1; ttl_ms++) {
        struct kvad_engine *engine = open_engine(world.model, &options);
        pin(engine, 40, 0, 0); /* nothing is there yet */
        check_request(engine, world.tokens, 40, 2, NULL);
        uint64_t id = pin(engine, 40, ttl_ms ? 20 : 0, 32);
        for (size_t i = 1; i < 4; i++)
            check_request(engine, world.tokens + 100 * i, 50, 2, NULL);
        if (ttl_ms == 0) {
            struct kvad_request_info info = check_request(engine, world.tokens, 40, 2, NULL);
            assert_int_equal(info.n_cached_tokens, 32);
            kvad_cache_unpin(engine, id);
            kvad_cache_unpin(engine, id); /* gone already */
        }
        struct timespec pause = {.tv_nsec = 25000000};
        nanosleep(&pause, NULL);
        for (size_t i = 1; i < 4; i++)
            check_request(engine, world.tokens + 100 * i, 50, 2, NULL);
        assert_int_equal(check_request(engine, world.tokens, 40, 2, NULL).n_cached_tokens, 0);
        close_engine(&engine);
    }
}

static void test_pins_give_way_before_a_request_fails(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(1);
    options.kv_bytes = 4 * 16 * 4 * 2 * tiny_odd.n_layers * 35;
    struct kvad_engine *engine = open_engine(world.model, &options);
    check_request(engine, world.tokens, 40, 2, NULL);
    pin(engine, 40, 0, 32);
    check_request(engine, world.tokens + 100, 20, 10, NULL); /* fits beside it */
    assert_int_equal(pin(engine, 40, 0, 32), 2);
    check_request(engine, world.tokens + 200, 60, 1, NULL); /* does not */
    assert_null(engine->pins);
    pin(engine, 40, 0, 0);
    close_engine(&engine);
    options.no_prefix_cache = true;
    engine = open_engine(world.model, &options);
    struct kvad_error err;
    uint64_t id;
    size_t n;
    assert_fails(kvad_cache_pin(engine, world.tokens, 40, NULL, 0, &id, &n, &err),
                 KVAD_ERR_UNSUPPORTED, &err, "prefix cache");
    close_engine(&engine);
}

/* ---------------------------------------------------------------- at the same time */

enum { N_CLIENTS = 16 };

/* Prompts with 48 tokens in common, all at once: the common part is computed by one of them. */
/* bugs.md SHARE-8, BATCH-1, EVICT-10 */
static void test_a_beginning_that_is_still_being_computed_is_computed_once(void **state) {
    (void)state;
    static struct outcome got[N_CLIENTS], wanted[N_CLIENTS];
    static int32_t prompts[N_CLIENTS][50];
    for (uint32_t n_batch = 16; n_batch <= 1024; n_batch *= 8) {
        struct kvad_engine_options options = options_for(N_CLIENTS);
        options.n_batch_tokens = n_batch;
        struct kvad_engine *engine = open_engine(world.model, &options);
        struct kvad_request *requests[N_CLIENTS];
        for (size_t i = 0; i < N_CLIENTS; i++) {
            memcpy(prompts[i], world.tokens, sizeof prompts[i]);
            prompts[i][48] = (int32_t)i;
            outcome_init(&got[i], N_VOCAB);
            struct kvad_request_options request = greedy_options(prompts[i], 50, 4);
            requests[i] = submit(engine, &request, &got[i]);
        }
        while (step_engine(engine) > 0) {
            assert_true(kvad_kv_pool_is_sound(&engine->pool));
            assert_true(kvad_prefix_is_sound(&engine->prefix));
        }
        assert_int_equal(engine->counters.n_prompt_tokens, N_CLIENTS * 50);
        assert_int_equal(engine->counters.n_hit_tokens, (N_CLIENTS - 1) * 48);
        for (size_t i = 0; i < N_CLIENTS; i++) {
            assert_true(take_events(requests[i], &got[i]));
            expect_greedy(world.model, prompts[i], 50, 4, false, &wanted[i]);
            assert_same_outcome(&got[i], &wanted[i], label("client %zu", i));
            kvad_request_destroy(&requests[i]);
            outcome_free(&got[i]);
            outcome_free(&wanted[i]);
        }
        close_engine(&engine);
    }
}

/* The one that computes what others wait for is cancelled: one of them takes over. */
static void test_waiting_requests_go_on_when_the_one_they_wait_for_is_gone(void **state) {
    (void)state;
    for (size_t n_steps = 0; n_steps < 14; n_steps++) {
        struct kvad_engine_options options = options_for(4);
        options.n_batch_tokens = 4;
        struct kvad_engine *engine = open_engine(world.model, &options);
        struct kvad_request *requests[4];
        struct outcome got[4], wanted;
        expect_greedy(world.model, world.tokens, 50, 4, false, &wanted);
        for (size_t i = 0; i < 4; i++) {
            outcome_init(&got[i], N_VOCAB);
            struct kvad_request_options request = greedy_options(world.tokens, 50, 4);
            requests[i] = submit(engine, &request, &got[i]);
        }
        for (size_t i = 0; i < n_steps; i++)
            step_engine(engine);
        kvad_request_cancel(requests[0]);
        if (n_steps % 2) kvad_request_destroy(&requests[1]);
        while (step_engine(engine) > 0)
            continue;
        for (size_t i = 0; i < 4; i++) {
            bool is_whole = i > 1 || (i == 1 && n_steps % 2 == 0);
            if (is_whole) {
                assert_true(take_events(requests[i], &got[i]));
                assert_same_outcome(&got[i], &wanted, label("%zu after %zu", i, n_steps));
            }
            kvad_request_destroy(&requests[i]);
            outcome_free(&got[i]);
        }
        outcome_free(&wanted);
        close_engine(&engine);
    }
}

/* The first two prompts have 16 tokens in common, the last two 48: the third waits for the second,
 * which waits for the first. When that one goes, the second must not wait for the third in turn. */
static void test_a_chain_of_waiting_requests_never_closes_to_a_ring(void **state) {
    (void)state;
    for (size_t n_steps = 1; n_steps < 4; n_steps++) {
        struct kvad_engine_options options = options_for(3);
        options.n_batch_tokens = 4; /* the common part takes four steps */
        struct kvad_engine *engine = open_engine(world.model, &options);
        struct kvad_request *requests[3];
        struct outcome got[3], wanted;
        int32_t prompts[3][50];
        for (size_t i = 0; i < 3; i++) {
            memcpy(prompts[i], world.tokens, sizeof prompts[i]);
            if (i > 0) memcpy(prompts[i] + 16, world.tokens + 300, 34 * sizeof *prompts[i]);
            prompts[i][49] = (int32_t)i;
            outcome_init(&got[i], N_VOCAB);
            struct kvad_request_options request = greedy_options(prompts[i], 50, 4);
            requests[i] = submit(engine, &request, &got[i]);
        }
        for (size_t i = 0; i < n_steps; i++)
            step_engine(engine);
        assert_ptr_equal(requests[1]->waits_for, requests[0]);
        assert_ptr_equal(requests[2]->waits_for, requests[1]);
        kvad_request_cancel(requests[0]);
        for (size_t i = 0; step_engine(engine) > 0; i++)
            assert_true(i < 100);
        for (size_t i = 0; i < 3; i++) {
            assert_true(take_events(requests[i], &got[i]));
            if (i > 0) {
                expect_greedy(world.model, prompts[i], 50, 4, false, &wanted);
                assert_same_outcome(&got[i], &wanted, label("%zu after %zu", i, n_steps));
                outcome_free(&wanted);
            }
            kvad_request_destroy(&requests[i]);
            outcome_free(&got[i]);
        }
        close_engine(&engine);
    }
}

/* n samples of one prompt hold its blocks once, also the last one, which is not full. */
static void test_samples_of_one_prompt_share_all_its_blocks(void **state) {
    (void)state;
    enum { N = 6 };
    struct kvad_engine_options options = options_for(N);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct kvad_request *requests[N];
    struct outcome got[N];
    for (size_t i = 0; i < N; i++) {
        struct kvad_sampler_options sampler;
        kvad_sampler_options_init(&sampler);
        sampler.seed = 4;
        sampler.sample_index = i;
        outcome_init(&got[i], N_VOCAB);
        struct kvad_request_options request = greedy_options(world.tokens, 40, 5);
        request.sampler = &sampler;
        requests[i] = submit(engine, &request, &got[i]);
    }
    step_engine(engine);
    struct kvad_cache_stats stats;
    kvad_cache_get_stats(engine, &stats);
    assert_int_equal(stats.shared_bytes, 3 * engine->pool.block_bytes);
    assert_int_equal(stats.live_bytes, 0);
    while (step_engine(engine) > 0)
        continue;
    assert_int_equal(engine->pool.n_copies, N - 1);
    for (size_t i = 0; i < N; i++) {
        struct outcome alone;
        outcome_init(&alone, N_VOCAB);
        assert_true(take_events(requests[i], &got[i]));
        struct kvad_sampler_options sampler;
        kvad_sampler_options_init(&sampler);
        sampler.seed = 4;
        sampler.sample_index = i;
        struct kvad_request_options request = greedy_options(world.tokens, 40, 5);
        request.sampler = &sampler;
        request.no_prefix_cache = true;
        run_request(engine, &request, &alone);
        assert_same_outcome(&got[i], &alone, label("sample %zu", i));
        kvad_request_destroy(&requests[i]);
        outcome_free(&got[i]);
        outcome_free(&alone);
    }
    close_engine(&engine);
}

/* ---------------------------------------------------------------- inspection */

/* bugs.md MEM-1, MEM-2 */
static void test_the_bytes_of_all_owners_add_up_to_what_was_allocated(void **state) {
    (void)state;
    struct kvad_engine_options options = options_for(3);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_prompt_again_gives_the_same_and_computes_its_last_token),
        cmocka_unit_test(test_hits_in_rounded_caches_have_the_bits_of_a_cold_run),
        cmocka_unit_test(test_any_beginning_of_a_cached_text_is_found_at_any_token),
        cmocka_unit_test(test_a_request_that_began_with_a_hit_leaves_its_later_blocks_too),
        cmocka_unit_test(test_evicted_prompts_are_computed_again),
        cmocka_unit_test(test_salts_keep_tenants_apart_and_let_each_reuse_its_own),
        cmocka_unit_test(test_sharing_can_be_switched_off_for_an_engine_and_for_a_request),
        cmocka_unit_test(test_with_a_constant_hash_answers_are_unchanged),
        cmocka_unit_test(test_pinned_prompts_outlive_others_until_their_time_is_over),
        cmocka_unit_test(test_pins_give_way_before_a_request_fails),
        cmocka_unit_test(test_a_beginning_that_is_still_being_computed_is_computed_once),
        cmocka_unit_test(test_waiting_requests_go_on_when_the_one_they_wait_for_is_gone),
        cmocka_unit_test(test_a_chain_of_waiting_requests_never_closes_to_a_ring),
        cmocka_unit_test(test_samples_of_one_prompt_share_all_its_blocks),
        cmocka_unit_test(test_the_bytes_of_all_owners_add_up_to_what_was_allocated),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
