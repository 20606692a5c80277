#define _GNU_SOURCE /* CPU sets */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fp_state.h"
#include "threads_support.h"

/* ---------------------------------------------------------------- run and barrier */

struct tally {
    struct kvad_threads *pool;
    unsigned calls[MAX_COUNT]; /* plain memory: the pool must order all accesses */
    unsigned n_seen[MAX_COUNT];
    unsigned inside; /* callers in a run now; plain, so that TSan sees an overlap */
    unsigned overlaps;
};

static void count_call(void *ctx, unsigned index, unsigned count) {
    struct tally *tally = ctx;
    ++tally->calls[index];
    tally->n_seen[index] = count;
}

static void test_every_worker_runs_once_per_run(void **state) {
    (void)state;
    for (unsigned n = 1; n <= MAX_COUNT; ++n) {
        struct kvad_threads *pool = make_pool(n);
        struct tally tally = {.pool = pool};
        enum { RUNS = 300 };
        for (int run = 0; run < RUNS; ++run)
            kvad_threads_run(pool, count_call, &tally);
        for (unsigned i = 0; i < MAX_COUNT; ++i) {
            assert_int_equal(tally.calls[i], i < n ? RUNS : 0);
            assert_int_equal(tally.n_seen[i], i < n ? n : 0);
        }
        kvad_threads_release(&pool);
        assert_null(pool);
    }
}

static void test_barrier_separates_phases_thousands_of_times(void **state) {
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 5, 8};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c) {
        unsigned n = counts[c];
        struct kvad_threads *pool = make_pool(n);
        struct rounds rounds = {.pool = pool, .n = 20};
        enum { RUNS = 100 };
        for (int run = 0; run < RUNS; ++run)
            kvad_threads_run(pool, rounds_of_sums, &rounds);
        for (unsigned i = 0; i < n; ++i)
            assert_int_equal(rounds.sums[i], sum_of_rounds(rounds.n, n) * RUNS);
        kvad_threads_release(&pool);
    }
}

static void note_overlap(void *ctx, unsigned index, unsigned count) {
    struct tally *tally = ctx;
    (void)count;
    if (index == 0 && ++tally->inside != 1) ++tally->overlaps;
    kvad_threads_barrier(tally->pool);
    if (index == 0) --tally->inside;
}

static void *call_often(void *argument) {
    struct tally *tally = argument;
    for (int run = 0; run < 500; ++run)
        kvad_threads_run(tally->pool, note_overlap, tally);
    return NULL;
}

static void test_callers_of_one_pool_take_turns(void **state) {
    (void)state;
    struct tally tally = {.pool = make_pool(3)};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, call_often, &tally), 0);
    call_often(&tally);
    pthread_join(other, NULL);
    assert_int_equal(tally.inside, 0);
    assert_int_equal(tally.overlaps, 0);
    kvad_threads_release(&tally.pool);
}

static void test_idle_workers_use_no_cpu(void **state) {
    (void)state;
    struct tally tally = {.pool = make_pool(4)};
    kvad_threads_run(tally.pool, count_call, &tally);
    struct timespec before, after, pause = {0, 200000000};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used = (double)(after.tv_sec - before.tv_sec) * 1e3 +
                  (double)(after.tv_nsec - before.tv_nsec) * 1e-6;
    kvad_threads_release(&tally.pool);
    assert_true(used < 50); /* ms, of 600 that three spinning workers would use */
}

#if defined(__linux__)
struct places {
    cpu_set_t shared, allowed; /* the caller's one CPU; all */
    int cpus[2];
    bool may_go_anywhere;
};

/* The worker goes where the caller is; afterwards it could leave. */
static void join_caller(void *ctx, unsigned index, unsigned count) {
    struct places *places = ctx;
    (void)count;
    if (index == 0) return;
    sched_setaffinity(0, sizeof places->shared, &places->shared);
    sched_setaffinity(0, sizeof places->allowed, &places->allowed);
}

static void note_places(void *ctx, unsigned index, unsigned count) {
    struct places *places = ctx;
    cpu_set_t now;
    (void)count;
    places->cpus[index] = sched_getcpu();
    if (index == 0) return;
    sched_getaffinity(0, sizeof now, &now);
    places->may_go_anywhere = CPU_EQUAL(&now, &places->allowed);
}

