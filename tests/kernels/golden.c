/* Digests of every operation on fixed inputs, compared with the stored ones. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "check.h"
#include "golden.h"

enum { N = 3072, GOLDEN_ROUNDS = 8 };

/* Hash of the hash so far and n values. Payloads of NaNs differ between instructions: one for all.
 */
void golden_hash(uint64_t *hash, const float *values, size_t n) {
    static uint32_t bits[N];
    for (size_t i = 0; i < n; i++)
        bits[i] = isnan(values[i]) ? 0x7fc00000u : kvad_bits_from_float(values[i]);
    *hash = XXH64(bits, n * sizeof *bits, *hash);
}

static void golden_linear_f32(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                              enum check_pattern pattern) {
    static float y[7 * 5 * KVAD_PANEL];
    for (size_t n_rows = 1; n_rows <= 7; n_rows += 3) {
        size_t k = 300 + 11 * n_rows, n = 5 * KVAD_PANEL;
        check_case(c, "linear");
        const float *x = check_input(c, n_rows * k, pattern);
        const float *w = check_input(c, n * k, pattern), *b = check_input(c, n, pattern);
        kernels->linear_f32(&(struct kvad_linear_f32_args){y, n, x, k, n_rows, k, w, 5, b});
        golden_hash(hash, y, n_rows * n);
    }
}

static void golden_layer_norm(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                              enum check_pattern pattern) {
    float y[768];
    for (size_t n = 1; n <= 768; n = n * 3 + 1) {
        check_case(c, "layer norm");
        const float *x = check_input(c, n, pattern), *w = check_input(c, n, pattern);
        const float *b = check_input(c, n, pattern);
        kernels->layer_norm(y, x, w, n % 2 ? b : NULL, n, 1e-5f);
        golden_hash(hash, y, n);
    }
}

static void golden_add(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                       enum check_pattern pattern) {
    check_case(c, "add");
    float *y = check_input(c, N, pattern);
    kernels->add(y, check_input(c, N, pattern), N);
    golden_hash(hash, y, N);
}

static void golden_scale(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                         enum check_pattern pattern) {
    check_case(c, "scale");
    float *y = check_input(c, N, pattern);
    kernels->scale(y, y, check_float(c, PATTERN_WIDE), N);
    golden_hash(hash, y, N);
}

static void golden_divide(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                          enum check_pattern pattern) {
    check_case(c, "divide");
    float *y = check_input(c, N, pattern);
    kernels->divide(y, y, check_float(c, PATTERN_WIDE), N);
    golden_hash(hash, y, N);
}

static void golden_attention_chunk(struct check *c, const struct kvad_kernels *kernels,
                                   uint64_t *hash, enum check_pattern pattern) {
    enum { HEAD_DIM = 44, ROWS = 5, TOKENS = 120 };
    static const uint32_t visible[ROWS] = {1, 17, 64, 119, TOKENS};
    float o[ROWS * HEAD_DIM], m[ROWS], l[ROWS];
    check_case(c, "attention");
    const float *q = check_input(c, ROWS * HEAD_DIM, PATTERN_PLAIN);
    struct kvad_kv_span spans[2] = {{.n_tokens = 48}, {.n_tokens = TOKENS - 48}};
    for (size_t i = 0; i < 2; i++) {
        spans[i].k = check_input(c, 80 * HEAD_DIM, pattern);
        spans[i].v = check_input(c, 80 * HEAD_DIM, pattern);
    }
    kernels->attention_chunk(&(struct kvad_attention_args){q, HEAD_DIM, ROWS, HEAD_DIM, KVAD_KV_F32,
                                                           KVAD_KV_F32, spans, 2, visible, o,
                                                           HEAD_DIM, m, l});
    golden_hash(hash, o, ROWS * HEAD_DIM);
    golden_hash(hash, m, ROWS);
    golden_hash(hash, l, ROWS);
}

static void golden_attention_merge(struct check *c, const struct kvad_kernels *kernels,
                                   uint64_t *hash, enum check_pattern pattern) {
    check_case(c, "merge");
    float *o = check_input(c, N, pattern), *ml = check_input(c, 4, PATTERN_PLAIN);
    kernels->attention_merge(o, ml, ml + 1, check_input(c, N, pattern), ml[2], ml[3], N);
    golden_hash(hash, o, N);
    golden_hash(hash, ml, 2);
}

#define DEFINE_GOLDEN(name, text)                                                                  \
    static void golden_##name(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash, \
                              enum check_pattern pattern) {                                        \
        check_case(c, #name);                                                                      \
        float *x = check_input(c, N, pattern);                                                     \
        for (size_t i = 0; i < N; i += 2)                                                          \
            x[i] *= 12.0f;                                                                         \
        kernels->name(x, x, N);                                                                    \
        golden_hash(hash, x, N);                                                                   \
    }
KVAD_UNARY_OPS(DEFINE_GOLDEN)
#undef DEFINE_GOLDEN

void check_golden(struct check *c, const struct kvad_kernels *kernels, bool is_printing) {
    static const struct {
        const char *name;
        golden_fn *run;
        uint64_t digest;
    } ops[] = {
#define GOLDEN_ROW(name, digest) {#name, golden_##name, digest},
        GOLDEN_DIGESTS(GOLDEN_ROW)
#undef GOLDEN_ROW
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct check fixed = {.seed = 20240917, .level = c->level, .op = ops[i].name};
        uint64_t digest = 0;
        for (int round = 0; round < GOLDEN_ROUNDS; round++)
            for (enum check_pattern pattern = 0; pattern < PATTERN_COUNT; pattern++)
                ops[i].run(&fixed, kernels, &digest, pattern);
        check_end(&fixed);
        c->op = ops[i].name;
        check_case(c, "golden digest");
        if (is_printing)
            printf("    X(%s, 0x%016" PRIx64 ")\n", ops[i].name, digest);
        else if (digest != ops[i].digest)
            check_fail(c, "digest 0x%016" PRIx64 ", stored 0x%016" PRIx64, digest, ops[i].digest);
    }
}
