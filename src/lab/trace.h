/* Why paging: requests of mixed lengths under one budget of bytes, on `grow`, `static` and `paged`;
 * the padded batch against the ragged one; a shared beginning; what a step costs beside its forward
 * pass.
 *
 * Where the bytes of the budget are after a step:
 *
 *     live        keys and values of tokens that are there
 *     later       reserved by `static` for tokens that this request will still have
 *     never       reserved by `static` for tokens that it will not have
 *     remainder   rows of a last block that hold no token yet
 *     copies      must stay free, so that `grow` can copy its largest text once more
 *     free        the rest: too little for the next request, or nobody asks for it
 *
 * They add up to the budget after every step; what is held is what the engine counts.
 * `later`, `never` and `remainder` are what Kwon et al., "Efficient memory management for large
 * language model serving with PagedAttention", SOSP 2023, figure 2, call reservation and internal
 * fragmentation; `free` holds their external one. */
#ifndef KVAD_LAB_TRACE_H
#define KVAD_LAB_TRACE_H

#include "kvad/kvad.h"
#include "lab/machine.h"
#include "lab/stats.h"

/* A request of a trace: when it comes, counted in steps, and its lengths in tokens. */
struct kvad_trace_item {
    uint32_t arrival, n_prompt, n_output;
};

struct kvad_trace {
    struct kvad_trace_item *items; /* [n] in the order of arrival */
    size_t n;
};

/** A made-up trace, a function of (n, seed, n_ctx) alone. Prompts and outputs are independent; a
 * length is one of five octaves from n_ctx/64 to n_ctx/2, all equally likely, and even within it:
 * many short ones and a long tail, about n_ctx/7 on average. Between two arrivals lie 0 to 8 steps,
 * evenly. KVAD_ERR_NO_MEMORY; KVAD_ERR_ARGUMENT for a context below 64 tokens or no request. */
enum kvad_status kvad_trace_make(struct kvad_trace *trace, size_t n, uint64_t seed, uint32_t n_ctx,
                                 struct kvad_error *err);
/** Read lines of JSON, {"prompt_tokens": 17, "output_tokens": 9, "arrival": 4}, from text[size];
 * `arrival` may be left out (0) and must not fall. KVAD_ERR_FORMAT names the line;
 * KVAD_ERR_CONTEXT_FULL where a request does not fit n_ctx. */
enum kvad_status kvad_trace_read(struct kvad_trace *trace, const char *text, size_t size,
                                 const char *name, uint32_t n_ctx, struct kvad_error *err);
/** A zeroed trace is allowed. */
void kvad_trace_deinit(struct kvad_trace *trace);

/* X(suffix, name). Where the bytes of a budget are. */
#define KVAD_TRACE_LIST(X)                                                                         \
    X(LIVE, "live")                                                                                \
    X(LATER, "later")                                                                              \
    X(NEVER, "never")                                                                              \
    X(REMAINDER, "remainder")                                                                      \
    X(COPIES, "copies")                                                                            \
    X(FREE, "free")
enum kvad_trace_place {
#define KVAD_TRACE_ENUM(suffix, name) KVAD_TRACE_##suffix,
    KVAD_TRACE_LIST(KVAD_TRACE_ENUM)
#undef KVAD_TRACE_ENUM
        KVAD_TRACE_PLACES
};
const char *kvad_trace_place_name(enum kvad_trace_place place);

/* After a step. */
struct kvad_trace_step {
    enum kvad_cache_policy policy;
    uint64_t budget, held;             /* bytes; held: of blocks and areas */
    uint64_t bytes[KVAD_TRACE_PLACES]; /* add up to the budget */
    size_t n_in_flight; /* requests that took part or waited for their turn among the running */
    size_t n_waiting;
};

