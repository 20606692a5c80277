/* kvad_engine_step(): which requests take part in the next step, with how many tokens. */
#include "engine/scheduler.h"

#include "base/error.h"
#include "base/faults.h"
#include "engine/pin.h"

/* End what was cancelled. Walks all requests, but only after somebody cancelled one. */
static void end_cancelled(struct kvad_engine *e) {
    if (!atomic_exchange(&e->cancel_asked, false)) return;
    /* From the last on; where one was taken out another may have moved in. */
    for (size_t i = e->queue.n; i > 0;) {
        if (i <= e->queue.n && atomic_load(&e->queue.items[i - 1]->cancel))
            kvad_request_finish(e->queue.items[i - 1], KVAD_FINISH_CANCELLED);
        else
            i--;
    }
    for (size_t i = e->n_running; i > 0; i--)
        if (atomic_load(&e->running[i - 1]->cancel))
            kvad_request_finish(e->running[i - 1], KVAD_FINISH_CANCELLED);
    for (struct kvad_request *r = e->parked, *next; r; r = next) {
        next = r->next;
        if (atomic_load(&r->cancel)) kvad_request_finish(r, KVAD_FINISH_CANCELLED);
    }
}

/* Whether a token is drawn after `n` of the pending tokens: after all of them. */
static bool draws_after(struct kvad_request *r, size_t n, size_t pending) {
    (void)r;
    return KVAD_FAULT(SAMPLED_IN_MID_PROMPT, n == pending,
                      n == pending || kvad_request_has_room(r));
}

/* Put up to `budget` pending tokens of a request into the step; returns how many. */
static size_t take_part(struct kvad_engine *e, struct kvad_request *r, size_t budget,
                        size_t *n_items) {
    size_t pending = kvad_request_pending(r), n = kvad_min_size(pending, budget);
    /* Without room for its event the last token waits; those before it need none. */
    if (n == pending && n > 0 && !kvad_request_has_room(r)) n--;
    if (n == 0 || r->waits_for) return 0;
    e->step_owners[*n_items] = r;
    e->step_items[*n_items] = (struct kvad_eval_item){
        .sequence = r->sequence,
        .tokens = r->ids + r->window + r->n_fed,
        .n_tokens = n,
        .n_rows = draws_after(r, n, pending) ? 1 : 0,
        .logits = e->step_logits + *n_items * e->model->description.n_vocab};
    (*n_items)++;
    return n;
}

/* Decoding requests first, then prompts, both in order of priority and arrival. */
static size_t plan_items(struct kvad_engine *e) {
    size_t n_items = 0, budget = e->n_batch_tokens;
    for (size_t i = 0; i < e->n_running; i++)
        if (!e->running[i]->is_attached) kvad_request_attach(e->running[i]);
    for (int reads_prompt = 0; reads_prompt <= 1; reads_prompt++)
        for (size_t i = 0; i < e->n_running; i++) {
            struct kvad_request *r = e->running[i];
            if ((kvad_request_pending(r) > 1) == (reads_prompt == 1))
                budget -= take_part(e, r, budget, &n_items);
        }
    return n_items;
}

/* The step has fed `n` tokens of a request. */
static void note_fed(struct kvad_request *r, size_t n) {
    struct kvad_engine *e = r->engine;
    r->n_fed += n;
    if (kvad_request_shares(r))
        kvad_kv_sequence_publish(&r->sequence->kv, &e->prefix, r->root, r->ids + r->window);
    if (r->n_waiters > 0) kvad_request_wake(r);
}

/* The logits that the owner of item `i` draws from. */
static const float *logits_to_draw_from(const struct kvad_engine *e, size_t i) {
    return KVAD_FAULT(LOGITS_OF_FIRST_SLOT, e->step_items[i].logits, e->step_logits);
}

static enum kvad_status run_items(struct kvad_engine *e, size_t n_items, struct kvad_error *err) {
    struct kvad_error why;
    enum kvad_status status = kvad_eval(e, e->step_items, n_items, &why);
    if (status == KVAD_OK) {
        for (size_t i = 0; i < n_items; i++) {
            note_fed(e->step_owners[i], e->step_items[i].n_tokens);
            if (e->step_items[i].n_rows > 0)
                kvad_request_advance(e->step_owners[i], logits_to_draw_from(e, i));
        }
        kvad_probe_serial(e->probe, KVAD_PART_SAMPLING);
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

static enum kvad_status step(struct kvad_engine *engine, size_t *active, struct kvad_error *err) {
    engine->prefix.now = engine->n_steps++;
    end_cancelled(engine);
    kvad_engine_expire_pins(engine);
    kvad_engine_unpark_ready(engine);
    kvad_engine_admit(engine);
    size_t n_items = kvad_engine_make_room(engine, plan_items(engine));
    enum kvad_status status = KVAD_OK;
    if (n_items > 0)
        status = run_items(engine, n_items, err);
    else if (atomic_exchange(&engine->interrupt, false))
        status = kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
    if (active) *active = engine->queue.n + engine->n_running + engine->n_parked;
    return status;
}

enum kvad_status kvad_engine_step(struct kvad_engine *engine, size_t *active,
                                  struct kvad_error *err) {
    kvad_engine_take_turn(engine);
    enum kvad_status status = step(engine, active, err);
    kvad_engine_end_turn(engine);
    return status;
}
