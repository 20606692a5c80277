#include "tiny_model.h"

#include <math.h>

#include "random.h"
#include "test.h"

const struct tiny_sizes tiny_odd = {.n_layers = 3,
                                    .n_heads = 5,
                                    .n_kv_heads = 5,
                                    .head_dim = 7,
                                    .d_ff = 83,
                                    .n_vocab = 101,
                                    .n_ctx = 61,
                                    .seed = 1};
const struct tiny_sizes tiny_wide = {.n_layers = 2,
                                     .n_heads = 7,
                                     .n_kv_heads = 7,
                                     .head_dim = 20,
                                     .d_ff = 301,
                                     .n_vocab = 53,
                                     .n_ctx = 40,
                                     .activation = KVAD_ACTIVATION_GELU_ERF,
                                     .no_bias = true,
                                     .seed = 2};
const struct tiny_sizes tiny_long = {.n_layers = 2,
                                     .n_heads = 3,
                                     .n_kv_heads = 3,
                                     .head_dim = 5,
                                     .d_ff = 37,
                                     .n_vocab = 43,
                                     .n_ctx = 560,
                                     .activation = KVAD_ACTIVATION_SILU,
                                     .seed = 3};
const struct tiny_sizes tiny_gqa = {.n_layers = 3,
                                    .n_heads = 6,
                                    .n_kv_heads = 2,
                                    .head_dim = 9,
                                    .d_ff = 70,
                                    .n_vocab = 77,
                                    .n_ctx = 47,
                                    .activation = KVAD_ACTIVATION_RELU,
                                    .untied = true,
                                    .seed = 4};

size_t tiny_token_bytes(const struct tiny_sizes *sizes) {
    size_t width = (size_t)sizes->n_kv_heads * sizes->head_dim;
    return sizeof(float) * 2 * sizes->n_layers * width;
}

size_t tiny_block_bytes(const struct tiny_sizes *sizes) {
    return 16 * tiny_token_bytes(sizes);
}

static struct kvad_description describe(const struct tiny_sizes *sizes) {
    struct kvad_description d = {.family = "test",
                                 .n_layers = sizes->n_layers,
                                 .n_heads = sizes->n_heads,
                                 .n_kv_heads = sizes->n_kv_heads,
                                 .head_dim = sizes->head_dim,
                                 .d_model = sizes->n_heads * sizes->head_dim,
                                 .d_ff = sizes->d_ff,
                                 .n_vocab = sizes->n_vocab,
                                 .n_ctx = sizes->n_ctx,
                                 .norm = KVAD_NORM_LAYER,
                                 .position = KVAD_POSITION_LEARNED,
                                 .activation = sizes->activation,
                                 .norm_eps = 1e-5f,
                                 .scale_attn = !sizes->no_scale,
                                 .scale_attn_by_layer = sizes->scale_by_layer,
                                 .head_tied = !sizes->untied,
                                 .eos = -1};
    if (d.activation == KVAD_ACTIVATION_AUTO) d.activation = KVAD_ACTIVATION_GELU_TANH;
    return d;
}

static bool is_bias(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_NORM1_BIAS || p == KVAD_PARAMETER_QKV_BIAS ||
           p == KVAD_PARAMETER_OUT_BIAS || p == KVAD_PARAMETER_NORM2_BIAS ||
           p == KVAD_PARAMETER_UP_BIAS || p == KVAD_PARAMETER_DOWN_BIAS ||
           p == KVAD_PARAMETER_FINAL_NORM_BIAS || p == KVAD_PARAMETER_HEAD_BIAS;
}

static bool is_norm_weight(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_NORM1_WEIGHT || p == KVAD_PARAMETER_NORM2_WEIGHT ||
           p == KVAD_PARAMETER_FINAL_NORM_WEIGHT;
}

/* Values such that scores and logits spread over several units: attention then looks at some
 * tokens much more than at others, and a wrong row shows. */
static void fill(float *values, enum kvad_parameter p, size_t n_rows, size_t n_columns,
                 struct test_random *random) {
    double middle = is_norm_weight(p) ? 1.1 : 0, spread = 0.4;
    if (!is_norm_weight(p) && !is_bias(p)) spread = 2.2 / sqrt((double)n_columns);
    if (p == KVAD_PARAMETER_EMBEDDING || p == KVAD_PARAMETER_POSITIONS) spread = 1.3;
    if (p == KVAD_PARAMETER_QKV_WEIGHT) spread *= 1.6;
    for (size_t i = 0; i < n_rows * n_columns; i++)
        values[i] = (float)(middle + spread * random_unit(random));
}

size_t tiny_model_size(const struct tiny_model *tiny, enum kvad_parameter parameter) {
    size_t n_rows, n_columns;
    kvad_parameter_shape(&tiny->description, parameter, &n_rows, &n_columns);
    return n_rows * n_columns;
}

