/* The latency of decoding with and without a cache as an experiment: how much faster, why not more,
 * and which of the articles' claims hold here.
 *
 * Greedy, one sequence, weights as the file has them (float32), a warm-up, medians: the curve over
 * contexts under every policy; the time of a whole text; operations and bytes by formula beside it;
 * the cached step's time by parts; controls that would show a wrong attribution; the verdicts.
 *
 * All policies must give the same ids and bits of logits, or the run is void. */
#ifndef KVAD_LAB_EXPERIMENT_H
#define KVAD_LAB_EXPERIMENT_H

#include <jansson.h>

#include "lab/bench.h"
#include "lab/claims.h"

struct kvad_experiment_options {
    /* Makes the model; called once, with KVAD_WEIGHTS_AUTO and `threads` NULL. */
    enum kvad_status (*open_model)(void *user, enum kvad_weight_type weights,
                                   struct kvad_threads *threads, struct kvad_model **out,
                                   struct kvad_error *err);
    void *user;
    struct kvad_bench_list contexts; /* tokens before the step; n 0: the usual ones */
    unsigned n_rounds;               /* samples of each case; 0: 5 */
    unsigned n_threads;              /* 0: automatic */
    const char *cpu;                 /* highest kernel level; NULL: the best */
    uint32_t block_tokens;           /* 0: 16 */
    bool quick;                      /* fewer contexts, shorter samples */
    double sample_seconds; /* as in kvad_bench_options, of ceilings too; 0: 0.02, or 0.003 with
                              `quick` */
    /* What the run should take, about; 0: 180, or 15 with `quick`. Contexts are left out and totals
     * interpolated to keep to it; what must be measured in any case may take longer. */
    double budget_seconds;
    /* As in kvad_bench_options. */
    bool (*report)(void *user, const char *what, double done);
    void (*engine_in_use)(void *user, struct kvad_engine *engine);
};

/* A step at one context. Cases are borrowed from the result's curve. */
struct kvad_experiment_point {
    uint32_t context;
    const struct kvad_bench_case *cases[KVAD_CACHE_POLICY_COUNT]; /* by enum kvad_cache_policy */
    double time_ratio, flop_ratio, byte_ratio;                    /* none to paged */
    double thrown_away_percent; /* of the naive step's operations: done before, not kept */
};

/* A whole text: a prompt, then tokens drawn until the context is full. */
struct kvad_experiment_total {
    enum kvad_cache_policy policy;
    double seconds;   /* of all tokens: the first ones as measured, the others by the curve */
    bool is_measured; /* all of them are first ones */
    double interpolated_seconds; /* of all tokens by the curve */
    /* The first tokens, measured; and the same by the curve: what to think of it. */
    uint32_t n_measured;
    double measured_seconds, measured_interpolated_seconds;
};

enum kvad_experiment_share {
    KVAD_SHARE_WEIGHTS,    /* linear layers, beyond the time of their operations */
    KVAD_SHARE_CACHE,      /* attention and the cache, the same */
    KVAD_SHARE_ARITHMETIC, /* operations at the naive step's rate; norms, activation, embedding */
    KVAD_SHARE_SAMPLING,   /* logits to a token */
    KVAD_SHARE_SYNCHRONISATION, /* waiting for each other: no named part */
    KVAD_SHARE_OTHER,           /* between the parts: no named part */
    KVAD_SHARE_COUNT
};

/* Why the cached step at the longest context is not as much faster as it has fewer operations. */
struct kvad_experiment_gap {
    uint32_t context;
    double wall_ms;                    /* of the step whose parts were timed */
    double ideal_ms;                   /* what its operations would take at the naive step's rate */
    double share_ms[KVAD_SHARE_COUNT]; /* they add up to wall_ms, but for what no clock saw */
    double weights_floor_ms, cache_floor_ms; /* their bytes at the read ceiling */
    double named_percent; /* of wall_ms in weights, cache, arithmetic and sampling */
};

enum kvad_control_verdict { KVAD_CONTROL_HOLDS, KVAD_CONTROL_FAILS, KVAD_CONTROL_NOT_SHOWN };

/* A change whose effect follows from the attribution. */
struct kvad_control {
    const char *id, *what, *unit;
    double predicted, measured;
    double tolerance_percent; /* of predicted, both ways; 0: predicted is the most that it may be */
    enum kvad_control_verdict verdict;
    char why[160]; /* how the prediction was made, or why nothing is shown */
};
enum { KVAD_CONTROLS = 8 };

struct kvad_experiment_result {
    struct kvad_bench_result curve; /* decode at all contexts, prefill; machine, model, ceilings */
    struct kvad_experiment_point *points; /* [n_points] by context */
    uint32_t *contexts;                   /* [n_points] the same contexts alone */
    size_t n_points;
    size_t n_left_out;           /* contexts that the budget had no room for */
    uint32_t n_prompt, n_tokens; /* of the totals: together the whole context */
    struct kvad_experiment_total totals[KVAD_CACHE_POLICY_COUNT]; /* none, grow, static, paged */
    double total_flop_ratio;                                      /* none to paged, whole text */
    double total_thrown_away_percent;
    struct kvad_experiment_gap gap;
    struct kvad_control controls[KVAD_CONTROLS];
    uint64_t control_read_bytes; /* memory that the read ceilings beside the unchanged steps of the
                                    controls go over: what such a step reads */
    struct kvad_claim claims[KVAD_CLAIMS];
    double seconds, budget_seconds; /* that the run took, and should take */
    bool is_void;                   /* nothing but the curve's `machine` and `model` counts */
    char void_why[256];
};

/** Run; one thread. KVAD_OK also for a void run. Errors as kvad_bench_run(); KVAD_ERR_CONTEXT_FULL
 * also for a model with a context below 4, KVAD_ERR_ARGUMENT for fewer than two contexts.
 * kvad_experiment_result_deinit() follows in any case. */
enum kvad_status kvad_experiment_run(const struct kvad_experiment_options *options,
                                     struct kvad_experiment_result *result, struct kvad_error *err);
/** A zeroed result is allowed. */
void kvad_experiment_result_deinit(struct kvad_experiment_result *result);

/** The result as an object with the names of docs/latency.md; of a void run without any number.
 * Takes `name`, the model's, over. The caller owns the object; NULL when memory is out. */
json_t *kvad_experiment_json(const struct kvad_experiment_result *result, json_t *name);

/** Name of a share ("weights"). */
const char *kvad_experiment_share_name(enum kvad_experiment_share share);
/** "holds", "fails", "not shown". */
const char *kvad_control_verdict_name(enum kvad_control_verdict verdict);

#endif
