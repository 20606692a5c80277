/* Which queued requests start, and with which rows. */
#include "base/error.h"
#include "base/faults.h"
#include "engine/budget.h"
#include "engine/scheduler.h"

/* ---------------------------------------------------------------- rows that are there */

enum {
    /* Rows that are worth waiting for while another request computes them, whatever the size of a
       block: fewer are computed beside the others of a step at no cost that counts. */
    MIN_WAITED = 16
};

/* The running request that has, or will have, most of what `r` begins with. */
struct source {
    struct kvad_request *request; /* NULL: nobody */
    size_t n_common, n_ready;     /* tokens in common; rows of them that are there */
};

static size_t count_common(const struct kvad_request *a, const struct kvad_request *b) {
    const int32_t *x = a->ids + a->window, *y = b->ids + b->window;
    size_t n = kvad_min_size(a->n_ids - a->window, b->n_ids - b->window), i = 0;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

static bool can_lend(const struct kvad_request *from, const struct kvad_request *to) {
    return from != to && from->root == to->root && kvad_request_shares(from) && from->is_attached;
}

/* Whether `from` waits for `to`, directly or through others. */
static bool waits_for(const struct kvad_request *from, const struct kvad_request *to) {
    while (from && from != to)
        from = from->waits_for;
    return from != NULL;
}

/* Who has most rows now, or (with `later`) will have most. */
static struct source find_source(const struct kvad_request *r, bool later) {
    const struct kvad_engine *e = r->engine;
    struct source best = {0};
    size_t most = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        struct kvad_request *other = e->running[i];
        if (!can_lend(other, r) || waits_for(other, r)) continue;
        size_t n_common = count_common(other, r);
        size_t n_ready = kvad_min_size(n_common, other->sequence->kv.length);
        if ((later ? n_common : n_ready) <= most) continue;
        most = later ? n_common : n_ready;
        best = (struct source){other, n_common, n_ready};
    }
    return best;
}

/* How many of a prompt's n tokens count as done when all their rows are there: the last one runs
 * again, because its logits are wanted; its rows are not written again. */
static size_t n_done(size_t n_found, size_t n) {
    size_t most = KVAD_FAULT(FULL_HIT_RUNS_NOTHING, n - 1, n);
    return kvad_min_size(n_found, most);
}

/* Rows that count when `done` of the `n_found` tokens count as done. */
static size_t rows_done(size_t done, size_t n_found) {
    (void)n_found;
    return KVAD_FAULT(FULL_HIT_TWICE, done, n_found);
}

/* Ids that need not be fed when `done` tokens count as done. */
static size_t ids_done(const struct kvad_request *r, size_t done) {
    (void)r;
    return KVAD_FAULT(RESUMED_AS_DECODE, done,
                      r->n_preemptions > 0 ? r->n_ids - r->window - 1 : done);
}

static void begin_with(struct kvad_request *r, const uint32_t *table, size_t n_found,
                       size_t n_published) {
    struct kvad_kv_sequence *kv = &r->sequence->kv;
    kvad_kv_sequence_attach(kv, table, n_found);
    kv->n_published = kvad_min_size(n_published, n_found / kv->shape->block_tokens);
    size_t done = n_done(n_found, r->n_ids - r->window);
    kvad_kv_sequence_rewind(kv, rows_done(done, n_found));
    r->n_fed = ids_done(r, done);
}

static void begin_with_source(struct kvad_request *r, const struct kvad_request *from,
                              size_t n_tokens) {
    const struct kvad_kv_sequence *kv = &from->sequence->kv;
    begin_with(r, kv->table, n_tokens, kv->n_published);
}

/* Rows that a request began with: once for its prompt, again after each preemption. */
static void account(struct kvad_request *r, size_t n_found) {
    struct kvad_cache_counters *counters = &r->engine->counters;
    if (r->n_preemptions == 0) {
        r->n_cached = n_found;
        counters->n_hit_tokens += n_found;
        counters->n_prompt_tokens += r->n_ids - r->window;
    } else if (r->n_lost > n_found) {
        r->n_recomputed += r->n_lost - n_found;
        counters->n_recomputed_tokens += r->n_lost - n_found;
    }
    r->n_lost = 0;
}

/* Why the index has no more than `match`. */
static void note_miss(struct kvad_request *r, struct kvad_prefix_match match) {
    static const enum kvad_cache_miss reasons[] = {
        [KVAD_PREFIX_WHOLE] = KVAD_MISS_NONE,
        [KVAD_PREFIX_COLD] = KVAD_MISS_COLD,
        [KVAD_PREFIX_DIFFERS] = KVAD_MISS_DIFFERS,
        [KVAD_PREFIX_EVICTED] = KVAD_MISS_EVICTED,
    };
    if (r->n_preemptions > 0) return;
    r->miss = reasons[match.miss];
    r->miss_other = match.other;
    if (r->miss == KVAD_MISS_EVICTED) {
        r->evicted_ago = r->engine->n_steps - match.evicted_at;
        r->evicted_for = match.evicted_for;
    } else if (match.n_tokens == 0 &&
               kvad_prefix_is_elsewhere(&r->engine->prefix, r->root, r->ids + r->window,
                                        r->n_ids - r->window)) {
        r->miss = KVAD_MISS_SALT;
    }
}

/* The same where another request's rows were taken, n of them: where that one goes on differently,
 * or ends. */
static void note_source(struct kvad_request *r, const struct kvad_request *from, size_t n) {
    if (r->n_preemptions > 0) return;
    bool is_whole = n == r->n_ids - r->window;
    r->miss = is_whole ? KVAD_MISS_NONE : KVAD_MISS_DIFFERS;
    r->miss_other = -1;
    if (is_whole || n == from->n_ids - from->window) return;
    int32_t next = from->ids[from->window + n];
    if (next != r->ids[r->window + n]) r->miss_other = next; /* else its row is not there yet */
}

