/* Linear layers with weights of any type. */
#include <string.h>

#include "base/compiler.h"
#include "model/build.h"
#include "model/forward_linear.h"

struct forward_input kvad_forward_input(const struct kvad_forward *f,
                                        const struct forward_worker *worker, const float *x,
                                        size_t x_stride, size_t n_rows, size_t k, unsigned index,
                                        unsigned count) {
    struct forward_input input = {.x = x, .x_stride = x_stride};
    if (f->quant_stride == 0) return input;
    bool is_private = n_rows <= FORWARD_PRIVATE_ROWS;
    unsigned char *quant = is_private ? worker->quant : f->quant;
    input.quant_stride = is_private ? kvad_quant_row_bytes(k) : f->quant_stride;
    for (size_t r = is_private ? 0 : index; r < n_rows; r += is_private ? 1 : count)
        f->kernels->quantise_row(quant + r * input.quant_stride, k, 0, x + r * x_stride, k);
    if (is_private)
        forward_mark(worker, KVAD_PART_QUANTISE);
    else
        forward_barrier(f, worker, KVAD_PART_QUANTISE);
    input.quant = quant;
    return input;
}

/* What all types of weights have in common. */
#define COMMON_ARGS                                                                                \
    .y = y + column, .y_stride = y_stride, .n_rows = n_rows, .k = linear->k,                       \
    .n_panels = last - first, .bias = linear->bias ? linear->bias + column : NULL

void kvad_forward_panels(const struct kvad_forward *f, const struct kvad_linear_weights *linear,
                         float *y, size_t y_stride, struct forward_input input, size_t n_rows,
                         size_t first, size_t last) {
    if (first >= last) return;
    const struct kvad_kernels *k = f->kernels;
    size_t column = first * KVAD_PANEL;
    const void *w = linear->panels + first * linear->panel_bytes;
    struct kvad_linear_f32_args f32 = {COMMON_ARGS, .x = input.x, .x_stride = input.x_stride,
                                       .w = w};
    struct kvad_linear_half_args half = {COMMON_ARGS, .x = input.x, .x_stride = input.x_stride,
                                         .w = w};
    struct kvad_linear_quant_args quant = {COMMON_ARGS, .x = input.quant,
                                           .x_stride = input.quant_stride, .w = w};
    switch (linear->type) {
    case KVAD_WEIGHTS_F32: k->linear_f32(&f32); break;
    case KVAD_WEIGHTS_BF16: k->linear_bf16(&half); break;
    case KVAD_WEIGHTS_F16: k->linear_f16(&half); break;
    case KVAD_WEIGHTS_Q8: k->linear_q8(&quant); break;
    case KVAD_WEIGHTS_Q4: k->linear_q4(&quant); break;
    case KVAD_WEIGHT_TYPE_COUNT: break;
    }
}

/* kvad_quant_row_bytes(KVAD_SEGMENT) as a constant: quants, scale and offset of each group, in
 * whole cache lines. */
enum { SEGMENT_QUANT_BYTES = (KVAD_SEGMENT / KVAD_GROUP * (KVAD_GROUP + 8) + 63) / 64 * 64 };

/* One segment of one panel: the chain over its inputs, without bias. */
static void run_segment(const struct kvad_forward *f, const struct kvad_linear_weights *linear,
                        float *y, struct forward_input input, size_t n_rows, size_t panel,
                        size_t segment) {
    size_t first = segment * KVAD_SEGMENT;
    struct kvad_linear_weights part = {.type = linear->type,
                                       .panels = linear->panels + panel * linear->panel_bytes +
                                                 kvad_panel_bytes(linear->type, first),
                                       .panel_bytes = linear->panel_bytes,
                                       .n = KVAD_PANEL,
                                       .k = kvad_min_size(KVAD_SEGMENT, linear->k - first)};
    KVAD_ALIGNED(64) unsigned char quant[FORWARD_SPLIT_ROWS * SEGMENT_QUANT_BYTES];
    struct forward_input cut = {
        .x = input.x + first, .x_stride = input.x_stride, .quant_stride = SEGMENT_QUANT_BYTES};
    if (f->quant_stride > 0) {
        /* Groups are quantised each for itself, so those of a segment are the same as in the whole
         * row. */
        for (size_t r = 0; r < n_rows; r++)
            f->kernels->quantise_row(quant + r * cut.quant_stride, part.k, 0,
                                     cut.x + r * cut.x_stride, part.k);
        cut.quant = quant;
    }
    kvad_forward_panels(f, &part, y, f->widest_stride, cut, n_rows, 0, 1);
}

/* Sum of a linear's segments for the panels [first, last), ascending; the first is copied, the bias
 * comes last. */
static void fold_segments(const struct kvad_forward *f, const struct kvad_linear_weights *linear,
                          float *y, size_t y_stride, size_t n_rows, size_t first, size_t last) {
    size_t column = first * KVAD_PANEL, n = (last - first) * KVAD_PANEL;
    size_t n_segments = (linear->k + KVAD_SEGMENT - 1) / KVAD_SEGMENT;
    for (size_t r = 0; r < n_rows; r++) {
        float *out = y + r * y_stride + column;
        for (size_t s = 0; s < n_segments; s++) {
            const float *part =
                f->segments + (s * FORWARD_SPLIT_ROWS + r) * f->widest_stride + column;
            if (s == 0)
                memcpy(out, part, n * sizeof *out);
            else
                f->kernels->add(out, part, n);
        }
        if (linear->bias) f->kernels->add(out, linear->bias + column, n);
    }
}

void kvad_forward_share(size_t n, unsigned index, unsigned count, size_t *first, size_t *last) {
    forward_part(n, index, count, first, last);
}

struct forward_panels kvad_forward_linear(const struct kvad_forward *f,
                                          const struct forward_worker *worker,
                                          const struct kvad_linear_weights *linear, float *y,
                                          size_t y_stride, struct forward_input input,
                                          size_t n_rows, enum kvad_part part, unsigned index,
                                          unsigned count) {
    size_t n_panels = kvad_panel_count(linear->n), first, last;
    struct forward_panels own;
    kvad_forward_share(n_panels, index, count, &own.first, &own.last);
    if (f->n_segment_floats == 0 || n_panels * KVAD_PANEL > f->widest_stride ||
        !forward_splits_linear(n_rows, n_panels, linear->k, count)) {
        kvad_forward_panels(f, linear, y, y_stride, input, n_rows, own.first, own.last);
        return own;
    }
    size_t n_segments = (linear->k + KVAD_SEGMENT - 1) / KVAD_SEGMENT;
    forward_part(n_panels * n_segments, index, count, &first, &last);
    for (size_t unit = first; unit < last; unit++) {
        size_t panel = unit / n_segments, segment = unit % n_segments;
        float *out = f->segments + segment * FORWARD_SPLIT_ROWS * f->widest_stride;
        run_segment(f, linear, out + panel * KVAD_PANEL, input, n_rows, panel, segment);
    }
    forward_barrier(f, worker, part);
    if (own.first < own.last) fold_segments(f, linear, y, y_stride, n_rows, own.first, own.last);
    return own;
}
