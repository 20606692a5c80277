/* Filling the arrays of a model: all workers at once, each those panels that it multiplies in a
 * step.
 *
 * Memory belongs to the node of the worker that writes to it first, and a node reads its own memory
 * faster. So the load keeps to the shares of the forward pass. Where a step cuts otherwise (few
 * rows for many workers: segments; prompts with quantised weights: pairs of panels of `up`), panels
 * at the borders of a share are another's. */
#ifndef KVAD_MODEL_FILL_H
#define KVAD_MODEL_FILL_H

#include "base/threads.h"
#include "model/build.h"

/** Fill a model that is placed (kvad_model_place()) from its source. The bytes do not depend on the
 * number of workers; gaps between arrays become 0. `progress` is called by the calling thread only.
 * Of several failures the one that a single worker would meet first is reported.
 * KVAD_ERR_NO_MEMORY, KVAD_ERR_CANCELLED, what the source says. */
enum kvad_status kvad_model_fill(struct kvad_model *model, const struct kvad_model_source *source,
                                 const struct kvad_progress *progress, struct kvad_threads *threads,
                                 struct kvad_error *err);

/** Fill a model that is placed from `area`, the area_bytes of such a model. */
void kvad_model_fill_copy(struct kvad_model *model, const void *area, struct kvad_threads *threads);

#endif
