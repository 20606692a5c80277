/* add, scale, divide, the unary operations and the layer norm. */
#include "check.h"

#include <math.h>

/* Call `body` for every size, pattern and side, with n and pattern set. */
#define FOR_EACH_CASE(c)                                                                           \
    for (size_t index_ = 0, n = 0; (n = check_size(index_)) != 0; index_++)                        \
        for (enum check_pattern pattern = 0; pattern < PATTERN_COUNT; pattern++)                   \
            for ((c)->side = 0; (c)->side < SIDE_COUNT; (c)->side++)

void check_unary(struct check *c, kvad_unary_fn *ref, kvad_unary_fn *new_fn) {
    FOR_EACH_CASE(c) {
        check_case(c, "n=%zu pattern %d", n, (int)pattern);
        float *x = check_input(c, n, pattern);
        for (size_t i = 0; i < n; i++)
            x[i] *= pattern == PATTERN_PLAIN ? 20.0f : 1.0f;
        check_freeze(c);
        struct check_output y = check_output(c, n), in_place = check_output(c, n);
        check_output_set(&in_place, x, n);
        ref(y.want, x, n);
        ref(in_place.want, in_place.want, n);
        new_fn(y.got, x, n);
        new_fn(in_place.got, in_place.got, n);
        check_equal(c, &y);
        check_equal(c, &in_place);
    }
    check_end(c);
}

void check_add(struct check *c, kvad_add_fn *ref, kvad_add_fn *new_fn) {
    FOR_EACH_CASE(c) {
        check_case(c, "n=%zu pattern %d", n, (int)pattern);
        const float *x = check_input(c, n, pattern), *first = check_input(c, n, pattern);
        check_freeze(c);
        struct check_output y = check_output(c, n);
        check_output_set(&y, first, n);
        ref(y.want, x, n);
        new_fn(y.got, x, n);
        check_equal(c, &y);
    }
    check_end(c);
}

/* One value that is not finite, anywhere, is told, and told apart from the largest that are. */
void check_residual(struct check *c, kvad_residual_fn *ref, kvad_residual_fn *new_fn) {
    FOR_EACH_CASE(c) {
        check_case(c, "n=%zu pattern %d", n, (int)pattern);
        float *x = check_input(c, n, pattern), *first = check_input(c, n, pattern);
        size_t at = check_random_below(c, n);
        x[at] = check_special(c);
        check_freeze(c);
        struct check_output y = check_output(c, n);
        check_output_set(&y, first, n);
        bool want = true;
        for (size_t i = 0; i < n; i++)
            want = want && isfinite(first[i] + x[i]);
        if (ref(y.want, x, n) != want || new_fn(y.got, x, n) != want)
            check_fail(c, "all sums are %sfinite", want ? "" : "not ");
        check_equal(c, &y);
    }
    check_end(c);
}

/* scale and divide have the same shape: y = x op s. */
static void check_with_scalar(struct check *c, kvad_scale_fn *ref_scale, kvad_scale_fn *new_scale,
                              kvad_divide_fn *ref_divide, kvad_divide_fn *new_divide) {
    FOR_EACH_CASE(c) {
        check_case(c, "n=%zu pattern %d", n, (int)pattern);
        const float *x = check_input(c, n, pattern);
        check_freeze(c);
        float s = check_float(c, pattern);
        struct check_output y = check_output(c, n), in_place = check_output(c, n);
        check_output_set(&in_place, x, n);
        if (new_scale) {
            ref_scale(y.want, x, s, n);
            ref_scale(in_place.want, in_place.want, s, n);
            new_scale(y.got, x, s, n);
            new_scale(in_place.got, in_place.got, s, n);
        } else {
            ref_divide(y.want, x, s, n);
            ref_divide(in_place.want, in_place.want, s, n);
            new_divide(y.got, x, s, n);
            new_divide(in_place.got, in_place.got, s, n);
        }
        check_equal(c, &y);
        check_equal(c, &in_place);
    }
    check_end(c);
}

void check_scale(struct check *c, kvad_scale_fn *ref, kvad_scale_fn *new_fn) {
    check_with_scalar(c, ref, new_fn, NULL, NULL);
}

void check_divide(struct check *c, kvad_divide_fn *ref, kvad_divide_fn *new_fn) {
    check_with_scalar(c, NULL, NULL, ref, new_fn);
}

void check_layer_norm(struct check *c, kvad_layer_norm_fn *ref, kvad_layer_norm_fn *new_fn) {
    const float eps = 1e-5f;
    FOR_EACH_CASE(c) {
        bool has_bias = check_random_below(c, 2);
        check_case(c, "n=%zu pattern %d bias %d", n, (int)pattern, has_bias);
        const float *x = check_input(c, n, pattern), *w = check_input(c, n, PATTERN_PLAIN);
        const float *b = has_bias ? check_input(c, n, PATTERN_PLAIN) : NULL;
        check_freeze(c);
        struct check_output y = check_output(c, n), in_place = check_output(c, n);
        check_output_set(&in_place, x, n);
        ref(y.want, x, w, b, n, eps);
        ref(in_place.want, in_place.want, w, b, n, eps);
        new_fn(y.got, x, w, b, n, eps);
        new_fn(in_place.got, in_place.got, w, b, n, eps);
        check_equal(c, &y);
        check_equal(c, &in_place);
    }
    check_end(c);
}
