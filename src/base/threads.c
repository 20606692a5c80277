#define _GNU_SOURCE /* CPU sets */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpu_count.h"
#include "base/error.h"
#include "base/fp_state.h"
#include "base/gate.h"

/* More than any machine has; stops a wrong number before it costs memory. */
enum { MAX_THREADS = 4096 };

/* How long a waiting worker spins before it sleeps. At a barrier: waiting longer than this is no
 * unevenness of a layer. Between runs: while a token is drawn and handed over, for waking up takes
 * as long as half a layer. */
enum { SPIN_BARRIER_NS = 20000, SPIN_START_NS = 200000 };

struct worker {
    struct kvad_threads *pool;
    pthread_t thread;
    unsigned index;      /* 1.. ; 0 is the caller */
    uint32_t seen_start; /* value of `start` before the first run it takes part in */
};

struct kvad_threads {
    struct kvad_gate start;                      /* advances at the start of a run */
    struct kvad_gate meet;                       /* advances when all have come to a barrier */
    _Atomic unsigned n_arrived KVAD_ALIGNED(64); /* at the barrier now */
    unsigned n_running KVAD_ALIGNED(64); /* workers alive in this process, caller included */
    unsigned n_wanted;
    bool spins;          /* every worker has a CPU of its own, in theory */
    int caller_cpu;      /* of the current run; -1: unknown */
    kvad_threads_fn *fn; /* of the current run; published by `start` */
    void *ctx;
    bool stopping;        /* published by `start` */
    pthread_mutex_t lock; /* held during a run */
    _Atomic long owner;   /* process whose workers these are; its negative while it takes over */
    _Atomic unsigned n_references;
    struct kvad_allocator hook;
    size_t bytes;            /* of all this */
    struct worker workers[]; /* [n_wanted - 1] */
};

void kvad_threads_barrier(struct kvad_threads *threads) {
    uint32_t seen = kvad_gate_value(&threads->meet);
    /* acq_rel: the last to arrive has seen the writes of all, and passes them on by `meet`. */
    unsigned n = atomic_fetch_add_explicit(&threads->n_arrived, 1, memory_order_acq_rel) + 1;
    if (n < threads->n_running) {
        kvad_gate_wait(&threads->meet, seen, threads->spins ? SPIN_BARRIER_NS : 0);
        return;
    }
    atomic_store_explicit(&threads->n_arrived, 0, memory_order_relaxed);
    kvad_gate_advance(&threads->meet);
}

#if defined(__linux__)
static int current_cpu(void) {
    return sched_getcpu();
}

/* Leave a CPU for any other that this thread may use. Linux often wakes a thread on the CPU of its
 * waker, and may leave both there for many milliseconds: two that wait for each other look like
 * little work. */
static void leave_cpu(int cpu) {
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    others = all;
    CPU_CLR((size_t)cpu, &others);
    if (CPU_COUNT(&others) == 0) return;
    if (sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
}
#else
static int current_cpu(void) {
    return -1;
}
static void leave_cpu(int cpu) {
    (void)cpu;
}
#endif

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    struct kvad_threads *pool = worker->pool;
    uint32_t seen = worker->seen_start;
    for (;;) {
        kvad_gate_wait(&pool->start, seen, pool->spins ? SPIN_START_NS : 0);
        ++seen; /* runs end only when all have taken part: none is missed */
        if (pool->stopping) return NULL;
        if (pool->spins && pool->caller_cpu >= 0 && current_cpu() == pool->caller_cpu)
            leave_cpu(pool->caller_cpu);
        struct kvad_fp_state state = kvad_fp_enter();
        pool->fn(pool->ctx, worker->index, pool->n_running);
        kvad_fp_leave(state);
        kvad_threads_barrier(pool);
    }
}

/* Workers get no signal meant for the program (Ctrl-C goes to its own threads), but keep those that
 * their own instructions raise, and the profiler's. */
static void signals_for_workers(sigset_t *set) {
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigfillset(set);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; ++i)
        sigdelset(set, kept[i]);
}

/* Start workers until n_running == n_wanted; returns 0 or the error number of pthread_create().
 * A new worker may look at n_running only after the next advance of `start`. */
