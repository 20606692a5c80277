/* quantise_row, linear_q8 and linear_q4: all tails, worst cases of the integer sums, special
 * scales, and the error against long double. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct shape {
    size_t n_rows, k, n_panels;
};

/* What a panel and a row are filled with. */
enum fill {
    FILL_RANDOM,  /* quants of all values, scales of ordinary size */
    FILL_LARGEST, /* all quants at one end of their range: the largest sums */
    FILL_EDGES,   /* every quant at one end or the other */
    FILL_SCALES,  /* scales of any bits: NaN, infinity, subnormal, zero */
    FILL_COUNT
};

static uint16_t random_scale(struct check *c, enum fill fill) {
    uint32_t bits = check_random(c);
    if (fill == FILL_SCALES) return bits >> 16 & 7u ? (uint16_t)bits : 0;
    return (uint16_t)((bits & 0x83ffu) | (bits >> 16 & 7u) << 10 | 0x2000u);
}

/* A byte of the weights: one q8 or two q4. */
static unsigned char random_byte(struct check *c, enum fill fill, unsigned char extreme) {
    uint32_t bits = check_random(c);
    if (fill == FILL_LARGEST) return extreme;
    if (fill == FILL_EDGES)
        return (unsigned char)((bits & 1u ? 15u : 0u) | (bits & 2u ? 240u : 0u));
    return (unsigned char)bits;
}

/* Panels of a quantised type; the group that does not exist (odd number of groups) and the quants
 * beyond k hold anything. */
static unsigned char *quant_panels(struct check *c, enum kvad_weight_type type, struct shape shape,
                                   enum fill fill) {
    size_t bytes = shape.n_panels * kvad_panel_bytes(type, shape.k);
    size_t superblock = type == KVAD_WEIGHTS_Q8 ? KVAD_Q8_SUPERBLOCK : KVAD_Q4_SUPERBLOCK;
    unsigned char *w = (unsigned char *)check_input(c, bytes / 4, PATTERN_PLAIN);
    unsigned char extreme = check_random_below(c, 2) ? 0 : 255;
    for (size_t at = 0; at < bytes; at++)
        w[at] = random_byte(c, fill, extreme);
    for (size_t block = 0; block < bytes; block += superblock)
        for (size_t i = 0; i < 64; i += 2) {
            uint16_t scale = random_scale(c, fill);
            memcpy(w + block + i, &scale, 2);
        }
    return w;
}

static int8_t random_quant(struct check *c, enum fill fill, int8_t extreme) {
    uint32_t bits = check_random(c);
    if (fill == FILL_LARGEST) return extreme;
    if (fill == FILL_EDGES) return bits & 1u ? 127 : -127;
    return (int8_t)((int)(bits % 255u) - 127);
}

/* One row as quantise_row leaves it. Quants beyond k are 0. */
static void fill_row(struct check *c, unsigned char *row, size_t k, enum fill fill) {
    size_t n_groups = kvad_quant_groups(k);
    float *scales = (float *)(void *)(row + n_groups * KVAD_GROUP);
    int32_t *offsets = (int32_t *)(void *)(scales + n_groups);
    int8_t extreme = check_random_below(c, 2) ? 127 : -127;
    for (size_t g = 0; g < n_groups; g++) {
        int32_t sum = 0;
        for (size_t i = g * KVAD_GROUP; i < (g + 1) * KVAD_GROUP; i++) {
            int8_t q = i < k ? random_quant(c, fill, extreme) : 0;
            row[i] = (unsigned char)q;
            sum += q;
        }
        scales[g] = fill == FILL_SCALES ? check_float(c, PATTERN_SPECIAL)
                                        : fabsf(check_float(c, PATTERN_WIDE));
        offsets[g] = -8 * sum;
    }
}

