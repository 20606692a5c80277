/* How many bytes a step must read and how many operations it must do, by formula.
 *
 *   bytes   every weight of the linear layers and norms once for each pass over the batch; the rows
 *           of embedding and positions that the tokens name; K and V of all tokens that are seen
 *   flops   two for each multiply-add of the linear layers and of attention (scores and weighted
 *           sums, over visible tokens only): Kaplan et al., "Scaling laws for neural language
 *           models", 2020, table 1. Norms, activations, exp and sampling are left out: they are
 *           below 1 % on every model of this family.
 *
 * What a policy does beyond that (the copies of `grow`) is its own cost and not counted. */
#ifndef KVAD_LAB_WORK_H
#define KVAD_LAB_WORK_H

#include "model/model.h"

struct kvad_work {
    double weight_bytes, kv_bytes;
    double linear_flops, attention_flops;
};

/* Sequences that take the same step together. */
struct kvad_work_step {
    size_t n_sequences;
    size_t position;           /* tokens that each has in the cache before */
    size_t n_rows;             /* tokens that each appends */
    size_t n_logits;           /* rows of each that want logits */
    size_t n_batch_rows;       /* rows that fit one pass over the weights */
    size_t kv_bytes_per_token; /* K and V of all layers */
};

struct kvad_work kvad_work_of(const struct kvad_model *model, const struct kvad_work_step *step);

/** Bytes of the weights that a pass reads: linear layers as they lie in memory (with the padding of
 * their last panels), biases, norms; the head only if a row wants logits. */
double kvad_work_weight_bytes(const struct kvad_model *model, bool with_head);

#endif
