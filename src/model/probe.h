/* Where the time of a step goes: every worker has a clock that is read at the end of each part, so
 * that the parts of a worker add up to the whole step, waiting included.
 *
 *     start | plan | embed | wait | norm, qkv, store_kv | wait | attention | ... | other
 *
 * A step without a probe tests one pointer for each part and worker. */
#ifndef KVAD_MODEL_PROBE_H
#define KVAD_MODEL_PROBE_H

#include "base/clock.h"
#include "base/compiler.h"

/* X(suffix, name). WAIT and OTHER are no parts of the work: time at barriers and time between
 * parts. */
#define KVAD_PART_LIST(X)                                                                          \
    X(RESERVE, "reserve")       /* room in the cache; with `grow` the copy of all rows */          \
    X(EMBED, "embed")           /* token and position */                                           \
    X(NORM, "norm")             /* of all layers, and the final one */                             \
    X(QUANTISE, "quantise")     /* activations, where weights are q8 or q4 */                      \
    X(QKV, "qkv")               /* linear */                                                       \
    X(STORE_KV, "store_kv")     /* new rows into blocks */                                         \
    X(ATTENTION, "attention")   /* scores, softmax, weighted sums */                               \
    X(OUT, "out")               /* linear, residual */                                             \
    X(UP, "up")                 /* first linear of the feed-forward part */                        \
    X(ACTIVATION, "activation") /* between the two */                                              \
    X(DOWN, "down")             /* second linear, residual */                                      \
    X(HEAD, "head")             /* linear to logits */                                             \
    X(SAMPLING, "sampling")     /* logits to a token; by one thread while the others wait */       \
    X(WAIT, "wait")             /* barriers, waking up, and others' serial work */                 \
    X(OTHER, "other")           /* checks, planning */

enum kvad_part {
#define KVAD_PART_ENUM(suffix, name) KVAD_PART_##suffix,
    KVAD_PART_LIST(KVAD_PART_ENUM)
#undef KVAD_PART_ENUM
        KVAD_PART_COUNT
};

/* One worker's, alone on its cache lines. */
struct kvad_probe_clock {
    uint64_t last; /* when it was read last, kvad_clock_ns() */
    uint64_t ns[KVAD_PART_COUNT];
} KVAD_ALIGNED(64);

/* Clocks of all workers of a pool; the owner of the memory is who made the probe. */
struct kvad_probe {
    struct kvad_probe_clock *clocks; /* [n_workers] */
    unsigned n_workers;
};

/** The time since the clock was read last belongs to `part`. */
static inline void kvad_probe_mark(struct kvad_probe_clock *clock, enum kvad_part part) {
    uint64_t now = kvad_clock_ns();
    clock->ns[part] += now - clock->last;
    clock->last = now;
}

/** A step begins: all clocks run from now on. Not while workers run; NULL is allowed. */
static inline void kvad_probe_start(const struct kvad_probe *probe) {
    if (!probe) return;
    uint64_t now = kvad_clock_ns();
    for (unsigned i = 0; i < probe->n_workers; i++)
        probe->clocks[i].last = now;
}

/** The calling thread, worker 0, has done `part` while the others waited. Not while workers run;
 * NULL is allowed. */
static inline void kvad_probe_serial(const struct kvad_probe *probe, enum kvad_part part) {
    if (!probe) return;
    kvad_probe_mark(&probe->clocks[0], part);
    for (unsigned i = 1; i < probe->n_workers; i++)
        kvad_probe_mark(&probe->clocks[i], KVAD_PART_WAIT);
}

#endif