static void check_shape(struct check *c, enum kvad_weight_type type, kvad_linear_quant_fn *ref,
                        kvad_linear_quant_fn *new_fn, struct shape shape, enum fill fill) {
    bool has_bias = check_random_below(c, 2);
    size_t n = shape.n_panels * KVAD_PANEL, y_stride = n + check_random_below(c, 4);
    size_t row_bytes = kvad_quant_row_bytes(shape.k);
    size_t x_stride = row_bytes + 64 * check_random_below(c, 2);
    check_case(c, "rows=%zu k=%zu panels=%zu fill %d bias %d", shape.n_rows, shape.k,
               shape.n_panels, (int)fill, has_bias);
    size_t x_bytes = (shape.n_rows - 1) * x_stride + row_bytes;
    unsigned char *x = (unsigned char *)check_input(c, x_bytes / 4, PATTERN_PLAIN);
    for (size_t row = 0; row < shape.n_rows; row++)
        fill_row(c, x + row * x_stride, shape.k, fill);
    const unsigned char *w = quant_panels(c, type, shape, fill);
    const float *bias = has_bias ? check_input(c, n, PATTERN_PLAIN) : NULL;
    check_freeze(c);
    struct check_output y = check_output(c, (shape.n_rows - 1) * y_stride + n);
    struct kvad_linear_quant_args args = {.y = y.want,
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

/* Fills and sides by turns. */
static void check_shapes(struct check *c, enum kvad_weight_type type, kvad_linear_quant_fn *ref,
                         kvad_linear_quant_fn *new_fn, struct shape shape, size_t n_turns) {
    for (size_t turn = 0; turn < n_turns; turn++) {
        c->side = (enum check_side)(turn % SIDE_COUNT);
        check_shape(c, type, ref, new_fn, shape,
                    (enum fill)((c->n_cases / SIDE_COUNT) % FILL_COUNT));
    }
}

static void check_linear_quant(struct check *c, enum kvad_weight_type type,
                               kvad_linear_quant_fn *ref, kvad_linear_quant_fn *new_fn) {
    static const size_t ks[] = {32, 64, 96, 127, 128, 129, 160, 192, 257, 0};
    static const size_t rows[] = {1, 2, 4, 5, 7, 14, 15, 29, 0};
    static const struct shape real[] = {{1, 768, 17}, {1, 3072, 9}, {2, 768, 12}, {3, 768, 5},
                                        {4, 192, 36}, {17, 768, 6}, {33, 768, 3}, {8, 1600, 4}};
    for (size_t n_rows = 1; n_rows <= 30; n_rows++)
        for (size_t n_panels = 1; n_panels <= 9; n_panels++)
            check_shapes(c, type, ref, new_fn, (struct shape){n_rows, 40, n_panels}, 4);
    for (size_t n_panels = 1; n_panels <= 33; n_panels++)
        check_shapes(c, type, ref, new_fn, (struct shape){1, 70, n_panels}, 4);
    for (size_t k = 1; k <= 70; k++)
        check_shapes(c, type, ref, new_fn, (struct shape){1 + k % 7, k, 1 + k % 5}, 4);
    for (size_t i = 0; ks[i]; i++)
        for (size_t j = 0; rows[j]; j++)
            for (size_t n_panels = 1; n_panels <= 4; n_panels += 3)
                check_shapes(c, type, ref, new_fn, (struct shape){rows[j], ks[i], n_panels}, 4);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        check_shapes(c, type, ref, new_fn, real[i], 4);
    check_end(c);
}

void check_linear_q8(struct check *c, kvad_linear_quant_fn *ref, kvad_linear_quant_fn *new_fn) {
    check_linear_quant(c, KVAD_WEIGHTS_Q8, ref, new_fn);
}
void check_linear_q4(struct check *c, kvad_linear_quant_fn *ref, kvad_linear_quant_fn *new_fn) {
    check_linear_quant(c, KVAD_WEIGHTS_Q4, ref, new_fn);
}

/* Values whose quotients fall on or beside halves of quants: ties and their neighbours, where
 * anything but a division rounds otherwise now and then. */
static void make_ties(struct check *c, float *x, size_t n) {
    float max = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % KVAD_GROUP == 0)
            max = i % 64 ? 127.0f * 0x1p-7f : 1.5f + check_float(c, PATTERN_PLAIN);
        float tie = ((float)check_random_below(c, 253) - 126.0f + 0.5f) * (max / 127.0f);
        uint32_t bits = kvad_bits_from_float(tie) + (uint32_t)check_random_below(c, 3) - 1;
        x[i] = i % KVAD_GROUP == 0 ? max : kvad_float_from_bits(bits);
    }
}

