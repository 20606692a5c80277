#include "lab/counters.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[KVAD_COUNTERS] = {"cycles", "instructions", "cache_references",
                                                 "cache_misses", "branch_misses"};

const char *kvad_counter_name(unsigned index) {
    return index < KVAD_COUNTERS ? names[index] : "unknown";
}

/* The largest value of kernel.perf_event_paranoid at which a program may count in user mode. */
enum { PARANOID_ALLOWS = 2 };

void kvad_counters_explain(int error, int paranoid, char *text, size_t size) {
    if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP)
        snprintf(text, size, "this CPU offers none; virtual machines seldom do");
    else if (error == ENOSYS)
        snprintf(text, size, "the kernel or a sandbox has no perf_event_open");
    else if (error != EACCES && error != EPERM)
        snprintf(text, size, "perf_event_open: %s", strerror(error));
    else if (paranoid > PARANOID_ALLOWS && paranoid != INT_MAX)
        snprintf(
            text, size,
            "the kernel forbids them: kernel.perf_event_paranoid is %d, and must be %d or less",
            paranoid, PARANOID_ALLOWS);
    else
        snprintf(text, size, "a container or the kernel forbids them (perf_event_open: %s)",
                 strerror(error));
}

#if defined(__linux__)

#include <linux/perf_event.h>
#include <sys/syscall.h>

static int open_event(uint64_t event) {
    struct perf_event_attr attr = {.size = sizeof attr,
                                   .type = PERF_TYPE_HARDWARE,
                                   .config = event,
                                   .inherit = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1,
                                   .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
                                                  PERF_FORMAT_TOTAL_TIME_RUNNING};
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* kernel.perf_event_paranoid; INT_MAX where it cannot be read. */
static int read_paranoid(void) {
    FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
    int value = INT_MAX;
    if (!file) return INT_MAX;
    if (fscanf(file, "%d", &value) != 1) value = INT_MAX;
    fclose(file);
    return value;
}

void kvad_counters_open(struct kvad_counters *counters) {
    static const uint64_t events[KVAD_COUNTERS] = {
        PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CACHE_REFERENCES,
        PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_BRANCH_MISSES};
    *counters = (struct kvad_counters){0};
    for (unsigned i = 0; i < KVAD_COUNTERS; i++) {
        counters->files[i] = open_event(events[i]);
        if (counters->files[i] >= 0)
            counters->is_any = true;
        else if (!*counters->why)
            kvad_counters_explain(errno, read_paranoid(), counters->why, sizeof counters->why);
    }
    if (counters->is_any) counters->why[0] = 0;
}

static double read_event(int file) {
    uint64_t values[3]; /* count, time enabled, time running */
    if (file < 0 || read(file, values, sizeof values) != (ssize_t)sizeof values) return -1;
    if (values[2] == 0) return values[1] == 0 ? 0 : -1;
    return (double)values[0] * ((double)values[1] / (double)values[2]);
}

#else

void kvad_counters_open(struct kvad_counters *counters) {
    *counters = (struct kvad_counters){.why = "not on this system"};
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        counters->files[i] = -1;
}

static double read_event(int file) {
    (void)file;
    return -1;
}

#endif

void kvad_counters_close(struct kvad_counters *counters) {
    for (unsigned i = 0; i < KVAD_COUNTERS; i++) {
        if (counters->files[i] >= 0) close(counters->files[i]);
        counters->files[i] = -1;
    }
    counters->is_any = false;
}

void kvad_counters_read(const struct kvad_counters *counters, double values[KVAD_COUNTERS]) {
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        values[i] = read_event(counters->files[i]);
}