void kvad_request_attach(struct kvad_request *request) {
    struct kvad_request *r = request;
    struct kvad_engine *e = r->engine;
    r->is_attached = true;
    if (!kvad_request_shares(r)) {
        account(r, 0);
        return;
    }
    size_t n = r->n_ids - r->window;
    struct kvad_prefix_match match =
        kvad_prefix_find(&e->prefix, r->root, r->ids + r->window, n, e->found);
    note_miss(r, match);
    struct source now = find_source(r, false), later = find_source(r, true);
    size_t most = match.n_tokens > now.n_ready ? match.n_tokens : now.n_ready;
    if (later.request) {
        /* The other one's last token may have to wait for its reader: not worth waiting for. */
        size_t there = later.request->n_ids - later.request->window - 1;
        size_t target = kvad_min_size(later.n_common, there);
        if (target >= most + MIN_WAITED) {
            r->waits_for = later.request;
            r->wait_target = target;
            r->n_common = later.n_common;
            later.request->n_waiters++;
            return;
        }
    }
    if (now.n_ready > match.n_tokens) {
        note_source(r, now.request, most);
        begin_with_source(r, now.request, most);
    } else {
        begin_with(r, e->found, most, most);
    }
    account(r, most);
}

void kvad_request_wake(struct kvad_request *request) {
    const struct kvad_engine *e = request->engine;
    for (size_t i = 0; i < e->n_running && request->n_waiters > 0; i++) {
        struct kvad_request *r = e->running[i];
        size_t n_there = request->sequence->kv.length;
        if (r->waits_for != request || n_there < r->wait_target) continue;
        r->waits_for = NULL;
        request->n_waiters--;
        n_there = kvad_min_size(n_there, r->n_common);
        note_source(r, request, n_there);
        begin_with_source(r, request, n_there);
        account(r, n_there);
    }
}

/* ---------------------------------------------------------------- who runs */

/* Blocks that the running requests' known tokens will still take. */
static size_t count_outstanding(const struct kvad_engine *e) {
    size_t n = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        const struct kvad_request *r = e->running[i];
        size_t wanted = kvad_kv_blocks_for(&e->shape, r->n_ids - r->window);
        size_t held = r->sequence->kv.n_blocks;
        if (r->waits_for) held = r->wait_target / e->shape.block_tokens;
        if (wanted > held) n += wanted - held;
    }
    return n;
}

/* Whether the known tokens of a queued request, and one more block if it may grow, fit beside what
 * runs. Alone, every request fits. */
static bool fits(const struct kvad_request *r) {
    const struct kvad_engine *e = r->engine;
    if (!e->pool.heap) return kvad_budget_fits(r);
    if (e->n_running == 0) return true;
    size_t n = r->n_ids - r->window, n_hit = 0, n_idle = 0;
    size_t wanted = kvad_min_size(kvad_kv_blocks_for(&e->shape, n) + 1, r->n_blocks);
    if (kvad_request_shares(r)) {
        struct kvad_prefix_match match =
            kvad_prefix_find(&e->prefix, r->root, r->ids + r->window, n, e->found);
        n_hit = match.n_tokens / e->shape.block_tokens;
        for (size_t i = 0; i < kvad_kv_blocks_for(&e->shape, match.n_tokens); i++)
            n_idle += e->pool.states[e->found[i]].references == 0;
    }
    return wanted + n_idle + count_outstanding(e) <= kvad_kv_pool_available(&e->pool) + n_hit;
}

static void start_running(struct kvad_request *r) {
    struct kvad_engine *e = r->engine;
    size_t i = e->n_running++;
    for (; i > 0 && kvad_request_is_before(r, e->running[i - 1]); i--)
        e->running[i] = e->running[i - 1];
    e->running[i] = r;
    r->state = REQUEST_RUNNING;
    r->is_attached = false;
    r->waits_for = NULL;
    r->n_waiters = 0;
}

void kvad_engine_stop_running(struct kvad_request *request) {
    struct kvad_request *r = request;
    struct kvad_engine *e = r->engine;
    size_t n = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        struct kvad_request *other = e->running[i];
        if (other == r) continue;
        e->running[n++] = other;
        if (other->waits_for != r) continue;
        other->waits_for = NULL;
        other->is_attached = false; /* looks again in the next step */
    }
    e->n_running = n;
    if (r->waits_for) r->waits_for->n_waiters--;
    r->waits_for = NULL;
    kvad_sequence_destroy(&r->sequence);
}

/* Start the first of the queue; false: it has to wait. */
static bool start_first(struct kvad_engine *e) {
    struct kvad_request *r = kvad_queue_first(&e->queue);
    if (r->ends_at_once) {
        if (r->max_tokens == 0)
            kvad_request_finish(r, KVAD_FINISH_LENGTH);
        else
            kvad_request_overflow(r);
        return true;
    }
    while (e->n_alive == e->n_sequences || !fits(r))
        if (!kvad_engine_preempt_for(e, r)) return false;
    kvad_queue_remove(&e->queue, r);
    r->queue_index = SIZE_MAX;
    struct kvad_error err;
    enum kvad_status status = kvad_sequence_create(e, &r->sequence, &err);
    if (status != KVAD_OK) {
        kvad_request_fail(r, status, &err);
        return true;
    }
    start_running(r);
    kvad_request_attach(r);
    return true;
}

void kvad_engine_admit(struct kvad_engine *engine) {
    while (engine->queue.n > 0 && start_first(engine))
        continue;
}
