/* What the files of the verify share. */
#ifndef KVAD_LAB_VERIFY_INTERNAL_H
#define KVAD_LAB_VERIFY_INTERNAL_H

#include "engine/engine.h"
#include "lab/reference.h"
#include "lab/verify.h"

enum {
    VERIFY_TEXTS = 6,
    VERIFY_SEQUENCES = 4, /* of a rig, at most */
};

/* A text and what one step over all of it, without a cache, gives. */
struct verify_text {
    int32_t *tokens; /* [n] */
    size_t n_common; /* first tokens that are those of text 0 */
    bool is_known;   /* the rest is computed */
    float *logits;   /* [n][n_vocab] */
    float *hidden;   /* [n_layers + 1][n][d_model] */
};

struct kvad_verify {
    struct kvad_heap heap;
    struct kvad_model *model; /* borrowed */
    struct kvad_verify_options options;
    struct kvad_threads *threads;
    char cpu[16];  /* kernel level in use */
    size_t n;      /* tokens of every text */
    bool is_large; /* a step takes long: fewer cases */
    struct verify_text texts[VERIFY_TEXTS];
    struct kvad_reference
        reference; /* of the first n_reference tokens of text 0; zeroed: not yet */
    size_t n_reference;
    float *logits, *hidden; /* [VERIFY_SEQUENCES][n][...] of a step */
    float *k, *v;           /* [n_kv_heads][n][head_dim] rows read back from a cache */
};

/* A check that runs. Its functions return false when it is decided: failed, or no verdict. */
struct verify_run {
    struct kvad_verify *v;
    struct kvad_verify_result *result;
    enum kvad_status status; /* not KVAD_OK: no verdict */
    bool is_broken;          /* the engine's tables are wrong: it cannot even be closed */
    struct kvad_error *err;
};
typedef bool verify_fn(struct verify_run *run);

/* ---- verdicts (verify_run.c) */

/** Begin a case: what it is about, for people ("chunks of 7"). False: cancelled. */
bool verify_case(struct verify_run *run, const char *format, ...) KVAD_PRINTF(2, 3);
/** The check fails: why. Always false. */
bool verify_fail(struct verify_run *run, const char *format, ...) KVAD_PRINTF(2, 3);
/** Not applicable: why. Always false. */
bool verify_skip(struct verify_run *run, const char *format, ...) KVAD_PRINTF(2, 3);
/** A call of the engine: true if it succeeded; memory and cancelling end the check without a
 * verdict, everything else fails it. */
bool verify_ok(struct verify_run *run, enum kvad_status status, const struct kvad_error *err);
/** No memory for `bytes` of the check's own. Always false. */
bool verify_no_memory(struct verify_run *run, size_t bytes);
/** What a passed check says besides: a figure. */
void verify_note(struct verify_run *run, const char *format, ...) KVAD_PRINTF(2, 3);

/** Fail unless both rows have the same bits, all NaNs being equal; counts them. `at` says where
 * they are; its element and values are filled in. */
bool verify_same(struct verify_run *run, struct kvad_verify_difference at, const float *got,
                 const float *wanted, size_t n);

/* ---- engines (verify_rig.c) */

/** Fail unless the engine's tables of blocks agree with each other (verify_sound.c). After each
 * call of the engine: what goes on with wrong tables may crash or never end. A broken engine is
 * left as it is, since giving its memory back would go through the same tables. */
bool verify_sound(struct verify_run *run, const struct kvad_engine *engine);

/* An engine with sequences, each at some length of a text. */
struct verify_rig {
    struct verify_run *run;
    struct kvad_engine *engine;
    struct kvad_sequence *sequences[VERIFY_SEQUENCES];
    const struct verify_text *texts[VERIFY_SEQUENCES];
    size_t n;     /* sequences */
    bool poisons; /* fill everything unused with NaN before each step */
};

/** Options of an engine of this verify for `n_sequences`. */
struct kvad_engine_options verify_engine_options(const struct kvad_verify *v,
                                                 enum kvad_cache_policy policy,
                                                 uint32_t n_sequences);
