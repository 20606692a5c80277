/* Who has to make room when the pool is full, and for how long. */
#include "base/faults.h"
#include "engine/budget.h"
#include "engine/pin.h"
#include "engine/scheduler.h"

/* ---------------------------------------------------------------- parked requests */

static void park(struct kvad_request *r) {
    struct kvad_engine *e = r->engine;
    r->next = e->parked;
    e->parked = r;
    e->n_parked++;
    r->state = REQUEST_PARKED;
}

void kvad_engine_unpark(struct kvad_request *request) {
    struct kvad_request **link = &request->engine->parked;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    request->next = NULL;
    request->engine->n_parked--;
}

static void enqueue(struct kvad_request *r) {
    r->state = REQUEST_QUEUED;
    kvad_queue_push(&r->engine->queue, r);
}

void kvad_engine_unpark_ready(struct kvad_engine *engine) {
    for (struct kvad_request *r = engine->parked, *next; r; r = next) {
        next = r->next;
        if (!kvad_request_has_room(r)) continue;
        kvad_engine_unpark(r);
        enqueue(r);
    }
}

/* ---------------------------------------------------------------- preemption */

/* Ids that a preempted request goes on with: all of them. */
static size_t ids_kept(const struct kvad_request *r) {
    size_t n = KVAD_FAULT(TOKEN_LOST_ON_PREEMPTION, r->n_ids, r->n_ids - (r->n_outputs > 0));
    bool has_room = r->n_ids < r->ids_capacity && r->n_ids - r->window + 1 < r->engine->n_ctx;
    (void)has_room;
    n = KVAD_FAULT(LAST_TOKEN_TWICE, n,
                   r->n_outputs > 0 && has_room ? (r->ids[n] = r->ids[n - 1], n + 1) : n);
    return KVAD_FAULT(RESUMED_WITH_PROMPT_ONLY, n, r->window < r->n_prompt ? r->n_prompt : n);
}

/* Give the blocks of a running request back; it will compute its rows again. `cause` has the room.
 */
static void preempt(struct kvad_request *r, const struct kvad_request *cause) {
    struct kvad_engine *e = r->engine;
    size_t n_blocks = e->pool.n_blocks, n_free = kvad_kv_pool_available(&e->pool);
    if (!e->pool.heap) {
        n_blocks = (size_t)(e->kv_budget / e->shape.block_bytes);
        n_free = n_blocks - (size_t)(kvad_engine_kv_bytes(e) / e->shape.block_bytes);
    }
    kvad_engine_log(e, KVAD_LOG_INFO,
                    "preempted request %llu (priority %d, %zu tokens in %zu blocks) for request "
                    "%llu: %zu of %zu blocks were free",
                    (unsigned long long)r->arrival, (int)r->priority, r->n_fed,
                    r->sequence->kv.n_blocks, (unsigned long long)cause->arrival, n_free, n_blocks);
    kvad_engine_stop_running(r);
    r->n_preemptions++;
    r->n_lost = r->n_fed;
    r->n_fed = 0;
    r->n_ids = ids_kept(r);
    e->counters.n_preemptions++;
    if (kvad_request_has_room(r))
        enqueue(r);
    else
        park(r);
}

/* The item's owner that comes first in order: it runs, whatever happens to the others. */
static struct kvad_request *first_owner(const struct kvad_engine *e, size_t n_items) {
    struct kvad_request *first = e->step_owners[0];
    for (size_t i = 1; i < n_items; i++)
        if (kvad_request_is_before(e->step_owners[i], first)) first = e->step_owners[i];
    return first;
}

static struct kvad_request *last_owner(const struct kvad_engine *e, size_t n_items) {
    struct kvad_request *last = e->step_owners[0];
    for (size_t i = 1; i < n_items; i++)
        if (kvad_request_is_before(last, e->step_owners[i])) last = e->step_owners[i];
    return last;
}

/* Of the running requests that hold blocks, except `first`, the one to preempt: one that waits for
 * its reader, or else the last in order. NULL where nobody else holds any. */
static struct kvad_request *choose_victim(const struct kvad_engine *e,
                                          const struct kvad_request *first) {
    struct kvad_request *last = NULL, *paused = NULL;
    for (size_t i = 0; i < e->n_running; i++) {
        struct kvad_request *r = e->running[i];
        if (r == first || r->sequence->kv.n_blocks == 0) continue;
        last = r;
        if (!kvad_request_has_room(r)) paused = r;
    }
    return paused ? paused : last;
}

static size_t count_needed(const struct kvad_engine *e, size_t n_items) {
    size_t n = 0;
    for (size_t i = 0; i < n_items; i++)
        n += kvad_kv_sequence_blocks_needed(&e->step_items[i].sequence->kv,
                                            e->step_items[i].n_tokens);
    return n;
}

/* Whether the step's items do not fit into the cache's memory. */
static bool lacks_room(const struct kvad_engine *e, size_t n_items) {
    if (!e->pool.heap) return kvad_budget_missing(e, e->step_items, n_items) > 0;
    return count_needed(e, n_items) > kvad_kv_pool_available(&e->pool);
}

/* Take a request's item out of the step. */
static size_t drop_item(struct kvad_engine *e, size_t n_items, const struct kvad_request *r) {
    size_t n = 0, n_vocab = e->model->description.n_vocab;
    for (size_t i = 0; i < n_items; i++) {
        if (e->step_owners[i] == r) continue;
        e->step_owners[n] = e->step_owners[i];
        e->step_items[n] = e->step_items[i];
        e->step_items[n].logits = e->step_logits + n * n_vocab;
        n++;
    }
    return n;
}

size_t kvad_engine_make_room(struct kvad_engine *engine, size_t n_items) {
    while (n_items > 0 && lacks_room(engine, n_items)) {
        const struct kvad_request *first = first_owner(engine, n_items);
        struct kvad_request *victim = choose_victim(engine, first);
        /* Alone it fits, unless pins or sequences outside of requests hold the pool. */
        if (!victim && n_items == 1 && !kvad_engine_break_pin(engine)) break;
        if (!victim && n_items == 1) continue;
        if (victim) {
            n_items = drop_item(engine, n_items, victim);
            preempt(victim, first);
        } else { /* the others hold nothing yet and wait */
            n_items = drop_item(engine, n_items, last_owner(engine, n_items));
        }
    }
    return n_items;
}

bool kvad_engine_preempt_for(struct kvad_engine *engine, const struct kvad_request *wanting) {
    struct kvad_request *victim = NULL;
    for (size_t i = 0; i < engine->n_running; i++) {
        struct kvad_request *r = engine->running[i];
        bool is_paused = !kvad_request_has_room(r);
        if (is_paused || r->priority < wanting->priority) victim = r;
    }
    if (!victim) return false;
    preempt(victim, wanting);
    return true;
}
