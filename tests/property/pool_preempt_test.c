/* More requests than the pool holds: some give their blocks back and go on later, as if nothing had
 * been; nobody starves, nobody is held up by a slow reader, and waiting costs the others nothing.
 */
#include "base/clock.h"
#include "bits.h"
#include "engine/request.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61, B = 16 };

struct client {
    struct kvad_request *request;
    struct outcome wanted, got;
};

static void client_start(struct client *client, struct kvad_engine *engine,
                         const struct kvad_request_options *options) {
    outcome_init(&client->got, N_VOCAB);
    expect_greedy(world.model, options->prompt, options->n_prompt, options->max_tokens, false,
                  &client->wanted);
    client->request = submit(engine, options, &client->got);
}

/* Check the answer and the counts; what it went through. */
static struct kvad_request_info client_end(struct client *client, const char *where) {
    struct kvad_request_info info;
    assert_true(take_events(client->request, &client->got));
    assert_same_outcome(&client->got, &client->wanted, where);
    kvad_request_get_info(client->request, &info);
    assert_int_equal(info.n_output_tokens, client->wanted.n_ids);
    assert_false(info.is_running);
    kvad_request_destroy(&client->request);
    outcome_free(&client->got);
    outcome_free(&client->wanted);
    return info;
}

static size_t step_soundly(struct kvad_engine *engine) {
    size_t n_active = step_engine(engine);
    assert_true(kvad_kv_pool_is_sound(&engine->pool));
    if (engine->prefix.heap) assert_true(kvad_prefix_is_sound(&engine->prefix));
    return n_active;
}

/* Two requests that outgrow the pool together, for every length of the first: the second one is
 * preempted around every edge of a block, with and without its blocks left in the index. */
/* bugs.md EVICT-1, EVICT-2, EVICT-3, EVICT-4, EVICT-5, EVICT-9 */
static void test_a_preempted_request_goes_on_as_if_nothing_had_been(void **state) {
    (void)state;
    size_t n_preemptions = 0, n_recomputed = 0;
    for (size_t n = 1; n <= 2 * B + 1; n++)
        for (int shares = 0; shares <= 1; shares++) {
            struct kvad_engine *engine = open_blocks(5, 3);
            struct client clients[3];
            for (size_t i = 0; i < 3; i++) {
                size_t n_prompt = i == 0 ? n : 3 + i * 9;
                struct kvad_request_options options =
                    greedy_options(world.tokens + 100 * i, n_prompt, N_CTX - n_prompt);
                options.no_prefix_cache = !shares;
                client_start(&clients[i], engine, &options);
            }
            for (size_t steps = 0; step_soundly(engine) > 0; steps++)
                assert_true(steps < 3 * N_CTX + 20);
            for (size_t i = 0; i < 3; i++) {
                struct kvad_request_info info =
                    client_end(&clients[i], label("client %zu beside a prompt of %zu", i, n));
                if (i == 0) assert_int_equal(info.n_preemptions, 0); /* the oldest */
                n_preemptions += info.n_preemptions;
                n_recomputed += info.n_recomputed_tokens;
            }
            close_engine(&engine);
        }
    assert_true(n_preemptions > 60 && n_recomputed > 500);
}

static void keep_last(void *user, enum kvad_log_level level, const char *text) {
    if (level == KVAD_LOG_INFO && strstr(text, "preempted")) snprintf(user, 200, "%s", text);
}

static void test_the_log_says_who_was_preempted_for_whom_and_what_was_lost(void **state) {
    (void)state;
    char text[200] = "";
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = 2;
    options.kv_bytes = 5 * tiny_block_bytes(&tiny_odd);
    options.log = (struct kvad_log){keep_last, text};
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct client clients[2];
    for (size_t i = 0; i < 2; i++) {
        struct kvad_request_options request = greedy_options(world.tokens + 99 * i, 20, 30);
        client_start(&clients[i], engine, &request);
    }
    while (step_soundly(engine) > 0)
        continue;
    /* Both hold 2 blocks of 5 and have 32 tokens when both want a third one. */
    assert_non_null(strstr(text, "preempted request 1 (priority 0, 32 tokens in 2 blocks) for "
                                 "request 0: 1 of 5 blocks were free"));
    assert_int_equal(client_end(&clients[0], "first").n_preemptions, 0);
    assert_int_equal(client_end(&clients[1], "second").n_preemptions, 1);
    assert_int_equal(engine->counters.n_preemptions, 1);
    close_engine(&engine);
}

