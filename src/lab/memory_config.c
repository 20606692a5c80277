/* The shape of a cache out of a config.json: whatever family it is of, as long as its layers keep
 * keys and values. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "lab/memory_formula.h"

/* Above every model, and low enough that one layer's bytes cannot overflow 64 bits. */
enum { MAX_LAYERS = 1 << 16, MAX_HEADS = 1 << 16, MAX_DIM = 1 << 20, MAX_TOKENS = 1 << 30 };

/* A config.json is a few kilobytes. */
enum { MAX_CONFIG_BYTES = 16 << 20 };

/* Names of one number in the configs of different families; NULL ends the list. */
struct names {
    const char *list[5];
};
static const struct names layer_names = {
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", NULL}};
static const struct names head_names = {{"num_attention_heads", "n_head", "n_heads", NULL}};
static const struct names kv_names = {
    {"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", NULL}};
static const struct names width_names = {{"hidden_size", "n_embd", "d_model", NULL}};
static const struct names context_names = {
    {"max_position_embeddings", "n_positions", "n_ctx", "seq_length", NULL}};

/* A number that goes by several names; where two are there they agree. 0: none is. */
static enum kvad_status read_number(const json_t *json, const char *file, const struct names *names,
                                    uint32_t max, uint32_t *out, struct kvad_error *err) {
    const char *first = NULL;
    *out = 0;
    for (const char *const *name = names->list; *name; name++) {
        uint32_t value = 0;
        KVAD_TRY(kvad_json_get_u32(json, file, *name, 1, max, &value, err));
        if (value && *out && value != *out)
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %s is %u, but %s is %u", file, first, *out,
                             *name, value);
        if (!value) continue;
        *out = value;
        first = *name;
    }
    return KVAD_OK;
}

static enum kvad_status need_number(const json_t *json, const char *file, const struct names *names,
                                    uint32_t max, uint32_t *out, struct kvad_error *err) {
    KVAD_TRY(read_number(json, file, names, max, out, err));
    if (*out) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: field \"%s\" is missing (nor is there \"%s\")",
                     file, names->list[0], names->list[1]);
}

/* Size of a head: said, or the width cut into heads. */
static enum kvad_status read_head_dim(const json_t *json, const char *file,
                                      struct kvad_memory_shape *shape, struct kvad_error *err) {
    uint32_t dim = 0, width;
    KVAD_TRY(kvad_json_get_u32(json, file, "head_dim", 1, MAX_DIM, &dim, err));
    if (!dim) {
        KVAD_TRY(need_number(json, file, &width_names, MAX_DIM, &width, err));
        if (width % shape->n_heads != 0)
            return kvad_fail(err, KVAD_ERR_FORMAT,
                             "%s: a width of %u cannot be cut into %u heads, and there is no field "
                             "\"head_dim\"",
                             file, width, shape->n_heads);
        dim = width / shape->n_heads;
    }
    shape->k_dim = shape->v_dim = dim;
    return KVAD_OK;
}

static enum kvad_status read_kv_heads(const json_t *json, const char *file,
                                      struct kvad_memory_shape *shape, struct kvad_error *err) {
    bool multi_query = false, new_decoder = false; /* falcon, gpt_bigcode; its later versions */
    KVAD_TRY(kvad_json_get_bool(json, file, "multi_query", &multi_query, err));
    KVAD_TRY(kvad_json_get_bool(json, file, "new_decoder_architecture", &new_decoder, err));
    KVAD_TRY(read_number(json, file, &kv_names, MAX_HEADS, &shape->n_kv_heads, err));
    if (multi_query && !new_decoder) shape->n_kv_heads = 1;
    if (!shape->n_kv_heads) shape->n_kv_heads = shape->n_heads;
    return KVAD_OK;
}

/* DeepSeek's keys. Without them nothing changes. */
static enum kvad_status read_latent(const json_t *json, const char *file,
                                    struct kvad_memory_shape *shape, struct kvad_error *err) {
    uint32_t plain = 0;
    KVAD_TRY(kvad_json_get_u32(json, file, "kv_lora_rank", 1, MAX_DIM, &shape->latent_dim, err));
    if (!shape->latent_dim) return KVAD_OK;
    KVAD_TRY(kvad_json_get_u32(json, file, "qk_rope_head_dim", 0, MAX_DIM, &shape->rope_dim, err));
    KVAD_TRY(kvad_json_get_u32(json, file, "qk_nope_head_dim", 1, MAX_DIM, &plain, err));
    KVAD_TRY(kvad_json_get_u32(json, file, "v_head_dim", 1, MAX_DIM, &shape->v_dim, err));
    if (!plain || !shape->v_dim)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: field \"kv_lora_rank\" is there, but \"%s\" is missing", file,
                         plain ? "v_head_dim" : "qk_nope_head_dim");
    shape->k_dim = plain + shape->rope_dim;
    shape->n_kv_heads = shape->n_heads;
    return KVAD_OK;
}

/* layer_types names each layer's attention. */
static enum kvad_status count_layer_types(const json_t *types, const char *file,
                                          struct kvad_memory_shape *shape, struct kvad_error *err) {
    if (!json_is_array(types) || json_array_size(types) != shape->n_layers)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: field \"layer_types\" must be a list of %u names, one a layer", file,
                         shape->n_layers);
    shape->n_window_layers = 0;
    for (size_t i = 0; i < shape->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, "sliding_attention") == 0)
            shape->n_window_layers++;
        else if (!type || strcmp(type, "full_attention") != 0)
            return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                             "%s: layer_types[%zu] is \"%.40s\": formulas are known for "
                             "full_attention and sliding_attention",
                             file, i, type ? type : "no name");
    }
    return KVAD_OK;
}

