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

/** Name of a kernel level from --cpu; NULL for "auto". */
const char *cli_cpu_name(int cpu);

#endif
