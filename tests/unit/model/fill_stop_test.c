/* A load that ends early: all workers stop, and the caller learns why. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/error.h"
#include "model/build.h"
#include "test.h"

static struct kvad_error err;

enum { N_THREADS = 3, N_VOCAB = 45, N_CTX = 300000 };

/* The embedding first, then 28 MB of positions, at last the head. */
static const struct kvad_description description = {.family = "test",
                                                    .n_layers = 1,
                                                    .n_heads = 1,
                                                    .n_kv_heads = 1,
                                                    .head_dim = 23,
                                                    .d_model = 23,
                                                    .d_ff = 7,
                                                    .n_vocab = N_VOCAB,
                                                    .n_ctx = N_CTX,
                                                    .activation = KVAD_ACTIVATION_RELU,
                                                    .norm_eps = 1e-5f,
                                                    .eos = -1};

struct scene {
    pthread_t caller;
    bool is_cancelled;      /* by the caller among the positions, while others are before them */
    bool has_bad_embedding; /* its last row, met while others are behind it */
    bool has_bad_positions; /* one row of the first worker, one of the last */
    unsigned n_reports;
    _Atomic bool is_over;       /* what ends the load has happened */
    _Atomic size_t n_late_rows; /* behind it, read by those who should have stopped */
};

/* Whether this thread has to wait there for what ends the load. */
static bool waits(const struct scene *scene, enum kvad_parameter parameter) {
    if (scene->is_cancelled) return !pthread_equal(scene->caller, pthread_self());
    return scene->has_bad_embedding && parameter != KVAD_PARAMETER_EMBEDDING;
}

static enum kvad_status read_or_fail(void *user, enum kvad_parameter parameter, uint32_t layer,
                                     size_t row, size_t first, size_t n, float *out,
                                     struct kvad_error *e) {
    struct scene *scene = user;
    (void)layer, (void)first;
    if (scene->has_bad_embedding && parameter == KVAD_PARAMETER_EMBEDDING && row == N_VOCAB - 1) {
        scene->is_over = true;
        return kvad_fail(e, KVAD_ERR_FORMAT, "embedding: row %zu is bad", row);
    }
    if (scene->has_bad_positions && parameter == KVAD_PARAMETER_POSITIONS &&
        (row == 5 || row == N_CTX - 5))
        return kvad_fail(e, KVAD_ERR_FORMAT, "positions: row %zu is bad", row);
    if (waits(scene, parameter)) {
        while (!scene->is_over)
            sched_yield();
        if (parameter != KVAD_PARAMETER_EMBEDDING) scene->n_late_rows++;
        /* Slowly: whoever ended the load may have lost its CPU before it could say so. */
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    memset(out, 0, n * sizeof *out);
    return KVAD_OK;
}

static bool stop_at_the_second_report(void *user, uint64_t done, uint64_t total) {
    struct scene *scene = user;
    (void)done, (void)total;
    scene->is_over = ++scene->n_reports == 2;
    return !scene->is_over;
}

static enum kvad_status build(struct scene *scene, struct kvad_error *e) {
    struct kvad_model_source source = {.read = read_or_fail, .user = scene};
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    scene->caller = pthread_self();
    kvad_model_options_init(&options);
    options.n_threads = N_THREADS;
    if (scene->is_cancelled)
        options.progress = (struct kvad_progress){stop_at_the_second_report, scene};
    enum kvad_status status = kvad_model_build(&description, &source, &options, &model, e);
    assert_null(model);
    assert_true(scene->n_late_rows < N_CTX / 3); /* one worker's share of the positions */
    return status;
}

static void test_cancelling_stops_workers_that_are_behind_and_says_so(void **state) {
    (void)state;
    struct scene scene = {.is_cancelled = true};
    assert_fails(build(&scene, &err), KVAD_ERR_CANCELLED, &err, "loading was cancelled after");
}

static void test_a_failure_stops_workers_that_are_ahead_and_says_so(void **state) {
    (void)state;
    struct scene scene = {.has_bad_embedding = true};
    assert_fails(build(&scene, &err), KVAD_ERR_FORMAT, &err, "embedding: row 44 is bad");
}

static void test_of_a_table_the_first_bad_row_is_reported(void **state) {
    (void)state;
    struct scene scene = {.has_bad_positions = true};
    assert_fails(build(&scene, &err), KVAD_ERR_FORMAT, &err, "positions: row 5 is bad");
}

static void test_a_failure_may_go_unexplained(void **state) {
    (void)state;
    struct scene scene = {.has_bad_positions = true};
    assert_int_equal(build(&scene, NULL), KVAD_ERR_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelling_stops_workers_that_are_behind_and_says_so),
        cmocka_unit_test(test_a_failure_stops_workers_that_are_ahead_and_says_so),
        cmocka_unit_test(test_of_a_table_the_first_bad_row_is_reported),
        cmocka_unit_test(test_a_failure_may_go_unexplained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