/* Groups about the smallest scale, zero groups, largest values. */
static void make_edges(struct check *c, float *x, size_t n) {
    static const float sizes[] = {0.0f,      -0.0f,    0x1p-100f, 0x1.fffffep-101f, 0x1.8p-100f,
                                  0x1p-149f, 0x1p127f, 1.0f,      0x1.fffffep127f,  0x1p-126f};
    for (size_t first = 0; first < n; first += KVAD_GROUP) {
        float size = sizes[check_random_below(c, sizeof sizes / sizeof *sizes)];
        for (size_t i = first; i < n && i < first + KVAD_GROUP; i++)
            x[i] = check_random_below(c, 4) ? size * check_float(c, PATTERN_PLAIN) : size;
    }
}

/* Scales may be NaN, quants and offsets are integers: compared as bytes. */
static void check_quantised(struct check *c, const struct check_output *out, size_t k) {
    size_t n_groups = kvad_quant_groups(k), n_quants = n_groups * KVAD_GROUP;
    const unsigned char *want = (unsigned char *)out->want, *got = (unsigned char *)out->got;
    for (size_t i = 0; i < n_quants; i++)
        if (want[i] != got[i]) {
            check_fail(c, "quant %zu is %d, must be %d", i, (int8_t)got[i], (int8_t)want[i]);
            return;
        }
    if (memcmp(want + n_quants + 4 * n_groups, got + n_quants + 4 * n_groups, 4 * n_groups) != 0)
        check_fail(c, "an offset differs");
    check_equal(c, out);
}

/* A row at once, or its groups in pieces of any length. */
static void quantise_in_pieces(struct check *c, kvad_quantise_row_fn *quantise, unsigned char *out,
                               const float *x, size_t k) {
    size_t most = check_random_below(c, 2) ? kvad_quant_groups(k) : 1 + check_random_below(c, 3);
    for (size_t g = 0, n; g < kvad_quant_groups(k); g += most) {
        n = k - g * KVAD_GROUP < most * KVAD_GROUP ? k - g * KVAD_GROUP : most * KVAD_GROUP;
        quantise(out, k, g, x + g * KVAD_GROUP, n);
    }
}

void check_quantise_row(struct check *c, kvad_quantise_row_fn *ref, kvad_quantise_row_fn *new_fn) {
    enum { N_KINDS = PATTERN_COUNT + 2 };
    size_t k;
    for (size_t index = 0; (k = check_size(index)); index++)
        for (size_t turn = 0; turn < N_KINDS * SIDE_COUNT; turn++) {
            c->side = (enum check_side)(turn % SIDE_COUNT);
            size_t kind = turn / SIDE_COUNT;
            check_case(c, "k=%zu values %zu", k, kind);
            float *x =
                check_input(c, k, kind < PATTERN_COUNT ? (enum check_pattern)kind : PATTERN_PLAIN);
            if (kind == PATTERN_COUNT) make_ties(c, x, k);
            if (kind == PATTERN_COUNT + 1) make_edges(c, x, k);
            check_freeze(c);
            struct check_output out = check_output(c, kvad_quant_row_bytes(k) / 4);
            ref((unsigned char *)out.want, k, 0, x, k);
            quantise_in_pieces(c, new_fn, (unsigned char *)out.got, x, k);
            check_quantised(c, &out, k);
        }
    check_end(c);
}

/* Each quant is off by at most half its scale (and a rounding of the quotient), the scale is a
 * rounding from max / 127; what is not finite is marked. */
