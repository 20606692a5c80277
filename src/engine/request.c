#include "engine/request.h"

#include <string.h>

#include "base/error.h"
#include "base/faults.h"
#include "base/growing.h"
#include "engine/scheduler.h"
#include "sampling/logprob.h"

/* ---------------------------------------------------------------- events */

bool kvad_request_has_room(struct kvad_request *request) {
    struct kvad_request *r = request;
    size_t longest = kvad_text_stream_max_output(&r->stream);
    pthread_mutex_lock(&r->events_lock);
    size_t text_size = r->n_events > 0 ? r->text_size : 0; /* begins anew */
    bool has_room =
        r->n_events + 2 <= REQUEST_EVENTS && text_size + 2 * longest <= r->text_capacity;
    pthread_mutex_unlock(&r->events_lock);
    return has_room;
}

static void push_event(struct kvad_request *r, int32_t token, double logprob, const char *text,
                       size_t text_size, enum kvad_finish finish) {
    pthread_mutex_lock(&r->events_lock);
    if (r->n_events == 0) r->text_size = 0;
    struct request_event *event = &r->events[(r->first_event + r->n_events++) % REQUEST_EVENTS];
    *event = (struct request_event){token, logprob, r->text_size, text_size, finish};
    if (text_size) memcpy(r->text + r->text_size, text, text_size);
    r->text_size += text_size;
    pthread_mutex_unlock(&r->events_lock);
}

static struct kvad_event take_event(struct kvad_request *r) {
    const struct request_event *e = &r->events[r->first_event];
    struct kvad_event event = {.token = e->token,
                               .logprob = e->logprob,
                               .text = r->polled ? r->polled : "",
                               .text_size = e->text_size,
                               .finish = e->finish};
    if (e->text_size) memcpy(r->polled, r->text + e->text, e->text_size);
    r->first_event = (r->first_event + 1) % REQUEST_EVENTS;
    r->n_events--;
    return event;
}

bool kvad_request_poll_sized(struct kvad_request *request, struct kvad_event *event, size_t size) {
    struct kvad_event ours;
    pthread_mutex_lock(&request->events_lock);
    bool is_there = request->n_events > 0;
    if (is_there) ours = take_event(request);
    pthread_mutex_unlock(&request->events_lock);
    if (is_there) kvad_growing_give(event, size, &ours, sizeof ours);
    return is_there;
}

/* ---------------------------------------------------------------- the end of a request */

static void leave_engine(struct kvad_request *r) {
    struct kvad_engine *e = r->engine;
    if (r->state == REQUEST_QUEUED && r->queue_index != SIZE_MAX) kvad_queue_remove(&e->queue, r);
    if (r->state == REQUEST_PARKED) kvad_engine_unpark(r);
    if (r->state == REQUEST_RUNNING) kvad_engine_stop_running(r);
    r->state = REQUEST_FINISHED;
}

void kvad_request_finish(struct kvad_request *request, enum kvad_finish finish) {
    const char *text = "";
    size_t text_size = 0;
    if (request->tokenizer) kvad_text_stream_finish(&request->stream, &text, &text_size);
    push_event(request, -1, 0, text, text_size, finish);
    leave_engine(request);
}

void kvad_request_fail(struct kvad_request *request, enum kvad_status status,
                       const struct kvad_error *err) {
    pthread_mutex_lock(&request->events_lock);
    request->error_status = status;
    request->error = *err;
    pthread_mutex_unlock(&request->events_lock);
    kvad_request_finish(request, KVAD_FINISH_ERROR);
}

enum kvad_status kvad_request_error(const struct kvad_request *request, struct kvad_error *err) {
    /* A request is never an object that was defined const. */
    pthread_mutex_t *lock = &((struct kvad_request *)(uintptr_t)request)->events_lock;
    pthread_mutex_lock(lock);
    enum kvad_status status = request->error_status;
    if (err && status != KVAD_OK) *err = request->error;
    pthread_mutex_unlock(lock);
    return status;
}

void kvad_request_cancel(struct kvad_request *request) {
    atomic_store(&request->cancel, true);
    /* After the request's own flag: the step that sees this one sees that one. */
    atomic_store(&request->engine->cancel_asked, true);
}

void kvad_request_destroy(struct kvad_request **request) {
    if (!request || !*request) return;
    struct kvad_request *r = *request;
    const struct kvad_engine *engine = r->engine;
    *request = NULL;
    kvad_engine_take_turn(engine);
    kvad_request_free(r);
    kvad_engine_end_turn(engine);
}

void kvad_request_free(struct kvad_request *request) {
    struct kvad_request *r = request;
    leave_engine(r);
    if (r->root) kvad_prefix_root_release(&r->engine->prefix, r->root);
    struct kvad_heap *heap = &r->engine->heap;
    kvad_sampler_destroy(&r->sampler);
    kvad_text_stream_deinit(&r->stream);
    kvad_free(heap, r->ids, r->ids_capacity * sizeof *r->ids);
    kvad_free(heap, r->end_ids, r->n_end_ids * sizeof *r->end_ids);
    kvad_free(heap, r->text, r->text_capacity);
    kvad_free(heap, r->polled, r->polled_capacity);
    pthread_mutex_destroy(&r->events_lock);
    kvad_free(heap, r, sizeof *r);
}

