/* narrow_f16 and narrow_bf16; linear_bf16 and linear_f16: shapes as for linear_f32, weights of any
 * bits, widening over all halves, and the error against long double. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"

struct shape {
    size_t n_rows, k, n_panels;
};

enum weights { WEIGHTS_SMALL, WEIGHTS_ANY, WEIGHTS_COUNT };

/* A half of either type: of ordinary size, or any bits at all (NaN, infinity, subnormal). */
static uint16_t random_half(struct check *c, enum weights weights) {
    uint32_t bits = check_random(c);
    if (weights == WEIGHTS_ANY) return (uint16_t)bits;
    return (uint16_t)((bits & 0x83ffu) | (bits >> 16 & 3u) << 10 | 0x3400u);
}

/* Panels of halves against a guard page. */
static uint16_t *half_panels(struct check *c, size_t n, enum weights weights) {
    uint16_t *w = (uint16_t *)(void *)check_input(c, n / 2, PATTERN_PLAIN);
    for (size_t i = 0; i < n; i++)
        w[i] = random_half(c, weights);
    return w;
}

static void check_shape(struct check *c, kvad_linear_half_fn *ref, kvad_linear_half_fn *new_fn,
                        struct shape shape, enum check_pattern pattern, enum weights weights) {
    bool has_bias = check_random_below(c, 2);
    size_t n = shape.n_panels * KVAD_PANEL;
    size_t x_stride = shape.k + check_random_below(c, 4), y_stride = n + check_random_below(c, 4);
    check_case(c, "rows=%zu k=%zu panels=%zu pattern %d weights %d bias %d", shape.n_rows, shape.k,
               shape.n_panels, (int)pattern, (int)weights, has_bias);
    const float *x = check_input(c, (shape.n_rows - 1) * x_stride + shape.k, pattern);
    const uint16_t *w = half_panels(c, n * shape.k, weights);
    const float *bias = has_bias ? check_input(c, n, PATTERN_PLAIN) : NULL;
    check_freeze(c);
    struct check_output y = check_output(c, (shape.n_rows - 1) * y_stride + n);
    struct kvad_linear_half_args args = {.y = y.want,
                                         .y_stride = y_stride,
                                         .x = x,
                                         .x_stride = x_stride,
                                         .n_rows = shape.n_rows,
                                         .k = shape.k,
                                         .w = w,
                                         .n_panels = shape.n_panels,
                                         .bias = bias};
    ref(&args);
    args.y = y.got;
    new_fn(&args);
    check_equal(c, &y);
}

/* Patterns, weights and sides by turns. */
static void check_shapes(struct check *c, kvad_linear_half_fn *ref, kvad_linear_half_fn *new_fn,
                         struct shape shape, size_t n_turns) {
    for (size_t turn = 0; turn < n_turns; turn++) {
        c->side = (enum check_side)(turn % SIDE_COUNT);
        check_shape(c, ref, new_fn, shape,
                    (enum check_pattern)((c->n_cases / SIDE_COUNT) % PATTERN_COUNT),
                    check_random_below(c, 8) ? WEIGHTS_SMALL : WEIGHTS_ANY);
    }
}

/* x = 1 and k = 1 give the widened weights themselves: all 65,536 of them. A product with 1 and a
 * sum with +0 keep every bit but the sign of -0, which the second row, x = -1, shows as well. */
static void check_widening(struct check *c, kvad_linear_half_fn *ref, kvad_linear_half_fn *new_fn) {
    enum { N = 65536 };
    c->side = SIDE_END;
    check_case(c, "all 65536 halves");
    float *x = check_input(c, 2, PATTERN_PLAIN);
    uint16_t *w = (uint16_t *)(void *)check_input(c, N / 2, PATTERN_PLAIN);
    x[0] = 1.0f, x[1] = -1.0f;
    for (size_t i = 0; i < N; i++)
        w[i] = (uint16_t)i;
    check_freeze(c);
    struct check_output y = check_output(c, 2 * N);
    struct kvad_linear_half_args args = {y.want, N, x, 1, 2, 1, w, N / KVAD_PANEL, NULL};
    ref(&args);
    args.y = y.got;
    new_fn(&args);
    check_equal(c, &y);
}

void check_linear_half(struct check *c, kvad_linear_half_fn *ref, kvad_linear_half_fn *new_fn) {
    static const size_t ks[] = {1, 2, 3, 31, 64, 127, 128, 129, 192, 257, 0};
    static const size_t rows[] = {1, 2, 4, 5, 7, 14, 15, 29, 0};
    static const struct shape real[] = {{1, 768, 17}, {1, 3072, 9}, {2, 768, 12}, {3, 768, 5},
                                        {4, 192, 36}, {17, 768, 6}, {33, 768, 3}, {16, 257, 35}};
    check_widening(c, ref, new_fn);
    for (size_t n_rows = 1; n_rows <= 30; n_rows++)
        for (size_t n_panels = 1; n_panels <= 9; n_panels++)
            check_shapes(c, ref, new_fn, (struct shape){n_rows, 19, n_panels}, 2);
    for (size_t n_panels = 1; n_panels <= 33; n_panels++)
        check_shapes(c, ref, new_fn, (struct shape){1, 21, n_panels}, 2);
    for (size_t k = 1; k <= 70; k++)
        check_shapes(c, ref, new_fn, (struct shape){1 + k % 7, k, 1 + k % 5}, 2);
    for (size_t i = 0; ks[i]; i++)
        for (size_t j = 0; rows[j]; j++)
            for (size_t n_panels = 1; n_panels <= 4; n_panels += 3)
                check_shapes(c, ref, new_fn, (struct shape){rows[j], ks[i], n_panels}, 2);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        check_shapes(c, ref, new_fn, real[i], 2);
    check_end(c);
}