static void test_worker_leaves_the_cpu_of_the_caller(void **state) {
    (void)state;
    struct places places;
    if (sched_getaffinity(0, sizeof places.allowed, &places.allowed) != 0 ||
        CPU_COUNT(&places.allowed) < 2)
        skip();
    struct kvad_threads *pool = make_pool(2);
    unsigned n_apart = 0;
    for (int turn = 0; turn < 20; turn++) {
        CPU_ZERO(&places.shared);
        CPU_SET((size_t)sched_getcpu(), &places.shared);
        sched_setaffinity(0, sizeof places.shared, &places.shared);
        kvad_threads_run(pool, join_caller, &places);
        kvad_threads_run(pool, note_places, &places);
        sched_setaffinity(0, sizeof places.allowed, &places.allowed);
        n_apart += places.cpus[0] != places.cpus[1];
        assert_true(places.may_go_anywhere);
    }
    kvad_threads_release(&pool);
    /* On a busy machine the kernel may have brought it back. */
    assert_true(n_apart > 10);
}
#endif

/* ---------------------------------------------------------------- what workers inherit */

static void set_flush_to_zero(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ and DAZ */
#elif defined(__aarch64__)
    kvad_fpcr_write(kvad_fpcr_read() | UINT64_C(1) << 24); /* FZ */
#endif
}

static float smallest_times_half(void) {
    volatile float normal = 0x1p-126f, half = 0.5f;
    return normal * half; /* subnormal: 0 where flushing is on */
}

static void multiply_subnormal(void *ctx, unsigned index, unsigned count) {
    float *results = ctx;
    (void)count;
    results[index] = smallest_times_half();
}

static void test_workers_keep_subnormals_when_the_host_flushes(void **state) {
    (void)state;
    struct kvad_fp_state host = kvad_fp_enter();
    set_flush_to_zero(); /* threads made now inherit it on Linux */
    bool can_flush = smallest_times_half() == 0;
    struct kvad_threads *pool = make_pool(3);
    float results[3] = {0};
    kvad_threads_run(pool, multiply_subnormal, results);
    bool restored = smallest_times_half() == 0;
    kvad_threads_release(&pool);
    kvad_fp_leave(host);
    for (int i = 0; i < 3; ++i)
        assert_true(results[i] == 0x1p-127f);
    assert_int_equal(restored, can_flush);
    assert_true(smallest_times_half() == 0x1p-127f);
}

static void look_at_signals(void *ctx, unsigned index, unsigned count) {
    sigset_t *masks = ctx;
    (void)count;
    pthread_sigmask(SIG_BLOCK, NULL, &masks[index]);
}

static void test_workers_take_no_interrupts(void **state) {
    (void)state;
    struct kvad_threads *pool = make_pool(2);
    sigset_t masks[2];
    kvad_threads_run(pool, look_at_signals, masks);
    kvad_threads_release(&pool);
    assert_false(sigismember(&masks[0], SIGINT)); /* the caller's own mask is as before */
    assert_true(sigismember(&masks[1], SIGINT));
    assert_true(sigismember(&masks[1], SIGTERM));
    assert_false(sigismember(&masks[1], SIGSEGV)); /* a crash still reaches its handler */
}

/* ---------------------------------------------------------------- creation */

struct counter {
    size_t bytes;
    bool refuse;
};

static void *counted_allocate(void *user, size_t size, size_t alignment) {
    struct counter *counter = user;
    void *memory = NULL;
    if (counter->refuse || posix_memalign(&memory, alignment, size) != 0) return NULL;
    counter->bytes += size;
    return memory;
}

static void counted_release(void *user, void *memory, size_t size) {
    struct counter *counter = user;
    counter->bytes -= size;
    free(memory);
}

