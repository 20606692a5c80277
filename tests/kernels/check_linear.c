/* linear_f32: every number of rows and panels round the tiles, k round the segments, real sizes. */
#include "check.h"

struct shape {
    size_t n_rows, k, n_panels;
};

static void check_shape(struct check *c, kvad_linear_f32_fn *ref, kvad_linear_f32_fn *new_fn,
                        struct shape shape, enum check_pattern pattern) {
    bool has_bias = check_random_below(c, 2);
    size_t n = shape.n_panels * KVAD_PANEL;
    size_t x_stride = shape.k + check_random_below(c, 4), y_stride = n + check_random_below(c, 4);
    check_case(c, "rows=%zu k=%zu panels=%zu pattern %d bias %d strides %zu %zu", shape.n_rows,
               shape.k, shape.n_panels, (int)pattern, has_bias, x_stride, y_stride);
    /* The last row ends where its k columns end, not at its stride. */
    const float *x = check_input(c, (shape.n_rows - 1) * x_stride + shape.k, pattern);
    const float *w = check_input(c, shape.n_panels * shape.k * KVAD_PANEL,
                                 pattern == PATTERN_SPECIAL ? PATTERN_PLAIN : pattern);
    const float *bias = has_bias ? check_input(c, n, PATTERN_PLAIN) : NULL;
    check_freeze(c);
    struct check_output y = check_output(c, (shape.n_rows - 1) * y_stride + n);
    struct kvad_linear_f32_args args = {.y = y.want,
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

/* Patterns and sides by turns: every shape is seen with some of each, and all over the shapes. */
static void check_shapes(struct check *c, kvad_linear_f32_fn *ref, kvad_linear_f32_fn *new_fn,
                         struct shape shape, size_t n_turns) {
    for (size_t turn = 0; turn < n_turns; turn++) {
        c->side = (enum check_side)(turn % SIDE_COUNT);
        check_shape(c, ref, new_fn, shape,
                    (enum check_pattern)((c->n_cases / SIDE_COUNT) % PATTERN_COUNT));
    }
}

void check_linear(struct check *c, kvad_linear_f32_fn *ref, kvad_linear_f32_fn *new_fn) {
    static const size_t ks[] = {1,   2,   3,   5,   7,   8,   15,  16,  31,  64,
                                100, 127, 128, 129, 255, 256, 257, 383, 385, 0};
    static const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 0};
    static const struct shape real[] = {{1, 768, 144}, {1, 768, 48},  {1, 3072, 48}, {1, 192, 36},
                                        {1, 768, 3},   {2, 768, 12},  {17, 768, 12}, {29, 192, 12},
                                        {8, 3072, 4},  {33, 64, 5},   {16, 257, 35}, {31, 385, 34},
                                        {32, 130, 33}, {33, 257, 33}, {70, 257, 3}};
    for (size_t n_rows = 1; n_rows <= 34; n_rows++)
        for (size_t n_panels = 1; n_panels <= 5; n_panels++)
            check_shapes(c, ref, new_fn, (struct shape){n_rows, 19, n_panels}, 4);
    for (size_t n_panels = 1; n_panels <= 33; n_panels++)
        check_shapes(c, ref, new_fn, (struct shape){1, 21, n_panels}, 4);
    for (size_t i = 0; ks[i]; i++)
        for (size_t j = 0; rows[j]; j++)
            for (size_t n_panels = 1; n_panels <= 4; n_panels += 3)
                check_shapes(c, ref, new_fn, (struct shape){rows[j], ks[i], n_panels}, 2);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        check_shapes(c, ref, new_fn, real[i], 2);
    check_end(c);
}
