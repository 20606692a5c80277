/* Rows of every type into and out of a block. */
#include <math.h>

#include "base/bytes.h"
#include "kv/rows.h"
#include "test.h"

enum { HEAD_DIM = 71, TOKENS = 32, LAYERS = 2, HEADS = 3 };

static const enum kvad_kv_type types[] = {KVAD_KV_F32, KVAD_KV_F16, KVAD_KV_BF16, KVAD_KV_Q8};
enum { N_TYPES = 4 };

static struct kvad_kv_shape make_shape(enum kvad_kv_type k_type, enum kvad_kv_type v_type) {
    struct kvad_kv_shape shape = {.n_layers = LAYERS,
                                  .n_kv_heads = HEADS,
                                  .head_dim = HEAD_DIM,
                                  .block_tokens = TOKENS,
                                  .k_type = k_type,
                                  .v_type = v_type};
    struct kvad_error err;
    assert_ok(kvad_kv_shape_init(&shape, &err), &err);
    return shape;
}

static float value_at(size_t layer, size_t head, size_t t, size_t d, bool is_v) {
    uint32_t x = (uint32_t)((((layer * HEADS + head) * TOKENS + t) * HEAD_DIM + d) * 2 + is_v);
    x = (x + 1) * 2654435761u;
    return ((float)(x >> 8) / 0x1p24f - 0.5f) * 6;
}

/* What a value becomes in the cache; `max` is the largest magnitude of its row. */
static float rounded(enum kvad_kv_type type, float x, float max) {
    if (type == KVAD_KV_F16) return kvad_float_from_f16(kvad_f16_from_float(x));
    if (type == KVAD_KV_BF16) return kvad_float_from_bf16(kvad_bf16_from_float(x));
    if (type == KVAD_KV_F32) return x;
    float scale = max / 127.0f;
    return scale * rintf(x / scale);
}

static float row_max(size_t layer, size_t head, size_t t, bool is_v) {
    float max = 0;
    for (size_t d = 0; d < HEAD_DIM; d++)
        max = fmaxf(max, fabsf(value_at(layer, head, t, d, is_v)));
    return max;
}

/* Tokens [t, t + n) of one tile, from rows with something else between them. */
static void write_run(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                      unsigned char *block, size_t layer, size_t head, size_t t, size_t n) {
    enum { STRIDE = HEAD_DIM + 3 };
    float k[KVAD_KV_TILE * STRIDE], v[KVAD_KV_TILE * STRIDE];
    for (size_t i = 0; i < n * STRIDE; i++)
        k[i] = v[i] = 1e30f;
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < HEAD_DIM; d++) {
            k[i * STRIDE + d] = value_at(layer, head, t + i, d, false);
            v[i * STRIDE + d] = value_at(layer, head, t + i, d, true);
        }
    kvad_kv_write_rows(kernels, shape, block, layer, head, t, n, k, v, STRIDE);
}

static void write_all(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                      unsigned char *block) {
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t t = 0, n; t < TOKENS; t += n) {
                size_t left = KVAD_KV_TILE - t % KVAD_KV_TILE, most = 1 + (t + layer + head) % 9;
                n = head == 0 || left < most ? left : most; /* whole tiles, and pieces of them */
                write_run(kernels, shape, block, layer, head, t, n);
            }
}

static void check_all(const struct kvad_kv_shape *shape, const unsigned char *block) {
    float k[HEAD_DIM], v[HEAD_DIM];
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t t = 0; t < TOKENS; t++) {
                kvad_kv_read_row(shape, block, layer, head, t, k, v);
                for (size_t d = 0; d < HEAD_DIM; d++) {
                    assert_true(k[d] == rounded(shape->k_type, value_at(layer, head, t, d, false),
                                                row_max(layer, head, t, false)));
                    assert_true(v[d] == rounded(shape->v_type, value_at(layer, head, t, d, true),
                                                row_max(layer, head, t, true)));
                }
            }
}

/* bugs.md QUANT-2: K and V are tested apart, in all pairs. */
static void test_every_row_of_every_pair_of_types_comes_back_rounded_once(void **state) {
    (void)state;
    for (int i = 0; i < N_TYPES * N_TYPES * KVAD_CPU_LEVEL_COUNT; i++) {
        enum kvad_cpu_level level = (enum kvad_cpu_level)(i / (N_TYPES * N_TYPES));
        struct kvad_kv_shape shape = make_shape(types[i / N_TYPES % N_TYPES], types[i % N_TYPES]);
        struct kvad_kernels kernels;
        if (!kvad_cpu_level_supported(level)) continue;
        kvad_kernels_pick(&kernels, level);
        /* The exact size: a byte too far is an error of the sanitizer. */
        unsigned char *block = malloc(shape.block_bytes);
        assert_non_null(block);
        write_all(&kernels, &shape, block);
        check_all(&shape, block);
        free(block);
    }
}

