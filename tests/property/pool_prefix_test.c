/* Requests that begin alike: each gives what it gives alone, and computes what is not there yet. */
#include "bits.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61, B = 16 };

/* bugs.md SHARE-4, SHARE-5, SHARE-11, SHARE-15, SHARE-16, SHARE-17, DET-2 */
static void test_the_same_prompt_again_gives_the_same_and_computes_its_last_token(void **state) {
    (void)state;
    for (size_t n = 1; n <= 50; n += n > 17 && n < 31 ? 12 : 1) {
        struct kvad_engine_options options = paged_options(1);
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
        struct kvad_engine_options options = paged_options(1);
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
    struct kvad_engine_options options = paged_options(1);
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
        struct kvad_engine_options options = paged_options(1);
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
    struct kvad_engine_options options = paged_options(1);
    options.kv_bytes = 4 * tiny_block_bytes(&tiny_odd);
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
    struct kvad_engine_options options = paged_options(1);
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
    struct kvad_engine_options options = paged_options(1);
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
    struct kvad_engine_options options = paged_options(1);
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
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