/** Cache bytes of a token in this verify's types. */
uint64_t verify_token_bytes(const struct kvad_verify *v);
/** Open an engine and a sequence for each of the first `n` texts. verify_rig_close() follows in
 * any case. */
bool verify_rig_open(struct verify_run *run, struct verify_rig *rig,
                     const struct kvad_engine_options *options, size_t n);
void verify_rig_close(struct verify_rig *rig);
/** Give sequence `i` another text, from the beginning. */
bool verify_rig_restart(struct verify_rig *rig, size_t i, const struct verify_text *text);
/** Append the next counts[i] tokens of its text to each sequence i < rig->n with counts[i] > 0, all
 * in one step, and compare hidden states and logits of all new rows. `order` (NULL: ascending) says
 * in which order they stand in the batch. */
bool verify_rig_step(struct verify_rig *rig, const size_t *counts, const size_t *order);
/** The same for sequence `i` alone. */
bool verify_rig_feed(struct verify_rig *rig, size_t i, size_t n);
/** Append the next `n` tokens of any text to sequence `i` and compare nothing. `hidden` may be NULL
 * ([n_layers + 1][n][d_model]). */
bool verify_rig_append(struct verify_rig *rig, size_t i, const struct verify_text *text, size_t n,
                       float *hidden);
bool verify_rig_truncate(struct verify_rig *rig, size_t i, size_t length);
/** Feed sequence 0 up to `length` tokens in the chunks sizes[n_sizes], again and again. */
bool verify_rig_walk(struct verify_rig *rig, const size_t *sizes, size_t n_sizes, size_t length);
/** The chunks that most checks walk with: single tokens, parts and more than a block. */
enum { VERIFY_WALK = 7 };
extern const size_t verify_walk[VERIFY_WALK];
static inline size_t verify_rig_length(const struct verify_rig *rig, size_t i) {
    return kvad_sequence_length(rig->sequences[i]);
}

/** Have the rows of a text computed without a cache, in one step. */
bool verify_expect(struct verify_run *run, size_t text);
/** Have the float64 reference of the first n_reference tokens of text 0 computed. */
bool verify_expect_reference(struct verify_run *run);

/** A number below `n` that follows from the seed, what it is for and an index. */
size_t verify_random(const struct kvad_verify *v, unsigned what, size_t index, size_t n);

/* ---- requests (verify_requests.c) */

/* What a request gives: the same on every path. */
struct verify_answer {
    bool is_known; /* else the first run records it */
    size_t n;      /* tokens */
    int32_t *ids;  /* [n] */
    float *logits; /* [n][n_vocab] */
};

struct verify_job {
    const int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    struct verify_answer *answer;
    const char *salt; /* NULL: none */
    bool is_sampled;  /* with temperature 1; else greedy */
    /* What it got, filled by verify_jobs_run(). */
    size_t n_cached, n_preemptions;
    /* While it runs. */
    struct verify_run *run;
    struct kvad_request *request;
    size_t n_got, n_rows; /* tokens; rows of logits */
    bool is_done, is_wrong;
};

/** Room for the answer of `n` tokens. Zero the answers first; verify_answers_free() follows. */
bool verify_answer_reserve(struct verify_run *run, struct verify_answer *answer, size_t n);
void verify_answers_free(struct verify_run *run, struct verify_answer *answers, size_t n);
/** A row of logits of the job `user`: the next one, as the answer has it. */
void verify_job_logits(void *user, size_t output_index, const float *logits, size_t n_vocab);
/** Its end: with as many tokens and rows as the answer has. */
bool verify_job_end(struct verify_job *job, enum kvad_finish finish);
/** Run jobs at once in an engine, and compare what they give with their answers. */
bool verify_jobs_run(struct verify_run *run, struct kvad_engine *engine, struct verify_job *jobs,
                     size_t n);
/** Open an engine for requests, and close it. */
bool verify_engine_open(struct verify_run *run, const struct kvad_engine_options *options,
                        struct kvad_engine **engine);
void verify_engine_close(struct verify_run *run, struct kvad_engine **engine);

/* ---- the checks, one function each */
#define VERIFY_DECLARE(id, name, compares) verify_fn verify_##name;
KVAD_VERIFY_CHECK_LIST(VERIFY_DECLARE)

#endif
