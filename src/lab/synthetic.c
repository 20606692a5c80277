#include "lab/synthetic.h"

#include <string.h>

#include "base/error.h"
#include "model/build.h"

/* Radford et al., "Language models are unsupervised multitask learners", 2019, table 2; names and
 * parameter counts as Hugging Face publishes them. */
static const struct size {
    const char *name;
    uint32_t n_layers, n_heads, d_model, n_vocab, n_ctx;
} sizes[] = {
    {"gpt2", 12, 12, 768, 50257, 1024},
    {"gpt2-medium", 24, 16, 1024, 50257, 1024},
    {"gpt2-large", 36, 20, 1280, 50257, 1024},
    {"gpt2-xl", 48, 25, 1600, 50257, 1024},
    {"tiny", 2, 4, 64, 301, 64},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

const char *kvad_synthetic_name(unsigned index) {
    return index < N_SIZES ? sizes[index].name : NULL;
}

/* A hash of 64 bits that passes as random: the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", OOPSLA 2014). */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Uniform in [-1, 1), a multiple of 2^-23. */
static float uniform(uint64_t hash) {
    return (float)((int32_t)(hash >> 40) - (1 << 23)) * 0x1p-23f;
}

struct generator {
    struct kvad_description description;
    uint64_t seed;
};

static bool is_norm_weight(enum kvad_parameter parameter) {
    return parameter == KVAD_PARAMETER_NORM1_WEIGHT || parameter == KVAD_PARAMETER_NORM2_WEIGHT ||
           parameter == KVAD_PARAMETER_FINAL_NORM_WEIGHT;
}

static enum kvad_status read_row(void *user, enum kvad_parameter parameter, uint32_t layer,
                                 size_t row, float *out, struct kvad_error *err) {
    (void)err;
    const struct generator *g = user;
    size_t n_rows, n_columns;
    kvad_parameter_shape(&g->description, parameter, &n_rows, &n_columns);
    /* sqrt(3) * 0.02: a uniform number of this width has the standard deviation 0.02. */
    const float width = 0.034641016f;
    float centre = is_norm_weight(parameter) ? 1.0f : 0.0f;
    uint64_t key = mix(mix(mix(g->seed ^ (uint64_t)parameter) ^ layer) ^ row);
    for (size_t i = 0; i < n_columns; i++)
        out[i] = centre + width * uniform(mix(key + i));
    return KVAD_OK;
}

enum kvad_status kvad_synthetic_describe(const char *name, struct kvad_description *out,
                                         struct kvad_error *err) {
    const struct size *size = NULL;
    for (size_t i = 0; i < N_SIZES; i++)
        if (strcmp(sizes[i].name, name) == 0) size = &sizes[i];
    if (!size) return kvad_fail(err, KVAD_ERR_NOT_FOUND, "no synthetic model \"%s\"", name);
    *out = (struct kvad_description){.family = "gpt2",
                                     .n_layers = size->n_layers,
                                     .n_heads = size->n_heads,
                                     .n_kv_heads = size->n_heads,
                                     .head_dim = size->d_model / size->n_heads,
                                     .d_model = size->d_model,
                                     .d_ff = 4 * size->d_model,
                                     .n_vocab = size->n_vocab,
                                     .n_ctx = size->n_ctx,
                                     .activation = KVAD_ACTIVATION_GELU_TANH,
                                     .norm_eps = 1e-5f,
                                     .scale_attn = true,
                                     .head_tied = true,
                                     .eos = -1};
    return KVAD_OK;
}

static bool is_bias(enum kvad_parameter parameter) {
    static const enum kvad_parameter biases[] = {
        KVAD_PARAMETER_NORM1_BIAS,     KVAD_PARAMETER_QKV_BIAS, KVAD_PARAMETER_OUT_BIAS,
        KVAD_PARAMETER_NORM2_BIAS,     KVAD_PARAMETER_UP_BIAS,  KVAD_PARAMETER_DOWN_BIAS,
        KVAD_PARAMETER_FINAL_NORM_BIAS};
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (parameter == biases[i]) return true;
    return false;
}

enum kvad_status kvad_synthetic_build_sizes(const struct kvad_description *description,
                                            bool has_bias, uint64_t seed,
                                            const struct kvad_model_options *options,
                                            struct kvad_model **out, struct kvad_error *err) {
    struct generator generator = {.description = *description, .seed = seed};
    struct kvad_model_source source = {.read_row = read_row, .user = &generator};
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++)
        source.present[p] = has_bias || !is_bias(p);
    source.present[KVAD_PARAMETER_HEAD_WEIGHT] = !description->head_tied;
    source.present[KVAD_PARAMETER_HEAD_BIAS] = false;
    return kvad_model_build(description, &source, options, out, err);
}

enum kvad_status kvad_synthetic_build(const char *name, uint64_t seed,
                                      const struct kvad_model_options *options,
                                      struct kvad_model **out, struct kvad_error *err) {
    struct kvad_description description;
    KVAD_TRY(kvad_synthetic_describe(name, &description, err));
    return kvad_synthetic_build_sizes(&description, true, seed, options, out, err);
}
