/* A request: a prompt, how to continue it, and the events that are ready for the caller. */
#ifndef KVAD_ENGINE_REQUEST_H
#define KVAD_ENGINE_REQUEST_H

#include "engine/engine.h"
#include "engine/text_stream.h"

enum {
    /* Events that may wait for the caller. A request whose caller does not poll pauses when they
       are used up. */
    REQUEST_EVENTS = 64
};

enum request_state { REQUEST_QUEUED, REQUEST_PARKED, REQUEST_RUNNING, REQUEST_FINISHED };

struct request_event {
    int32_t token;
    double logprob;
    size_t text, text_size; /* in request->text */
    enum kvad_finish finish;
};

struct kvad_request {
    struct kvad_engine *engine;
    enum request_state state;
    size_t queue_index;        /* while queued */
    struct kvad_request *next; /* while parked */
    uint64_t arrival;          /* counts the engine's requests */
    int32_t priority;
    bool ends_at_once; /* nothing to generate */
    _Atomic bool cancel;

    int32_t *ids; /* [n_ids] prompt, then output */
    size_t n_ids, ids_capacity, n_prompt, n_outputs;
    size_t window;                  /* first id that the context holds; moves when it slides */
    size_t n_fed;                   /* ids from `window` on that are in the cache */
    struct kvad_sequence *sequence; /* while running */
    size_t n_blocks;                /* of the pool, at its longest */

    /* Sharing. */
    struct kvad_prefix_root *root;  /* NULL: it shares nothing */
    size_t first_window;            /* `window` before it ever slid */
    bool is_attached;               /* has looked for blocks that are there */
    struct kvad_request *waits_for; /* computes what this one begins with */
    size_t wait_target, n_common; /* goes on when that one is so far; tokens they have in common */
    size_t n_waiters;             /* requests that wait for this one */
    size_t n_cached;              /* prompt tokens that were there at the start */
    enum kvad_cache_miss miss;    /* why no more of them */
    uint64_t evicted_ago;         /* in steps, with KVAD_MISS_EVICTED */
    uint64_t evicted_for;         /* number of a request */
    int32_t miss_other;           /* with which the cached text goes on where it ended */
    size_t n_preemptions, n_lost; /* rows that were there before the last preemption */
    size_t n_recomputed;

    size_t max_tokens, min_tokens;
    enum kvad_overflow on_overflow;
    bool logprobs;
    int32_t *end_ids; /* [n_end_ids] stop ids and, unless ignored, the model's end id */
    size_t n_end_ids;
    struct kvad_sampler *sampler;
    struct kvad_tokenizer *tokenizer; /* borrowed from the model; NULL: no text */
    struct kvad_text_stream stream;
    void (*on_logits)(void *user, size_t output_index, const float *logits, size_t n_vocab);
    void *user;

    /* What a poll reads has a lock of its own, held for a copy at most: it waits for no step. */
    pthread_mutex_t events_lock;
    struct request_event events[REQUEST_EVENTS]; /* ring */
    size_t first_event, n_events;
    char *text; /* of the events; begins anew whenever none is left */
    size_t text_size, text_capacity;
    char *polled; /* text of the event that was taken last, where no step writes */
    size_t polled_capacity;
    enum kvad_status error_status;
    struct kvad_error error;
};

/* Ids that are known but not in the cache yet: 1 while decoding, more while the prompt is read. */
static inline size_t kvad_request_pending(const struct kvad_request *request) {
    return request->n_ids - request->window - request->n_fed;
}
/* Whether its rows are those of its first tokens, so that others can use them: not after it slid.
 */
static inline bool kvad_request_shares(const struct kvad_request *request) {
    return request->root && request->window == request->first_window;
}

/** Whether two more events (a token and the end) and their text still fit. */
bool kvad_request_has_room(struct kvad_request *request);

/** The model's answer for the next token is there: sample it, make its event, decide whether the
 * request goes on. */
void kvad_request_advance(struct kvad_request *request, const float *logits);

/** The context is full and more tokens are wanted: end, fail, or slide, as the request says. */
void kvad_request_overflow(struct kvad_request *request);

/** kvad_request_destroy() within a turn of the engine. */
void kvad_request_free(struct kvad_request *request);

/** End a running or queued request: last event, memory of the cache back, out of the engine's list.
 */
void kvad_request_finish(struct kvad_request *request, enum kvad_finish finish);
/** The same with KVAD_FINISH_ERROR and a cause, which is copied. */
void kvad_request_fail(struct kvad_request *request, enum kvad_status status,
                       const struct kvad_error *err);

#endif
