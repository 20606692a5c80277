#include "lab/synthetic.h"

#include <string.h>

#include "base/error.h"
#include "model/build.h"

/* Weights are uniform in [-width, width): sqrt(3) times their deviation, 0.02 as in GPT-2. */
#define GPT2_WIDTH 0.034641016f

/* Radford et al., "Language models are unsupervised multitask learners", 2019, table 2; names and
 * parameter counts as Hugging Face publishes them. */
static const struct size {
    const char *name;
    uint32_t n_layers, n_heads, n_kv_heads, d_model, n_vocab, n_ctx;
    float width;
} sizes[] = {
    {"gpt2", 12, 12, 12, 768, 50257, 1024, GPT2_WIDTH},
    {"gpt2-medium", 24, 16, 16, 1024, 50257, 1024, GPT2_WIDTH},
    {"gpt2-large", 36, 20, 20, 1280, 50257, 1024, GPT2_WIDTH},
    {"gpt2-xl", 48, 25, 25, 1600, 50257, 1024, GPT2_WIDTH},
    {"tiny", 2, 4, 4, 64, 301, 64, GPT2_WIDTH},
    {"odd", 3, 6, 2, 42, 101, 272, 0.4f},
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
    float width;
};

static bool is_norm_weight(enum kvad_parameter parameter) {
    return parameter == KVAD_PARAMETER_NORM1_WEIGHT || parameter == KVAD_PARAMETER_NORM2_WEIGHT ||
           parameter == KVAD_PARAMETER_FINAL_NORM_WEIGHT;
}

static enum kvad_status read(void *user, enum kvad_parameter parameter, uint32_t layer, size_t row,
                             size_t first, size_t n, float *out, struct kvad_error *err) {
    (void)err;
    const struct generator *g = user;
    float centre = is_norm_weight(parameter) ? 1.0f : 0.0f;
    uint64_t key = mix(mix(mix(g->seed ^ (uint64_t)parameter) ^ layer) ^ row);
    for (size_t i = 0; i < n; i++)
        out[i] = centre + g->width * uniform(mix(key + first + i));
    return KVAD_OK;
}

static const struct size *find_size(const char *name) {
    for (size_t i = 0; i < N_SIZES; i++)
        if (strcmp(sizes[i].name, name) == 0) return &sizes[i];
    return NULL;
}

enum kvad_status kvad_synthetic_describe(const char *name, struct kvad_description *out,
                                         struct kvad_error *err) {
    const struct size *size = find_size(name);
    if (!size) return kvad_fail(err, KVAD_ERR_NOT_FOUND, "no synthetic model \"%s\"", name);
    *out = (struct kvad_description){.family = "gpt2",
                                     .n_layers = size->n_layers,
                                     .n_heads = size->n_heads,
                                     .n_kv_heads = size->n_kv_heads,
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

static enum kvad_status build(struct generator *generator, bool has_bias,
                              const struct kvad_model_options *options, struct kvad_model **out,
                              struct kvad_error *err) {
    struct kvad_model_source source = {.read = read, .user = generator};
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++)
        source.present[p] = has_bias || !is_bias(p);
    source.present[KVAD_PARAMETER_HEAD_WEIGHT] = !generator->description.head_tied;
    source.present[KVAD_PARAMETER_HEAD_BIAS] = false;
    return kvad_model_build(&generator->description, &source, options, out, err);
}

enum kvad_status kvad_synthetic_build_sizes(const struct kvad_description *description,
                                            bool has_bias, uint64_t seed,
                                            const struct kvad_model_options *options,
                                            struct kvad_model **out, struct kvad_error *err) {
    struct generator generator = {.description = *description, .seed = seed, .width = GPT2_WIDTH};
    return build(&generator, has_bias, options, out, err);
}

enum kvad_status kvad_synthetic_build(const char *name, uint64_t seed,
                                      const struct kvad_model_options *options,
                                      struct kvad_model **out, struct kvad_error *err) {
    struct generator generator = {.seed = seed};
    KVAD_TRY(kvad_synthetic_describe(name, &generator.description, err));
    generator.width = find_size(name)->width;
    return build(&generator, true, options, out, err);
}
