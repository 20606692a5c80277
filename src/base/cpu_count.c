#include "base/cpu_count.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

enum {
    MAX_CPUS = 8192,
    WORD_BITS = 8 * (int)sizeof(unsigned long),
    MAX_WORDS = MAX_CPUS / WORD_BITS
};

static bool has_bit(const unsigned long *mask, size_t bit) {
    return mask[bit / WORD_BITS] >> (bit % WORD_BITS) & 1u;
}

/* First line of a file without its newline; false if it cannot be read. */
static bool read_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool good = fgets(line, size, file) != NULL;
    fclose(file);
    if (good) line[strcspn(line, "\n")] = '\0';
    return good;
}

unsigned kvad_cpu_count_cores(const char *root, const unsigned long *mask, size_t n_words) {
    unsigned long seen[MAX_WORDS] = {0};
    unsigned n_cores = 0;
    for (size_t cpu = 0; cpu < n_words * WORD_BITS && cpu < MAX_CPUS; ++cpu) {
        if (!has_bit(mask, cpu)) continue;
        char path[512], line[256];
        /* "0,64" or "0-1": the lowest hardware thread names the core. */
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%zu/topology/%s", root, cpu,
                 "thread_siblings_list");
        size_t core = cpu;
        if (read_line(path, line, sizeof line)) core = strtoul(line, NULL, 10);
        if (core >= MAX_CPUS) core = cpu;
        if (has_bit(seen, core)) continue;
        seen[core / WORD_BITS] |= 1ul << (core % WORD_BITS);
        ++n_cores;
    }
    return n_cores;
}

/* floor(quota / period) as a number of CPUs, at least 1; 0: no limit or nonsense. */
static unsigned whole_cpus(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long n = quota / period;
    return n < 1 ? 1 : n > MAX_CPUS ? MAX_CPUS : (unsigned)n;
}

static unsigned quota_v2(const char *folder) {
    char path[1200], line[128];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line)) return 0;
    /* "max 100000" is no limit and no number */
    return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;
}

static unsigned quota_v1(const char *folder) {
    char path[1200], quota[128], period[128];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, quota, sizeof quota)) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_line(path, period, sizeof period)) return 0;
    return whole_cpus(atoll(quota), atoll(period)); /* -1: no limit */
}

static unsigned lower_limit(unsigned a, unsigned b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

/* The lowest limit of a group and all above it. Inside a container the named group may lie outside
 * what is mounted; then only the mount itself is found, which is the container's own. */
static unsigned lowest_quota(const char *mount, char *group, unsigned (*quota_of)(const char *)) {
    unsigned limit = 0;
    for (;;) {
        char folder[1100];
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        limit = lower_limit(limit, quota_of(folder));
        char *slash = strrchr(group, '/');
        if (!slash) return limit;
        *slash = '\0';
    }
}

/* Does a comma-separated list of controllers name "cpu"? */
static bool names_cpu(const char *list) {
    for (;;) {
        size_t size = strcspn(list, ",");
        if (size == 3 && memcmp(list, "cpu", 3) == 0) return true;
        if (list[size] == '\0') return false;
        list += size + 1;
    }
}

unsigned kvad_cpu_count_quota(const char *root) {
    char path[512], line[768], mount[512];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    unsigned limit = 0;
    /* Lines "hierarchy:controllers:group"; version 2 is the one without controllers. */
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        ++controllers;
        bool version_2 = *controllers == '\0';
        if (!version_2 && !names_cpu(controllers)) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, version_2 ? "" : "/cpu");
        unsigned found = lowest_quota(mount, group, version_2 ? quota_v2 : quota_v1);
        limit = lower_limit(limit, found);
    }
    fclose(file);
    return limit;
}

/* Number of CPUs in the affinity mask of this thread, which is written to `mask`. */
static unsigned read_affinity(unsigned long mask[MAX_WORDS]) {
    memset(mask, 0, MAX_WORDS * sizeof mask[0]);
    unsigned n = 0;
#if defined(__linux__)
    /* The system call takes any size, where cpu_set_t stops at 1024. */
    if (syscall(SYS_sched_getaffinity, 0, MAX_WORDS * sizeof mask[0], mask) > 0)
        for (size_t cpu = 0; cpu < MAX_CPUS; ++cpu)
            n += has_bit(mask, cpu);
#endif
    if (n > 0) return n;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    n = online < 1 ? 1 : online > MAX_CPUS ? MAX_CPUS : (unsigned)online;
    for (size_t cpu = 0; cpu < n; ++cpu)
        mask[cpu / WORD_BITS] |= 1ul << (cpu % WORD_BITS);
    return n;
}

unsigned kvad_cpu_count_allowed(void) {
    unsigned long mask[MAX_WORDS];
    return lower_limit(read_affinity(mask), kvad_cpu_count_quota(""));
}

unsigned kvad_cpu_count_default(void) {
    unsigned long mask[MAX_WORDS];
    (void)read_affinity(mask);
    return lower_limit(kvad_cpu_count_cores("", mask, MAX_WORDS), kvad_cpu_count_quota(""));
}
