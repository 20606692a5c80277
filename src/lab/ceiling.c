#include "lab/ceiling.h"

#include <stdatomic.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { LINE = 64 };

/* Trying the ways to read costs two passes each: over this much memory at most, which no cache of
 * one socket holds in twice eight passes. */
static const size_t trial_bytes = (size_t)256 << 20;

enum measure { MEASURE_READ, MEASURE_FMA, MEASURE_DOT };

/* One measurement: what every worker runs, and what comes out. */
struct run {
    const struct kvad_ceiling *ceiling;
    enum measure what;
    size_t bytes, n_times; /* passes over the memory, or steps */
    unsigned way, n_workers;
    double amount;         /* bytes or operations of worker 0 (all do the same), then of all */
    _Atomic uint64_t sink; /* keeps the results alive */
};

static void run_worker(void *ctx, unsigned index, unsigned count) {
    struct run *run = ctx;
    const struct ceiling_ops *ops = run->ceiling->ops;
    const struct ceiling_operands *operands = &run->ceiling->operands;
    size_t lines = run->bytes / LINE, first = lines * index / count;
    size_t n = lines * (index + 1) / count - first;
    double amount = 0;
    uint64_t sink = 0;
    switch (run->what) {
    case MEASURE_READ:
        for (size_t i = 0; i < run->n_times; i++)
            sink ^= ops->read(run->ceiling->memory + first * LINE, n * LINE, run->way);
        amount = (double)lines * LINE / count * (double)run->n_times;
        break;
    case MEASURE_FMA: sink = (uint64_t)ops->fma(operands, run->n_times, &amount); break;
    case MEASURE_DOT: sink = ops->dot(operands, run->n_times, &amount); break;
    }
    atomic_fetch_xor_explicit(&run->sink, sink, memory_order_relaxed);
    if (index == 0) {
        run->n_workers = count;
        run->amount = amount;
    }
}

/* Seconds that the run takes; its amount becomes that of all workers. */
static double timed(struct run *run) {
    uint64_t start = kvad_clock_ns();
    kvad_threads_run(run->ceiling->threads, run_worker, run);
    double seconds = (double)(kvad_clock_ns() - start) * 1e-9;
    run->amount *= run->n_workers;
    return seconds > 0 ? seconds : 1e-9;
}

static double rate(const struct kvad_ceiling *ceiling, enum measure what, size_t n_times) {
    struct run run = {.ceiling = ceiling,
                      .what = what,
                      .bytes = ceiling->bytes,
                      .n_times = n_times,
                      .way = ceiling->way};
    double seconds = timed(&run);
    return run.amount / seconds;
}

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Repetitions for which a measurement lasts long enough, found by the calling thread alone and by
 * the time that it computes: on a busy machine the time that it waits would end the search too
 * soon. */
static size_t enough(const struct kvad_ceiling *ceiling, enum measure what) {
    for (size_t n = 1;; n *= 2) {
        struct run run = {.ceiling = ceiling,
                          .what = what,
                          .bytes = ceiling->bytes / kvad_threads_count(ceiling->threads),
                          .n_times = n,
                          .way = ceiling->way};
        double start = thread_seconds();
        run_worker(&run, 0, 1);
        if (thread_seconds() - start >= ceiling->seconds / 2 || n >= (size_t)1 << 40) return n;
    }
}

static unsigned fastest_way(const struct kvad_ceiling *ceiling) {
    unsigned best = 0;
    double least = 0;
    for (unsigned i = 0; i < 2 * CEILING_WAYS; i++) {
        struct run run = {.ceiling = ceiling,
                          .what = MEASURE_READ,
                          .bytes = kvad_min_size(ceiling->bytes, trial_bytes),
                          .n_times = 1,
                          .way = i % CEILING_WAYS};
        run.n_times += (4u << 20) / (run.bytes + 1); /* a small memory is read several times */
        double seconds = timed(&run);
        if (i > 0 && seconds >= least) continue;
        least = seconds;
        best = run.way;
    }
    return best;
}

void kvad_ceiling_init(struct kvad_ceiling *ceiling, enum kvad_cpu_level level,
                       struct kvad_threads *threads, const void *memory, size_t bytes,
                       double seconds) {
    *ceiling = (struct kvad_ceiling){.threads = threads,
                                     .ops = ceiling_ops_of(level),
                                     .memory = memory,
                                     .bytes = bytes,
                                     .seconds = seconds};
    ceiling_operands_init(&ceiling->operands);
    ceiling->way = fastest_way(ceiling);
    ceiling->n_passes = enough(ceiling, MEASURE_READ);
    ceiling->n_fma_steps = enough(ceiling, MEASURE_FMA);
    if (ceiling->ops->dot) ceiling->n_dot_steps = enough(ceiling, MEASURE_DOT);
}

double kvad_ceiling_read(const struct kvad_ceiling *ceiling) {
    return rate(ceiling, MEASURE_READ, ceiling->n_passes);
}

double kvad_ceiling_fma(const struct kvad_ceiling *ceiling) {
    return rate(ceiling, MEASURE_FMA, ceiling->n_fma_steps);
}

double kvad_ceiling_dot(const struct kvad_ceiling *ceiling) {
    return ceiling->ops->dot ? rate(ceiling, MEASURE_DOT, ceiling->n_dot_steps) : 0;
}