static int start_workers(struct kvad_threads *pool) {
    sigset_t blocked, before;
    signals_for_workers(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int error = 0;
    while (pool->n_running < pool->n_wanted) {
        struct worker *worker = &pool->workers[pool->n_running - 1];
        worker->pool = pool;
        worker->index = pool->n_running;
        worker->seen_start = kvad_gate_value(&pool->start);
        error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error != 0) break;
        ++pool->n_running;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void stop_workers(struct kvad_threads *pool) {
    pool->stopping = true;
    kvad_gate_advance(&pool->start);
    for (unsigned i = 1; i < pool->n_running; ++i)
        pthread_join(pool->workers[i - 1].thread, NULL);
    pool->n_running = 1;
}

/* A pool without workers, in this process. */
static void reset(struct kvad_threads *pool) {
    kvad_gate_init(&pool->start);
    kvad_gate_init(&pool->meet);
    atomic_init(&pool->n_arrived, 0);
    pthread_mutex_init(&pool->lock, NULL);
    pool->n_running = 1;
}

/* Make the pool this process's own if it was inherited over fork(): its workers are gone, its lock
 * and words may be in any state. One thread resets, others of the same child wait for it. */
static void adopt(struct kvad_threads *pool) {
    long self = (long)getpid();
    long owner = atomic_load_explicit(&pool->owner, memory_order_acquire);
    while (owner != self) {
        if (owner == -self) {
            sched_yield();
        } else if (atomic_compare_exchange_strong(&pool->owner, &owner, -self)) {
            reset(pool);
            atomic_store_explicit(&pool->owner, self, memory_order_release);
        }
        owner = atomic_load_explicit(&pool->owner, memory_order_acquire);
    }
}

enum kvad_status kvad_threads_create(unsigned n, const struct kvad_allocator *allocator,
                                     struct kvad_threads **out, struct kvad_error *err) {
    unsigned n_cpus = kvad_cpu_count_allowed();
    bool is_automatic = n == 0;
    if (is_automatic) n = kvad_cpu_count_default();
    if (n > MAX_THREADS)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "threads: %u is more than %d", n, MAX_THREADS);

    struct kvad_heap heap;
    kvad_heap_init(&heap, allocator);
    size_t bytes = sizeof(struct kvad_threads) + (n - 1) * sizeof(struct worker);
    struct kvad_threads *pool = kvad_alloc_zero(&heap, 1, bytes);
    if (!pool) return kvad_fail_memory(err, "a pool of threads", bytes);
    pool->hook = heap.hook;
    pool->bytes = bytes;
    pool->n_wanted = n;
    /* Spinning where workers outnumber CPUs takes the CPU from the one that is waited for. */
    pool->spins = n <= n_cpus;
    atomic_init(&pool->n_references, 1);
    atomic_init(&pool->owner, (long)getpid());
    reset(pool);

    int error = start_workers(pool);
    if (is_automatic) {
        pool->n_wanted = pool->n_running; /* a limit of threads is a limit like those of CPUs */
    } else if (error != 0) {
        enum kvad_status status = kvad_fail(
            err, KVAD_ERR_NO_MEMORY, "threads: worker %u of %u cannot start: %s: ask for fewer",
            pool->n_running, n, strerror(error));
        kvad_threads_release(&pool);
        return status;
    }
    *out = pool;
    return KVAD_OK;
}

struct kvad_threads *kvad_threads_retain(struct kvad_threads *threads) {
    atomic_fetch_add_explicit(&threads->n_references, 1, memory_order_relaxed);
    return threads;
}

void kvad_threads_release(struct kvad_threads **threads) {
    struct kvad_threads *pool = threads ? *threads : NULL;
    if (!pool) return;
    *threads = NULL;
    /* acq_rel: the last one sees everything that the others did with the pool. */
    if (atomic_fetch_sub_explicit(&pool->n_references, 1, memory_order_acq_rel) != 1) return;
    adopt(pool);
    stop_workers(pool);
    pthread_mutex_destroy(&pool->lock);
    kvad_gate_deinit(&pool->meet);
    kvad_gate_deinit(&pool->start);
    struct kvad_heap heap;
    kvad_heap_init(&heap, &pool->hook);
    kvad_free(&heap, pool, pool->bytes);
}

unsigned kvad_threads_count(const struct kvad_threads *threads) {
    return threads->n_wanted;
}

void kvad_threads_run(struct kvad_threads *threads, kvad_threads_fn *fn, void *ctx) {
    adopt(threads);
    pthread_mutex_lock(&threads->lock);
    /* A child that cannot have workers computes alone: slower, the same bits. */
    if (threads->n_running < threads->n_wanted) (void)start_workers(threads);
    threads->fn = fn;
    threads->ctx = ctx;
    threads->caller_cpu = current_cpu();
    kvad_gate_advance(&threads->start);
    struct kvad_fp_state state = kvad_fp_enter();
    fn(ctx, 0, threads->n_running);
    kvad_fp_leave(state);
    kvad_threads_barrier(threads);
    pthread_mutex_unlock(&threads->lock);
}
