/* Many requests at once: each gives what it gives alone, whoever joins, leaves, fails, or is
 * cancelled; and nothing of the cache is lost. */
#include <math.h>
#include <pthread.h>

#include "bits.h"
#include "random.h"
#include "test.h"
#include "world.h"

enum { N_VOCAB = 101, N_CTX = 61, MAX_REQUESTS = 24, DAMAGED = 77 };

/* The embedding of id DAMAGED is damaged; no other id meets it, and it is never the best. */
static int make_damaged_world(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    sizes.untied = true;
    world.tiny = tiny_model_create(&sizes);
    float *const *parameters = world.tiny->parameters[0];
    parameters[KVAD_PARAMETER_EMBEDDING][DAMAGED * 35 + 4] = NAN;
    parameters[KVAD_PARAMETER_HEAD_BIAS][DAMAGED] = -100;
    world.model = tiny_model_build(world.tiny);
    world.tokens = tiny_tokens(DAMAGED, 20 * N_CTX, 3);
    return 0;
}

static struct kvad_engine *open_for(enum kvad_cache_policy policy, uint32_t n_sequences,
                                    uint32_t n_batch_tokens) {
    struct kvad_engine_options options = engine_options(policy, 2);
    options.n_sequences = n_sequences;
    options.n_batch_tokens = n_batch_tokens;
    return open_engine(world.model, &options);
}

/* A request with what it gives alone. */
struct client {
    struct kvad_request_options options;
    struct kvad_request *request;
    struct outcome wanted, got;
};

/* Client `i` has its own prompt, prompt length, number of tokens and, if odd, slides. */
static void make_client(struct client *client, size_t i) {
    size_t n_prompt = 1 + i * 11 % 40, n = 3 + i * 7 % 19;
    if (i % 5 == 4) n_prompt = N_CTX - 2;
    *client = (struct client){.options = greedy_options(world.tokens + 37 * i, n_prompt, n)};
    client->options.on_overflow = i % 2 ? KVAD_OVERFLOW_RECOMPUTE : KVAD_OVERFLOW_STOP;
    expect_greedy(world.model, client->options.prompt, n_prompt, n, i % 2, &client->wanted);
    outcome_init(&client->got, N_VOCAB);
}

static void free_client(struct client *client) {
    kvad_request_destroy(&client->request);
    outcome_free(&client->wanted);
    outcome_free(&client->got);
}

static void send(struct kvad_engine *engine, struct client *client) {
    client->request = submit(engine, &client->options, &client->got);
}

static void check_client(const struct client *client, size_t i) {
    assert_same_outcome(&client->got, &client->wanted, label("client %zu", i));
}

/* ---------------------------------------------------------------- together as alone */

/* Clients join at random steps; each one is read at random times. */
static void run_crowd(enum kvad_cache_policy policy, uint32_t n_sequences, uint32_t n_batch_tokens,
                      uint64_t seed) {
    struct kvad_engine *engine = open_for(policy, n_sequences, n_batch_tokens);
    static struct client clients[MAX_REQUESTS];
    struct test_random random = {seed};
    size_t n_sent = 0, n_done = 0, n_steps = 0;
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        make_client(&clients[i], i);
    while (n_done < MAX_REQUESTS) {
        while (n_sent < MAX_REQUESTS && random_below(&random, 3) == 0)
            send(engine, &clients[n_sent++]);
        step_engine(engine);
        n_done = 0;
        for (size_t i = 0; i < n_sent; i++) {
            if (random_below(&random, 2)) (void)take_events(clients[i].request, &clients[i].got);
            n_done += clients[i].got.finish != KVAD_FINISH_NONE;
        }
        if (engine->pool.heap) assert_true(kvad_kv_pool_is_sound(&engine->pool));
        assert_true(n_steps++ < 5000);
    }
    for (size_t i = 0; i < MAX_REQUESTS; i++) {
        check_client(&clients[i], i);
        free_client(&clients[i]);
    }
    close_engine(&engine);
}

