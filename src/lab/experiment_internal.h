/* What the files of the experiment share. */
#ifndef KVAD_LAB_EXPERIMENT_INTERNAL_H
#define KVAD_LAB_EXPERIMENT_INTERNAL_H

#include "lab/bench_internal.h"
#include "lab/experiment.h"

struct experiment {
    const struct kvad_experiment_options *options;
    struct kvad_experiment_result *result;
    struct kvad_heap heap;
    struct kvad_model *model;
    struct kvad_model_info info;
    unsigned n_rounds, n_threads;
    double sample_seconds;
    uint32_t *contexts; /* [n_contexts] of the curve, ascending */
    size_t n_contexts, max_contexts;
    double row_seconds, step_seconds; /* a row without a cache, a step with one: a first guess */
    uint64_t start;                   /* kvad_clock_ns() */
    double last_done;                 /* progress never goes back */
    const char *stage;                /* what a bench is for; NULL: its cases say it */
};

/* Seconds since the experiment began. */
double experiment_seconds(const struct experiment *x);

/* Say what is being done; KVAD_ERR_CANCELLED: stop. */
enum kvad_status experiment_report(struct experiment *x, const char *what, struct kvad_error *err);

/* A bench as a part of the experiment. */
struct experiment_bench {
    struct kvad_model *model; /* borrowed */
    struct kvad_bench_list policies, contexts, prefills;
    unsigned n_threads, n_rounds;
    size_t ceiling_bytes; /* as in struct kvad_bench_options */
};

/* Measure; a void bench makes the experiment void. kvad_bench_result_deinit() follows. */
enum kvad_status experiment_bench(struct experiment *x, const struct experiment_bench *what,
                                  struct kvad_bench_result *result, struct kvad_error *err);

/* Milliseconds of some parts of a case's median step together: bits 1 << enum kvad_part. */
double experiment_parts_ms(const struct kvad_bench_case *c, unsigned parts);
enum {
    EXPERIMENT_LINEAR = 1 << KVAD_PART_QKV | 1 << KVAD_PART_OUT | 1 << KVAD_PART_UP |
                        1 << KVAD_PART_DOWN | 1 << KVAD_PART_HEAD,
    EXPERIMENT_CACHE = 1 << KVAD_PART_RESERVE | 1 << KVAD_PART_STORE_KV | 1 << KVAD_PART_ATTENTION,
    EXPERIMENT_SMALL = 1 << KVAD_PART_EMBED | 1 << KVAD_PART_NORM | 1 << KVAD_PART_QUANTISE |
                       1 << KVAD_PART_ACTIVATION,
    EXPERIMENT_LAYERS = 1 << KVAD_PART_NORM | 1 << KVAD_PART_QUANTISE | 1 << KVAD_PART_QKV |
                        1 << KVAD_PART_STORE_KV | 1 << KVAD_PART_ATTENTION | 1 << KVAD_PART_OUT |
                        1 << KVAD_PART_UP | 1 << KVAD_PART_ACTIVATION | 1 << KVAD_PART_DOWN
};

/* The curve of one policy; `ms` has room for n_points numbers. */
struct kvad_curve experiment_curve(const struct kvad_experiment_result *result,
                                   enum kvad_cache_policy policy, double *ms);

/* The contexts and the curve: experiment_curve.c. */
enum kvad_status experiment_measure_curve(struct experiment *x, struct kvad_error *err);
/* The gap at the longest context, from the curve. */
void experiment_explain(const struct kvad_experiment_point *point, struct kvad_experiment_gap *gap);

/* experiment_controls.c */
/* Bytes that a cached step at `context` reads: weights, and K and V in float32. */
size_t experiment_step_bytes(const struct kvad_model *model, uint32_t context);
enum kvad_status experiment_run_controls(struct experiment *x, struct kvad_error *err);

/* In the order of the result. */
enum experiment_control {
    CONTROL_HALF_LAYERS,
    CONTROL_HALF_STEP,
    CONTROL_BUS_DECODE,
    CONTROL_BUS_PREFILL,
    CONTROL_EMPTY_STEP,
    CONTROL_ONE_DECODE,
    CONTROL_ONE_PREFILL,
    CONTROL_ONE_WAIT
};

/* A decode step at the longest context, a prompt, and the ceilings beside them. */
struct experiment_measured {
    double decode_ms, prefill_ms;
    double layers_ms, wait_ms, outside_ms; /* of the decode step: layers; waiting; all but linear
                                              layers and cache */
    double read_rate, fma_rate;
    bool is_in_caches; /* the CPU's caches hold a part of what the step reads */
};

/* A change between two unchanged runs, whose mean is `base`: a machine that grows slower or faster
 * meanwhile does so for both. */
struct experiment_pair {
    struct experiment_measured base, changed;
};

/* Verdicts, from what was measured alone; all into controls[KVAD_CONTROLS]: experiment_verdicts.c.
 * `part` of the layers is left in the model of half of them. */
void experiment_name_controls(struct kvad_control controls[]);
void experiment_not_shown(struct kvad_control controls[], enum experiment_control which,
                          const char *why);
void experiment_judge_half(struct kvad_control controls[], double part,
                           const struct experiment_pair *pair);
void experiment_judge_empty(struct kvad_control controls[], const struct experiment_pair *pair);
void experiment_judge_bus(struct kvad_control controls[], const struct experiment_pair *pair);
/* `gap`: the shares of an unchanged step. */
void experiment_judge_one_thread(struct kvad_control controls[],
                                 const struct kvad_experiment_gap *gap,
                                 const struct experiment_pair *pair);

/* Whole texts, measured or interpolated: experiment_totals.c. */
enum kvad_status experiment_measure_totals(struct experiment *x, struct kvad_error *err);

/* All claims, from what the result holds. KVAD_ERR_NO_MEMORY. */
enum kvad_status experiment_judge(struct experiment *x, struct kvad_error *err);

#endif
