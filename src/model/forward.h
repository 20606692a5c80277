/* The forward pass: one step for a batch of (sequence, tokens), on all threads of a pool.
 *
 *     tokens -> embed -> per layer: norm, qkv, write K and V into blocks, attention, out,
 *                                   norm, up, activation, down
 *            -> final norm of the rows that want logits -> head
 *
 * Prefill, decode, chunked prefill and verification of several tokens are this one call with other
 * numbers, and the bits of a row do not depend on which: every row is computed by the definitions
 * of docs/numerics.md, over tokens read back from the cache. kvad_forward_run() is the seam for
 * another device. */
#ifndef KVAD_MODEL_FORWARD_H
#define KVAD_MODEL_FORWARD_H

#include <stdatomic.h>

#include "kv/sequence.h"
#include "model/model.h"
#include "model/probe.h"

/* One sequence's part of a step. */
struct kvad_forward_item {
    struct kvad_kv_sequence *sequence; /* rows [position, position + n_tokens) are reserved */
    const int32_t *tokens;             /* [n_tokens], ids in [0, n_vocab) */
    size_t n_tokens;
    size_t position; /* of tokens[0]; all rows of the sequence before it are written */
    size_t n_kept;   /* first tokens whose rows are in the cache already: computed, not written */
    /* Logits of the rows `rows[i] - row_base` for i < n_rows go to logits + i * n_vocab. */
    const size_t *rows; /* ascending; NULL: the last n_rows */
    size_t n_rows, row_base;
    float *logits;
    /* NULL, or hidden states [n_layers + 1][hidden_stride rows][d_model], written from row 0 of
     * each. */
    float *hidden;
    size_t hidden_stride;
};

struct kvad_forward; /* memory and tables of a step; reserved once */

/** Reserve all memory of a step of at most `n_rows` rows. `model`,
 * `kernels` and `threads` are borrowed and must outlive it. Frees with kvad_forward_destroy().
 * KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_forward_create(const struct kvad_model *model,
                                     const struct kvad_kernels *kernels,
                                     struct kvad_threads *threads, size_t n_rows,
                                     struct kvad_heap *heap, struct kvad_forward **out,
                                     struct kvad_error *err);
void kvad_forward_destroy(struct kvad_forward **forward);

/** Call `visit` for each piece of memory that kvad_forward_create() took from its heap. */
void kvad_forward_visit_memory(const struct kvad_forward *forward,
                               void (*visit)(void *user, const void *memory, size_t bytes),
                               void *user);

/** Write `value` into all that a step computes with: nothing in it may outlive a step. Not while
 * one runs. */
void kvad_forward_fill(struct kvad_forward *forward, float value);

/** Count the time of the parts of the steps that follow in `probe`, which has a clock for each
 * worker of the pool and outlives them; NULL: no longer. Not while a step runs. */
void kvad_forward_set_probe(struct kvad_forward *forward, const struct kvad_probe *probe);

/** Of `n` panels of a linear layer those that worker `index` of `count` multiplies in a step:
 * [*first, *last). */
void kvad_forward_share(size_t n, unsigned index, unsigned count, size_t *first, size_t *last);

/** Run one step. Neither allocates nor logs. On failure rows of new tokens may be written, lengths
 * are untouched: KVAD_ERR_NOT_FINITE (*failed_item says whose) with layer and position,
 * KVAD_ERR_CANCELLED when *interrupt became true. */
enum kvad_status kvad_forward_run(struct kvad_forward *forward,
                                  const struct kvad_forward_item *items, size_t n_items,
                                  const _Atomic bool *interrupt, size_t *failed_item,
                                  struct kvad_error *err);

#endif
