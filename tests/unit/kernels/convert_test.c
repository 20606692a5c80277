/* Conversion of weights to 16 bits, q8 and q4, and back: against independent computations of the
 * same rules. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/weights.h"

static float value_of(size_t i) {
    return (float)((i * 2654435761u >> 7) % 200001) / 100000.0f - 1.0f;
}

/* The nearest bf16 by distance, ties to the even one; beyond the last finite value 2^128 stands for
 * infinity. */
static uint16_t nearest_bf16(float f) {
    uint32_t bits = kvad_bits_from_float(f);
    if (isinf(f)) return (uint16_t)(bits >> 16);
    uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    double magnitude = fabs((double)f);
    double low = fabs((double)kvad_float_from_bits((uint32_t)below << 16));
    double high = (above & 0x7fffu) == 0x7f80u
                      ? 0x1p128
                      : fabs((double)kvad_float_from_bits((uint32_t)above << 16));
    double to_low = magnitude - low, to_high = high - magnitude;
    if (to_low != to_high) return to_low < to_high ? below : above;
    return below & 1 ? above : below;
}

static void test_bf16_rounds_to_nearest_even_everywhere(void **state) {
    (void)state;
    static const uint32_t rests[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4321, 0xc321};
    for (uint32_t top = 0; top < 65536; top++)
        for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
            float f = kvad_float_from_bits(top << 16 | rests[i]);
            uint16_t h = kvad_bf16_from_float(f);
            if (isnan(f))
                assert_true(isnan(kvad_float_from_bf16(h)));
            else
                assert_int_equal(h, nearest_bf16(f));
        }
}

/* The nearest half as a number: a multiple of the unit in its place, which is 2^-24 at least. */
static double nearest_f16(double x) {
    int exponent;
    frexp(x, &exponent);
    int unit = exponent - 11 < -24 ? -24 : exponent - 11;
    double rounded = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(rounded) >= 65536 ? copysign(INFINITY, x) : rounded;
}

static void check_f16(float f) {
    uint16_t h = kvad_f16_from_float(f);
    float back = kvad_float_from_f16(h);
    assert_true((double)back == nearest_f16((double)f) && !signbit(back) == !signbit(f));
}

/* At every half, and at, just below and just above every middle between two of them. */
static void test_f16_rounds_to_nearest_even_everywhere(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float here = kvad_float_from_f16((uint16_t)h);
        float next = h == 0x7bff ? 65536.0f : kvad_float_from_f16((uint16_t)(h + 1));
        float middle = here + (next - here) * 0.5f;
        const float values[] = {here, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY),
                                nextafterf(here, INFINITY)};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            check_f16(values[i]);
            check_f16(-values[i]);
        }
    }
    check_f16(FLT_MAX);
    check_f16(-FLT_MAX);
    check_f16(FLT_MIN);
    check_f16(0x1p-149f);
    assert_int_equal(kvad_f16_from_float(INFINITY), 0x7c00);
    assert_int_equal(kvad_f16_from_float(-INFINITY), 0xfc00);
    assert_true(isnan(kvad_float_from_f16(kvad_f16_from_float(NAN))));
}

static void test_every_half_survives_the_way_to_float_and_back(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        if (isnan(kvad_float_from_f16(h)))
            assert_true(isnan(kvad_float_from_f16(kvad_f16_from_float(kvad_float_from_f16(h)))));
        else
            assert_int_equal(kvad_f16_from_float(kvad_float_from_f16(h)), h);
        if (!isnan(kvad_float_from_bf16(h)))
            assert_int_equal(kvad_bf16_from_float(kvad_float_from_bf16(h)), h);
    }
}

/* A panel of k inputs, converted, in memory of exactly its size so that sanitizers see every byte
 * beyond. */
struct converted {
    float *panel, *row;
    unsigned char *bytes;
    size_t k, n_bytes;
};

