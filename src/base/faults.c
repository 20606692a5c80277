/* Compiled only with KVAD_FAULTS=ON. */
#include "base/faults.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The one place with global state: a fault has to be chosen from outside, by the tests of a build
 * that nobody uses. */
static _Atomic int active_fault;
static _Atomic uint64_t reached[KVAD_FAULT_COUNT];
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name, *area, *meaning, *report;
} faults[KVAD_FAULT_COUNT] = {
#define X(id, name, area, meaning, report) [KVAD_FAULT_##id] = {name, area, meaning, report},
#include "base/faults.def"
#undef X
};

static void read_environment(void) {
    const char *name = getenv("KVAD_FAULT");
    if (!name || !*name) return;
    enum kvad_fault fault = kvad_fault_from_name(name);
    if (fault == KVAD_FAULT_NONE) {
        /* A misspelt fault that changes nothing would look like one that no test catches. */
        fprintf(stderr, "KVAD_FAULT=%s: no such fault\n", name);
        abort();
    }
    atomic_store(&active_fault, (int)fault);
}

bool kvad_fault_hit(enum kvad_fault fault) {
    pthread_once(&environment_once, read_environment);
    atomic_fetch_add_explicit(&reached[fault], 1, memory_order_relaxed);
    return (int)fault == atomic_load_explicit(&active_fault, memory_order_relaxed);
}

bool kvad_fault_is_any(void) {
    pthread_once(&environment_once, read_environment);
    return atomic_load_explicit(&active_fault, memory_order_relaxed) != KVAD_FAULT_NONE;
}

void kvad_fault_set(enum kvad_fault fault) {
    pthread_once(&environment_once, read_environment);
    for (int i = 0; i < KVAD_FAULT_COUNT; i++)
        atomic_store(&reached[i], 0);
    atomic_store(&active_fault, (int)fault);
}

uint64_t kvad_fault_reached(enum kvad_fault fault) {
    return atomic_load(&reached[fault]);
}

const char *kvad_fault_name(enum kvad_fault fault) {
    return fault < KVAD_FAULT_COUNT ? faults[fault].name : NULL;
}

const char *kvad_fault_area(enum kvad_fault fault) {
    return fault < KVAD_FAULT_COUNT ? faults[fault].area : NULL;
}

const char *kvad_fault_meaning(enum kvad_fault fault) {
    return fault < KVAD_FAULT_COUNT ? faults[fault].meaning : NULL;
}

const char *kvad_fault_report(enum kvad_fault fault) {
    return fault < KVAD_FAULT_COUNT ? faults[fault].report : NULL;
}

enum kvad_fault kvad_fault_from_name(const char *name) {
    for (int i = KVAD_FAULT_NONE + 1; i < KVAD_FAULT_COUNT; i++)
        if (strcmp(faults[i].name, name) == 0) return (enum kvad_fault)i;
    return KVAD_FAULT_NONE;
}
