/* Digests of the operations on other types: weights and caches of 16 bits, 8 bits and 4 bits. */
#include <string.h>

#include "base/bytes.h"
#include "check.h"
#include "golden.h"
#include "kernels/weights.h"

enum { ROWS = 3, PANELS = 2, K = 300 };

/* Weights of a type: converted from floats, which is defined on every CPU alike too. Weights are
 * never special: their conversion would hide it. */
static void *golden_weights(struct check *c, enum kvad_weight_type type) {
    static KVAD_ALIGNED(64) unsigned char w[PANELS * K * KVAD_PANEL * sizeof(float)];
    for (size_t p = 0; p < PANELS; p++) {
        const float *panel = check_input(c, K * KVAD_PANEL, PATTERN_PLAIN);
        kvad_convert_panel(type, w + p * kvad_panel_bytes(type, K), panel, K);
    }
    return w;
}

static void golden_half(struct check *c, enum kvad_weight_type type, kvad_linear_half_fn *run,
                        uint64_t *hash, enum check_pattern pattern) {
    float y[ROWS * PANELS * KVAD_PANEL];
    check_case(c, "16-bit weights");
    const float *x = check_input(c, ROWS * K, pattern);
    const uint16_t *w = golden_weights(c, type);
    run(&(struct kvad_linear_half_args){.y = y,
                                        .y_stride = PANELS * KVAD_PANEL,
                                        .x = x,
                                        .x_stride = K,
                                        .n_rows = ROWS,
                                        .k = K,
                                        .w = w,
                                        .n_panels = PANELS});
    golden_hash(hash, y, sizeof y / sizeof *y);
}

void golden_linear_bf16(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                        enum check_pattern pattern) {
    golden_half(c, KVAD_WEIGHTS_BF16, kernels->linear_bf16, hash, pattern);
}
void golden_linear_f16(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                       enum check_pattern pattern) {
    golden_half(c, KVAD_WEIGHTS_F16, kernels->linear_f16, hash, pattern);
}

/* Rows quantised by the level itself, then multiplied. */
static void golden_quant(struct check *c, const struct kvad_kernels *kernels,
                         enum kvad_weight_type type, kvad_linear_quant_fn *run, uint64_t *hash,
                         enum check_pattern pattern) {
    static KVAD_ALIGNED(64) unsigned char x[ROWS * 2 * K * sizeof(float)];
    float y[ROWS * PANELS * KVAD_PANEL];
    check_case(c, "quantised weights");
    for (size_t r = 0; r < ROWS; r++)
        kernels->quantise_row(x + r * kvad_quant_row_bytes(K), K, 0, check_input(c, K, pattern), K);
    const unsigned char *w = golden_weights(c, type);
    run(&(struct kvad_linear_quant_args){.y = y,
                                         .y_stride = PANELS * KVAD_PANEL,
                                         .x = x,
                                         .x_stride = kvad_quant_row_bytes(K),
                                         .n_rows = ROWS,
                                         .k = K,
                                         .w = w,
                                         .n_panels = PANELS});
    golden_hash(hash, y, sizeof y / sizeof *y);
}

void golden_linear_q8(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                      enum check_pattern pattern) {
    golden_quant(c, kernels, KVAD_WEIGHTS_Q8, kernels->linear_q8, hash, pattern);
}
void golden_linear_q4(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                      enum check_pattern pattern) {
    golden_quant(c, kernels, KVAD_WEIGHTS_Q4, kernels->linear_q4, hash, pattern);
}

/* K and V of each type: bits at random, but of no NaN or infinity. */
void golden_attention_typed(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                            enum check_pattern pattern) {
    enum { HEAD_DIM = 20, TOKENS = 48 };
    static const uint32_t visible[2] = {17, TOKENS};
    static uint32_t data[TOKENS * HEAD_DIM]; /* room for the widest type */
    float o[2 * HEAD_DIM], m[2], l[2];
    for (enum kvad_kv_type type = 0; type < KVAD_KV_TYPE_COUNT; type++) {
        check_case(c, "cache of type %d", (int)type);
        const float *scales = check_input(c, TOKENS, PATTERN_PLAIN);
        for (size_t i = 0; i < TOKENS * HEAD_DIM; i++) {
            float value = check_float(c, PATTERN_PLAIN);
            if (type == KVAD_KV_F32) data[i] = kvad_bits_from_float(value);
            if (type == KVAD_KV_F16) ((uint16_t *)data)[i] = kvad_f16_from_float(value);
            if (type == KVAD_KV_BF16) ((uint16_t *)data)[i] = kvad_bf16_from_float(value);
            if (type == KVAD_KV_Q8) ((int8_t *)data)[i] = (int8_t)(value * 127.0f);
        }
        struct kvad_kv_span span = {data, data, scales, scales, TOKENS};
        kernels->attention_chunk(
            &(struct kvad_attention_args){.q = check_input(c, 2 * HEAD_DIM, pattern),
                                          .q_stride = HEAD_DIM,
                                          .n_rows = 2,
                                          .head_dim = HEAD_DIM,
                                          .k_type = type,
                                          .v_type = type,
                                          .spans = &span,
                                          .n_spans = 1,
                                          .visible = visible,
                                          .o = o,
                                          .o_stride = HEAD_DIM,
                                          .m = m,
                                          .l = l});
        golden_hash(hash, o, 2 * HEAD_DIM);
        golden_hash(hash, m, 2);
        golden_hash(hash, l, 2);
    }
}
