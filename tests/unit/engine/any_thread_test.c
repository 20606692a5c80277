/* Requests of one engine from many threads: each gives what it gives alone, what may not wait for a
 * step does not, and what a client leaves behind is given back. Meant for ThreadSanitizer, too.
 * Threads report, and only the tests themselves assert. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "bits.h"
#include "test.h"
#include "world.h"

enum { N_CLIENTS = 4, N_STEPPERS = 2, N_ROUNDS = 12, N_OUTPUT = 14 };

static struct kvad_engine *engine;
static _Atomic bool is_over;

/* Six blocks, for three requests at a time. */
static void open_small_engine(void) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.n_sequences = 3;
    options.n_batch_tokens = 16;
    options.kv_bytes = 6 * 16 * sizeof(float) * 2 * tiny_odd.n_layers * 35;
    engine = open_engine(world.model, &options);
    atomic_store(&is_over, false);
}

static void *be_stepper(void *n_failed) {
    while (!atomic_load(&is_over)) {
        size_t n_active;
        enum kvad_status status = kvad_engine_step(engine, &n_active, NULL);
        if (status != KVAD_OK && status != KVAD_ERR_CANCELLED) ++*(size_t *)n_failed;
    }
    return NULL;
}

static pthread_t start(void *(*be)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, be, argument), 0);
    return thread;
}

/* ---------------------------------------------------------------- all at once */

static struct outcome wanted[N_CLIENTS];

struct client {
    size_t index, n_whole, n_cancelled, n_wrong;
    pthread_t thread;
};

static size_t prompt_length(size_t index) {
    return 5 + 9 * index;
}

/* Poll until the last event, cancelling after n_wanted ids; whether all ids are right. */
static bool poll_all(struct client *client, struct kvad_request *request, size_t n_wanted) {
    const struct outcome *right = &wanted[client->index];
    struct kvad_event event = {0};
    struct kvad_request_info info;
    size_t n = 0;
    for (;;) {
        if (!kvad_request_poll(request, &event)) {
            kvad_request_get_info(request, &info);
            if (info.n_output_tokens > N_OUTPUT) return false;
            continue;
        }
        if (event.finish != KVAD_FINISH_NONE) break;
        if (n == N_OUTPUT || event.token != right->ids[n++]) return false;
        if (n == n_wanted) kvad_request_cancel(request);
    }
    client->n_whole += event.finish == KVAD_FINISH_LENGTH;
    client->n_cancelled += event.finish == KVAD_FINISH_CANCELLED;
    if (event.finish == KVAD_FINISH_LENGTH) return n == N_OUTPUT;
    return event.finish == KVAD_FINISH_CANCELLED && n >= n_wanted;
}

static void *be_client(void *argument) {
    struct client *client = argument;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        struct kvad_request *request = NULL;
        struct kvad_request_options options = greedy_options(
            world.tokens + 60 * client->index, prompt_length(client->index), N_OUTPUT);
        options.priority = (int32_t)(round % 2);
        if (kvad_request_submit(engine, &options, &request, NULL) != KVAD_OK) {
            client->n_wrong++;
            return NULL;
        }
        bool goes_early = round % 4 == 3; /* without a look at it */
        if (!goes_early && !poll_all(client, request, round % 3 ? SIZE_MAX : 4)) client->n_wrong++;
        if (kvad_request_error(request, NULL) != KVAD_OK) client->n_wrong++;
        kvad_request_destroy(&request);
    }
    return NULL;
}

static void *be_watcher(void *n_failed) {
    for (size_t round = 0; !atomic_load(&is_over); round++) {
        struct kvad_cache_stats stats;
        struct kvad_engine_info info;
        char map[16];
        kvad_cache_get_stats(engine, &stats);
        kvad_engine_get_info(engine, &info);
        uint64_t sum = stats.live_bytes + stats.shared_bytes + stats.idle_bytes + stats.free_bytes;
        if (sum != info.kv_pool_bytes || kvad_cache_map(engine, map, sizeof map) != 6)
            ++*(size_t *)n_failed;
        uint64_t id;
        size_t n_pinned;
        if (kvad_cache_pin(engine, world.tokens, 20, NULL, 0, &id, &n_pinned, NULL) == KVAD_OK)
            kvad_cache_unpin(engine, id);
        kvad_cache_clear(engine);
        if (round % 4 == 0) kvad_engine_interrupt(engine); /* most steps come to their end */
    }
    return NULL;
}

static void count_ends(const struct client *clients) {
    size_t n_whole = 0, n_cancelled = 0;
    for (size_t i = 0; i < N_CLIENTS; i++) {
        assert_int_equal(clients[i].n_wrong, 0);
        n_whole += clients[i].n_whole;
        n_cancelled += clients[i].n_cancelled;
        outcome_free(&wanted[i]);
    }
    assert_true(n_whole >= N_CLIENTS * N_ROUNDS / 2);
    print_message("%zu whole, %zu cancelled, %llu preemptions\n", n_whole, n_cancelled,
                  (unsigned long long)engine->counters.n_preemptions);
}

