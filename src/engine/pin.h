/* Pins: prompts whose cached blocks are not evicted for a time. */
#ifndef KVAD_ENGINE_PIN_H
#define KVAD_ENGINE_PIN_H

#include "engine/engine.h"

struct kvad_cache_pin {
    struct kvad_cache_pin *next; /* of engine->pins, the oldest first */
    uint64_t id, expires_ns;     /* UINT64_MAX: never */
    size_t n_blocks;
    uint32_t blocks[]; /* [n_blocks], one reference each */
};

static inline size_t kvad_cache_pin_bytes(const struct kvad_cache_pin *pin) {
    return sizeof *pin + pin->n_blocks * sizeof *pin->blocks;
}

/** Drop the pins whose time is over. O(pins). */
void kvad_engine_expire_pins(struct kvad_engine *engine);
/** Drop the oldest pin because a request cannot go on without its blocks; false: there is none. */
bool kvad_engine_break_pin(struct kvad_engine *engine);

#endif
