/* The byte budget of the policies that have no pool: `static`, whose sequences take a whole context
 * each, and `grow`, whose sequences are copied to a fresh area by every append, old and new held at
 * the same time. A pool keeps to its budget by itself.
 *
 * Bytes of blocks count, as they do in a pool; the tables beside them do not. */
#ifndef KVAD_ENGINE_BUDGET_H
#define KVAD_ENGINE_BUDGET_H

#include "engine/request.h"

/** KVAD_ERR_NO_BLOCKS if not even one sequence of `static` fits. */
enum kvad_status kvad_budget_check_open(const struct kvad_engine *engine, struct kvad_error *err);
/** KVAD_ERR_NO_BLOCKS if one more sequence would exceed the budget by being made. */
enum kvad_status kvad_budget_check_sequence(const struct kvad_engine *engine,
                                            struct kvad_error *err);
/** KVAD_ERR_NO_BLOCKS if the longest text of a request, alone, does not fit while it is copied. */
enum kvad_status kvad_budget_check_request(const struct kvad_request *request, size_t longest,
                                           struct kvad_error *err);

/** Blocks beyond the budget that a step of these items would hold at its worst moment; 0: it fits.
 * O(sequences). */
size_t kvad_budget_missing(const struct kvad_engine *engine, const struct kvad_eval_item *items,
                           size_t n_items);
/** Whether a queued request may start: its known tokens, and one more block if it may grow, fit
 * beside what the running ones need for theirs. */
bool kvad_budget_fits(const struct kvad_request *request);

#endif
