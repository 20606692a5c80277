/* The steps of attention that it has in common whether its units are whole rows or chunks. */
#ifndef KVAD_MODEL_FORWARD_ATTENTION_H
#define KVAD_MODEL_FORWARD_ATTENTION_H

#include "base/faults.h"
#include "model/forward_internal.h"

/** How many tokens a row of the step sees. */
size_t kvad_forward_seen(const struct kvad_forward *f, size_t row);
/** Query head that is the g-th of those that share a kv head. */
size_t kvad_forward_query_head(const struct kvad_forward *f, size_t kv_head, size_t g);
/** Scaled queries of a tile into worker->query, for all query heads of one kv head. */
void kvad_forward_queries(const struct kvad_forward *f, const struct forward_worker *worker,
                          const struct forward_tile *tile, size_t layer, size_t kv_head);
/** Partial results of the chunk that begins at token `start` into (o, m, l); worker->visible says
 * which rows have one. */
void kvad_forward_chunk(const struct kvad_forward *f, const struct forward_worker *worker,
                        const struct forward_tile *tile, size_t layer, size_t kv_head, size_t start,
                        float *o, float *m, float *l);
/** Largest score of a chunk that is folded into sums whose largest score is `so_far`. */
static inline float forward_chunk_maximum(float so_far, float maximum) {
    (void)so_far;
    return KVAD_FAULT(MERGE_WITHOUT_RESCALE, maximum, so_far);
}
/** Where the result of a row's query head goes, in forward->attended. */
float *kvad_forward_output(const struct kvad_forward *f, size_t row, size_t head);

#endif
