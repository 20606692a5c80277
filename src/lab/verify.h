/* Is the cache right? Checks of one model on this machine: every way to the same token against
 * another way, bit for bit, and the whole against a forward pass in double precision that shares no
 * code with the engine (lab/reference.h).
 *
 *     kvad_verify_open -> kvad_verify_run (one check) ... -> kvad_verify_close
 *
 * A check opens its own engines. A wrong engine is a verdict, not an accident: errors of the engine
 * fail the check, every wait has an end, and nothing of a failed check is left behind, but for an
 * engine whose tables are wrong, which cannot even be closed. One thread; another one, or a signal
 * handler, may interrupt the engine in use. */
#ifndef KVAD_LAB_VERIFY_H
#define KVAD_LAB_VERIFY_H

#include <jansson.h>

#include "kvad/kvad.h"

/* The checks in the order of the report: X(id, name, what it compares, for people). */
#define KVAD_VERIFY_CHECK_LIST(X)                                                                  \
    X(REFERENCE, reference,                                                                        \
      "hidden states of every layer and logits with a float64 forward of its own")                 \
    X(ORDER, order, "K and V in the cache, row by row, with those of the float64 forward")         \
    X(CLASSIC, classic, "one new token's first attention with the cache and without, within 1e-4") \
    X(CACHED, cached, "one token at a time with the cache, whole windows without")                 \
    X(CHUNKS, chunks, "the text in chunks of 1, 2, 3, 7, 16, 17 tokens and at once")               \
    X(POLICIES, policies, "caches that grow, are static, are paged, and none")                     \
    X(BLOCKS, blocks, "blocks of 16, 32, 64, 128 and 256 tokens")                                  \
    X(BATCH, batch, "texts alone and beside others, in any slot and order")                        \
    X(THREADS, threads, "1, 2, 3 and 8 threads")                                                   \
    X(LEVELS, levels, "every kernel level of this CPU")                                            \
    X(ROLLBACK, rollback, "going back to any length and on, with never having been elsewhere")     \
    X(POISON, poison, "unused cache memory and step buffers full of NaN, with clean ones")         \
    X(FORK, fork, "texts that share a beginning's blocks, with each computed alone")               \
    X(MIXTURE, mixture,                                                                            \
      "any order of steps, drafts, forks, reordering and going back, with texts alone")            \
    X(PREFIX, prefix, "prompts that begin in cached blocks, with a cold start")                    \
    X(PREEMPTION, preemption, "requests that lose their blocks and recompute, with a large pool")  \
    X(TRAFFIC, traffic,                                                                            \
      "requests in a pool that is too small for them, with each alone and uncached")               \
    X(GREEDY, greedy, "tokens drawn with every cache and without one, and as the window slides")

#define KVAD_VERIFY_ID(id, name, compares) KVAD_VERIFY_CHECK_##id,
enum kvad_verify_index { KVAD_VERIFY_CHECK_LIST(KVAD_VERIFY_ID) KVAD_VERIFY_CHECKS };

enum kvad_verify_level {
    KVAD_VERIFY_QUICK, /* short texts, a few of the many lengths: seconds on a small model */
    KVAD_VERIFY_FULL   /* longer texts, every length */
};

enum kvad_verdict {
    KVAD_VERDICT_PASS,
    KVAD_VERDICT_FAIL,
    KVAD_VERDICT_SKIP /* not applicable here; `text` says why */
};

struct kvad_verify_check {
    const char *name;     /* "rollback" */
    const char *compares; /* one line for people */
};

struct kvad_verify_options {
    enum kvad_verify_level level;
    uint64_t seed;              /* of texts and lengths */
    enum kvad_kv_type kv;       /* of keys and values */
    unsigned n_threads;         /* 0: automatic */
    const char *cpu;            /* highest kernel level; NULL: the best */
    struct kvad_allocator hook; /* allocate NULL: malloc */
    /* Called before every case of a check with what it is about; false cancels
     * (KVAD_ERR_CANCELLED). May be NULL. */
    bool (*report)(void *user, const struct kvad_verify_check *check, const char *what);
    /* The engine that runs now, for kvad_engine_interrupt(); NULL: none. May be NULL. */
    void (*engine_in_use)(void *user, struct kvad_engine *engine);
    void *user;
};