static struct tiny_model *create(const struct kvad_description *description,
                                 const bool present[KVAD_PARAMETER_COUNT]) {
    struct tiny_model *tiny = calloc(1, sizeof *tiny);
    assert_non_null(tiny);
    tiny->description = *description;
    memcpy(tiny->present, present, sizeof tiny->present);
    tiny->parameters = calloc(1 + description->n_layers, sizeof *tiny->parameters);
    assert_non_null(tiny->parameters);
    for (uint32_t level = 0; level <= description->n_layers; level++)
        for (int i = 0; i < KVAD_PARAMETER_COUNT; i++) {
            enum kvad_parameter p = (enum kvad_parameter)i;
            if (!present[p] || kvad_parameter_is_per_layer(p) != (level > 0)) continue;
            tiny->parameters[level][p] = calloc(tiny_model_size(tiny, p), sizeof(float));
            assert_non_null(tiny->parameters[level][p]);
        }
    return tiny;
}

struct tiny_model *tiny_model_create(const struct tiny_sizes *sizes) {
    struct kvad_description description = describe(sizes);
    bool present[KVAD_PARAMETER_COUNT];
    for (int p = 0; p < KVAD_PARAMETER_COUNT; p++)
        present[p] = !sizes->no_bias || !is_bias((enum kvad_parameter)p);
    present[KVAD_PARAMETER_HEAD_WEIGHT] = sizes->untied;
    if (!sizes->untied) present[KVAD_PARAMETER_HEAD_BIAS] = false;
    struct tiny_model *tiny = create(&description, present);
    struct test_random random = {sizes->seed};
    for (uint32_t level = 0; level <= description.n_layers; level++)
        for (int i = 0; i < KVAD_PARAMETER_COUNT; i++) {
            if (!tiny->parameters[level][i]) continue;
            size_t n_rows, n_columns;
            kvad_parameter_shape(&description, (enum kvad_parameter)i, &n_rows, &n_columns);
            fill(tiny->parameters[level][i], (enum kvad_parameter)i, n_rows, n_columns, &random);
        }
    return tiny;
}

void tiny_model_destroy(struct tiny_model *tiny) {
    if (!tiny) return;
    for (uint32_t level = 0; level <= tiny->description.n_layers; level++)
        for (int p = 0; p < KVAD_PARAMETER_COUNT; p++)
            free(tiny->parameters[level][p]);
    free(tiny->parameters);
    free(tiny);
}

/* Rows of qkv (n_columns wide) for every query head: its own q, and the k and v of its group. */
static void repeat_qkv(const struct kvad_description *from, const float *in, size_t n_columns,
                       float *out) {
    size_t head = (size_t)from->head_dim * n_columns;
    size_t n_group = from->n_heads / from->n_kv_heads;
    for (size_t h = 0; h < from->n_heads; h++) {
        size_t k = from->n_heads + h / n_group, v = k + from->n_kv_heads;
        memcpy(out + h * head, in + h * head, head * sizeof *out);
        memcpy(out + (from->n_heads + h) * head, in + k * head, head * sizeof *out);
        memcpy(out + (2 * from->n_heads + h) * head, in + v * head, head * sizeof *out);
    }
}

struct tiny_model *tiny_model_repeat_kv(const struct tiny_model *tiny) {
    struct kvad_description description = tiny->description;
    description.n_kv_heads = description.n_heads;
    struct tiny_model *repeated = create(&description, tiny->present);
    for (uint32_t level = 0; level <= description.n_layers; level++)
        for (int i = 0; i < KVAD_PARAMETER_COUNT; i++) {
            const float *in = tiny->parameters[level][i];
            float *out = repeated->parameters[level][i];
            if (!in) continue;
            if (i == KVAD_PARAMETER_QKV_WEIGHT)
                repeat_qkv(&tiny->description, in, description.d_model, out);
            else if (i == KVAD_PARAMETER_QKV_BIAS)
                repeat_qkv(&tiny->description, in, 1, out);
            else
                memcpy(out, in, tiny_model_size(tiny, (enum kvad_parameter)i) * sizeof *out);
        }
    return repeated;
}

enum kvad_status tiny_model_try_build(const struct tiny_model *tiny,
                                      const struct kvad_model_options *options,
                                      struct kvad_model **out, struct kvad_error *err) {
    return kvad_model_build_arrays(
        &tiny->description, (const float *const(*)[KVAD_PARAMETER_COUNT])(void *)tiny->parameters,
        options, out, err);
}

struct kvad_model *tiny_model_build(const struct tiny_model *tiny) {
    struct kvad_model *model = NULL;
    struct kvad_error err;
    assert_ok(tiny_model_try_build(tiny, NULL, &model, &err), &err);
    return model;
}

int32_t *tiny_tokens(uint32_t n_vocab, size_t n, uint64_t seed) {
    struct test_random random = {seed ^ 0x746f6b656e73u};
    int32_t *tokens = malloc(n * sizeof *tokens);
    assert_non_null(tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)random_below(&random, n_vocab);
    return tokens;
}
