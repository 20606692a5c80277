/* A pool of workers that run one function together and meet at barriers inside it.
 * (kvad_threads_create(), _retain(), _release() and _count() are in kvad.h.)
 *
 *     caller    run ---- fn(0) -- barrier -- fn(0) ---- returns
 *     worker 1  sleep -- fn(1) -- barrier -- fn(1) ---- sleeps
 */
#ifndef KVAD_BASE_THREADS_H
#define KVAD_BASE_THREADS_H

#include "kvad/kvad.h"

/* `index` is in [0, count); index 0 is the caller of kvad_threads_run(). */
typedef void kvad_threads_fn(void *ctx, unsigned index, unsigned count);

/** Run fn(ctx, index, count) on every worker at once, the calling thread included, and return when
 * all are done. Writes before the call are seen by every worker, and the workers' writes by the
 * caller afterwards. count <= kvad_threads_count(), and equal to it except in a forked child that
 * cannot start threads: take the number from the argument.
 *
 * Each runs in the defined floating-point environment (base/fp_state.h); the caller's own is
 * restored. Any thread may call: calls from several threads take turns. Not from inside fn.
 * Never allocates, except for new workers in a child.
 *
 * fork(): a child has none of the workers; its first run starts its own. A child forked while
 * another thread was inside a run is fine; fork from inside fn only to exec or exit. */
void kvad_threads_run(struct kvad_threads *threads, kvad_threads_fn *fn, void *ctx);

/** Only inside fn, and by every worker: wait until all have come. Writes before it are seen by all
 * after it. Spins for microseconds (not at all where workers outnumber CPUs), then sleeps. */
void kvad_threads_barrier(struct kvad_threads *threads);

#endif
