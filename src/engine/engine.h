/* What the files behind kvad.h share: the engine, its sequences and its requests. */
#ifndef KVAD_ENGINE_ENGINE_H
#define KVAD_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "base/turns.h"
#include "engine/queue.h"
#include "kv/sharing.h"
#include "model/forward.h"

struct kvad_sequence {
    struct kvad_engine *engine;
    struct kvad_sequence *previous, *next; /* in engine->sequences */
    struct kvad_kv_sequence kv;
    uint64_t eval_stamp; /* the last eval that named it: finds a sequence named twice */
};

/* What requests got out of the cache and paid for it, since the engine was opened. */
struct kvad_cache_counters {
    uint64_t n_hit_tokens, n_prompt_tokens;
    uint64_t n_preemptions, n_recomputed_tokens;
};

struct kvad_engine {
    /* Every function that kvad.h lets any thread call takes a turn, except where it says that it
     * waits for none. What these call inside takes none. */
    struct kvad_turns turns;
    struct kvad_heap heap;
    struct kvad_log log;
    struct kvad_model *model;     /* one reference */
    struct kvad_threads *threads; /* one reference */
    struct kvad_kernels kernels;
    enum kvad_cache_policy cache;
    uint32_t n_ctx, n_sequences, n_batch_tokens;
    struct kvad_kv_shape shape;
    struct kvad_kv_pool pool;  /* KVAD_CACHE_PAGED and KVAD_CACHE_NONE */
    struct kvad_prefix prefix; /* zeroed: requests share nothing */
    uint32_t *found;           /* [kvad_kv_blocks_for(n_ctx)] blocks of a search */
    struct kvad_forward *forward;
    struct kvad_forward_item *items; /* [n_sequences] of the step that runs */
    uint64_t step_bytes, kv_bytes_peak;
    uint64_t kv_budget;         /* of `static` and `grow`; 0: none */
    struct kvad_kv_moves moves; /* of `grow` */

    struct kvad_sequence *sequences;
    uint32_t n_alive;
    uint64_t eval_stamp;
    size_t failed_item; /* index of the item that made the last kvad_eval() fail, or SIZE_MAX */
    _Atomic bool interrupt;
    const struct kvad_probe *probe; /* counts the parts of steps; NULL: none */
    uint64_t forward_ns;            /* in the forward pass, since a probe was set */

    struct kvad_request_queue queue; /* requests that wait */
    struct kvad_request **running;   /* [n_running] in the order of kvad_request_is_before() */
    size_t n_running;
    struct kvad_request *parked; /* preempted while they waited for their readers */
    size_t n_parked;
    struct kvad_cache_pin *pins; /* the oldest first */
    uint64_t n_pins;             /* ever made */
    _Atomic bool cancel_asked;   /* some request was cancelled since the last step */
    uint64_t n_submitted, n_steps;
    struct kvad_cache_counters counters;
    struct kvad_eval_item *step_items; /* [n_sequences] */
    struct kvad_request **step_owners; /* [n_sequences] whose item it is */
    float *step_logits;                /* [n_sequences][n_vocab]; one row per item */
};

/** Bytes of cache memory that all sequences hold now, shared blocks once. */
uint64_t kvad_engine_kv_bytes(const struct kvad_engine *engine);

/** Remember the bytes of cache memory held now, if they are the most so far. */
void kvad_engine_note_peak(struct kvad_engine *engine);

/** Take and end a turn of the engine. `const` is what a caller promises about the rest of it. */
void kvad_engine_take_turn(const struct kvad_engine *engine);
void kvad_engine_end_turn(const struct kvad_engine *engine);

/** Write one line to the engine's log. */
void kvad_engine_log(const struct kvad_engine *engine, enum kvad_log_level level,
                     const char *format, ...) KVAD_PRINTF(3, 4);

#endif