/* Four submit, poll, cancel and destroy, two step, one interrupts and looks. */
/* bugs.md BATCH-1, BATCH-4, DET-7 */
static void test_requests_of_many_threads_give_what_they_give_alone(void **state) {
    (void)state;
    struct client clients[N_CLIENTS];
    pthread_t others[N_STEPPERS + 1];
    size_t n_failed[N_STEPPERS + 1] = {0};
    open_small_engine();
    for (size_t i = 0; i < N_CLIENTS; i++) {
        clients[i] = (struct client){.index = i};
        expect_greedy(world.model, world.tokens + 60 * i, prompt_length(i), N_OUTPUT, false,
                      &wanted[i]);
        assert_int_equal(wanted[i].n_ids, N_OUTPUT);
    }
    for (size_t i = 0; i <= N_STEPPERS; i++)
        others[i] = start(i < N_STEPPERS ? be_stepper : be_watcher, &n_failed[i]);
    for (size_t i = 0; i < N_CLIENTS; i++)
        clients[i].thread = start(be_client, &clients[i]);
    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i <= N_STEPPERS; i++) {
        pthread_join(others[i], NULL);
        assert_int_equal(n_failed[i], 0);
    }
    count_ends(clients);
    assert_true(kvad_kv_pool_is_sound(&engine->pool));
    close_engine(&engine);
}

/* ---------------------------------------------------------------- within a step */

/* A request of which one step, that of output `held`, stays in its callback until it is let go. */
struct holder {
    size_t held;
    _Atomic size_t n_outputs; /* begun */
    _Atomic bool is_in, may_go, is_late;
    size_t n_submitted_after; /* requests of the engine when the step after it draws */
};

static void wait_a_millisecond(void) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void hold_step(void *user, size_t output_index, const float *logits, size_t n_vocab) {
    struct holder *holder = user;
    (void)logits, (void)n_vocab;
    atomic_store(&holder->n_outputs, output_index + 1);
    if (output_index == holder->held + 1) holder->n_submitted_after = engine->n_submitted;
    if (output_index != holder->held) return;
    atomic_store(&holder->is_in, true);
    for (int i = 0; i < 20000 && !atomic_load(&holder->may_go); i++)
        wait_a_millisecond();
    atomic_store(&holder->is_late, !atomic_load(&holder->may_go));
}

