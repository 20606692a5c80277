/* How many CPUs this process may use. Files are read at every call: it is asked once per pool. */
#ifndef KVAD_BASE_CPU_COUNT_H
#define KVAD_BASE_CPU_COUNT_H

#include <stddef.h>

/** Workers that suit this process: min(physical cores that its affinity allows, floor of the
 * cgroup CPU quota), at least 1. Two threads of one core share its FMA units, so they count once.
 */
unsigned kvad_cpu_count_default(void);
/** CPUs (hardware threads) that the affinity mask and the quota allow, at least 1. */
unsigned kvad_cpu_count_allowed(void);

/* The parts, for tests; `root` goes in front of /sys and /proc ("" in use). */

/** Distinct physical cores among the CPUs whose bit is set in mask[0 .. n_words). A CPU without
 * topology files counts as a core. */
unsigned kvad_cpu_count_cores(const char *root, const unsigned long *mask, size_t n_words);
/** Whole CPUs that the cgroup quota (v2 cpu.max, v1 cpu.cfs_quota_us) of this process or of any
 * group above it grants, at least 1; 0: no limit. */
unsigned kvad_cpu_count_quota(const char *root);

#endif
