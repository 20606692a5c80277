/* From the residual stream to logits, for the rows that want them. */
#include <string.h>

#include "model/forward_linear.h"

bool kvad_forward_is_finite(const float *x, size_t n) {
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return any == 0;
}

void kvad_forward_mark_bad(struct forward_worker *worker, size_t layer, size_t row) {
    bool is_first = !worker->is_bad || layer < worker->bad_layer ||
                    (layer == worker->bad_layer && row < worker->bad_row);
    if (!is_first) return;
    worker->is_bad = true;
    worker->bad_layer = (uint32_t)layer;
    worker->bad_row = (uint32_t)row;
}

/* Final norm of the wanted rows [first, first + n) into f->normed, this worker's share, or (few
 * rows) all of them into its own buffer. Hidden states of the last layer are taken after the final
 * norm as well, but for all rows: copy_hidden() does that. */
static const float *norm_wanted(struct kvad_forward *f, struct forward_worker *worker,
                                unsigned index, unsigned count, size_t first, size_t n) {
    const struct kvad_model *model = f->model;
    bool is_private = n <= FORWARD_PRIVATE_ROWS;
    float *normed = is_private ? worker->normed : f->normed;
    for (size_t i = 0; i < n; i++)
        if (is_private || i % count == index)
            f->kernels->layer_norm(normed + i * f->d_stride,
                                   f->hidden + f->wants[first + i].row * f->d_stride,
                                   model->final_norm.weight, model->final_norm.bias,
                                   model->description.d_model, model->description.norm_eps);
    if (is_private)
        forward_mark(worker, KVAD_PART_NORM);
    else
        forward_barrier(f, worker, KVAD_PART_NORM);
    return normed;
}

/* Copy this worker's columns of the head's output to the callers, without the padding of the last
 * panel. */
static void deliver(struct kvad_forward *f, struct forward_worker *worker, size_t first, size_t n,
                    size_t first_column, size_t last_column) {
    const struct kvad_description *d = &f->model->description;
    last_column = kvad_min_size(last_column, d->n_vocab);
    if (first_column >= last_column) return;
    size_t n_columns = last_column - first_column;
    for (size_t i = 0; i < n; i++) {
        const struct forward_want *want = &f->wants[first + i];
        const float *row = f->head + i * f->vocab_stride + first_column;
        if (!kvad_forward_is_finite(row, n_columns))
            kvad_forward_mark_bad(worker, d->n_layers, want->row);
        memcpy(want->logits + first_column, row, n_columns * sizeof *row);
    }
}

void kvad_forward_logits(struct kvad_forward *f, struct forward_worker *worker, unsigned index,
                         unsigned count) {
    const struct kvad_linear_weights *head = &f->model->head;
    for (size_t first = 0; first < f->n_wants; first += FORWARD_HEAD_ROWS) {
        size_t n = kvad_min_size(f->n_wants - first, FORWARD_HEAD_ROWS);
        const float *x = norm_wanted(f, worker, index, count, first, n);
        struct forward_input input =
            kvad_forward_input(f, worker, x, f->d_stride, n, head->k, index, count);
        struct forward_panels own = kvad_forward_linear(f, worker, head, f->head, f->vocab_stride,
                                                        input, n, KVAD_PART_HEAD, index, count);
        deliver(f, worker, first, n, own.first * KVAD_PANEL, own.last * KVAD_PANEL);
        /* The next group norms into the rows that others may still read. */
        forward_barrier(f, worker, KVAD_PART_HEAD);
    }
}