/* One that only a cancel ends, in a step of which somebody now is. */
static struct kvad_request *start_held(struct holder *holder, size_t held) {
    struct kvad_request_options options = greedy_options(world.tokens, 5, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    options.on_logits = hold_step;
    options.user = holder;
    *holder = (struct holder){.held = held};
    struct kvad_request *request = NULL;
    struct kvad_error err;
    assert_ok(kvad_request_submit(engine, &options, &request, &err), &err);
    return request;
}

static void await(_Atomic bool *flag) {
    while (!atomic_load(flag))
        wait_a_millisecond();
}

static void take_until(struct kvad_request *request, enum kvad_finish finish) {
    struct kvad_event event = {.finish = KVAD_FINISH_NONE};
    while (event.finish == KVAD_FINISH_NONE)
        (void)kvad_request_poll(request, &event);
    assert_int_equal(event.finish, finish);
}

static void test_polls_cancels_and_interrupts_wait_for_no_step(void **state) {
    (void)state;
    struct holder holder;
    struct kvad_event event;
    size_t n_failed = 0, n_events = 0;
    open_small_engine();
    struct kvad_request *request = start_held(&holder, 3);
    pthread_t stepper = start(be_stepper, &n_failed);
    await(&holder.is_in);
    while (kvad_request_poll(request, &event))
        n_events++;
    assert_int_equal(n_events, 3); /* those of the steps before */
    assert_int_equal(kvad_request_error(request, NULL), KVAD_OK);
    assert_int_equal(kvad_request_number(request), 0);
    kvad_engine_interrupt(engine);
    kvad_request_cancel(request);
    atomic_store(&holder.may_go, true);
    take_until(request, KVAD_FINISH_CANCELLED);
    assert_false(atomic_load(&holder.is_late));
    kvad_request_destroy(&request);
    atomic_store(&is_over, true);
    pthread_join(stepper, NULL);
    assert_int_equal(n_failed, 0);
    close_engine(&engine);
}

static void test_the_error_may_be_asked_for_while_it_happens(void **state) {
    (void)state;
    size_t n_failed = 0, n_ids = 0;
    struct kvad_event event = {.finish = KVAD_FINISH_NONE};
    open_small_engine();
    struct kvad_request_options options = greedy_options(world.tokens, 5, SIZE_MAX);
    options.on_overflow = KVAD_OVERFLOW_ERROR;
    struct kvad_request *request = NULL;
    struct kvad_error err;
    assert_ok(kvad_request_submit(engine, &options, &request, &err), &err);
    pthread_t stepper = start(be_stepper, &n_failed);
    while (event.finish == KVAD_FINISH_NONE) {
        bool has_failed = kvad_request_error(request, &err) != KVAD_OK;
        if (has_failed) assert_int_equal(err.status, KVAD_ERR_CONTEXT_FULL);
        if (kvad_request_poll(request, &event)) n_ids += event.token >= 0;
    }
    assert_int_equal(event.finish, KVAD_FINISH_ERROR);
    assert_fails(kvad_request_error(request, &err), KVAD_ERR_CONTEXT_FULL, &err, "61");
    assert_int_equal(n_ids, 61 - 5);
    kvad_request_destroy(&request);
    atomic_store(&is_over, true);
    pthread_join(stepper, NULL);
    assert_int_equal(n_failed, 0);
    close_engine(&engine);
}

static void *submit_another(void *request) {
    struct kvad_request_options options = greedy_options(world.tokens, 9, 4);
    (void)kvad_request_submit(engine, &options, request, NULL);
    return NULL;
}

static uint64_t n_turns_asked_for(void) {
    pthread_mutex_lock(&engine->turns.lock);
    uint64_t n = engine->turns.next;
    pthread_mutex_unlock(&engine->turns.lock);
    return n;
}

/* Though the one that steps comes back at once. */
static void test_a_submission_waits_for_one_step_at_most(void **state) {
    (void)state;
    for (size_t held = 0; held < 20; held++) {
        struct holder holder;
        struct kvad_request *another = NULL;
        size_t n_failed = 0;
        open_small_engine();
        struct kvad_request *request = start_held(&holder, held);
        pthread_t stepper = start(be_stepper, &n_failed);
        await(&holder.is_in);
        uint64_t n = n_turns_asked_for();
        pthread_t submitter = start(submit_another, &another);
        while (n_turns_asked_for() == n)
            wait_a_millisecond();
        atomic_store(&holder.may_go, true);
        pthread_join(submitter, NULL);
        assert_non_null(another);
        take_until(another, KVAD_FINISH_LENGTH);
        kvad_request_destroy(&another);
        kvad_request_cancel(request);
        take_until(request, KVAD_FINISH_CANCELLED);
        kvad_request_destroy(&request);
        atomic_store(&is_over, true);
        pthread_join(stepper, NULL);
        assert_int_equal(holder.n_submitted_after, 2);
        close_engine(&engine);
    }
}

/* ---------------------------------------------------------------- clients that go away */

static void assert_nothing_held(void) {
    struct kvad_cache_stats stats;
    kvad_cache_get_stats(engine, &stats);
    assert_int_equal(stats.live_bytes + stats.shared_bytes, 0);
    assert_int_equal(stats.n_running + stats.n_waiting, 0);
}

/* In mid-answer, by a cancel or without a word, with steps going on. */
/* bugs.md SERV-1, SERV-2 */
static void test_a_client_that_goes_away_gives_all_back_within_a_step(void **state) {
    (void)state;
    size_t n_failed = 0;
    struct outcome alone;
    expect_greedy(world.model, world.tokens, 5, N_OUTPUT, false, &alone);
    open_small_engine();
    pthread_t stepper = start(be_stepper, &n_failed);
    for (int round = 0; round < 20; round++) {
        struct holder holder;
        struct kvad_request *request = start_held(&holder, SIZE_MAX - 1);
        struct kvad_event event;
        while (!kvad_request_poll(request, &event))
            continue;
        if (round % 2) {
            kvad_request_cancel(request);
            size_t n = atomic_load(&holder.n_outputs);
            take_until(request, KVAD_FINISH_CANCELLED);
            assert_in_range(atomic_load(&holder.n_outputs), n, n + 1);
            assert_nothing_held();
        }
        kvad_request_destroy(&request);
        assert_nothing_held();
        struct kvad_request_options options = greedy_options(world.tokens, 5, N_OUTPUT);
        struct kvad_error err;
        assert_ok(kvad_request_submit(engine, &options, &request, &err), &err);
        for (size_t i = 0; i < N_OUTPUT; i++) {
            while (!kvad_request_poll(request, &event))
                continue;
            assert_int_equal(event.token, alone.ids[i]);
        }
        kvad_request_destroy(&request);
    }
    atomic_store(&is_over, true);
    pthread_join(stepper, NULL);
    assert_int_equal(n_failed, 0);
    outcome_free(&alone);
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_of_many_threads_give_what_they_give_alone),
        cmocka_unit_test(test_polls_cancels_and_interrupts_wait_for_no_step),
        cmocka_unit_test(test_the_error_may_be_asked_for_while_it_happens),
        cmocka_unit_test(test_a_submission_waits_for_one_step_at_most),
        cmocka_unit_test(test_a_client_that_goes_away_gives_all_back_within_a_step),
    };
    alarm(300); /* a hang is a failure */
    return cmocka_run_group_tests(tests, make_world, free_world);
}
