/* What the user asked for: the values that option tables fill. */
#ifndef KVAD_CLI_SETTINGS_H
#define KVAD_CLI_SETTINGS_H

#include "kvad/kvad.h"

struct cli_texts {
    const char **items; /* the strings are borrowed from argv or the environment */
    size_t n;
};
struct cli_ids {
    int32_t *items;
    size_t n;
    bool is_given; /* also true for an empty list */
};
struct cli_numbers {
    uint32_t *items;
    size_t n;
    bool is_given; /* also true for an empty list */
};
struct cli_biases {
    struct kvad_logit_bias *items;
    size_t n;
};

struct cli_command; /* cli/options.h */

/* Zero is a valid start; everything is freed by cli_settings_deinit(). */
struct cli_settings {
    const struct cli_command *command; /* whose options these are */
    uint64_t typed;             /* bit i: its option i was on the command line, not in a variable */
    struct cli_texts arguments; /* MODEL and what follows it */

    /* prompt */
    const char *prompt, *file, *batch;
    uint64_t n_parallel;
    bool show_cache, no_prefix_cache;
    struct cli_ids ids;
    bool special, decode;

    /* how much to generate */
    uint64_t n_tokens, min_tokens, n_samples, sample_index;
    struct cli_texts stop;
    struct cli_ids stop_ids;
    bool ignore_eos;
    int on_overflow; /* enum kvad_overflow */

    /* sampling */
    double temperature, top_p, min_p, typical;
    uint64_t top_k, seed;
    int top_k_rule; /* enum kvad_top_k_rule */
    double repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t penalty_window, no_repeat_ngram;
    struct cli_biases logit_bias;
    unsigned char order[KVAD_STAGE_COUNT];

    /* model, cache and machine */
    const char *tokenizer;
    int activation; /* enum kvad_activation */
    int weights;    /* enum kvad_weight_type */
    int against;    /* the same, of the reference; -1: none */
    uint64_t n_heads;
    int cache;              /* enum kvad_cache_policy */
    int kv, k_type, v_type; /* enum kvad_kv_type; of K and V apart: -1: as kv */
    uint64_t n_ctx, kv_memory, n_threads, chunk;
    int block_tokens;
    int cpu; /* index into the names of levels; 0: the best */

    /* bench */
    int synthetic; /* index into the names of sizes; 0: none */
    struct cli_numbers contexts, prefills, batches;
    struct cli_numbers policies, weight_types, kv_types; /* enums of kvad.h */
    uint64_t n_rounds, budget, n_requests;
    bool quick, experiment, trace;
    const char *trace_file;

    /* verify */
    bool full, faults;
    struct cli_numbers checks; /* indices of checks */

    /* memory */
    const char *config;
    uint64_t n_texts;

    /* lab */
    const char *from;
    bool fresh, compare;

    /* output */
    const char *output, *logits, *hidden;
    bool json, no_echo, quiet, help, verify, no_map;
    uint64_t verbose;
};

void cli_settings_deinit(struct cli_settings *settings);

#endif
