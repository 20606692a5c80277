#include "model/config.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* Above every real model, below what could overflow anything; kvad_description_check() has the
 * finer limits. */
static const uint32_t max_size = 1u << 28;

/* ---- config.json */

/* Names of Hugging Face's table of activations that are one of ours. gelu_fast and gelu_accurate
 * write the tanh form with rounded constants. */
static const struct {
    const char *name;
    enum kvad_activation activation;
} activations[] = {
    {"gelu_new", KVAD_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", KVAD_ACTIVATION_GELU_TANH},
    {"gelu_python_tanh", KVAD_ACTIVATION_GELU_TANH},
    {"gelu_fast", KVAD_ACTIVATION_GELU_TANH},
    {"gelu_accurate", KVAD_ACTIVATION_GELU_TANH},
    {"gelu", KVAD_ACTIVATION_GELU_ERF},
    {"gelu_python", KVAD_ACTIVATION_GELU_ERF},
    {"relu", KVAD_ACTIVATION_RELU},
    {"silu", KVAD_ACTIVATION_SILU},
    {"swish", KVAD_ACTIVATION_SILU},
    {"tanh", KVAD_ACTIVATION_TANH},
    {"sigmoid", KVAD_ACTIVATION_SIGMOID},
    {"quick_gelu", KVAD_ACTIVATION_QUICK_GELU},
    {"linear", KVAD_ACTIVATION_LINEAR},
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

const char *kvad_activation_config_name(enum kvad_activation activation) {
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (activations[i].activation == activation) return activations[i].name;
    return "auto";
}

enum kvad_activation kvad_activation_from_config_name(const char *name) {
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (strcmp(activations[i].name, name) == 0) return activations[i].activation;
    return KVAD_ACTIVATION_AUTO;
}

static enum kvad_status read_activation(const json_t *json, const char *name,
                                        enum kvad_activation *out, struct kvad_error *err) {
    const char *text = "gelu_new";
    KVAD_TRY(kvad_json_get_string(json, name, "activation_function", &text, err));
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (strcmp(text, activations[i].name) == 0) {
            *out = activations[i].activation;
            return KVAD_OK;
        }
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: activation_function \"%.64s\" is not supported; known: gelu_new, "
                     "gelu_pytorch_tanh, gelu_fast, gelu, relu, silu, swish, tanh, sigmoid, "
                     "quick_gelu, linear",
                     name, text);
}

/* A size that goes by two names; both may be there if they agree. */
static enum kvad_status read_size(const json_t *json, const char *name, const char *field,
                                  const char *alias, uint32_t default_value, uint32_t *out,
                                  struct kvad_error *err) {
    uint32_t value = 0, other = 0;
    KVAD_TRY(kvad_json_get_u32(json, name, field, 1, max_size, &value, err));
    KVAD_TRY(kvad_json_get_u32(json, name, alias, 1, max_size, &other, err));
    if (value && other && value != other)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %s is %u, but %s is %u", name, field, value,
                         alias, other);
    *out = value ? value : other ? other : default_value;
    return KVAD_OK;
}

static enum kvad_status read_eos(const json_t *json, const char *name, uint32_t n_vocab,
                                 int64_t *out, struct kvad_error *err) {
    const json_t *value = json_object_get(json, "eos_token_id");
    if (json_is_array(value)) value = json_array_get(value, 0);
    if (!value) {
        *out = n_vocab > 50256 ? 50256 : -1; /* GPT2Config's default */
        return KVAD_OK;
    }
    if (json_is_null(value)) return KVAD_OK;
    if (!json_is_integer(value))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: field \"eos_token_id\" must be a whole number",
                         name);
    /* Ids outside the vocabulary occur in test models; such an id simply never ends a text. */
    json_int_t id = json_integer_value(value);
    *out = id >= 0 && id < (json_int_t)n_vocab ? id : -1;
    return KVAD_OK;
}

static enum kvad_status refuse_foreign(const json_t *json, const char *name,
                                       struct kvad_error *err) {
    bool cross_attention = false;
    KVAD_TRY(kvad_json_get_bool(json, name, "add_cross_attention", &cross_attention, err));
    if (cross_attention)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: add_cross_attention is true: encoder-decoder models are not "
                         "supported",
                         name);
    const json_t *pruned = json_object_get(json, "pruned_heads");
    if (json_object_size(pruned) > 0)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: pruned_heads is not empty: models with removed heads are not "
                         "supported",
                         name);
    return KVAD_OK;
}