/* bugs.md BATCH-1, BATCH-4, EVICT-10, MEM-1, POS-4 */
static void test_requests_together_give_what_they_give_alone(void **state) {
    (void)state;
    for (size_t p = 0; p < N_POLICIES; p++) {
        run_crowd(policies[p], 6, 16, p);
        run_crowd(policies[p], MAX_REQUESTS, 100, p);
    }
    run_crowd(KVAD_CACHE_PAGED, 3, 3, 9);
    run_crowd(KVAD_CACHE_PAGED, 1, 1, 10);
}

/* The same request twice at once, and again afterwards. */
/* bugs.md SHARE-8, BATCH-7, DET-2 */
static void test_equal_requests_at_once_and_in_turn_give_equal_answers(void **state) {
    (void)state;
    struct kvad_engine *engine = open_for(KVAD_CACHE_PAGED, 3, 0);
    for (int round = 0; round < 3; round++) {
        struct client clients[3];
        for (size_t i = 0; i < 3; i++) {
            make_client(&clients[i], 2);
            send(engine, &clients[i]);
        }
        while (step_engine(engine) > 0)
            continue;
        for (size_t i = 0; i < 3; i++) {
            assert_true(take_events(clients[i].request, &clients[i].got));
            check_client(&clients[i], i);
            free_client(&clients[i]);
        }
        assert_idle(engine);
    }
    close_engine(&engine);
}

/* ---------------------------------------------------------------- cancelling */

/* Cancel one of two requests after `n_steps` steps: it ends with what it had so far. */
static void cancel_after(size_t n_steps, bool twice, bool destroy) {
    struct kvad_engine *engine = open_for(KVAD_CACHE_PAGED, 1, 8); /* the second one queues */
    struct client first, second;
    make_client(&first, 4); /* a prompt of 59: eight steps of prefill */
    make_client(&second, 2);
    send(engine, &first);
    send(engine, &second);
    struct client *one = n_steps % 2 ? &first : &second, *other = n_steps % 2 ? &second : &first;
    for (size_t i = 0; i < n_steps; i++)
        step_engine(engine);
    if (destroy) {
        kvad_request_destroy(&one->request);
    } else {
        kvad_request_cancel(one->request);
        if (twice) kvad_request_cancel(one->request);
    }
    while (step_engine(engine) > 0)
        continue;
    if (twice && !destroy) kvad_request_cancel(one->request); /* when it has ended: no effect */
    assert_int_equal(step_engine(engine), 0);
    assert_idle(engine);
    assert_true(take_events(other->request, &other->got));
    check_client(other, n_steps);
    if (!destroy) {
        assert_true(take_events(one->request, &one->got));
        bool had_ended = one->got.finish != KVAD_FINISH_CANCELLED;
        if (had_ended) assert_int_equal(one->got.finish, KVAD_FINISH_LENGTH);
        if (!had_ended) {
            assert_true(one->got.n_ids <= one->wanted.n_ids);
            one->wanted.n_ids = one->got.n_ids;
            one->wanted.n_rows = one->got.n_rows;
            one->wanted.finish = KVAD_FINISH_CANCELLED;
        }
        check_client(one, n_steps);
    }
    free_client(&first);
    free_client(&second);
    close_engine(&engine);
}

/* Queued, reading its prompt, decoding, ended. */
/* bugs.md SERV-3, SERV-4 */
static void test_cancelling_in_any_state_gives_all_blocks_back(void **state) {
    (void)state;
    for (size_t n_steps = 0; n_steps < 40; n_steps++) {
        cancel_after(n_steps, false, false);
        cancel_after(n_steps, true, false);
        cancel_after(n_steps, false, true);
    }
}

static void *cancel_from_elsewhere(void *request) {
    kvad_request_cancel(request);
    return NULL;
}

