/* Filling what nobody may read, to prove that nobody does. For the lab and the tests. */
#ifndef KVAD_ENGINE_POISON_H
#define KVAD_ENGINE_POISON_H

#include "kvad/kvad.h"

enum kvad_poison { KVAD_POISON_K = 1, KVAD_POISON_V = 2, KVAD_POISON_KV = 3 };

/** Write `value` wherever the cache holds nothing that counts: rows beyond each sequence's length
 * (but for those of shared blocks, which others may count on), blocks of areas that are not in use,
 * free blocks of the pool. Not while a step runs. In a cache of type Q8 the scales become `value`.
 */
void kvad_engine_poison_cache(struct kvad_engine *engine, enum kvad_poison target, float value);

/** Write `value` into all buffers of a step: nothing in them may outlive it. Not while a step runs.
 */
void kvad_engine_poison_step(struct kvad_engine *engine, float value);

#endif