static void test_bytes_are_the_formula(void **state) {
    (void)state;
    static const size_t row_bytes[N_TYPES] = {4 * 64, 2 * 64, 2 * 64, 64 + 4};
    for (int i = 0; i < N_TYPES * N_TYPES; i++) {
        struct kvad_kv_shape shape = {.n_layers = 12,
                                      .n_kv_heads = 12,
                                      .head_dim = 64,
                                      .block_tokens = 16,
                                      .k_type = types[i / N_TYPES],
                                      .v_type = types[i % N_TYPES]};
        struct kvad_error err;
        assert_ok(kvad_kv_shape_init(&shape, &err), &err);
        size_t token = 12 * 12 * (row_bytes[i / N_TYPES] + row_bytes[i % N_TYPES]);
        assert_int_equal(kvad_kv_token_bytes(&shape), token);
        assert_int_equal(shape.block_bytes, 16 * token);
    }
}

static void roundtrip_q8(const float *x, float *out) {
    struct kvad_kv_shape shape = make_shape(KVAD_KV_Q8, KVAD_KV_Q8);
    unsigned char *block = calloc(shape.block_bytes, 1);
    float other[HEAD_DIM];
    assert_non_null(block);
    struct kvad_kernels kernels;
    kvad_kernels_pick(&kernels, KVAD_CPU_BASELINE);
    kvad_kv_write_rows(&kernels, &shape, block, 1, 2, 17, 1, x, x, 0);
    kvad_kv_read_row(&shape, block, 1, 2, 17, out, other);
    for (size_t d = 0; d < HEAD_DIM; d++)
        assert_true(out[d] == other[d] || (isnan(out[d]) && isnan(other[d])));
    free(block);
}

/* bugs.md QUANT-4 */
static void test_small_rows_keep_their_relative_error_in_q8(void **state) {
    (void)state;
    static const float sizes[] = {1e-3f, 0.01f, 1, 1e3f, 1e30f, 0x1p-99f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        float x[HEAD_DIM], y[HEAD_DIM];
        for (size_t d = 0; d < HEAD_DIM; d++)
            x[d] = sizes[i] * ((float)d - HEAD_DIM / 2) / (HEAD_DIM / 2);
        roundtrip_q8(x, y);
        for (size_t d = 0; d < HEAD_DIM; d++)
            assert_true(fabsf(y[d] - x[d]) <= sizes[i] / 254 * 1.001f);
    }
}

static void test_zeros_stay_zeros_and_bad_values_are_not_lost_in_q8(void **state) {
    (void)state;
    float y[HEAD_DIM], x[HEAD_DIM] = {0};
    roundtrip_q8(x, y);
    for (size_t d = 0; d < HEAD_DIM; d++)
        assert_true(y[d] == 0);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        x[4] = bad[i];
        roundtrip_q8(x, y);
        for (size_t d = 0; d < HEAD_DIM; d++)
            assert_true(isnan(y[d]));
    }
}

/* bugs.md QUANT-5 */
static void test_rounding_a_rounded_row_again_changes_nothing(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 1000; seed++) {
        float x[HEAD_DIM], y[HEAD_DIM], z[HEAD_DIM];
        for (size_t d = 0; d < HEAD_DIM; d++)
            x[d] = value_at(seed % 2, seed % 3, seed % 32, d, seed & 1) * (float)(seed + 1);
        roundtrip_q8(x, y);
        roundtrip_q8(y, z);
        for (size_t d = 0; d < HEAD_DIM; d++)
            assert_true(fabsf(z[d] - y[d]) <= fabsf(y[d]) * 0x1p-22f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_of_every_pair_of_types_comes_back_rounded_once),
        cmocka_unit_test(test_bytes_are_the_formula),
        cmocka_unit_test(test_small_rows_keep_their_relative_error_in_q8),
        cmocka_unit_test(test_zeros_stay_zeros_and_bad_values_are_not_lost_in_q8),
        cmocka_unit_test(test_rounding_a_rounded_row_again_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