static void test_another_thread_may_cancel(void **state) {
    (void)state;
    struct kvad_engine *engine = open_for(KVAD_CACHE_PAGED, 1, 0);
    struct kvad_request_options options = greedy_options(world.tokens, 3, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    struct outcome outcome;
    outcome_init(&outcome, N_VOCAB);
    struct kvad_request *request = submit(engine, &options, &outcome);
    step_engine(engine);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_from_elsewhere, request), 0);
    while (!take_events(request, &outcome))
        step_engine(engine);
    assert_int_equal(outcome.finish, KVAD_FINISH_CANCELLED);
    pthread_join(thread, NULL);
    kvad_request_destroy(&request);
    outcome_free(&outcome);
    close_engine(&engine);
}

static void *interrupt_from_elsewhere(void *engine) {
    for (int i = 0; i < 50; i++)
        kvad_engine_interrupt(engine);
    return NULL;
}

static void test_an_interrupted_step_changes_no_request(void **state) {
    (void)state;
    struct kvad_engine *engine = open_for(KVAD_CACHE_PAGED, 4, 16);
    struct client clients[4];
    for (size_t i = 0; i < 4; i++) {
        make_client(&clients[i], i);
        send(engine, &clients[i]);
    }
    size_t n_active = 4, n_cancelled = 0;
    for (int step = 0; n_active > 0; step++) {
        struct kvad_error err;
        if (step % 3 == 0) kvad_engine_interrupt(engine);
        enum kvad_status status = kvad_engine_step(engine, &n_active, &err);
        assert_int_equal(status, step % 3 ? KVAD_OK : KVAD_ERR_CANCELLED);
        n_cancelled += status != KVAD_OK;
    }
    assert_true(n_cancelled > 3);
    kvad_engine_interrupt(engine); /* with nothing to do it is told, and forgotten */
    assert_int_equal(kvad_engine_step(engine, NULL, NULL), KVAD_ERR_CANCELLED);
    assert_int_equal(kvad_engine_step(engine, NULL, NULL), KVAD_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_true(take_events(clients[i].request, &clients[i].got));
        check_client(&clients[i], i);
        free_client(&clients[i]);
    }
    close_engine(&engine);
}

static void test_interrupts_from_another_thread_change_no_request(void **state) {
    (void)state;
    struct kvad_engine *engine = open_for(KVAD_CACHE_PAGED, 4, 16);
    for (int round = 0; round < 3; round++) {
        struct client client;
        make_client(&client, 2);
        send(engine, &client);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, interrupt_from_elsewhere, engine), 0);
        size_t n_active = 1;
        while (n_active > 0) {
            enum kvad_status status = kvad_engine_step(engine, &n_active, NULL);
            assert_true(status == KVAD_OK || status == KVAD_ERR_CANCELLED);
        }
        pthread_join(thread, NULL);
        assert_true(take_events(client.request, &client.got));
        check_client(&client, 2);
        free_client(&client);
    }
    close_engine(&engine);
}

/* ---------------------------------------------------------------- failures */

static void test_a_failing_request_ends_alone(void **state) {
    (void)state;
    static const int32_t bad[] = {5, 6, DAMAGED, 7};
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct kvad_engine *engine = open_for(policies[p], 6, 16);
        struct client clients[4];
        struct outcome failed[2];
        struct kvad_request *failing[2];
        struct kvad_request_options options = greedy_options(bad, 4, 5);
        for (size_t i = 0; i < 4; i++) {
            make_client(&clients[i], i);
            send(engine, &clients[i]);
            if (i % 2) continue;
            outcome_init(&failed[i / 2], N_VOCAB);
            failing[i / 2] = submit(engine, &options, &failed[i / 2]);
        }
        while (step_engine(engine) > 0)
            continue;
        for (size_t i = 0; i < 2; i++) {
            struct kvad_error err;
            assert_true(take_events(failing[i], &failed[i]));
            assert_int_equal(failed[i].finish, KVAD_FINISH_ERROR);
            assert_int_equal(failed[i].n_ids, 0);
            assert_fails(kvad_request_error(failing[i], &err), KVAD_ERR_NOT_FINITE, &err,
                         "position 2");
            kvad_request_destroy(&failing[i]);
            outcome_free(&failed[i]);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_true(take_events(clients[i].request, &clients[i].got));
            check_client(&clients[i], i);
            assert_int_equal(kvad_request_error(clients[i].request, NULL), KVAD_OK);
            free_client(&clients[i]);
        }
        close_engine(&engine);
    }
}

