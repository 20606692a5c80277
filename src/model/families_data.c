/* The tables of families.h. A parameter may have several names; the first is the usual one. */
#include "model/families.h"

#define REQUIRED    KVAD_PRESENCE_REQUIRED
#define OPTIONAL    KVAD_PRESENCE_OPTIONAL
#define BIAS_SWITCH KVAD_PRESENCE_BIAS_SWITCH

#define WHOLE(pattern, parameter, presence)                                                        \
    { pattern, KVAD_PARAMETER_##parameter, KVAD_TENSOR_WHOLE, presence }
#define PART(pattern, parameter, part, presence)                                                   \
    { pattern, KVAD_PARAMETER_##parameter, KVAD_TENSOR_##part, presence }
#define MASK(pattern)                                                                              \
    { pattern, KVAD_PARAMETER_COUNT, KVAD_TENSOR_MASK, OPTIONAL }

#define NORM(base, weight, bias, parameter, bias_presence)                                         \
    WHOLE(base weight, parameter##_WEIGHT, REQUIRED),                                              \
        WHOLE(base bias, parameter##_BIAS, bias_presence)
#define LINEAR(base, parameter, bias_presence)                                                     \
    WHOLE(base ".weight", parameter##_WEIGHT, REQUIRED),                                           \
        WHOLE(base ".bias", parameter##_BIAS, bias_presence)

/* A block with GPT-2's names below `at`. */
#define GPT2_BLOCK(at, bias)                                                                       \
    NORM(at "ln_1.", "weight", "bias", NORM1, bias), LINEAR(at "attn.c_attn", QKV, bias),          \
        LINEAR(at "attn.c_proj", OUT, bias), NORM(at "ln_2.", "weight", "bias", NORM2, bias),      \
        LINEAR(at "mlp.c_fc", UP, bias), LINEAR(at "mlp.c_proj", DOWN, bias),                      \
        MASK(at "attn.bias"), MASK(at "attn.masked_bias"), MASK(at "attn.mask")

#define GPT2_ENDS(bias)                                                                            \
    WHOLE("wte.weight", EMBEDDING, REQUIRED), WHOLE("wpe.weight", POSITIONS, REQUIRED),            \
        NORM("ln_f.", "weight", "bias", FINAL_NORM, bias),                                         \
        WHOLE("lm_head.weight", HEAD_WEIGHT, REQUIRED)

static const struct kvad_family_name gpt2[] = {GPT2_ENDS(REQUIRED), GPT2_BLOCK("h.*.", REQUIRED)};

/* Norms named gamma and beta occur in rewrites of nanoGPT. */
static const struct kvad_family_name nanogpt[] = {
    GPT2_ENDS(BIAS_SWITCH), GPT2_BLOCK("h.*.", BIAS_SWITCH),
    NORM("h.*.ln_1.", "gamma", "beta", NORM1, BIAS_SWITCH),
    NORM("h.*.ln_2.", "gamma", "beta", NORM2, BIAS_SWITCH),
    NORM("ln_f.", "gamma", "beta", FINAL_NORM, BIAS_SWITCH)};

/* GPT-2's block names under minGPT's outer ones, found in rewrites of minGPT. */
static const struct kvad_family_name blocks[] = {
    WHOLE("tok_emb.weight", EMBEDDING, REQUIRED),
    WHOLE("pos_emb.weight", POSITIONS, REQUIRED),
    NORM("ln_f.", "weight", "bias", FINAL_NORM, BIAS_SWITCH),
    WHOLE("head.weight", HEAD_WEIGHT, REQUIRED),
    WHOLE("lm_head.weight", HEAD_WEIGHT, REQUIRED),
    GPT2_BLOCK("blocks.*.", BIAS_SWITCH)};

/* minGPT of 2020: q, k, v apart, the position table a bare parameter [1][n_ctx][d_model]. */
static const struct kvad_family_name mingpt_2020[] = {
    WHOLE("tok_emb.weight", EMBEDDING, REQUIRED),
    WHOLE("pos_emb", POSITIONS, REQUIRED),
    NORM("blocks.*.ln1.", "weight", "bias", NORM1, REQUIRED),
    PART("blocks.*.attn.query.weight", QKV_WEIGHT, Q, REQUIRED),
    PART("blocks.*.attn.key.weight", QKV_WEIGHT, K, REQUIRED),
    PART("blocks.*.attn.value.weight", QKV_WEIGHT, V, REQUIRED),
    PART("blocks.*.attn.query.bias", QKV_BIAS, Q, REQUIRED),
    PART("blocks.*.attn.key.bias", QKV_BIAS, K, REQUIRED),
    PART("blocks.*.attn.value.bias", QKV_BIAS, V, REQUIRED),
    LINEAR("blocks.*.attn.proj", OUT, REQUIRED),
    NORM("blocks.*.ln2.", "weight", "bias", NORM2, REQUIRED),
    LINEAR("blocks.*.mlp.0", UP, REQUIRED),
    LINEAR("blocks.*.mlp.2", DOWN, REQUIRED),
    MASK("blocks.*.attn.mask"),
    NORM("ln_f.", "weight", "bias", FINAL_NORM, REQUIRED),
    WHOLE("head.weight", HEAD_WEIGHT, REQUIRED)};

/* The video lecture's GPT: a matrix per head, a head with a bias. */
static const struct kvad_family_name lecture[] = {
    WHOLE("token_embedding_table.weight", EMBEDDING, REQUIRED),
    WHOLE("position_embedding_table.weight", POSITIONS, REQUIRED),
    NORM("blocks.*.ln1.", "weight", "bias", NORM1, REQUIRED),
    PART("blocks.*.sa.heads.#.query.weight", QKV_WEIGHT, Q, REQUIRED),
    PART("blocks.*.sa.heads.#.key.weight", QKV_WEIGHT, K, REQUIRED),
    PART("blocks.*.sa.heads.#.value.weight", QKV_WEIGHT, V, REQUIRED),
    PART("blocks.*.sa.heads.#.query.bias", QKV_BIAS, Q, OPTIONAL),
    PART("blocks.*.sa.heads.#.key.bias", QKV_BIAS, K, OPTIONAL),
    PART("blocks.*.sa.heads.#.value.bias", QKV_BIAS, V, OPTIONAL),
    MASK("blocks.*.sa.heads.#.tril"),
    LINEAR("blocks.*.sa.proj", OUT, OPTIONAL),
    NORM("blocks.*.ln2.", "weight", "bias", NORM2, REQUIRED),
    LINEAR("blocks.*.ffwd.net.0", UP, OPTIONAL),
    LINEAR("blocks.*.ffwd.net.2", DOWN, OPTIONAL),
    NORM("ln_f.", "weight", "bias", FINAL_NORM, REQUIRED),
    LINEAR("lm_head", HEAD, OPTIONAL)};

/* The article's GPT: the lecture's with one matrix for q, k and v. */
static const struct kvad_family_name article[] = {
    WHOLE("tok_emb.weight", EMBEDDING, REQUIRED),
    WHOLE("pos_emb.weight", POSITIONS, REQUIRED),
    NORM("blocks.*.ln1.", "weight", "bias", NORM1, REQUIRED),
    LINEAR("blocks.*.attn.qkv", QKV, OPTIONAL),
    LINEAR("blocks.*.attn.proj", OUT, OPTIONAL),
    MASK("blocks.*.attn.mask"),
    MASK("blocks.*.attn.tril"),
    NORM("blocks.*.ln2.", "weight", "bias", NORM2, REQUIRED),
    LINEAR("blocks.*.ffn.net.0", UP, OPTIONAL),
    LINEAR("blocks.*.ffn.net.2", DOWN, OPTIONAL),
    NORM("ln_f.", "weight", "bias", FINAL_NORM, REQUIRED),
    LINEAR("lm_head", HEAD, OPTIONAL)};

/* The book "Build a Large Language Model (From Scratch)". */
static const struct kvad_family_name book[] = {
    WHOLE("tok_emb.weight", EMBEDDING, REQUIRED),
    WHOLE("pos_emb.weight", POSITIONS, REQUIRED),
    NORM("trf_blocks.*.norm1.", "scale", "shift", NORM1, REQUIRED),
    PART("trf_blocks.*.att.W_query.weight", QKV_WEIGHT, Q, REQUIRED),
    PART("trf_blocks.*.att.W_key.weight", QKV_WEIGHT, K, REQUIRED),
    PART("trf_blocks.*.att.W_value.weight", QKV_WEIGHT, V, REQUIRED),
    PART("trf_blocks.*.att.W_query.bias", QKV_BIAS, Q, OPTIONAL),
    PART("trf_blocks.*.att.W_key.bias", QKV_BIAS, K, OPTIONAL),
    PART("trf_blocks.*.att.W_value.bias", QKV_BIAS, V, OPTIONAL),
    LINEAR("trf_blocks.*.att.out_proj", OUT, REQUIRED),
    MASK("trf_blocks.*.att.mask"),
    NORM("trf_blocks.*.norm2.", "scale", "shift", NORM2, REQUIRED),
    LINEAR("trf_blocks.*.ff.layers.0", UP, REQUIRED),
    LINEAR("trf_blocks.*.ff.layers.2", DOWN, REQUIRED),
    NORM("final_norm.", "scale", "shift", FINAL_NORM, REQUIRED),
    WHOLE("out_head.weight", HEAD_WEIGHT, REQUIRED)};

#define NAMES(table) table, sizeof table / sizeof *table

const struct kvad_family kvad_families[KVAD_FAMILY_COUNT] = {
    [KVAD_FAMILY_GPT2] = {"gpt2", "h.*.attn.c_attn.weight", KVAD_ACTIVATION_GELU_TANH,
                          KVAD_QKV_MERGED, true, true, NAMES(gpt2)},
    /* nn.GELU since May 2023; before that the tanh form, which the file does not tell. */
    [KVAD_FAMILY_NANOGPT] = {"nanogpt", "h.*.attn.c_attn.weight", KVAD_ACTIVATION_GELU_ERF,
                             KVAD_QKV_MERGED, false, true, NAMES(nanogpt)},
    [KVAD_FAMILY_MINGPT] = {"mingpt", "h.*.attn.c_attn.weight", KVAD_ACTIVATION_GELU_TANH,
                            KVAD_QKV_MERGED, false, false, NAMES(gpt2)},
    [KVAD_FAMILY_BLOCKS] = {"mingpt-like", "blocks.*.attn.c_attn.weight", KVAD_ACTIVATION_GELU_ERF,
                            KVAD_QKV_MERGED, false, true, NAMES(blocks)},
    [KVAD_FAMILY_MINGPT_2020] = {"mingpt-2020", "blocks.*.attn.query.weight",
                                 KVAD_ACTIVATION_GELU_ERF, KVAD_QKV_SPLIT, false, false,
                                 NAMES(mingpt_2020)},
    [KVAD_FAMILY_LECTURE] = {"lecture", "blocks.*.sa.heads.#.query.weight", KVAD_ACTIVATION_RELU,
                             KVAD_QKV_PER_HEAD, false, false, NAMES(lecture)},
    [KVAD_FAMILY_ARTICLE] = {"article", "blocks.*.attn.qkv.weight", KVAD_ACTIVATION_RELU,
                             KVAD_QKV_MERGED, false, false, NAMES(article)},
    [KVAD_FAMILY_BOOK] = {"book", "trf_blocks.*.att.W_query.weight", KVAD_ACTIVATION_GELU_TANH,
                          KVAD_QKV_SPLIT, false, false, NAMES(book)},
};
