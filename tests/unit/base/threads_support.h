/* Pools of threads for tests: one that works, told by its sums, and children that fork() made. */
#ifndef KVAD_TESTS_THREADS_SUPPORT_H
#define KVAD_TESTS_THREADS_SUPPORT_H

#include <sys/wait.h>

#include "base/threads.h"
#include "sanitizers.h"
#include "test.h"

enum { MAX_COUNT = 8 }; /* workers */

static inline struct kvad_threads *make_pool(unsigned n) {
    struct kvad_error err;
    struct kvad_threads *pool = NULL;
    assert_ok(kvad_threads_create(n, NULL, &pool, &err), &err);
    assert_int_equal(kvad_threads_count(pool), n);
    return pool;
}

/* A run that shows whether barriers hold. */
struct rounds {
    struct kvad_threads *pool;
    unsigned n;
    uint64_t cells[MAX_COUNT]; /* plain memory: the pool must order all accesses */
    uint64_t sums[MAX_COUNT];
};

/* Each round: write the own cell, meet, sum all cells, meet. Any missing barrier gives a wrong sum
 * (and a race under ThreadSanitizer). */
static inline void rounds_of_sums(void *ctx, unsigned index, unsigned count) {
    struct rounds *r = ctx;
    for (unsigned round = 0; round < r->n; ++round) {
        r->cells[index] = (uint64_t)round * count + index;
        kvad_threads_barrier(r->pool);
        for (unsigned i = 0; i < count; ++i)
            r->sums[index] += r->cells[i];
        kvad_threads_barrier(r->pool);
    }
}

/* What each worker has in its sum after `n` rounds of `count` workers. */
static inline uint64_t sum_of_rounds(uint64_t n, uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t round = 0; round < n; ++round)
        for (uint64_t i = 0; i < count; ++i)
            sum += round * count + i;
    return sum;
}

/* One run of a pool of at most MAX_COUNT workers. */
static inline bool run_gives_right_sums(struct kvad_threads *pool) {
    struct rounds rounds = {.pool = pool, .n = 10};
    kvad_threads_run(pool, rounds_of_sums, &rounds);
    unsigned count = kvad_threads_count(pool);
    for (unsigned i = 0; i < count; ++i)
        if (rounds.sums[i] != sum_of_rounds(rounds.n, count)) return false;
    return true;
}

static inline void assert_child_succeeds(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