/* ---------------------------------------------------------------- small pools */

/* The pool holds little more than the longest request; all end within a bounded number of steps. */
/* bugs.md EVICT-7, EVICT-9, EVICT-11, MASK-9 */
static void test_requests_queue_for_a_small_pool_and_all_end(void **state) {
    (void)state;
    for (size_t n_blocks = 4; n_blocks <= 7; n_blocks++) {
        struct kvad_engine *engine = open_blocks(n_blocks, 8);
        static struct client clients[MAX_REQUESTS];
        size_t n_tokens = 0, n_steps = 0;
        for (size_t i = 0; i < MAX_REQUESTS; i++) {
            make_client(&clients[i], i);
            n_tokens += clients[i].wanted.n_ids + 1;
            send(engine, &clients[i]);
        }
        while (step_engine(engine) > 0) {
            n_steps++;
            assert_true(kvad_kv_pool_is_sound(&engine->pool));
        }
        assert_true(n_steps <= n_tokens);
        for (size_t i = 0; i < MAX_REQUESTS; i++) {
            assert_true(take_events(clients[i].request, &clients[i].got));
            check_client(&clients[i], i);
            free_client(&clients[i]);
        }
        close_engine(&engine);
    }
}

/* Exactly as long as the pool runs; one block more is refused at once. */
/* bugs.md GROW-7 */
static void test_a_request_that_can_never_fit_is_refused_at_once(void **state) {
    (void)state;
    struct kvad_engine *engine = open_blocks(2, 2);
    static const size_t fits[][2] = {{32, 1}, {32, 0}, {31, 2}, {1, 32}, {16, 17}};
    static const size_t never[][2] = {{33, 0}, {33, 1}, {32, 2}, {1, 33}, {16, 18}, {5, SIZE_MAX}};
    struct kvad_request *request = NULL;
    struct kvad_error err;
    for (size_t i = 0; i < 6; i++) {
        struct kvad_request_options options =
            greedy_options(world.tokens, never[i][0], never[i][1]);
        assert_fails(kvad_request_submit(engine, &options, &request, &err), KVAD_ERR_NO_BLOCKS,
                     &err, "the pool has 2");
        assert_null(request);
    }
    for (size_t i = 0; i < 5; i++) {
        struct kvad_request_options options = greedy_options(world.tokens, fits[i][0], fits[i][1]);
        struct outcome got, wanted;
        outcome_init(&got, N_VOCAB);
        run_request(engine, &options, &got);
        expect_greedy(world.model, world.tokens, fits[i][0], fits[i][1], false, &wanted);
        assert_same_outcome(&got, &wanted, label("%zu + %zu", fits[i][0], fits[i][1]));
        outcome_free(&got);
        outcome_free(&wanted);
    }
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_together_give_what_they_give_alone),
        cmocka_unit_test(test_equal_requests_at_once_and_in_turn_give_equal_answers),
        cmocka_unit_test(test_cancelling_in_any_state_gives_all_blocks_back),
        cmocka_unit_test(test_another_thread_may_cancel),
        cmocka_unit_test(test_an_interrupted_step_changes_no_request),
        cmocka_unit_test(test_interrupts_from_another_thread_change_no_request),
        cmocka_unit_test(test_a_failing_request_ends_alone),
        cmocka_unit_test(test_requests_queue_for_a_small_pool_and_all_end),
        cmocka_unit_test(test_a_request_that_can_never_fit_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, make_damaged_world, free_world);
}
