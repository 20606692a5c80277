#include "base/gate.h"

#include <stdbool.h>

#include "base/clock.h"

#if defined(__linux__) && !defined(KVAD_GATE_PORTABLE)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void kvad_gate_init(struct kvad_gate *gate) {
    atomic_init(&gate->value, 0);
    atomic_init(&gate->n_sleepers, 0);
}

void kvad_gate_deinit(struct kvad_gate *gate) {
    (void)gate;
}

static void sleep_until_changed(struct kvad_gate *gate, uint32_t seen) {
    /* Returns at once when the value differs; spurious returns are caught by the loop. */
    while (kvad_gate_value(gate) == seen)
        syscall(SYS_futex, &gate->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake_sleepers(struct kvad_gate *gate) {
    syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#else

void kvad_gate_init(struct kvad_gate *gate) {
    atomic_init(&gate->value, 0);
    atomic_init(&gate->n_sleepers, 0);
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

void kvad_gate_deinit(struct kvad_gate *gate) {
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->mutex);
}

static void sleep_until_changed(struct kvad_gate *gate, uint32_t seen) {
    pthread_mutex_lock(&gate->mutex);
    while (kvad_gate_value(gate) == seen)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void wake_sleepers(struct kvad_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

#endif

void kvad_gate_advance(struct kvad_gate *gate) {
    /* Sequentially consistent with the increment and the look in kvad_gate_wait(): either we see
     * the sleeper, or the sleeper sees the new value. */
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->n_sleepers) != 0) wake_sleepers(gate);
}

static bool spin_until_changed(struct kvad_gate *gate, uint32_t seen, uint64_t spin_ns) {
    uint64_t end = kvad_clock_ns() + spin_ns;
    do {
        for (int i = 0; i < 16; ++i) {
            if (kvad_gate_value(gate) != seen) return true;
            kvad_cpu_relax();
        }
    } while (kvad_clock_ns() < end);
    return false;
}

void kvad_gate_wait(struct kvad_gate *gate, uint32_t seen, uint64_t spin_ns) {
    if (kvad_gate_value(gate) != seen) return;
    if (spin_ns != 0 && spin_until_changed(gate, seen, spin_ns)) return;
    atomic_fetch_add(&gate->n_sleepers, 1);
    if (atomic_load(&gate->value) == seen) sleep_until_changed(gate, seen);
    atomic_fetch_sub_explicit(&gate->n_sleepers, 1, memory_order_relaxed);
}