static void test_last_release_gives_all_memory_back(void **state) {
    (void)state;
    struct counter counter = {0};
    struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
    struct kvad_error err;
    struct kvad_threads *pool = NULL;
    assert_ok(kvad_threads_create(2, &hook, &pool, &err), &err);
    assert_true(counter.bytes > 0);
    struct kvad_threads *second = kvad_threads_retain(pool);
    kvad_threads_release(&pool);
    assert_true(run_gives_right_sums(second)); /* one reference keeps it alive */
    kvad_threads_release(&second);
    assert_int_equal(counter.bytes, 0);
    kvad_threads_release(&second); /* NULL is allowed */
}

static void test_failed_creation_says_why_and_writes_nothing(void **state) {
    (void)state;
    struct counter counter = {.refuse = true};
    struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
    struct kvad_error err;
    struct kvad_threads *pool = NULL;
    assert_fails(kvad_threads_create(2, &hook, &pool, &err), KVAD_ERR_NO_MEMORY, &err, "threads");
    assert_fails(kvad_threads_create(5000, NULL, &pool, &err), KVAD_ERR_ARGUMENT, &err, "5000");
    assert_null(pool);
}

static void test_worker_that_cannot_start_undoes_the_others(void **state) {
    (void)state;
    if (HAS_TSAN || HAS_ASAN) skip(); /* they reserve the address space that this test takes away */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct counter counter = {0};
        struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
        struct kvad_error err = {0};
        struct kvad_threads *pool = NULL;
        struct rlimit limit = {64u << 20, 64u << 20}; /* room for a few stacks */
        setrlimit(RLIMIT_AS, &limit);
        enum kvad_status status = kvad_threads_create(200, &hook, &pool, &err);
        bool good = status == KVAD_ERR_NO_MEMORY && !pool && counter.bytes == 0 &&
                    strstr(err.text, "of 200 cannot start") && strstr(err.text, ": ask for fewer");
        _exit(good ? 0 : 1);
    }
    assert_child_succeeds(child);
}

#if defined(__GLIBC__)
/* No thread can start where its stack would be half of the address space. */
static bool is_alone_without_stacks(void) {
    struct counter counter = {0};
    struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
    struct kvad_error err = {0};
    struct kvad_threads *pool = NULL;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SIZE_MAX / 2 + 1);
    if (pthread_setattr_default_np(&attributes) != 0) return false;
    if (kvad_threads_create(2, &hook, &pool, &err) != KVAD_ERR_NO_MEMORY) return false;
    if (kvad_threads_create(0, &hook, &pool, &err) != KVAD_OK) return false;
    bool is_alone = kvad_threads_count(pool) == 1 && run_gives_right_sums(pool);
    kvad_threads_release(&pool);
    return is_alone && counter.bytes == 0;
}

static void test_an_automatic_pool_has_the_workers_that_can_start(void **state) {
    (void)state;
    if (HAS_TSAN || HAS_ASAN) skip(); /* their threads have stacks of another size */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(is_alone_without_stacks() ? 0 : 1);
    assert_child_succeeds(child);
}
#endif

static void test_automatic_count_is_at_least_one(void **state) {
    (void)state;
    struct kvad_error err;
    struct kvad_threads *pool = NULL;
    assert_ok(kvad_threads_create(0, NULL, &pool, &err), &err);
    assert_true(kvad_threads_count(pool) >= 1);
    assert_true(kvad_threads_count(pool) > MAX_COUNT || run_gives_right_sums(pool));
    kvad_threads_release(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_worker_runs_once_per_run),
        cmocka_unit_test(test_barrier_separates_phases_thousands_of_times),
        cmocka_unit_test(test_callers_of_one_pool_take_turns),
        cmocka_unit_test(test_idle_workers_use_no_cpu),
#if defined(__linux__)
        cmocka_unit_test(test_worker_leaves_the_cpu_of_the_caller),
#endif
        cmocka_unit_test(test_workers_keep_subnormals_when_the_host_flushes),
        cmocka_unit_test(test_workers_take_no_interrupts),
        cmocka_unit_test(test_last_release_gives_all_memory_back),
        cmocka_unit_test(test_failed_creation_says_why_and_writes_nothing),
        cmocka_unit_test(test_worker_that_cannot_start_undoes_the_others),
#if defined(__GLIBC__)
        cmocka_unit_test(test_an_automatic_pool_has_the_workers_that_can_start),
#endif
        cmocka_unit_test(test_automatic_count_is_at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
