/* What the parts of the scheduler share: who runs (admit.c), who has to make room (preempt.c), and
 * what a step computes (scheduler.c).
 *
 *     submitted -> queued -> running -> finished         queued: in order of priority and arrival
 *                    ^          |
 *                    +-- preempted (parked first while its reader does not read)
 *
 * Admission counts what the known tokens need, not what may ever come. When a step lacks blocks,
 * the last of the running ones gives its blocks back and is queued again; it computes them anew, or
 * finds them in the prefix index, with the same bits. The first of the running ones is never
 * preempted for lack of blocks and fits into the pool at its longest, so there is always progress.
 */
#ifndef KVAD_ENGINE_SCHEDULER_H
#define KVAD_ENGINE_SCHEDULER_H

#include "engine/request.h"

/** Start queued requests in their order while a sequence and blocks are free. The first that does
 * not fit waits, and those behind it too, so that no stream of small ones starves a large one. */
void kvad_engine_admit(struct kvad_engine *engine);
/** Let a running request begin with rows that are there, or wait for one that computes them now. */
void kvad_request_attach(struct kvad_request *request);
/** After a step of `request`: those that waited for its rows go on. */
void kvad_request_wake(struct kvad_request *request);
/** Take a running request out of the running ones; its sequence goes. */
void kvad_engine_stop_running(struct kvad_request *request);

/** Preempt until the step's items fit into the pool; returns how many items are left of n_items. */
size_t kvad_engine_make_room(struct kvad_engine *engine, size_t n_items);
/** Preempt one request so that `wanting`, which is queued, may start; false: nobody has to. */
bool kvad_engine_preempt_for(struct kvad_engine *engine, const struct kvad_request *wanting);
/** Queue those of the parked requests again whose readers have read. */
void kvad_engine_unpark_ready(struct kvad_engine *engine);
/** Take a parked request out of the list. */
void kvad_engine_unpark(struct kvad_request *request);

#endif
