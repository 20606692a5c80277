/* Requests that begin alike at the same time: one computes what the others wait for. */
#include "bits.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101 };

enum { N_CLIENTS = 16 };

/* Prompts with 48 tokens in common, all at once: the common part is computed by one of them. */
/* bugs.md SHARE-8, BATCH-1, EVICT-10 */
static void test_a_beginning_that_is_still_being_computed_is_computed_once(void **state) {
    (void)state;
    static struct outcome got[N_CLIENTS], wanted[N_CLIENTS];
    static int32_t prompts[N_CLIENTS][50];
    for (uint32_t n_batch = 16; n_batch <= 1024; n_batch *= 8) {
        struct kvad_engine_options options = paged_options(N_CLIENTS);
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
        struct kvad_engine_options options = paged_options(4);
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
        struct kvad_engine_options options = paged_options(3);
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
    struct kvad_engine_options options = paged_options(N);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_beginning_that_is_still_being_computed_is_computed_once),
        cmocka_unit_test(test_waiting_requests_go_on_when_the_one_they_wait_for_is_gone),
        cmocka_unit_test(test_a_chain_of_waiting_requests_never_closes_to_a_ring),
        cmocka_unit_test(test_samples_of_one_prompt_share_all_its_blocks),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
