/* What the lab sees of an engine that kvad.h does not show: the time of each part of a step. */
#ifndef KVAD_ENGINE_PROBE_H
#define KVAD_ENGINE_PROBE_H

#include "engine/engine.h"

/** Make a probe with a clock for each worker of `threads`, all at 0. Memory from `heap`;
 * KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_probe_init(struct kvad_probe *probe, const struct kvad_threads *threads,
                                 struct kvad_heap *heap, struct kvad_error *err);
/** A zeroed probe is allowed. */
void kvad_probe_deinit(struct kvad_probe *probe, struct kvad_heap *heap);

/** Set all parts to 0. */
void kvad_probe_clear(const struct kvad_probe *probe);

/** Nanoseconds of a part, all workers together. */
uint64_t kvad_probe_ns(const struct kvad_probe *probe, enum kvad_part part);

/** Name of a part ("attention"), never NULL. */
const char *kvad_part_name(enum kvad_part part);

/** Count the steps that follow in `probe` (of the engine's own threads), which outlives them; NULL:
 * no longer. Around each step the caller says kvad_probe_start() and, after work of its own such as
 * sampling, kvad_probe_serial(). */
void kvad_engine_set_probe(struct kvad_engine *engine, const struct kvad_probe *probe);

#endif
