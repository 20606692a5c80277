/* kvad_engine_step(): which requests take part in the next step, with how many tokens. */
#include "base/error.h"
#include "engine/request.h"

/* Ids that are known but not in the cache yet: 1 while decoding, more while the prompt is read. */
static size_t n_pending(const struct kvad_request *r) {
    return r->n_ids - r->window - r->n_fed;
}

/* End what was cancelled and what has nothing to generate. */
static void end_idle(struct kvad_engine *e) {
    for (struct kvad_request *r = e->requests, *next; r; r = next) {
        next = r->next;
        bool is_full = r->state == REQUEST_QUEUED && r->n_ids >= e->n_ctx;
        if (atomic_load(&r->cancel))
            kvad_request_finish(r, KVAD_FINISH_CANCELLED);
        else if (r->n_outputs >= r->max_tokens)
            kvad_request_finish(r, KVAD_FINISH_LENGTH);
        else if (is_full && r->on_overflow != KVAD_OVERFLOW_RECOMPUTE)
            kvad_request_overflow(r);
    }
}

/* Start queued requests in order of arrival while a sequence and their blocks are free. Blocks are
 * promised for a request's longest length, so that a running request never waits for another one.
 */
static void admit(struct kvad_engine *e) {
    for (struct kvad_request *r = e->requests, *next; r; r = next) {
        next = r->next;
        if (r->state != REQUEST_QUEUED) continue;
        if (e->n_alive == e->n_sequences) return;
        if (r->n_blocks > 0 && e->blocks_promised + r->n_blocks > e->pool.n_blocks) return;
        struct kvad_error err;
        enum kvad_status status = kvad_sequence_create(e, &r->sequence, &err);
        if (status != KVAD_OK) {
            kvad_request_fail(r, status, &err);
            continue;
        }
        r->state = REQUEST_RUNNING;
        e->blocks_promised += r->n_blocks;
    }
}

/* Put up to `budget` pending tokens of a request into the step; returns how many. */
static size_t take_part(struct kvad_engine *e, struct kvad_request *r, size_t budget,
                        size_t *n_items) {
    size_t pending = n_pending(r), n = kvad_min_size(pending, budget);
    if (n == 0 || !kvad_request_has_room(r)) return 0;
    e->step_owners[*n_items] = r;
    e->step_items[*n_items] = (struct kvad_eval_item){
        .sequence = r->sequence,
        .tokens = r->ids + r->window + r->n_fed,
        .n_tokens = n,
        .n_rows = n == pending ? 1 : 0,
        .logits = e->step_logits + *n_items * e->model->description.n_vocab};
    (*n_items)++;
    return n;
}

/* Decoding requests first, then prompts in order of arrival. */
static size_t plan_items(struct kvad_engine *e) {
    size_t n_items = 0, budget = e->n_batch_tokens;
    for (int reads_prompt = 0; reads_prompt <= 1; reads_prompt++)
        for (struct kvad_request *r = e->requests; r && n_items < e->n_sequences; r = r->next)
            if (r->state == REQUEST_RUNNING && (n_pending(r) > 1) == (reads_prompt == 1))
                budget -= take_part(e, r, budget, &n_items);
    return n_items;
}

static size_t n_active(const struct kvad_engine *e) {
    size_t n = 0;
    for (const struct kvad_request *r = e->requests; r; r = r->next)
        n++;
    return n;
}

static enum kvad_status run_items(struct kvad_engine *e, size_t n_items, struct kvad_error *err) {
    struct kvad_error why;
    enum kvad_status status = kvad_eval(e, e->step_items, n_items, &why);
    if (status == KVAD_OK) {
        for (size_t i = 0; i < n_items; i++) {
            e->step_owners[i]->n_fed += e->step_items[i].n_tokens;
            if (e->step_items[i].n_rows > 0)
                kvad_request_advance(e->step_owners[i], e->step_items[i].logits);
        }
        return KVAD_OK;
    }
    if (status != KVAD_ERR_CANCELLED && e->failed_item < n_items) {
        /* One request's fault ends that request; the others have not changed and run in the next
         * step. */
        kvad_request_fail(e->step_owners[e->failed_item], status, &why);
        return KVAD_OK;
    }
    if (err) *err = why;
    return status;
}

enum kvad_status kvad_engine_step(struct kvad_engine *engine, size_t *active,
                                  struct kvad_error *err) {
    end_idle(engine);
    admit(engine);
    size_t n_items = plan_items(engine);
    enum kvad_status status = KVAD_OK;
    if (n_items > 0)
        status = run_items(engine, n_items, err);
    else if (atomic_exchange(&engine->interrupt, false))
        status = kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
    if (active) *active = n_active(engine);
    return status;
}