/* bugs.md EVICT-7, EVICT-9, EVICT-11 */
static void test_requests_of_which_one_fits_all_end_in_bounded_time(void **state) {
    (void)state;
    enum { N = 12 };
    struct kvad_engine *engine = open_blocks(5, N); /* the longest one takes 4 */
    struct client clients[N];
    size_t n_tokens = 0, n_steps = 0;
    for (size_t i = 0; i < N; i++) {
        size_t n_prompt = i == 3 ? 58 : 4 + i; /* one big, many small */
        struct kvad_request_options options =
            greedy_options(world.tokens + 70 * i, n_prompt, i == 3 ? 3 : 50 - n_prompt);
        client_start(&clients[i], engine, &options);
        n_tokens += clients[i].wanted.n_ids + 1;
    }
    while (step_soundly(engine) > 0)
        assert_true(n_steps++ < n_tokens);
    for (size_t i = 0; i < N; i++)
        client_end(&clients[i], label("client %zu", i));
    close_engine(&engine);
}

/* A stream of small requests behind a big one does not keep it from starting. */
/* bugs.md EVICT-11 */
static void test_small_requests_do_not_starve_a_big_one(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(5, 4);
    struct client small[20], big;
    size_t n_small = 0, n_steps = 0;
    struct kvad_request_options options = greedy_options(world.tokens, 10, 6);
    while (n_small < 3)
        client_start(&small[n_small++], engine, &options);
    struct kvad_request_options large = greedy_options(world.tokens + 500, 60, 1);
    client_start(&big, engine, &large);
    while (!take_events(big.request, &big.got)) {
        options.prompt = world.tokens + 20 * n_small;
        if (n_small < 20) client_start(&small[n_small++], engine, &options);
        step_soundly(engine);
        assert_true(n_steps++ < 9);
    }
    assert_same_outcome(&big.got, &big.wanted, "big");
    kvad_request_destroy(&big.request);
    outcome_free(&big.got);
    outcome_free(&big.wanted);
    while (step_soundly(engine) > 0)
        continue;
    for (size_t i = 0; i < n_small; i++)
        client_end(&small[i], "small");
    close_engine(&engine);
}

/* ---------------------------------------------------------------- priorities */

static void test_a_higher_priority_runs_first_and_preempts_a_lower_one(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(4, 2);
    struct client low[2], high;
    for (size_t i = 0; i < 2; i++) {
        struct kvad_request_options options = greedy_options(world.tokens + 80 * i, 20, 12);
        client_start(&low[i], engine, &options);
    }
    for (int i = 0; i < 4; i++)
        step_soundly(engine);
    struct kvad_request_options options = greedy_options(world.tokens + 300, 33, 10);
    options.priority = 1;
    client_start(&high, engine, &options);
    size_t n_steps = 0;
    while (high.got.n_rows < 10) {
        step_soundly(engine);
        assert_true(n_steps++ < 10);
    }
    assert_true(low[1].got.n_rows < 12);
    while (step_soundly(engine) > 0)
        continue;
    assert_int_equal(client_end(&high, "high").n_preemptions, 0);
    size_t n_preemptions = client_end(&low[0], "low").n_preemptions;
    n_preemptions += client_end(&low[1], "low").n_preemptions;
    assert_true(n_preemptions > 0);
    close_engine(&engine);
}

static void test_queued_requests_start_by_priority_then_arrival(void **state) {
    (void)state;
    enum { N = 40 };
    struct kvad_engine *engine = open_blocks(8, 1);
    struct client clients[N];
    uint64_t ended[N];
    for (size_t i = 0; i < N; i++) {
        struct kvad_request_options options = greedy_options(world.tokens + i, 2, 1);
        options.priority = (int32_t)(i * 7 % 5) - 2;
        client_start(&clients[i], engine, &options);
        ended[i] = 0;
    }
    while (step_soundly(engine) > 0)
        for (size_t i = 0; i < N; i++)
            if (clients[i].got.n_rows == 0) ended[i]++;
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            int32_t mine = clients[i].request->priority, other = clients[j].request->priority;
            if (mine > other || (mine == other && i < j)) assert_true(ended[i] < ended[j]);
        }
    for (size_t i = 0; i < N; i++)
        client_end(&clients[i], "client");
    close_engine(&engine);
}

/* ---------------------------------------------------------------- slow readers */

/* Requests that nobody reads give their blocks to those that are read. */
/* bugs.md SERV-17 */
static void test_requests_that_nobody_reads_make_room_for_others(void **state) {
    (void)state;
    enum { N_SLOW = 3, N = 150 };
    struct kvad_engine *engine = open_blocks(5, N_SLOW);
    struct client slow[N_SLOW], quick;
    for (size_t i = 0; i < N_SLOW; i++) {
        struct kvad_request_options options = greedy_options(world.tokens + 90 * i, 9, N);
        options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
        outcome_init(&slow[i].got, N_VOCAB);
        expect_greedy(world.model, options.prompt, 9, N, true, &slow[i].wanted);
        slow[i].request = submit(engine, &options, &slow[i].got);
    }
    for (int i = 0; i < 300; i++)
        step_soundly(engine);
    for (size_t round = 0; round < 4; round++) {
        struct kvad_request_options options = greedy_options(world.tokens + 50 * round, 40, 15);
        client_start(&quick, engine, &options);
        for (int i = 0; i < 40 && quick.got.n_rows < 15; i++)
            step_soundly(engine);
        client_end(&quick, "quick");
    }
    for (size_t n_done = 0, n_steps = 0; n_done < N_SLOW; n_steps++) {
        step_soundly(engine);
        n_done = 0;
        for (size_t i = 0; i < N_SLOW; i++)
            n_done += take_events(slow[i].request, &slow[i].got) ||
                      slow[i].got.finish != KVAD_FINISH_NONE;
        assert_true(n_steps < 1000);
    }
    for (size_t i = 0; i < N_SLOW; i++)
        client_end(&slow[i], "slow");
    close_engine(&engine);
}