static void check_quantise_error(struct check *c, const struct kvad_kernels *kernels, size_t k,
                                 enum check_pattern pattern) {
    check_case(c, "quantise_row k=%zu pattern %d", k, (int)pattern);
    const float *x = check_input(c, k, pattern);
    unsigned char *row =
        (unsigned char *)check_input(c, kvad_quant_row_bytes(k) / 4, PATTERN_PLAIN);
    kernels->quantise_row(row, k, 0, x, k);
    size_t n_groups = kvad_quant_groups(k);
    const float *scales = (const float *)(const void *)(row + n_groups * KVAD_GROUP);
    for (size_t g = 0; g < n_groups; g++) {
        long double max = 0, scale = (long double)scales[g];
        size_t last = (g + 1) * KVAD_GROUP < k ? (g + 1) * KVAD_GROUP : k;
        bool is_finite = true;
        for (size_t i = g * KVAD_GROUP; i < last; i++) {
            is_finite = is_finite && isfinite(x[i]);
            max = fmaxl(max, fabsl((long double)x[i]));
        }
        if (is_finite == isnan(scales[g])) check_fail(c, "scale %a of group %zu", (double)scale, g);
        if (!is_finite) continue;
        bool is_zero = max < 0x1p-100L;
        if (is_zero ? scale != 0 : fabsl(scale - max / 127) > 0x1p-24L * max / 127)
            check_fail(c, "scale %a of group %zu with maximum %La", (double)scale, g, max);
        for (size_t i = g * KVAD_GROUP; i < last && !is_zero; i++)
            if (fabsl((long double)x[i] - scale * (int8_t)row[i]) > scale * 0.50001L)
                check_fail(c, "%a is quantised to %d", (double)x[i], (int8_t)row[i]);
    }
}

/* Against the sum that the quants and scales mean: a rounding for the product of the scales and one
 * for each fma. */
static void check_error(struct check *c, enum kvad_weight_type type, kvad_linear_quant_fn *run,
                        size_t k) {
    check_case(c, "type %d k=%zu", (int)type, k);
    struct shape shape = {1, k, 1};
    unsigned char *x = (unsigned char *)check_input(c, kvad_quant_row_bytes(k) / 4, PATTERN_PLAIN);
    const unsigned char *w = quant_panels(c, type, shape, FILL_RANDOM);
    const float *b = check_input(c, KVAD_PANEL, PATTERN_PLAIN);
    fill_row(c, x, k, FILL_RANDOM);
    float y[KVAD_PANEL], *values = malloc(k * sizeof *values);
    if (!values) exit(2);
    run(&(struct kvad_linear_quant_args){y, KVAD_PANEL, x, 0, 1, k, w, 1, b});
    size_t n_groups = kvad_quant_groups(k);
    const float *scales = (const float *)(const void *)(x + n_groups * KVAD_GROUP);
    for (size_t j = 0; j < KVAD_PANEL; j++) {
        long double sum = (long double)b[j], magnitude = fabsl(sum);
        kvad_panel_row(type, w, j, k, values);
        for (size_t g = 0; g < n_groups; g++) {
            long double term = 0;
            for (size_t i = g * KVAD_GROUP; i < k && i < (g + 1) * KVAD_GROUP; i++)
                term += (long double)scales[g] * (int8_t)x[i] * (long double)values[i];
            sum += term;
            magnitude += fabsl(term);
        }
        size_t n_roundings = 4 + n_groups / 4 + 3;
        if (fabsl((long double)y[j] - sum) > (long double)n_roundings * 0x1p-24L * magnitude)
            check_fail(c, "linear is %a, exact %La", (double)y[j], sum);
    }
    free(values);
}

void check_quant_accuracy(struct check *c, const struct kvad_kernels *kernels) {
    static const size_t ks[] = {1, 16, 32, 33, 100, 128, 129, 192, 768, 3072};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        for (enum check_pattern pattern = 0; pattern < PATTERN_COUNT; pattern++)
            check_quantise_error(c, kernels, ks[i], pattern);
        check_error(c, KVAD_WEIGHTS_Q8, kernels->linear_q8, ks[i]);
        check_error(c, KVAD_WEIGHTS_Q4, kernels->linear_q4, ks[i]);
    }
}
