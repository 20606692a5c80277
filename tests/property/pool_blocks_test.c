/* Blocks of 32 to 256 tokens, on one to three threads: hits, copies, samples and preemption around
 * every edge give what a cold run alone gives. (Blocks of 16 are those of all other tests.) */
#include <math.h>

#include "bits.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 43, N_CTX = 560, N_SIZES = 4 };
static const uint32_t block_sizes[N_SIZES] = {32, 64, 128, 256};

static struct kvad_engine *cold;

static int make_long_world(void **state) {
    (void)state;
    make_world_of(&tiny_long, 4096);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_STATIC, 1);
    cold = open_engine(world.model, &options);
    return 0;
}

static int free_long_world(void **state) {
    close_engine(&cold);
    return free_world(state);
}

static struct kvad_engine *open_sized(size_t i, size_t n_blocks, uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1 + (unsigned)i % 3);
    options.block_tokens = block_sizes[i];
    options.n_sequences = n_sequences;
    options.kv_bytes = n_blocks * block_sizes[i] * tiny_token_bytes(&tiny_long);
    struct kvad_engine *engine = open_engine(world.model, &options);
    assert_int_equal(engine->pool.n_blocks, n_blocks);
    return engine;
}

static void check_sound(const struct kvad_engine *engine) {
    assert_true(kvad_kv_pool_is_sound(&engine->pool));
    assert_true(kvad_prefix_is_sound(&engine->prefix));
}

/* Run requests together, compare each with a cold run alone; preemptions. */
static uint64_t check_together(struct kvad_engine *engine,
                               const struct kvad_request_options *options, size_t n,
                               size_t *n_cached) {
    struct kvad_request *requests[4];
    struct outcome got[4], wanted;
    uint64_t n_preemptions = engine->counters.n_preemptions;
    for (size_t i = 0; i < n; i++) {
        outcome_init(&got[i], N_VOCAB);
        requests[i] = submit(engine, &options[i], &got[i]);
    }
    while (step_engine(engine) > 0) {
        kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
        check_sound(engine);
        for (size_t i = 0; i < n; i++)
            take_events(requests[i], &got[i]);
    }
    for (size_t i = 0; i < n; i++) {
        struct kvad_request_info info;
        take_events(requests[i], &got[i]);
        outcome_init(&wanted, N_VOCAB);
        run_request(cold, &options[i], &wanted);
        assert_same_outcome(&got[i], &wanted,
                            label("blocks of %zu, prompt of %zu, %zu of %zu",
                                  engine->shape.block_tokens, options[i].n_prompt, i, n));
        kvad_request_get_info(requests[i], &info);
        *n_cached = info.n_cached_tokens;
        kvad_request_destroy(&requests[i]);
        outcome_free(&got[i]);
        outcome_free(&wanted);
    }
    return engine->counters.n_preemptions - n_preemptions;
}

static size_t check_one(struct kvad_engine *engine, const int32_t *prompt, size_t n) {
    struct kvad_request_options options = greedy_options(prompt, n, 3);
    size_t n_cached = SIZE_MAX;
    check_together(engine, &options, 1, &n_cached);
    return n_cached;
}

static void test_hits_end_at_the_first_different_token_in_blocks_of_all_sizes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t b = block_sizes[i];
        size_t lengths[] = {b - 1, b, b + 1, 2 * b - 1, 2 * b, 2 * b + 1};
        for (size_t l = 0; l < 6; l++) {
            struct kvad_engine *engine = open_sized(i, 8, 1);
            size_t n = lengths[l], n_full = (n + 2) / b * b; /* two outputs were fed */
            assert_int_equal(check_one(engine, world.tokens, n), 0);
            assert_int_equal(check_one(engine, world.tokens, n), n_full < n ? n_full : n);
            close_engine(&engine);
        }
        struct kvad_engine *engine = open_sized(i, 12, 1);
        check_one(engine, world.tokens, 2 * b);
        size_t places[] = {1, 17, b - 1, b, b + 1, b + 17, 2 * b - 1};
        for (size_t p = 0; p < 7; p++) {
            static int32_t prompt[N_CTX];
            memcpy(prompt, world.tokens, sizeof prompt);
            prompt[places[p]] = (prompt[places[p]] + 1 + (int32_t)p) % N_VOCAB;
            assert_int_equal(check_one(engine, prompt, 2 * b + 5), places[p]);
        }
        close_engine(&engine);
    }
}

static void test_samples_copy_the_last_block_of_any_size_once_for_each_but_one(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t b = block_sizes[i], lengths[] = {b - 1, b, b + 1, b + b / 2};
        for (size_t l = 0; l < 4; l++) {
            struct kvad_engine *engine = open_sized(i, 9, 3);
            struct kvad_request_options options[3];
            struct kvad_sampler_options samplers[3];
            size_t n_cached;
            for (size_t k = 0; k < 3; k++) {
                kvad_sampler_options_init(&samplers[k]);
                samplers[k].sample_index = k;
                options[k] = greedy_options(world.tokens, lengths[l], 5);
                options[k].sampler = &samplers[k];
            }
            check_together(engine, options, 3, &n_cached);
            assert_int_equal(engine->pool.n_copies, lengths[l] % b ? 2 : 0);
            close_engine(&engine);
        }
    }
}

static void test_requests_that_outgrow_a_pool_of_large_blocks_answer_as_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t n = block_sizes[i] - 3; n <= block_sizes[i]; n++) {
            struct kvad_engine *engine = open_sized(i, 3, 2); /* both grow into a second block */
            struct kvad_request_options options[2];
            size_t n_cached;
            for (size_t k = 0; k < 2; k++) {
                options[k] = greedy_options(world.tokens + 700 * k, n - 9 * k, 20);
                options[k].no_prefix_cache = n % 2;
            }
            assert_true(check_together(engine, options, 2, &n_cached) > 0);
            close_engine(&engine);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_end_at_the_first_different_token_in_blocks_of_all_sizes),
        cmocka_unit_test(test_samples_copy_the_last_block_of_any_size_once_for_each_but_one),
        cmocka_unit_test(test_requests_that_outgrow_a_pool_of_large_blocks_answer_as_alone),
    };
    return cmocka_run_group_tests(tests, make_long_world, free_long_world);
}
