/* Options that several commands share. */
#ifndef KVAD_CLI_GROUPS_H
#define KVAD_CLI_GROUPS_H

#include "cli/options.h"

extern const struct cli_group cli_prompt_group;   /* -p, -f, --ids, --special */
extern const struct cli_group cli_model_group;    /* --tokenizer, --activation, --n-head */
extern const struct cli_group cli_engine_group;   /* --cache, --kv, --ctx ... */
extern const struct cli_group cli_machine_group;  /* --threads, --cpu */
extern const struct cli_group cli_output_group;   /* --json, -o, -q, -v, -h */
extern const struct cli_group cli_messages_group; /* -q, -v, -h alone */

/* A row of choices from each of the lists of kvad.h. */
#define CLI_ACTIVATION_CHOICE(id, name) {name, KVAD_ACTIVATION_##id},
#define CLI_WEIGHTS_CHOICE(id, name)    {name, KVAD_WEIGHTS_##id},
#define CLI_CACHE_CHOICE(id, name)      {name, KVAD_CACHE_##id},
#define CLI_KV_CHOICE(id, name)         {name, KVAD_KV_##id},

/* Lists of names, for options of the same name that take several. */
extern const struct cli_choice cli_cache_choices[];   /* enum kvad_cache_policy */
extern const struct cli_choice cli_weights_choices[]; /* enum kvad_weight_type */
extern const struct cli_choice cli_kv_choices[];      /* enum kvad_kv_type */
extern const struct cli_choice cli_block_choices[];   /* tokens */
extern const struct cli_choice cli_cpu_choices[];     /* for cli_cpu_name() */

/* Rows that several commands have with a help of their own. */
#define CLI_SEED_OPTION(first, text)                                                               \
    {                                                                                              \
        .name = "seed", .letter = 's', .kind = CLI_INTEGER, .offset = CLI_AT(seed), .value = "N",  \
        .max = 0x1p53, .initial = first, .known_as = "random-seed", .help = text                   \
    }
#define CLI_QUICK_OPTION(text)                                                                     \
    {                                                                                              \
        .name = "quick", .kind = CLI_FLAG, .offset = CLI_AT(quick), .known_as = "fast",            \
        .rival = "full", .help = text                                                              \
    }
#define CLI_FULL_OPTION(text)                                                                      \
    {                                                                                              \
        .name = "full", .kind = CLI_FLAG, .offset = CLI_AT(full), .known_as = "slow all thorough", \
        .rival = "quick", .help = text                                                             \
    }
#define CLI_CTX_OPTION(text)                                                                       \
    {                                                                                              \
        .name = "ctx", .kind = CLI_INTEGER, .offset = CLI_AT(n_ctx), .value = "N", .min = 1,       \
        .max = INT32_MAX,                                                                          \
        .known_as = "n-ctx context ctx-size block-size context-length max-seq-len", .help = text   \
    }
#define CLI_KV_OPTION(text)                                                                        \
    {                                                                                              \
        .name = "kv", .kind = CLI_CHOICE, .offset = CLI_AT(kv), .value = "TYPE", .initial = "f32", \
        .choices = cli_kv_choices, .known_as = "kv-type cache-dtype", .help = text                 \
    }
#define CLI_KV_LIST_OPTION(types, text)                                                            \
    {                                                                                              \
        .name = "kv", .kind = CLI_CHOICES, .offset = CLI_AT(kv_types), .value = "LIST",            \
        .choices = types, .known_as = "cache-type kv-type cache-dtype", .help = text               \
    }
#define CLI_CACHE_LIST_OPTION(text)                                                                \
    {                                                                                              \
        .name = "cache", .kind = CLI_CHOICES, .offset = CLI_AT(policies), .value = "LIST",         \
        .choices = cli_cache_choices, .help = text                                                 \
    }
#define CLI_BLOCK_OPTION                                                                           \
    {                                                                                              \
        .name = "block", .kind = CLI_CHOICE, .offset = CLI_AT(block_tokens), .initial = "16",      \
        .choices = cli_block_choices, .help = "tokens per block of the paged cache"                \
    }
#define CLI_KV_MEMORY_OPTION(text)                                                                 \
    {                                                                                              \
        .name = "kv-memory", .kind = CLI_SIZE, .offset = CLI_AT(kv_memory), .value = "SIZE",       \
        .min = 1, .max = 0x1p52, .known_as = "kv-bytes cache-memory kv-cache-memory cache-size",   \
        .help = text                                                                               \
    }
#define CLI_N_HEAD_OPTION                                                                          \
    {                                                                                              \
        .name = "n-head", .kind = CLI_INTEGER, .offset = CLI_AT(n_heads), .value = "N", .min = 1,  \
        .max = 4096, .known_as = "heads n-heads num-heads",                                        \
        .help = "number of attention heads, for files that do not say it"                          \
    }
#define CLI_JSON_OPTION(text)                                                                      \
    { .name = "json", .kind = CLI_FLAG, .offset = CLI_AT(json), .help = text }

/** Name of a kernel level from --cpu; NULL for "auto". */
const char *cli_cpu_name(int cpu);

#endif
