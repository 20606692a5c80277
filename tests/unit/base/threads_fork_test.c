/* A pool in a process that fork() made: the workers are not there, and locks are as they were. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "threads_support.h"

/* Nobody may be about to allocate when a process with a sanitizer forks: the child would inherit
 * the lock of its allocator as it is. Workers allocate while they start, never in a run. */

/* In a child: use the pool, give it back, exit. An alarm turns a hang into a failure. */
static pid_t fork_user_of(struct kvad_threads *pool) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    alarm(60);
    bool good = run_gives_right_sums(pool) && run_gives_right_sums(pool);
    kvad_threads_release(&pool);
    _exit(good ? 0 : 1);
}

static void test_pool_works_in_a_forked_child(void **state) {
    (void)state;
    if (HAS_TSAN) skip(); /* it does not support threads in a forked child */
    struct kvad_threads *pool = make_pool(3);
    assert_true(run_gives_right_sums(pool));
    assert_child_succeeds(fork_user_of(pool));
    assert_true(run_gives_right_sums(pool)); /* and still in the parent */
    kvad_threads_release(&pool);
}

static void test_unused_pool_is_released_in_a_child(void **state) {
    (void)state;
    struct kvad_threads *pool = make_pool(3);
    if (HAS_ASAN) assert_true(run_gives_right_sums(pool)); /* not unused, but started */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        kvad_threads_release(&pool); /* must not wait for workers that are not here */
        _exit(0);
    }
    assert_child_succeeds(child);
    kvad_threads_release(&pool);
}

struct blocker {
    struct kvad_threads *pool;
    _Atomic unsigned n_entered;
    _Atomic bool leave;
};

static void hold_run_open(void *ctx, unsigned index, unsigned count) {
    struct blocker *blocker = ctx;
    (void)count;
    atomic_fetch_add(&blocker->n_entered, 1);
    if (index != 0) return;
    struct timespec pause = {0, 1000000};
    while (!atomic_load(&blocker->leave))
        nanosleep(&pause, NULL);
}

static void *hold_pool(void *argument) {
    struct blocker *blocker = argument;
    kvad_threads_run(blocker->pool, hold_run_open, blocker);
    return NULL;
}

static void test_pool_works_in_a_child_forked_during_a_run(void **state) {
    (void)state;
    if (HAS_TSAN) skip(); /* it does not support threads in a forked child */
    struct blocker blocker = {.pool = make_pool(3)};
    pthread_t holder;
    assert_int_equal(pthread_create(&holder, NULL, hold_pool, &blocker), 0);
    struct timespec pause = {0, 1000000};
    while (atomic_load(&blocker.n_entered) < 3)
        nanosleep(&pause, NULL);
    pid_t child = fork_user_of(blocker.pool); /* its copy of the lock is held by nobody there */
    assert_child_succeeds(child);
    atomic_store(&blocker.leave, true);
    pthread_join(holder, NULL);
    kvad_threads_release(&blocker.pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_works_in_a_forked_child),
        cmocka_unit_test(test_unused_pool_is_released_in_a_child),
        cmocka_unit_test(test_pool_works_in_a_child_forked_during_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