/* Which layers have the window: all, those of a list or a pattern, or those above a number. */
static enum kvad_status count_window_layers(const json_t *json, const char *file,
                                            struct kvad_memory_shape *shape,
                                            struct kvad_error *err) {
    const json_t *types = json_object_get(json, "layer_types");
    const char *model_type = "";
    uint32_t pattern = 0, below = 0;
    KVAD_TRY(kvad_json_get_string(json, file, "model_type", &model_type, err));
    KVAD_TRY(kvad_json_get_u32(json, file, "sliding_window_pattern", 1, MAX_LAYERS, &pattern, err));
    KVAD_TRY(kvad_json_get_u32(json, file, "max_window_layers", 0, MAX_LAYERS, &below, err));
    if (types && !json_is_null(types)) return count_layer_types(types, file, shape, err);
    if (strcmp(model_type, "gemma2") == 0) pattern = 2; /* older files leave it out */
    if (strncmp(model_type, "gemma3", 6) == 0 && !pattern) pattern = 6;
    shape->n_window_layers = shape->n_layers;
    if (pattern) /* every pattern-th layer sees all */
        shape->n_window_layers -= shape->n_layers / pattern;
    else if (strncmp(model_type, "qwen", 4) == 0) /* the first `below` layers see all */
        shape->n_window_layers -= below < shape->n_layers ? below : shape->n_layers;
    return KVAD_OK;
}

static enum kvad_status read_window(const json_t *json, const char *file,
                                    struct kvad_memory_shape *shape, struct kvad_error *err) {
    bool is_used = true;
    KVAD_TRY(kvad_json_get_bool(json, file, "use_sliding_window", &is_used, err));
    KVAD_TRY(kvad_json_get_u32(json, file, "sliding_window", 1, MAX_TOKENS, &shape->window, err));
    KVAD_TRY(count_window_layers(json, file, shape, err));
    if (!is_used || !shape->window || !shape->n_window_layers)
        shape->window = shape->n_window_layers = 0;
    return KVAD_OK;
}

static enum kvad_status check_heads(const struct kvad_memory_shape *shape, const char *name,
                                    struct kvad_error *err) {
    if (shape->n_kv_heads > shape->n_heads || shape->n_heads % shape->n_kv_heads != 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %u kv heads do not divide %u heads", name,
                         shape->n_kv_heads, shape->n_heads);
    return KVAD_OK;
}

static enum kvad_status read_shape(const json_t *json, const char *file,
                                   struct kvad_memory_shape *shape, struct kvad_error *err) {
    KVAD_TRY(need_number(json, file, &layer_names, MAX_LAYERS, &shape->n_layers, err));
    KVAD_TRY(need_number(json, file, &head_names, MAX_HEADS, &shape->n_heads, err));
    KVAD_TRY(read_number(json, file, &context_names, MAX_TOKENS, &shape->n_ctx, err));
    KVAD_TRY(read_latent(json, file, shape, err));
    if (!shape->latent_dim) {
        KVAD_TRY(read_kv_heads(json, file, shape, err));
        KVAD_TRY(read_head_dim(json, file, shape, err));
    }
    KVAD_TRY(read_window(json, file, shape, err));
    return check_heads(shape, file, err);
}

enum kvad_status kvad_memory_shape_read(const char *text, size_t size, const char *name,
                                        struct kvad_memory_shape *out, struct kvad_error *err) {
    json_t *root = NULL;
    KVAD_TRY(kvad_json_parse_object(text, size, name, &root, err));
    struct kvad_memory_shape shape = {0};
    snprintf(shape.name, sizeof shape.name, "%s", name);
    snprintf(shape.source, sizeof shape.source, "config.json");
    /* Models that also see pictures keep the text's part apart. */
    const json_t *nested = json_object_get(root, "text_config");
    enum kvad_status status = read_shape(json_is_object(nested) ? nested : root, name, &shape, err);
    json_decref(root);
    if (status == KVAD_OK) *out = shape;
    return status;
}

static enum kvad_status read_config_file(const char *path, struct kvad_memory_shape *out,
                                         struct kvad_error *err) {
    struct kvad_file_map map;
    KVAD_TRY(kvad_file_map_open(&map, path, err));
    enum kvad_status status;
    if (map.size > MAX_CONFIG_BYTES)
        status = kvad_fail(err, KVAD_ERR_FORMAT, "%s: %zu bytes are too many for a config.json",
                           path, map.size);
    else
        status = kvad_memory_shape_read((const char *)map.data, map.size, path, out, err);
    kvad_file_map_close(&map);
    return status;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum kvad_status inspect(const char *path, struct kvad_memory_shape *out,
                                struct kvad_error *err) {
    struct kvad_model_options options;
    struct kvad_model_info info;
    kvad_model_options_init(&options);
    options.no_tokenizer = true;
    enum kvad_status status = kvad_model_inspect(path, &options, &info, err);
    if (status == KVAD_OK) kvad_memory_shape_of(&info, path, out);
    return status;
}

enum kvad_status kvad_memory_shape_open(const char *path, struct kvad_memory_shape *out,
                                        struct kvad_error *err) {
    struct stat st;
    char inside[4096];
    bool exists = stat(path, &st) == 0;
    if (!exists && kvad_memory_shape_find(path, out)) return KVAD_OK;
    if (exists && S_ISDIR(st.st_mode)) {
        int n = snprintf(inside, sizeof inside, "%s/config.json", path);
        if (n > 0 && (size_t)n < sizeof inside && stat(inside, &st) == 0)
            return read_config_file(inside, out, err);
        return inspect(path, out, err);
    }
    if (exists && ends_with(path, ".json") && !ends_with(path, ".index.json"))
        return read_config_file(path, out, err);
    return inspect(path, out, err);
}
