/* The tensors of a checkpoint bound to the parameters of its family: every parameter exactly once,
 * every tensor known, every shape as the description says. */
#ifndef KVAD_MODEL_WEIGHTS_H
#define KVAD_MODEL_WEIGHTS_H

#include "model/config.h"

/* Borrows the checkpoint. Stays where it was opened: `source` points to it. */
struct kvad_weights {
    const struct kvad_checkpoint *checkpoint;
    const struct kvad_family *family;
    struct kvad_heap *heap;
    struct kvad_description description;
    struct kvad_model_source source; /* for kvad_model_build() */

    /* slots[slot]: the tensor of a parameter (of a part of it, where the file cuts qkv). First
     * those of the whole model, then those of each layer. offset[p] counts inside its group. */
    const struct kvad_tensor **slots;
    size_t n_slots, n_model_slots, n_layer_slots;
    size_t offset[KVAD_PARAMETER_COUNT];
    size_t n_pieces; /* of qkv: 1, 3 or 3 * heads, in the order of its rows */
    uint32_t n_layers, n_named_heads;
    uint64_t n_elements;          /* of all parameters, a tied head counted once */
    struct kvad_tensor positions; /* as a matrix */
    bool was_untied;              /* the file should tie its head, but has two different tensors */
};

/** Bind. `n_heads` and `activation` (0 and AUTO: as the file says) come from the caller.
 * Refusals name the tensor: missing, unexpected, twice, wrong shape (both shapes), wrong dtype.
 * Close with kvad_weights_close(), also after a failure. */
enum kvad_status kvad_weights_open(const struct kvad_checkpoint *checkpoint, uint32_t n_heads,
                                   enum kvad_activation activation, struct kvad_heap *heap,
                                   struct kvad_weights *out, struct kvad_error *err);
void kvad_weights_close(struct kvad_weights *weights);

/* ---- the steps of it, in order (one file each) */

/** Fill the slots from the names of the tensors. */
enum kvad_status kvad_weights_bind(struct kvad_weights *weights, struct kvad_error *err);
/** Which biases exist, whether the head is tied; everything required is there. */
enum kvad_status kvad_weights_complete(struct kvad_weights *weights,
                                       const struct kvad_config *config, struct kvad_error *err);
/** Sizes from the shapes and the configuration; then every shape is checked against them. */
enum kvad_status kvad_weights_describe(struct kvad_weights *weights,
                                       const struct kvad_config *config, uint32_t n_heads,
                                       enum kvad_activation activation, struct kvad_error *err);

/** The slot of a piece of a parameter; `piece` is 0 but for qkv. */
static inline const struct kvad_tensor **kvad_weights_slot(const struct kvad_weights *weights,
                                                           enum kvad_parameter parameter,
                                                           uint32_t layer, size_t piece) {
    size_t first = kvad_parameter_is_per_layer(parameter)
                       ? weights->n_model_slots + layer * weights->n_layer_slots
                       : 0;
    return &weights->slots[first + weights->offset[parameter] + piece];
}

/** Pieces that a parameter is cut into. */
static inline size_t kvad_weights_pieces(const struct kvad_weights *weights,
                                         enum kvad_parameter parameter) {
    return parameter == KVAD_PARAMETER_QKV_WEIGHT || parameter == KVAD_PARAMETER_QKV_BIAS
               ? weights->n_pieces
               : 1;
}

#endif
