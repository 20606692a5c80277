#include "cli/groups.h"

static const struct cli_option prompt_options[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .offset = CLI_AT(prompt),
     .value = "TEXT",
     .known_as = "start text input",
     .no_variable = true,
     .help = "the text itself"},
    {.name = "file",
     .letter = 'f',
     .kind = CLI_FILE,
     .offset = CLI_AT(file),
     .value = "FILE",
     .known_as = "prompt-file input-file",
     .no_variable = true,
     .help = "the text of FILE, every byte of it but a byte order mark at its head; - is standard "
             "input"},
    {.name = "ids",
     .kind = CLI_IDS,
     .offset = CLI_AT(ids),
     .value = "LIST",
     .known_as = "tokens input-ids prompt-ids",
     .no_variable = true,
     .help = "token ids separated by commas or spaces; needs no tokenizer"},
    {.name = "special",
     .kind = CLI_FLAG,
     .offset = CLI_AT(special),
     .help = "special text such as <|endoftext|> in the prompt becomes its id; otherwise it is "
             "plain text"},
};
const struct cli_group cli_prompt_group = {"Prompt", prompt_options, CLI_COUNT_OF(prompt_options)};

static const struct cli_choice activations[] = {{"auto", KVAD_ACTIVATION_AUTO},
                                                KVAD_ACTIVATION_LIST(CLI_ACTIVATION_CHOICE){0}};

const struct cli_choice cli_weights_choices[] = {KVAD_WEIGHT_TYPE_LIST(CLI_WEIGHTS_CHOICE){0}};

static const struct cli_choice wanted_weights[] = {{"auto", KVAD_WEIGHTS_AUTO},
                                                   KVAD_WEIGHT_TYPE_LIST(CLI_WEIGHTS_CHOICE){0}};

static const struct cli_option model_options[] = {
    {.name = "tokenizer",
     .kind = CLI_FILE,
     .offset = CLI_AT(tokenizer),
     .value = "PATH",
     .known_as = "vocab meta",
     .help = "tokenizer.json, a meta.pkl, or a folder with vocab.json and merges.txt; without it "
             "the model's neighbourhood and the local caches are searched"},
    {.name = "activation",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(activation),
     .value = "NAME",
     .initial = "auto",
     .choices = activations,
     .known_as = "gelu act",
     .help = "overrides what the file says or its family does: old nanoGPT checkpoints want "
             "gelu-tanh"},
    {.name = "weights",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(weights),
     .value = "TYPE",
     .initial = "auto",
     .choices = wanted_weights,
     .known_as = "dtype quant quantize wtype",
     .help = "how weights lie in memory: f32 unless the file is packed otherwise; q8 and q4 are "
             "groups of 32 small integers with a scale. Smaller is faster and less exact"},
    CLI_N_HEAD_OPTION,
    {.name = "no-map",
     .kind = CLI_FLAG,
     .offset = CLI_AT(no_map),
     .known_as = "no-mmap",
     .help = "read a packed file into memory instead of mapping it, so that it may be changed or "
             "cut while kvad runs"},
};
const struct cli_group cli_model_group = {"Model", model_options, CLI_COUNT_OF(model_options)};

const struct cli_choice cli_cache_choices[] = {KVAD_CACHE_POLICY_LIST(CLI_CACHE_CHOICE){0}};
const struct cli_choice cli_kv_choices[] = {KVAD_KV_TYPE_LIST(CLI_KV_CHOICE){0}};
static const struct cli_choice own_kv_types[] = {{"same", -1}, KVAD_KV_TYPE_LIST(CLI_KV_CHOICE){0}};
const struct cli_choice cli_block_choices[] = {
    {"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}, {0},
};
/* The value is an index into this list. */
const struct cli_choice cli_cpu_choices[] = {
    {"auto", 0},        {"baseline", 1}, {"portable", 2},     {"avx2", 3}, {"avx512", 4},
    {"avx512-vnni", 5}, {"neon", 6},     {"neon-dotprod", 7}, {0},
};

static const struct cli_option engine_options[] = {
    {.name = "cache",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(cache),
     .initial = "paged",
     .choices = cli_cache_choices,
     .known_as = "kv-cache use-cache cache-type",
     .help = "where keys and values live: in blocks taken as needed (paged), in room for the whole "
             "context (static), in an area that is copied to grow (grow), or nowhere, so that "
             "the whole text is computed again for every token (none). All give the same bits"},
    CLI_KV_OPTION(
        "how keys and values lie in the cache: f16 and bf16 take half the bytes, q8 a quarter "
        "and a scale per token and head"),
    {.name = "k",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(k_type),
     .value = "TYPE",
     .initial = "same",
     .choices = own_kv_types,
     .help = "keys alone; same is what --kv says"},
    {.name = "v",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(v_type),
     .value = "TYPE",
     .initial = "same",
     .choices = own_kv_types,
     .help = "values alone; same is what --kv says"},
    CLI_CTX_OPTION("longest text in tokens, at most the model's own context, which is the default"),
    CLI_BLOCK_OPTION,
    CLI_KV_MEMORY_OPTION(
        "memory of the cache, such as 512M, never exceeded; without it what the text needs"),
};
const struct cli_group cli_engine_group = {"Cache", engine_options, CLI_COUNT_OF(engine_options)};

static const struct cli_option machine_options[] = {
    {.name = "threads",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_threads),
     .value = "N",
     .min = 0,
     .max = 1024,
     .initial = "0",
     .known_as = "t n-threads num-threads jobs",
     .help = "worker threads; 0 is the number of cores that this process may use"},
    {.name = "cpu",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(cpu),
     .value = "LEVEL",
     .initial = "auto",
     .choices = cli_cpu_choices,
     .known_as = "isa device",
     .help = "highest kernel level to use; every level gives the same bits"},
};
const struct cli_group cli_machine_group = {"Machine", machine_options,
                                            CLI_COUNT_OF(machine_options)};

/* The first two are about the result, the others about everything else. */
static const struct cli_option output_options[] = {
    CLI_JSON_OPTION("one JSON object on standard output"),
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .offset = CLI_AT(output),
     .value = "FILE",
     .no_variable = true,
     .help = "write the result to FILE instead of standard output"},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .offset = CLI_AT(quiet),
     .known_as = "silent log-disable no-progress",
     .help = "only errors on standard error"},
    {.name = "verbose",
     .letter = 'v',
     .kind = CLI_COUNT,
     .offset = CLI_AT(verbose),
     .max = 3,
     .help = "say more on standard error; twice for details"},
    {.name = "help",
     .letter = 'h',
     .kind = CLI_FLAG,
     .offset = CLI_AT(help),
     .no_variable = true,
     .help = "this text, anywhere on the line"},
};
const struct cli_group cli_output_group = {"Output", output_options, CLI_COUNT_OF(output_options)};
const struct cli_group cli_messages_group = {"Output", output_options + 2,
                                             CLI_COUNT_OF(output_options) - 2};

const char *cli_cpu_name(int cpu) {
    return cpu ? cli_cpu_choices[cpu].name : NULL;
}
