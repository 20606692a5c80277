#include "model/weights.h"

#include "base/error.h"

static enum kvad_status read(void *user, enum kvad_parameter parameter, uint32_t layer, size_t row,
                             size_t first, size_t n, float *out, struct kvad_error *err) {
    const struct kvad_weights *w = user;
    if (parameter == KVAD_PARAMETER_POSITIONS)
        return kvad_tensor_read(&w->positions, row, first, n, out, err);
    const struct kvad_tensor **slot = kvad_weights_slot(w, parameter, layer, 0);
    size_t n_pieces = kvad_weights_pieces(w, parameter);
    if (n_pieces == 1) return kvad_tensor_read(*slot, row, first, n, out, err);

    size_t n_rows, n_columns;
    kvad_parameter_shape(&w->description, parameter, &n_rows, &n_columns);
    if (parameter == KVAD_PARAMETER_QKV_WEIGHT) {
        size_t piece_rows = n_rows / n_pieces;
        return kvad_tensor_read(slot[row / piece_rows], row % piece_rows, first, n, out, err);
    }
    size_t piece_columns = n_columns / n_pieces; /* the bias: pieces side by side */
    for (size_t done = 0, take; done < n; done += take) {
        size_t at = first + done, column = at % piece_columns;
        take = kvad_min_size(n - done, piece_columns - column);
        KVAD_TRY(kvad_tensor_read(slot[at / piece_columns], 0, column, take, out + done, err));
    }
    return KVAD_OK;
}

enum kvad_status kvad_weights_open(const struct kvad_checkpoint *checkpoint, uint32_t n_heads,
                                   enum kvad_activation activation, struct kvad_heap *heap,
                                   struct kvad_weights *out, struct kvad_error *err) {
    *out = (struct kvad_weights){.checkpoint = checkpoint, .heap = heap};
    out->source.read = read;
    out->source.user = out;
    struct kvad_config config;
    KVAD_TRY(kvad_family_find(checkpoint, heap, &out->family, err));
    KVAD_TRY(kvad_config_read(checkpoint, out->family, &config, err));
    KVAD_TRY(kvad_weights_bind(out, err));
    KVAD_TRY(kvad_weights_complete(out, &config, err));
    return kvad_weights_describe(out, &config, n_heads, activation, err);
}

void kvad_weights_close(struct kvad_weights *weights) {
    kvad_free(weights->heap, weights->slots, weights->n_slots * sizeof *weights->slots);
    weights->slots = NULL;
}
