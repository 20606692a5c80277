/* Linear layers of a step, and the rows that they read. */
#ifndef KVAD_MODEL_FORWARD_LINEAR_H
#define KVAD_MODEL_FORWARD_LINEAR_H

#include "model/forward_internal.h"

/* The rows that a linear reads, as floats or (when its weights are quantised) as quants. */
struct forward_input {
    const float *x; /* NULL: only quants are there */
    size_t x_stride;
    const unsigned char *quant;
    size_t quant_stride;
};

/* Make n_rows rows of k floats ready as input; every worker calls it. Few rows are quantised by
 * every worker for itself, many (no longer than d_model or n_heads * head_dim) in shares, with a
 * barrier at the end. With weights that are not quantised nothing happens. */
struct forward_input kvad_forward_input(const struct kvad_forward *f,
                                        const struct forward_worker *worker, const float *x,
                                        size_t x_stride, size_t n_rows, size_t k, unsigned index,
                                        unsigned count);

/* y[n_rows][columns of the panels [first, last)], where y is the first row's column 0. */
void kvad_forward_panels(const struct kvad_forward *f, const struct kvad_linear_weights *linear,
                         float *y, size_t y_stride, struct forward_input input, size_t n_rows,
                         size_t first, size_t last);

/* y[n_rows] of one linear; every worker calls it and gets its share of the panels. `part` is what
 * its time is counted as. */
struct forward_panels kvad_forward_linear(const struct kvad_forward *f,
                                          const struct forward_worker *worker,
                                          const struct kvad_linear_weights *linear, float *y,
                                          size_t y_stride, struct forward_input input,
                                          size_t n_rows, enum kvad_part part, unsigned index,
                                          unsigned count);

/* Panels of a linear with many rows whose outputs are made and used before the next ones: blocks of
 * the quantised kernels, with their floats in the second cache. */
static inline size_t forward_block_panels(const struct kvad_forward *f) {
    return f->quant_stride > 0 ? 16 : SIZE_MAX / KVAD_PANEL;
}

#endif
