/* What the files of the bench share. */
#ifndef KVAD_LAB_BENCH_INTERNAL_H
#define KVAD_LAB_BENCH_INTERNAL_H

#include "engine/probe.h"
#include "lab/bench.h"
#include "lab/ceiling.h"
#include "lab/work.h"

/* What a step gave: the same on every path. */
struct bench_answer {
    bool is_known;
    int32_t token;
    uint64_t bits; /* hash of the logits */
};

/* An engine with sequences that can be set to any length, and what a step of it needs. */
struct bench_rig {
    struct kvad_heap *heap;
    struct kvad_engine *engine;
    enum kvad_cache_policy policy;
    struct kvad_sequence **sequences; /* [n_sequences] */
    struct kvad_eval_item *items;     /* [n_sequences] */
    int32_t *prompts;                 /* [n_sequences][n_ctx] tokens that everything is fed with */
    int32_t *tokens;                  /* [n_sequences] drawn by the last step */
    float *logits;                    /* [n_sequences][n_vocab] */
    size_t n_sequences, n_ctx, n_vocab;
    uint32_t n_ids; /* that a prompt may hold */
    struct kvad_sampler *sampler;
};

/* A step of a rig: the first n_sequences get n_tokens each at `position`. */
struct bench_step {
    size_t position, n_tokens, n_sequences;
};

enum kvad_status bench_rig_open(struct bench_rig *rig, struct kvad_model *model,
                                const struct kvad_engine_options *options, struct kvad_heap *heap,
                                struct kvad_error *err);
/* A zeroed rig is allowed. */
void bench_rig_close(struct bench_rig *rig);

/* The step that appends one token at `context` under the rig's policy: without a cache the whole
 * text. */
struct bench_step bench_decode_step(const struct bench_rig *rig, size_t context,
                                    size_t n_sequences);

/* Bring the sequences to the step's position, whatever their length is. */
enum kvad_status bench_rig_fill(struct bench_rig *rig, const struct bench_step *step,
                                struct kvad_error *err);

/* Take the step and draw a token for every sequence; then forget it. Adds its time (without
 * forgetting) to *ns. `probe` may be NULL. */
enum kvad_status bench_rig_step(struct bench_rig *rig, const struct bench_step *step,
                                const struct kvad_probe *probe, uint64_t *ns,
                                struct kvad_error *err);

/* Take the step with the first sequence, whose text is as long as the step's position or longer;
 * what it draws becomes the next token of the rig's prompt. Adds its time to *ns. */
enum kvad_status bench_rig_go_on(struct bench_rig *rig, const struct bench_step *step, uint64_t *ns,
                                 struct kvad_error *err);

/* The prompt as it was before steps went on, and nothing behind `position` in the cache. */
enum kvad_status bench_rig_forget(struct bench_rig *rig, size_t position, struct kvad_error *err);

/* Decode n greedy tokens from `context` on in the first sequence, each fed back, as a text is made.
 * The answer is the last token and a hash of all logits. */
enum kvad_status bench_rig_chain(struct bench_rig *rig, size_t context, size_t n,
                                 struct bench_answer *answer, struct kvad_error *err);

/* What the last step gave for its first sequence. */
struct bench_answer bench_rig_answer(const struct bench_rig *rig);

/* The first answer is kept, later ones must be equal. */
bool bench_answer_agrees(struct bench_answer *kept, struct bench_answer got);

/* ---- sampling a case (bench_case.c) */

/* All that the measurement of one case needs. */
struct bench_case_run {
    struct kvad_bench_case *result;
    struct bench_rig *rig;
    struct bench_step step;
    struct bench_answer *expected; /* borrowed; of all cases that must give the same */
    double *read, *fma, *dot;      /* [n_rounds] ceilings beside the samples; 0: there is none */
    double *percent;               /* [n_rounds] scratch */
};

/* What all cases of one run have in common. */
struct bench_run {
    const struct kvad_bench_options *options;
    struct kvad_bench_result *result;
    struct kvad_heap heap;
    struct kvad_threads *threads;
    struct kvad_counters counters;
    struct kvad_probe probe;
    uint32_t *numbers; /* the lists of lengths, sorted, as the model can hold them */
    struct kvad_bench_list contexts, prefills, batches;
    size_t n_units, n_done; /* for the progress */

    /* for the type of weights that is measured now */
    struct kvad_model *model;
    struct kvad_bench_model *model_result;
    struct kvad_ceiling ceiling;
    void *ceiling_memory;     /* [options->ceiling_bytes]; NULL: the weights */
    double *read, *fma, *dot; /* [n_rates] all samples of ceilings */
    size_t n_read, n_fma, n_dot, max_rates;
};

/* Prepare the ceilings of the model that is open. bench_ceilings_close() follows in any case. */
enum kvad_status bench_ceilings_open(struct bench_run *run, enum kvad_cpu_level level,
                                     struct kvad_error *err);
void bench_ceilings_close(struct bench_run *run);

/* Reserve the samples of a case and add it to the result. */
enum kvad_status bench_case_open(struct bench_run *run, struct bench_case_run *out,
                                 const struct kvad_bench_case *what, struct bench_rig *rig,
                                 struct bench_step step, struct bench_answer *expected,
                                 struct kvad_error *err);
void bench_case_close(struct bench_run *run, struct bench_case_run *c);

/* Fill, warm up, choose the length of samples, compare the answer with the expected one. */
enum kvad_status bench_case_start(struct bench_run *run, struct bench_case_run *c,
                                  struct kvad_error *err);
/* The ceilings, then one sample. */
enum kvad_status bench_case_round(struct bench_run *run, struct bench_case_run *c, unsigned round,
                                  struct kvad_error *err);
/* One more sample with clocks and counters; then all statistics. */
enum kvad_status bench_case_finish(struct bench_run *run, struct bench_case_run *c,
                                   struct kvad_error *err);

#endif
