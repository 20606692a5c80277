/* kvad inspect: what is in a model file and what it would cost. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/streams.h"

static const struct cli_option inspect_options[] = {
    {.name = "verify",
     .kind = CLI_FLAG,
     .offset = CLI_AT(verify),
     .help = "of a packed file, check the checksum of all weights"},
};
static const struct cli_group inspect_group = {"Inspect", inspect_options,
                                               CLI_COUNT_OF(inspect_options)};

static const struct cli_group *const groups[] = {&inspect_group, &cli_model_group,
                                                 &cli_output_group, NULL};

static uint64_t context_bytes(const struct kvad_model_info *info) {
    return info->kv_bytes_per_token * info->n_ctx;
}

static int print_json(const struct kvad_model_info *info) {
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"n_parameters", info->n_parameters},
        {"n_layers", info->n_layers},
        {"n_heads", info->n_heads},
        {"n_kv_heads", info->n_kv_heads},
        {"head_dim", info->head_dim},
        {"d_model", info->d_model},
        {"d_ff", info->d_ff},
        {"n_vocab", info->n_vocab},
        {"n_tokens", info->n_tokens},
        {"n_ctx", info->n_ctx},
        {"weight_bytes", info->weight_bytes},
        {"kv_bytes_per_token", info->kv_bytes_per_token},
        {"kv_bytes_context", context_bytes(info)},
    };
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:f, s:b, s:b, s:b, s:i}", "schema", 1, "family",
                  info->family, "weights", kvad_weight_type_name(info->weights), "activation",
                  kvad_activation_name(info->activation), "norm_eps", (double)info->norm_eps,
                  "head_tied", (int)info->head_tied, "has_bias", (int)info->has_bias,
                  "has_tokenizer", (int)info->has_tokenizer, "eos", (int)info->eos);
    int failed = !object;
    for (size_t i = 0; i < CLI_COUNT_OF(numbers); i++)
        failed |= json_object_set_new(object, numbers[i].name,
                                      json_integer((json_int_t)numbers[i].value));
    if (!failed) return cli_json_print(object);
    json_decref(object);
    return cli_json_print(NULL);
}

static void print_number(const char *name, uint64_t value) {
    printf("%-16s%llu\n", name, (unsigned long long)value);
}

static void print_bytes(const char *name, uint64_t bytes, const char *type) {
    char text[CLI_SIZE_TEXT];
    cli_format_size(bytes, text);
    if (bytes < 1024)
        printf("%-16s%s in %s\n", name, text, type);
    else
        printf("%-16s%s (%llu bytes) in %s\n", name, text, (unsigned long long)bytes, type);
}

static int print_table(const struct kvad_model_info *info) {
    printf("%-16s%s\n", "family", info->family);
    print_number("parameters", info->n_parameters);
    print_number("layers", info->n_layers);
    printf("%-16s%u, each %u wide", "attention heads", info->n_heads, info->head_dim);
    if (info->n_kv_heads != info->n_heads) printf(", %u for keys and values", info->n_kv_heads);
    printf("\n%-16s%u, %u in the feed-forward layer\n", "width", info->d_model, info->d_ff);
    printf("%-16s%u rows, %u ids\n", "vocabulary", info->n_vocab, info->n_tokens);
    printf("%-16s%u tokens\n", "context", info->n_ctx);
    printf("%-16s%s\n", "activation", kvad_activation_name(info->activation));
    printf("%-16s%g\n", "norm epsilon", (double)info->norm_eps);
    printf("%-16s%s\n", "output head", info->head_tied ? "tied to the embedding" : "own weights");
    printf("%-16s%s\n", "biases", info->has_bias ? "yes" : "no");
    if (info->eos >= 0)
        printf("%-16sid %d\n", "end of text", info->eos);
    else
        printf("%-16snone\n", "end of text");
    printf("%-16s%s\n", "tokenizer", info->has_tokenizer ? "found" : "none: token ids only");
    puts("\nmemory");
    print_bytes("weights", info->weight_bytes, kvad_weight_type_name(info->weights));
    print_bytes("KV per token", info->kv_bytes_per_token, "f32");
    print_bytes("KV per context", context_bytes(info), "f32");
    return cli_flush_output();
}

static int run(const struct cli_settings *settings) {
    struct kvad_model_options options;
    struct kvad_model_info info;
    struct kvad_error err = {0};
    cli_model_options(settings, NULL, &options);
    if (kvad_model_inspect(settings->arguments.items[0], &options, &info, &err) != KVAD_OK)
        return cli_fail(&err);
    /* Wrong checksums do not come this far. */
    if (settings->verify && !settings->quiet)
        cli_say("%s: %s", settings->arguments.items[0],
                info.is_packed ? "checksum of all weights is right"
                               : "not a packed file: there is no checksum to verify");
    return settings->json ? print_json(&info) : print_table(&info);
}

static const struct cli_example examples[] = {
    {"kvad inspect models/shakespeare-char", "the model that ships"},
    {"kvad inspect out/ckpt.pt", "a nanoGPT checkpoint"},
    {"kvad inspect gpt2 --json", "a model of the local Hugging Face cache, as JSON"},
    {0},
};

const struct cli_command cli_inspect = {
    .name = "inspect",
    .summary = "what is in a model file and what it would cost",
    .synopsis = "MODEL [options]",
    .description =
        "Reads the headers alone: no weights are loaded, so that it takes no time and no "
        "memory. The sizes are those that kvad generate would need.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