enum kvad_verify_place {
    KVAD_VERIFY_HIDDEN, /* of `layer`: 0 is the embedding, n after layer n, the last one after the
                           final norm */
    KVAD_VERIFY_LOGITS,
    KVAD_VERIFY_TOKEN, /* that was drawn */
    KVAD_VERIFY_K,     /* in the cache, of `layer` (counted from 1) */
    KVAD_VERIFY_V
};

/* Where two paths part: the first position, and there the first layer. */
struct kvad_verify_difference {
    bool is_known;
    size_t position; /* of the token in its text */
    enum kvad_verify_place place;
    uint32_t layer;
    size_t element; /* of the row */
    double got, wanted;
};

/* Errors against double precision, relative to the RMS of what they are errors of. */
struct kvad_verify_error {
    double rms, max;
};

struct kvad_verify_result {
    const struct kvad_verify_check *check;
    enum kvad_verdict verdict;
    uint64_t n_compared; /* numbers */
    double seconds;
    char where[128]; /* the case that failed: "chunks of 7"; else empty */
    char text[320];  /* what went wrong, or why it is not applicable; a figure where it passed */
    struct kvad_verify_difference difference;
    /* The check "reference" alone: [n_layers + 1] errors of the embedding and after each layer (the
     * last one after the final norm), and of the logits; NULL: not measured. */
    struct kvad_verify_error *layers;
    size_t n_layers; /* entries of `layers` */
    struct kvad_verify_error logits, bound;
    struct kvad_heap *heap; /* of `layers`: the verify's, which outlives the result */
};

struct kvad_verify;
struct kvad_heap;

/** The index-th check, in the order of the report; NULL after the last. */
const struct kvad_verify_check *kvad_verify_check(unsigned index);
/** The check of this name, or NULL. */
const struct kvad_verify_check *kvad_verify_find(const char *name);

/** Prepare checks of `model`, which is borrowed. What the engine computes once for all checks is
 * kept, so a seeded fault (base/faults.h) must be set before this call and stay until the close.
 * KVAD_ERR_NO_MEMORY; KVAD_ERR_ARGUMENT for an unknown `cpu`. */
enum kvad_status kvad_verify_open(struct kvad_model *model,
                                  const struct kvad_verify_options *options,
                                  struct kvad_verify **out, struct kvad_error *err);
/** A verify that is NULL is allowed. */
void kvad_verify_close(struct kvad_verify **verify);

/* What a verify works with, for reports. */
struct kvad_verify_setup {
    char cpu[16]; /* kernel level in use */
    unsigned n_threads;
    enum kvad_kv_type kv;
    size_t n_tokens; /* of its texts */
    uint64_t seed;
};
void kvad_verify_get_setup(const struct kvad_verify *verify, struct kvad_verify_setup *setup);

/** Run one check of kvad_verify_check(). KVAD_OK whatever the verdict is; KVAD_ERR_NO_MEMORY,
 * KVAD_ERR_CANCELLED: there is none. A check that compares nothing fails.
 * kvad_verify_result_deinit() follows in any case. */
enum kvad_status kvad_verify_run(struct kvad_verify *verify, const struct kvad_verify_check *check,
                                 struct kvad_verify_result *result, struct kvad_error *err);
/** A zeroed result is allowed. */
void kvad_verify_result_deinit(struct kvad_verify_result *result);

/** "pass", "fail" or "skip"; "hidden", "logits", "token", "k" or "v". */
const char *kvad_verdict_name(enum kvad_verdict verdict);
const char *kvad_verify_place_name(enum kvad_verify_place place);
/** One line: "chunks of 7: position 17, layer 3, element 5: 0.25 instead of 0.75"; what is not
 * known is left out. */
void kvad_verify_describe(const struct kvad_verify_result *result, char *text, size_t size);

/** All results as the object that `kvad verify --json` prints (docs/verify.md); NULL when memory is
 * out. The caller owns it. `model` is the name that the user gave. */
json_t *kvad_verify_json(const struct kvad_verify *verify, const char *model,
                         const struct kvad_verify_result *results, size_t n);

#endif
