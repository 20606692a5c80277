/* What a step costs, measured beside the machine's own ceilings: decoding over contexts, prefill
 * over lengths, batches, for every type of weights and cache and every policy.
 *
 * Every policy must give the same tokens and the same bits of logits, or the run is void. */
#ifndef KVAD_LAB_BENCH_H
#define KVAD_LAB_BENCH_H

#include "kvad/kvad.h"
#include "lab/counters.h"
#include "lab/machine.h"
#include "lab/stats.h"

/* A list of numbers; borrowed. */
struct kvad_bench_list {
    const uint32_t *items; /* [n] */
    size_t n;
    bool fits; /* lengths that the model cannot hold become the longest that it can; otherwise they
                  are refused */
};

/* What to measure. Lists may be in any order; each number counts once. */
struct kvad_bench_options {
    /* Makes the model with weights of a type, by the workers that will read them; called once for
     * each type. */
    enum kvad_status (*open_model)(void *user, enum kvad_weight_type weights,
                                   struct kvad_threads *threads, struct kvad_model **out,
                                   struct kvad_error *err);
    void *user;
    struct kvad_bench_list weights;  /* enum kvad_weight_type */
    struct kvad_bench_list kv;       /* enum kvad_kv_type, of keys and values */
    struct kvad_bench_list policies; /* enum kvad_cache_policy; prefill and batches use the last
                                        one */
    struct kvad_bench_list contexts; /* tokens in the cache before the step that is timed */
    struct kvad_bench_list prefills; /* lengths of prompts */
    struct kvad_bench_list batches;  /* numbers of sequences, each at the smallest context */
    unsigned n_rounds;               /* samples of each case, besides the warm-up */
    bool contexts_in_turn;  /* every round goes over all contexts, so that a slow minute is not the
                              shape of a curve; costs a prompt in every other round */
    double sample_seconds;  /* shorter steps are repeated until a sample lasts this long */
    double ceiling_seconds; /* the same for ceilings; well above what waking threads takes */
    size_t ceiling_bytes;   /* read ceilings go over a memory of this size; 0: over the weights */
    unsigned n_threads;     /* 0: automatic */
    const char *cpu;        /* highest kernel level; NULL: the best */
    uint32_t block_tokens;  /* 0: 16 */
    /* Called before every sample with what it is about and the part done, 0 to 1; false cancels
     * (KVAD_ERR_CANCELLED). May be NULL. */
    bool (*report)(void *user, const char *what, double done);
    /* The engine that runs now, for kvad_engine_interrupt(); NULL: none. May be NULL. */
    void (*engine_in_use)(void *user, struct kvad_engine *engine);
};

/* A part of a step: milliseconds of its wall time, when the times of all workers are spread over
 * them evenly. `is_work` is false for waiting and for what lies between the parts. */
struct kvad_bench_part {
    const char *name;
    double ms;
    bool is_work;
};
enum { KVAD_BENCH_PARTS = 15 };

enum kvad_bench_kind { KVAD_BENCH_DECODE, KVAD_BENCH_PREFILL, KVAD_BENCH_BATCH };

/* One thing measured. Times are of one step with its sampling. */
struct kvad_bench_case {
    enum kvad_bench_kind kind;
    enum kvad_weight_type weights;
    enum kvad_kv_type kv;
    enum kvad_cache_policy policy;
    uint32_t context;     /* tokens of each sequence before the step; 0 for prefill */
    uint32_t n_tokens;    /* that each appends: 1, or the length of the prompt */
    uint32_t n_sequences; /* 1, or the size of the batch */
    size_t n_steps;       /* in one sample */
    double *samples;      /* [ms.n] milliseconds of a step, sorted */
    struct kvad_stats ms;

    double bytes, kv_bytes, flops; /* by formula (docs/benchmarks.md); kv_bytes are part of bytes */
    double attention_flops;        /* part of flops */
    double read_rate, fma_rate, dot_rate; /* ceilings beside this case, bytes and operations per
                                             second; 0: none */
    struct kvad_stats percent_of_read, percent_of_compute; /* of the time that the ceilings allow */
    bool is_compute_bound; /* the ceiling that is nearer: percent_of_ceiling is its median */
    double percent_of_ceiling;

    struct kvad_bench_part parts[KVAD_BENCH_PARTS]; /* of one more sample, with clocks on */
    double parts_wall_ms, named_percent;            /* named: parts that are work */
    double counters[KVAD_COUNTERS];                 /* events of one step; -1: not to be had */
    int32_t token;                                  /* what came out, the same on every policy */
};

/* A type of weights. */
struct kvad_bench_model {
    enum kvad_weight_type weights;
    double load_ms;
    uint64_t weight_bytes, huge_page_bytes;          /* in memory; of the process after the load */
    uint64_t ceiling_bytes;                          /* of the memory that read ceilings go over */
    struct kvad_stats read_rate, fma_rate, dot_rate; /* over all samples */
};

struct kvad_bench_result {
    struct kvad_machine machine;
    struct kvad_model_info model; /* with the first type of weights */
    char cpu[16];                 /* kernel level in use */
    unsigned n_threads;
    bool has_counters;
    char no_counters_why[128];
    struct kvad_bench_model *models; /* [n_models] */
    size_t n_models;
    struct kvad_bench_case *cases; /* [n_cases] in the order in which they were measured */
    size_t n_cases;
    bool is_void; /* two policies differed: `void_why` says which and where; the cases end there */
    char void_why[256];
};

/** Measure. KVAD_OK also for a void run. KVAD_ERR_CONTEXT_FULL names a length that does not fit,
 * KVAD_ERR_ARGUMENT an empty list. kvad_bench_result_deinit() follows in any case. */
enum kvad_status kvad_bench_run(const struct kvad_bench_options *options,
                                struct kvad_bench_result *result, struct kvad_error *err);
/** A zeroed result is allowed. */
void kvad_bench_result_deinit(struct kvad_bench_result *result);

#endif
