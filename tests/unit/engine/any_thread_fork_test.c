/* A forked child may go on with an engine that no other thread was using. */
#include <sys/wait.h>
#include <unistd.h>

#include "bits.h"
#include "sanitizers.h"
#include "test.h"
#include "world.h"

enum { N_OUTPUT = 14 };

/* Runs the request to its end; whether its ids are the wanted ones. */
static bool is_as_alone(struct kvad_engine *engine, struct kvad_request *request,
                        const struct outcome *alone) {
    struct kvad_event event = {0};
    size_t n = 0;
    while (event.finish == KVAD_FINISH_NONE) {
        if (!kvad_request_poll(request, &event)) {
            if (kvad_engine_step(engine, NULL, NULL) != KVAD_OK) return false;
        } else if (event.token >= 0 && (n == alone->n_ids || event.token != alone->ids[n++])) {
            return false;
        }
    }
    return event.finish == KVAD_FINISH_LENGTH && n == alone->n_ids;
}

/* With a request in mid-answer, which goes on in both. */
static void test_a_forked_child_may_use_an_engine_that_nobody_used(void **state) {
    (void)state;
    if (HAS_TSAN) skip(); /* it does not support threads in a forked child */
    struct outcome alone;
    expect_greedy(world.model, world.tokens, 5, N_OUTPUT, false, &alone);
    struct kvad_engine_options shape = engine_options(KVAD_CACHE_PAGED, 2);
    struct kvad_engine *engine = open_engine(world.model, &shape);
    struct kvad_request_options options = greedy_options(world.tokens, 5, N_OUTPUT);
    struct kvad_request *request = NULL;
    struct kvad_error err;
    assert_ok(kvad_request_submit(engine, &options, &request, &err), &err);
    for (int i = 0; i < 4; i++)
        assert_int_equal(step_engine(engine), 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        bool is_good = is_as_alone(engine, request, &alone);
        kvad_request_destroy(&request);
        _exit(is_good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(is_as_alone(engine, request, &alone));
    kvad_request_destroy(&request);
    outcome_free(&alone);
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_forked_child_may_use_an_engine_that_nobody_used),
    };
    alarm(300); /* a hang is a failure */
    return cmocka_run_group_tests(tests, make_world, free_world);
}