/* ---------------------------------------------------------------- one token on */

static bool is_end(const struct kvad_request *r, int32_t token) {
    for (size_t i = 0; i < r->n_end_ids; i++)
        if (r->end_ids[i] == token) return true;
    return false;
}

static enum kvad_status append_id(struct kvad_request *r, int32_t token, struct kvad_error *err) {
    if (r->n_ids == r->ids_capacity) {
        /* Only sliding requests without a limit come here; the rest reserved all at submit. */
        size_t bytes = r->ids_capacity * sizeof *r->ids;
        int32_t *ids = kvad_resize(&r->engine->heap, r->ids, bytes, 2 * bytes);
        if (!ids) return kvad_fail_memory(err, "ids of a request", 2 * bytes);
        r->ids = ids;
        r->ids_capacity *= 2;
    }
    r->ids[r->n_ids++] = token;
    r->n_outputs++;
    return KVAD_OK;
}

/* Event of an accepted token, with the text that became certain. */
static void report_token(struct kvad_request *r, int32_t token, const float *logits) {
    double logprob = 0;
    if (r->logprobs) logprob = kvad_logprob(logits, r->engine->model->description.n_vocab, token);
    const char *text = "", *bytes;
    size_t text_size = 0, size;
    /* Ids at or above the tokenizer's size are never sampled, so there is a piece. */
    if (r->tokenizer && kvad_tokenizer_piece(r->tokenizer, token, &bytes, &size, NULL) == KVAD_OK)
        kvad_text_stream_push(&r->stream, bytes, size, &text, &text_size);
    push_event(r, token, logprob, text, text_size, KVAD_FINISH_NONE);
}

/* Rows that a window keeps when it slides. Positions are learned, so every row of the moved window
 * is another row: none. */
static size_t rows_kept_by_slide(const struct kvad_request *r) {
    (void)r;
    return KVAD_FAULT(SLIDE_KEEPS_ROWS, 0, r->n_fed - (r->n_fed > 0));
}

/* Rows that are kept where there is no cache, and the whole window is sent again: none. */
static size_t rows_kept_without_cache(const struct kvad_request *r) {
    (void)r;
    return KVAD_FAULT(REFED_ON_TOP, 0, r->sequence->kv.length);
}

void kvad_request_overflow(struct kvad_request *request) {
    struct kvad_request *r = request;
    struct kvad_error err;
    switch (r->on_overflow) {
    case KVAD_OVERFLOW_STOP: kvad_request_finish(r, KVAD_FINISH_LENGTH); return;
    case KVAD_OVERFLOW_ERROR:
        kvad_fail(&err, KVAD_ERR_CONTEXT_FULL,
                  "the context of %u tokens is full after %zu new ones: shorten the prompt or "
                  "let it slide (on_overflow recompute)",
                  r->engine->n_ctx, r->n_outputs);
        kvad_request_fail(r, KVAD_ERR_CONTEXT_FULL, &err);
        return;
    case KVAD_OVERFLOW_RECOMPUTE: break;
    }
    if (r->n_ids - r->window <= r->engine->n_ctx) return;
    r->window = r->n_ids - r->engine->n_ctx;
    r->n_fed = rows_kept_by_slide(r);
    kvad_kv_sequence_truncate(&r->sequence->kv, r->n_fed);
}

void kvad_request_advance(struct kvad_request *request, const float *logits) {
    struct kvad_request *r = request;
    struct kvad_error err;
    if (r->on_logits)
        r->on_logits(r->user, r->n_outputs, logits, r->engine->model->description.n_vocab);
    int32_t token;
    size_t n_banned = r->n_outputs < r->min_tokens ? r->n_end_ids : 0;
    enum kvad_status status = kvad_sampler_draw(r->sampler, logits, r->ids, r->n_ids, r->end_ids,
                                                n_banned, r->n_outputs, &token, &err);
    if (status == KVAD_OK && is_end(r, token)) {
        kvad_request_finish(r, KVAD_FINISH_STOP);
        return;
    }
    if (status == KVAD_OK) status = append_id(r, token, &err);
    if (status != KVAD_OK) {
        kvad_request_fail(r, status, &err);
        return;
    }
    report_token(r, token, logits);
    if (r->tokenizer && r->stream.stopped)
        kvad_request_finish(r, KVAD_FINISH_STOP);
    else if (r->n_outputs == r->max_tokens)
        kvad_request_finish(r, KVAD_FINISH_LENGTH);
    else if (r->n_ids - r->window >= r->engine->n_ctx)
        kvad_request_overflow(r);
    /* Without a cache every token recomputes its whole window. */
    if (r->state == REQUEST_RUNNING && r->engine->cache == KVAD_CACHE_NONE) {
        r->n_fed = 0;
        kvad_kv_sequence_truncate(&r->sequence->kv, rows_kept_without_cache(r));
    }
}
