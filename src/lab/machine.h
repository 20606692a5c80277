/* What the numbers were measured on, in words that name the kind of machine and not the machine. */
#ifndef KVAD_LAB_MACHINE_H
#define KVAD_LAB_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { KVAD_MACHINE_CACHES = 8 };

struct kvad_machine_cache {
    unsigned level;
    char kind[16]; /* "Data", "Instruction", "Unified" */
    uint64_t bytes;
};

/* What cannot be found out is empty or 0. */
struct kvad_machine {
    char cpu[128];    /* "AMD EPYC", as the kernel writes it */
    unsigned n_cpus;  /* that this process may use */
    unsigned n_cores; /* physical ones among them, within the cgroup's quota */
    struct kvad_machine_cache caches[KVAD_MACHINE_CACHES]; /* of the first CPU */
    unsigned n_caches;
    uint64_t memory_bytes;
    char huge_pages[16]; /* "always", "madvise", "never" */
    bool is_virtual;     /* a hypervisor announces itself */
};

/** Look at /proc and /sys. */
void kvad_machine_read(struct kvad_machine *machine);

/** Bytes of this process that lie in huge pages now; 0 where the kernel does not say. */
uint64_t kvad_machine_huge_page_bytes(void);

#endif
