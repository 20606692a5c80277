/* The CPU's own event counters, where the kernel lets a process read them. */
#ifndef KVAD_LAB_COUNTERS_H
#define KVAD_LAB_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVAD_COUNTERS = 5 };

struct kvad_counters {
    int files[KVAD_COUNTERS]; /* -1: this event is not to be had */
    bool is_any;              /* some event is */
    char why[128];            /* why none is, and what to do */
};

/** Count events of the calling thread and of all threads that it makes from now on, in user mode.
 * Never fails: `is_any` says whether there is something to read. */
void kvad_counters_open(struct kvad_counters *counters);
void kvad_counters_close(struct kvad_counters *counters);

/** Events since the opening (scaled where the CPU's counters had to take turns); -1 for an event
 * that is not to be had. */
void kvad_counters_read(const struct kvad_counters *counters, double values[KVAD_COUNTERS]);

/** What an `error` (errno) of perf_event_open means for whoever wants counters. `paranoid`: the
 * value of kernel.perf_event_paranoid, or INT_MAX where it cannot be read. */
void kvad_counters_explain(int error, int paranoid, char *text, size_t size);

/** Name of an event ("cycles"). */
const char *kvad_counter_name(unsigned index);

#endif