static enum kvad_status read_config_json(const json_t *json, const char *name,
                                         struct kvad_config *config, struct kvad_error *err) {
    KVAD_TRY(refuse_foreign(json, name, err));
    KVAD_TRY(read_size(json, name, "n_layer", "num_hidden_layers", 12, &config->n_layers, err));
    KVAD_TRY(read_size(json, name, "n_head", "num_attention_heads", 12, &config->n_heads, err));
    KVAD_TRY(read_size(json, name, "n_embd", "hidden_size", 768, &config->d_model, err));
    KVAD_TRY(
        read_size(json, name, "n_positions", "max_position_embeddings", 1024, &config->n_ctx, err));
    KVAD_TRY(kvad_json_get_u32(json, name, "n_inner", 1, max_size, &config->d_ff, err));
    if (config->d_ff == 0) config->d_ff = 4 * config->d_model;
    config->n_vocab = 50257;
    KVAD_TRY(kvad_json_get_u32(json, name, "vocab_size", 1, max_size, &config->n_vocab, err));

    KVAD_TRY(read_activation(json, name, &config->activation, err));
    double eps = 1e-5;
    KVAD_TRY(kvad_json_get_double(json, name, "layer_norm_epsilon", 0, 1, &eps, err));
    config->norm_eps = (float)eps;
    KVAD_TRY(kvad_json_get_bool(json, name, "scale_attn_weights", &config->scale_attn, err));
    KVAD_TRY(kvad_json_get_bool(json, name, "scale_attn_by_inverse_layer_idx",
                                &config->scale_attn_by_layer, err));
    bool tied = true;
    KVAD_TRY(kvad_json_get_bool(json, name, "tie_word_embeddings", &tied, err));
    config->tied = tied ? KVAD_ANSWER_YES : KVAD_ANSWER_NO;
    return read_eos(json, name, config->n_vocab, &config->eos, err);
}

/* ---- dicts inside a checkpoint */

static enum kvad_status read_int(const struct kvad_pickle_value *dict, const char *source,
                                 const char *key, uint32_t *out, struct kvad_error *err) {
    const struct kvad_pickle_value *value = kvad_pickle_get(dict, key);
    if (!value || value->kind == KVAD_PICKLE_NONE) return KVAD_OK;
    if (value->kind != KVAD_PICKLE_INT)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %s must be a whole number", source, key);
    if (value->as.integer < 1 || value->as.integer > max_size)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %s is %lld, must be 1 to %u", source, key,
                         (long long)value->as.integer, max_size);
    *out = (uint32_t)value->as.integer;
    return KVAD_OK;
}

static enum kvad_status read_model_args(const struct kvad_pickle_value *args,
                                        struct kvad_config *config, struct kvad_error *err) {
    config->source = "model_args of the checkpoint";
    if (args->kind != KVAD_PICKLE_DICT)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s must be a dict", config->source);
    KVAD_TRY(read_int(args, config->source, "n_layer", &config->n_layers, err));
    KVAD_TRY(read_int(args, config->source, "n_head", &config->n_heads, err));
    KVAD_TRY(read_int(args, config->source, "n_embd", &config->d_model, err));
    KVAD_TRY(read_int(args, config->source, "block_size", &config->n_ctx, err));
    KVAD_TRY(read_int(args, config->source, "vocab_size", &config->n_vocab, err));
    const struct kvad_pickle_value *bias = kvad_pickle_get(args, "bias");
    if (bias && bias->kind == KVAD_PICKLE_BOOL)
        config->bias = bias->as.boolean ? KVAD_ANSWER_YES : KVAD_ANSWER_NO;
    return KVAD_OK;
}

/* Hand-written trainers keep the head count under their own names. */
static const char *const head_keys[] = {"n_head", "n_heads", "num_heads", "num_attention_heads"};
enum { N_HEAD_KEYS = sizeof head_keys / sizeof *head_keys };

static enum kvad_status find_heads_in_dict(const struct kvad_pickle_value *dict, uint32_t *n_heads,
                                           struct kvad_error *err) {
    for (size_t i = 0; i < N_HEAD_KEYS && *n_heads == 0; i++)
        KVAD_TRY(read_int(dict, "the checkpoint", head_keys[i], n_heads, err));
    return KVAD_OK;
}

static enum kvad_status find_heads(const struct kvad_checkpoint *checkpoint, uint32_t *n_heads,
                                   struct kvad_error *err) {
    static const char *const dicts[] = {"model_args", "model_config", "config",
                                        "cfg",        "hparams",      "args"};
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts && *n_heads == 0; i++)
        KVAD_TRY(find_heads_in_dict(kvad_pickle_get(checkpoint->root, dicts[i]), n_heads, err));
    if (*n_heads == 0) KVAD_TRY(find_heads_in_dict(checkpoint->root, n_heads, err));
    for (size_t i = 0; i < N_HEAD_KEYS && *n_heads == 0 && checkpoint->config; i++)
        KVAD_TRY(kvad_json_get_u32(checkpoint->config, checkpoint->config_name, head_keys[i], 1,
                                   max_size, n_heads, err));
    return KVAD_OK;
}

enum kvad_status kvad_config_read(const struct kvad_checkpoint *checkpoint,
                                  const struct kvad_family *family, struct kvad_config *out,
                                  struct kvad_error *err) {
    struct kvad_config config = {
        .source = checkpoint->path, .norm_eps = 1e-5f, .scale_attn = true, .eos = -1};
    if (family == &kvad_families[KVAD_FAMILY_GPT2] && checkpoint->config) {
        config.source = checkpoint->config_name;
        KVAD_TRY(read_config_json(checkpoint->config, checkpoint->config_name, &config, err));
        *out = config;
        return KVAD_OK;
    }
    const struct kvad_pickle_value *args = kvad_pickle_get(checkpoint->root, "model_args");
    if (args && family == &kvad_families[KVAD_FAMILY_NANOGPT])
        KVAD_TRY(read_model_args(args, &config, err));
    if (config.n_heads == 0) KVAD_TRY(find_heads(checkpoint, &config.n_heads, err));
    *out = config;
    return KVAD_OK;
}
