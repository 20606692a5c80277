/* Linear layers with weights of any type. */
#include "model/forward_internal.h"

struct forward_input kvad_forward_input(const struct kvad_forward *f,
                                        const struct forward_worker *worker, const float *x,
                                        size_t x_stride, size_t n_rows, size_t k, unsigned index,
                                        unsigned count) {
    struct forward_input input = {x, x_stride, NULL};
    if (f->quant_stride == 0) return input;
    bool is_private = n_rows <= FORWARD_PRIVATE_ROWS;
    unsigned char *quant = is_private ? worker->quant : f->quant;
    for (size_t r = is_private ? 0 : index; r < n_rows; r += is_private ? 1 : count)
        f->kernels->quantise_row(quant + r * f->quant_stride, x + r * x_stride, k);
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

void kvad_forward_linear(const struct kvad_forward *f, const struct kvad_linear_weights *linear,
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
                                           .x_stride = f->quant_stride, .w = w};
    switch (linear->type) {
    case KVAD_WEIGHTS_F32: k->linear_f32(&f32); break;
    case KVAD_WEIGHTS_BF16: k->linear_bf16(&half); break;
    case KVAD_WEIGHTS_F16: k->linear_f16(&half); break;
    case KVAD_WEIGHTS_Q8: k->linear_q8(&quant); break;
    case KVAD_WEIGHTS_Q4: k->linear_q4(&quant); break;
    case KVAD_WEIGHT_TYPE_COUNT: break;
    }
}
