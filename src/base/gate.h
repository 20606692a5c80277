/* A number that threads wait on until it changes: spin for a moment, then sleep. */
#ifndef KVAD_BASE_GATE_H
#define KVAD_BASE_GATE_H

#include <stdatomic.h>
#include <stdint.h>
#if !defined(__linux__) || defined(KVAD_GATE_PORTABLE)
#include <pthread.h>
#endif

#include "base/compiler.h"

/* Alone on its cache line, so that spinning disturbs nothing else. */
struct kvad_gate {
    _Atomic uint32_t value; /* wraps; only "changed or not" matters */
    _Atomic uint32_t n_sleepers;
#if !defined(__linux__) || defined(KVAD_GATE_PORTABLE)
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
} KVAD_ALIGNED(64);

/** Start at 0 with nobody waiting; cannot fail. Also used to reset a gate in a forked child. */
void kvad_gate_init(struct kvad_gate *gate);
void kvad_gate_deinit(struct kvad_gate *gate);
/** The value now; what was written before the kvad_gate_advance() that made it is visible. */
static inline uint32_t kvad_gate_value(struct kvad_gate *gate) {
    return atomic_load_explicit(&gate->value, memory_order_acquire);
}
/** Add 1 and wake all waiters. No system call when nobody sleeps. */
void kvad_gate_advance(struct kvad_gate *gate);
/** Return once the value differs from `seen`: burns at most about `spin_ns`, then sleeps. */
void kvad_gate_wait(struct kvad_gate *gate, uint32_t seen, uint64_t spin_ns);

#endif