/* Parked, queued and running ones, all at once. */
/* bugs.md SERV-3 */
static void test_all_requests_of_a_full_engine_can_be_cancelled_at_once(void **state) {
    (void)state;
    enum { N = 60 };
    for (int destroy = 0; destroy <= 1; destroy++) {
        struct kvad_engine *engine = open_blocks(5, 4);
        static struct kvad_request *requests[N];
        static struct outcome outcomes[N];
        for (size_t i = 0; i < N; i++) {
            struct kvad_request_options options = greedy_options(world.tokens + 9 * i, 9, 100);
            options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
            options.priority = (int32_t)(i % 3);
            outcome_init(&outcomes[i], N_VOCAB);
            requests[i] = submit(engine, &options, &outcomes[i]);
        }
        for (int i = 0; i < 400; i++)
            step_engine(engine);
        assert_true(engine->n_parked > 0 && engine->queue.n > 0 && engine->n_running > 0);
        for (size_t i = 0; i < N; i++) {
            size_t at = i * 37 % N;
            if (!destroy)
                kvad_request_cancel(requests[at]);
            else
                kvad_request_destroy(&requests[at]);
        }
        assert_int_equal(step_soundly(engine), 0);
        for (size_t i = 0; i < N; i++) {
            if (!destroy) {
                assert_true(take_events(requests[i], &outcomes[i]));
                assert_int_equal(outcomes[i].finish, KVAD_FINISH_CANCELLED);
            }
            kvad_request_destroy(&requests[i]);
            outcome_free(&outcomes[i]);
        }
        close_engine(&engine);
    }
}

/* ---------------------------------------------------------------- waiting costs nothing */

/* The fastest of a number of steps in which one request decodes. */
static uint64_t fastest_step(struct kvad_engine *engine, struct client *client) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 40; i++) {
        uint64_t start = kvad_clock_ns();
        step_engine(engine);
        uint64_t ns = kvad_clock_ns() - start;
        if (ns < best) best = ns;
    }
    (void)client;
    return best;
}

static void test_ten_thousand_waiting_requests_cost_a_step_nothing(void **state) {
    (void)state;
    enum { N = 10000 };
    struct kvad_engine *engine = open_blocks(4, 1);
    struct client first;
    struct kvad_request_options options = greedy_options(world.tokens, 3, 200);
    options.on_overflow = KVAD_OVERFLOW_STOP;
    options.max_tokens = 100;
    struct kvad_request **requests = calloc(N, sizeof *requests);
    assert_non_null(requests);
    uint64_t ns[2];
    for (size_t round = 0; round < 2; round++) {
        client_start(&first, engine, &options);
        step_engine(engine);
        for (size_t i = 0; round == 1 && i < N; i++) {
            struct kvad_request_options other = greedy_options(world.tokens + i % 500, 20, 1);
            assert_int_equal(kvad_request_submit(engine, &other, &requests[i], NULL), KVAD_OK);
        }
        ns[round] = fastest_step(engine, &first);
        while (!take_events(first.request, &first.got))
            step_engine(engine);
        client_end(&first, "first");
    }
    print_message("step: %llu ns alone, %llu ns with %d waiting\n", (unsigned long long)ns[0],
                  (unsigned long long)ns[1], N);
    assert_true(ns[1] < 2 * ns[0] + 20000); /* a walk over all takes longer than that */
    for (size_t i = 0; i < N; i++)
        kvad_request_destroy(&requests[i]);
    free(requests);
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_preempted_request_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(test_the_log_says_who_was_preempted_for_whom_and_what_was_lost),
        cmocka_unit_test(test_requests_of_which_one_fits_all_end_in_bounded_time),
        cmocka_unit_test(test_small_requests_do_not_starve_a_big_one),
        cmocka_unit_test(test_a_higher_priority_runs_first_and_preempts_a_lower_one),
        cmocka_unit_test(test_queued_requests_start_by_priority_then_arrival),
        cmocka_unit_test(test_requests_that_nobody_reads_make_room_for_others),
        cmocka_unit_test(test_all_requests_of_a_full_engine_can_be_cancelled_at_once),
        cmocka_unit_test(test_ten_thousand_waiting_requests_cost_a_step_nothing),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