static struct converted new_converted(size_t k) {
    struct converted c = {malloc(k * KVAD_PANEL * sizeof *c.panel), malloc(k * sizeof *c.row), NULL,
                          k, 0};
    assert_non_null(c.panel);
    assert_non_null(c.row);
    for (size_t i = 0; i < k * KVAD_PANEL; i++)
        c.panel[i] = value_of(i * 31 + k);
    return c;
}
static void convert(struct converted *c, enum kvad_weight_type type) {
    free(c->bytes);
    c->n_bytes = kvad_panel_bytes(type, c->k);
    c->bytes = malloc(c->n_bytes);
    assert_non_null(c->bytes);
    memset(c->bytes, 0xa5, c->n_bytes);
    kvad_convert_panel(type, c->bytes, c->panel, c->k);
}
static void free_converted(struct converted *c) {
    free(c->panel);
    free(c->row);
    free(c->bytes);
}

/* One lane of one group by the reference quantisers of GGUF: q8_0 divides the largest magnitude by
 * 127 and rounds half away from zero; q4_0 divides the value of the largest magnitude by -8 and
 * takes min(15, trunc(x / d + 8.5)). */
static void reference_group(enum kvad_weight_type type, const struct converted *c, size_t lane,
                            size_t first, size_t last, float *values) {
    float max = 0, extreme = 0;
    for (size_t i = first; i < last; i++) {
        float v = c->panel[i * KVAD_PANEL + lane];
        if (fabsf(v) > max) max = fabsf(v), extreme = v;
    }
    float d = type == KVAD_WEIGHTS_Q8 ? max / 127.0f : extreme / -8.0f;
    float inverse = d != 0 ? 1.0f / d : 0.0f;
    float stored = kvad_float_from_f16(kvad_f16_from_float(d));
    for (size_t i = first; i < last; i++) {
        float scaled = c->panel[i * KVAD_PANEL + lane] * inverse;
        int q = type == KVAD_WEIGHTS_Q8 ? (int)roundf(scaled)
                                        : (int)fminf(15.0f, truncf(scaled + 8.5f)) - 8;
        values[i] = stored * (float)q;
    }
}

static void test_quantised_values_are_those_of_gguf(void **state) {
    (void)state;
    static const size_t ks[] = {1, 7, 32, 33, 64, 70, 96, 200, 768};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (int q8 = 0; q8 <= 1; q8++) {
            enum kvad_weight_type type = q8 ? KVAD_WEIGHTS_Q8 : KVAD_WEIGHTS_Q4;
            struct converted c = new_converted(ks[i]);
            float *expected = malloc(c.k * sizeof *expected);
            assert_non_null(expected);
            convert(&c, type);
            for (size_t lane = 0; lane < KVAD_PANEL; lane++) {
                for (size_t first = 0; first < c.k; first += KVAD_GROUP)
                    reference_group(type, &c, lane, first,
                                    first + KVAD_GROUP < c.k ? first + KVAD_GROUP : c.k, expected);
                kvad_panel_row(type, c.bytes, lane, c.k, c.row);
                for (size_t t = 0; t < c.k; t++)
                    assert_true(c.row[t] == expected[t]);
            }
            free(expected);
            free_converted(&c);
        }
}

/* Whole numbers whose scale is 1: each byte is known. */
static void test_quants_lie_where_the_header_says(void **state) {
    (void)state;
    enum { K = 96 }; /* three groups: the second superblock is half empty */
    for (int q8 = 0; q8 <= 1; q8++) {
        enum kvad_weight_type type = q8 ? KVAD_WEIGHTS_Q8 : KVAD_WEIGHTS_Q4;
        struct converted c = new_converted(K);
        int low = q8 ? -127 : -8, n_values = q8 ? 255 : 16;
        for (size_t i = 0; i < K * KVAD_PANEL; i++)
            c.panel[i] = (float)(low + (int)(i * 37 % (size_t)n_values));
        for (size_t i = 0; i < K * KVAD_PANEL; i++)
            if (i / KVAD_PANEL % KVAD_GROUP == 5) c.panel[i] = (float)low;
        convert(&c, type);
        for (size_t i = 0; i < K; i++)
            for (size_t j = 0; j < KVAD_PANEL; j++) {
                size_t g = i / KVAD_GROUP, r = i % KVAD_GROUP;
                const unsigned char *block =
                    c.bytes + g / 2 * (q8 ? KVAD_Q8_SUPERBLOCK : KVAD_Q4_SUPERBLOCK);
                const unsigned char *quants = block + 64 + g % 2 * (q8 ? 512 : 256);
                int quant =
                    q8 ? quants[(r / 4 * KVAD_PANEL + j) * 4 + r % 4] - 128
                       : (quants[(r / 8 * KVAD_PANEL + j) * 4 + r % 4] >> r % 8 / 4 * 4 & 15) - 8;
                assert_int_equal(kvad_load_u16le(block + (g % 2 * KVAD_PANEL + j) * 2), 0x3c00);
                assert_int_equal(quant, (int)c.panel[i * KVAD_PANEL + j]);
            }
        free_converted(&c);
    }
}