struct kvad_trace_policy {
    enum kvad_cache_policy policy;
    size_t n_steps, n_refused, n_preemptions;
    uint64_t n_output_tokens, n_recomputed_tokens;
    double seconds; /* in kvad_engine_step() */
    double mean_in_flight, mean_waiting;
    size_t max_in_flight;
    double first_token_ms; /* mean over requests, from arrival on */
    size_t longest_wait;   /* steps of the request that waited most for its first token */
    double fairness;       /* Jain's index of the requests' tokens per step; 1: all alike */
    /* Means over the steps at which requests waited (over all where none ever did). */
    double percent[KVAD_TRACE_PLACES]; /* of the budget */
    double waste_percent;              /* of what was held: 100 - live */
    uint64_t copied_bytes, copies;     /* of `grow`: moved in all, and how often */
    uint64_t twice_peak;               /* most bytes held twice at once */
};

/* Batches of neighbours of the trace, each padded to its longest prompt and output. */
struct kvad_trace_padded {
    size_t n_sequences;                        /* in a batch */
    uint64_t padded_rows, ragged_rows;         /* computed for the whole trace */
    double padded_flops, ragged_flops;         /* the same by formula (lab/work.h) */
    size_t n_measured;                         /* batches that were run for real */
    uint64_t measured_padded, measured_ragged; /* their rows */
    double padded_seconds, ragged_seconds;
};

/* Requests with a common beginning, all at once. */
struct kvad_trace_prefix {
    size_t n_requests, n_common, n_prompt;
    uint64_t tokens_off, tokens_on;      /* computed until all have their first token */
    struct kvad_stats mean_off, mean_on; /* ms to the first token: mean of the requests */
    struct kvad_stats last_off, last_on; /* of the last request */
};

enum { KVAD_TRACE_OVERHEADS = 3 };

/* A step beside the forward pass in it, in microseconds: medians. */
struct kvad_trace_overhead {
    size_t n_sequences;
    double step_us, forward_us;
    double sampling_us; /* logits to events; part of what is beside the forward pass */
    double percent;     /* all that is beside it, of the forward pass */
};

struct kvad_trace_options {
    struct kvad_model *model; /* borrowed */
    const struct kvad_trace *trace;
    uint64_t budget;       /* bytes of the cache; 0: four whole contexts */
    unsigned n_threads;    /* 0: automatic */
    const char *cpu;       /* highest kernel level; NULL: the best */
    uint32_t block_tokens; /* 0: 16 */
    enum kvad_kv_type kv;
    unsigned n_rounds; /* of the shared beginning */
    size_t n_batches;  /* padded batches that are run for real, at most */
    /* Called now and then with what it is about and the part done, 0 to 1; false cancels. May be
     * NULL. */
    bool (*report)(void *user, const char *what, double done);
    /* The engine that runs now, for kvad_engine_interrupt(); NULL: none. May be NULL. */
    void (*engine_in_use)(void *user, struct kvad_engine *engine);
    /* Called after every step of a policy. May be NULL. */
    void (*on_step)(void *user, const struct kvad_trace_step *step);
    void *user;
};

enum { KVAD_TRACE_POLICIES = 3 };

struct kvad_trace_result {
    struct kvad_machine machine;
    struct kvad_model_info model;
    char cpu[16];
    unsigned n_threads;
    uint32_t block_tokens;
    uint64_t budget, token_bytes;
    size_t n_requests;
    uint64_t n_prompt_tokens, n_output_tokens;              /* of the trace */
    uint32_t longest;                                       /* prompt and output together */
    struct kvad_trace_policy policies[KVAD_TRACE_POLICIES]; /* grow, static, paged */
    struct kvad_trace_padded padded;
    struct kvad_trace_prefix prefix;
    struct kvad_trace_overhead overheads[KVAD_TRACE_OVERHEADS];
    bool is_void; /* two ways gave other tokens: `void_why` says which; nothing else counts */
    char void_why[256];
};

/** Run all; one thread. KVAD_OK also for a void run. KVAD_ERR_NO_BLOCKS if not even one whole
 * context fits the budget, KVAD_ERR_UNSUPPORTED for an unknown `cpu` or a context below 64 tokens,
 * KVAD_ERR_CANCELLED, KVAD_ERR_NO_MEMORY. The result holds no memory. */
enum kvad_status kvad_trace_run(const struct kvad_trace_options *options,
                                struct kvad_trace_result *result, struct kvad_error *err);

#endif