static bool is_nan_half(uint16_t h, bool is_bf16) {
    return (h & 0x7fffu) > (is_bf16 ? 0x7f80u : 0x7c00u);
}

/* All NaNs of one kind to the same bits. */
static void unify_nans(float *values, size_t n, bool is_bf16) {
    uint16_t *half = (uint16_t *)(void *)values;
    for (size_t i = 0; i < n; i++)
        if (is_nan_half(half[i], is_bf16)) half[i] = 0x7fc0u;
}

/* Values of a pattern, or such as lie just beside the middle between two halves. */
static void fill_narrow(struct check *c, float *x, size_t n, bool is_bf16) {
    for (size_t i = 0; i < n; i++) {
        uint16_t h = random_half(c, WEIGHTS_ANY);
        float exact = is_bf16 ? kvad_float_from_bf16(h) : kvad_float_from_f16(h);
        uint32_t middle = is_bf16 ? 0x8000u : 0x1000u;
        uint32_t bits =
            kvad_bits_from_float(exact) + middle + (uint32_t)check_random_below(c, 3) - 1;
        x[i] = kvad_float_from_bits(bits);
    }
}

void check_narrow(struct check *c, kvad_narrow_fn *ref, kvad_narrow_fn *new_fn) {
    bool is_bf16 = strcmp(c->op, "narrow_bf16") == 0;
    for (size_t index = 0, n = 0; (n = check_size(index)) != 0; index++)
        for (int pattern = 0; pattern <= PATTERN_COUNT; pattern++)
            for (c->side = 0; c->side < SIDE_COUNT; c->side++) {
                check_case(c, "n=%zu pattern %d", n, pattern);
                float *x = check_input(c, n, (enum check_pattern)(pattern % PATTERN_COUNT));
                if (pattern == PATTERN_COUNT) fill_narrow(c, x, n, is_bf16);
                check_freeze(c);
                struct check_output y = check_output(c, (n + 1) / 2);
                ref((uint16_t *)(void *)y.want, x, n);
                new_fn((uint16_t *)(void *)y.got, x, n);
                unify_nans(y.want, n, is_bf16);
                unify_nans(y.got, n, is_bf16);
                check_equal(c, &y);
            }
    check_end(c);
}

/* The exact value of a half, from its fields. */
static long double exact_half(uint16_t h, bool is_bf16) {
    int fraction_bits = is_bf16 ? 7 : 10, bias = is_bf16 ? 127 : 15;
    int exponent = (h & 0x7fff) >> fraction_bits, fraction = h & ((1 << fraction_bits) - 1);
    long double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1) return fraction ? nanl("") : sign * INFINITY;
    if (exponent == 0) return sign * ldexpl(fraction, 1 - bias - fraction_bits);
    return sign * ldexpl(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void check_exact_widening(struct check *c, kvad_linear_half_fn *run, bool is_bf16) {
    for (uint32_t h = 0; h < 65536; h += KVAD_PANEL) {
        float one = 1.0f, y[KVAD_PANEL];
        uint16_t w[KVAD_PANEL];
        for (uint32_t j = 0; j < KVAD_PANEL; j++)
            w[j] = (uint16_t)(h + j);
        run(&(struct kvad_linear_half_args){y, KVAD_PANEL, &one, 1, 1, 1, w, 1, NULL});
        for (size_t j = 0; j < KVAD_PANEL; j++) {
            long double exact = exact_half(w[j], is_bf16);
            if (isnan(exact) ? !isnan(y[j]) : (long double)y[j] != exact)
                check_fail(c, "half 0x%04x is widened to %a, is %La", w[j], (double)y[j], exact);
        }
    }
}

static void check_error(struct check *c, kvad_linear_half_fn *run, bool is_bf16, size_t k) {
    const float *x = check_input(c, k, PATTERN_WIDE), *b = check_input(c, 16, PATTERN_WIDE);
    const uint16_t *w = half_panels(c, k * KVAD_PANEL, WEIGHTS_SMALL);
    float y[KVAD_PANEL];
    run(&(struct kvad_linear_half_args){y, KVAD_PANEL, x, k, 1, k, w, 1, b});
    size_t n_segments = (k + KVAD_SEGMENT - 1) / KVAD_SEGMENT;
    size_t n_roundings = (k < KVAD_SEGMENT ? k : KVAD_SEGMENT) + n_segments + 1;
    for (size_t j = 0; j < KVAD_PANEL; j++) {
        long double sum = (long double)b[j], magnitude = fabsl(sum);
        for (size_t i = 0; i < k; i++) {
            long double term = (long double)x[i] * exact_half(w[i * KVAD_PANEL + j], is_bf16);
            sum += term;
            magnitude += fabsl(term);
        }
        if (fabsl((long double)y[j] - sum) > (long double)n_roundings * 0x1p-24L * magnitude)
            check_fail(c, "linear is %a, exact %La", (double)y[j], sum);
    }
}

void check_half_accuracy(struct check *c, const struct kvad_kernels *kernels) {
    static const size_t ks[] = {1, 16, 100, 128, 129, 768, 3072};
    for (int is_bf16 = 0; is_bf16 <= 1; is_bf16++) {
        kvad_linear_half_fn *run = is_bf16 ? kernels->linear_bf16 : kernels->linear_f16;
        check_case(c, "%s widening", is_bf16 ? "bf16" : "f16");
        check_exact_widening(c, run, is_bf16);
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            check_case(c, "%s k=%zu", is_bf16 ? "bf16" : "f16", ks[i]);
            check_error(c, run, is_bf16, ks[i]);
        }
    }
}