static void test_missing_quants_are_zero(void **state) {
    (void)state;
    for (int q8 = 0; q8 <= 1; q8++) {
        struct converted c = new_converted(35); /* 3 inputs in the second group */
        convert(&c, q8 ? KVAD_WEIGHTS_Q8 : KVAD_WEIGHTS_Q4);
        const unsigned char *quants = c.bytes + 64 + (q8 ? 512 : 256);
        for (size_t r = 3; r < KVAD_GROUP; r++)
            for (size_t j = 0; j < KVAD_PANEL; j++)
                if (q8)
                    assert_int_equal(quants[(r / 4 * KVAD_PANEL + j) * 4 + r % 4], 128);
                else
                    assert_int_equal(
                        quants[(r / 8 * KVAD_PANEL + j) * 4 + r % 4] >> r % 8 / 4 * 4 & 15, 8);
        free_converted(&c);
    }
}

static void test_what_was_converted_converts_to_itself(void **state) {
    (void)state;
    for (int type = KVAD_WEIGHTS_F32; type < KVAD_WEIGHT_TYPE_COUNT; type++) {
        enum kvad_weight_type t = (enum kvad_weight_type)type;
        struct converted c = new_converted(129);
        convert(&c, t);
        unsigned char *first = malloc(c.n_bytes);
        assert_non_null(first);
        memcpy(first, c.bytes, c.n_bytes);
        for (size_t lane = 0; lane < KVAD_PANEL; lane++) {
            kvad_panel_row(t, first, lane, c.k, c.row);
            for (size_t i = 0; i < c.k; i++)
                c.panel[i * KVAD_PANEL + lane] = c.row[i];
        }
        convert(&c, t);
        assert_memory_equal(first, c.bytes, c.n_bytes);
        free(first);
        free_converted(&c);
    }
}

/* Groups of one magnitude, from zero over the smallest floats to infinity. Below the smallest half
 * a scale is zero; what is not finite is not lost. */
static void test_groups_of_any_magnitude_convert(void **state) {
    (void)state;
    static const float sizes[] = {0.0f,     -0.0f,    0x1p-149f, 0x1p-130f, 0x1p-126f,
                                  0x1p-40f, 0x1p-20f, 1e-3f,     1.0f,      1e4f,
                                  FLT_MAX,  INFINITY, -INFINITY, NAN};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int q8 = 0; q8 <= 1; q8++) {
            enum kvad_weight_type type = q8 ? KVAD_WEIGHTS_Q8 : KVAD_WEIGHTS_Q4;
            struct converted c = new_converted(KVAD_GROUP);
            for (size_t i = 0; i < KVAD_GROUP * KVAD_PANEL; i++)
                c.panel[i] = i / KVAD_PANEL == 9 ? sizes[s] : 0.0f;
            convert(&c, type);
            kvad_panel_row(type, c.bytes, 3, c.k, c.row);
            float size = fabsf(sizes[s]);
            bool is_lost = false;
            for (size_t i = 0; i < c.k; i++)
                is_lost = is_lost || !isfinite(c.row[i]);
            assert_int_equal(is_lost, !(size <= 65504.0f * (q8 ? 127 : 8)));
            if (size < 0x1p-24f) assert_true(c.row[9] == 0.0f);
            if (size >= 1e-3f && size <= 1e4f) assert_true(fabsf(c.row[9] - sizes[s]) < size / 500);
            free_converted(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(test_f16_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(test_every_half_survives_the_way_to_float_and_back),
        cmocka_unit_test(test_quantised_values_are_those_of_gguf),
        cmocka_unit_test(test_quants_lie_where_the_header_says),
        cmocka_unit_test(test_missing_quants_are_zero),
        cmocka_unit_test(test_what_was_converted_converts_to_itself),
        cmocka_unit_test(test_groups_of_any_magnitude_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
