#include "lab/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_count.h"

/* What follows "name<blanks>:<blank>" on a line of a file of such lines, or false. */
static bool read_field(const char *path, const char *name, char *out, size_t size) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    char line[4096];
    size_t n = strlen(name);
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, n) != 0) continue;
        const char *value = line + n + strspn(line + n, " \t");
        if (*value != ':') continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    fclose(file);
    return found;
}

/* The first line of a file, or an empty text. */
static void read_line(const char *path, char *out, int size) {
    out[0] = 0;
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (!fgets(out, size, file)) out[0] = 0;
    fclose(file);
    out[strcspn(out, "\n")] = 0;
}

static void read_caches(struct kvad_machine *machine) {
    for (unsigned i = 0; i < KVAD_MACHINE_CACHES; i++) {
        static const char root[] = "/sys/devices/system/cpu/cpu0/cache";
        struct kvad_machine_cache *cache = &machine->caches[i];
        char path[128], text[32];
        snprintf(path, sizeof path, "%s/index%u/size", root, i);
        read_line(path, text, sizeof text);
        if (!*text) return;
        char *unit;
        cache->bytes = strtoull(text, &unit, 10);
        if (*unit == 'K') cache->bytes <<= 10;
        if (*unit == 'M') cache->bytes <<= 20;
        snprintf(path, sizeof path, "%s/index%u/level", root, i);
        read_line(path, text, sizeof text);
        cache->level = (unsigned)strtoul(text, NULL, 10);
        snprintf(path, sizeof path, "%s/index%u/type", root, i);
        read_line(path, cache->kind, sizeof cache->kind);
        machine->n_caches = i + 1;
    }
}

/* "always [madvise] never": the word in brackets. */
static void read_huge_pages(struct kvad_machine *machine) {
    char text[64];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *word = strchr(text, '[');
    if (word)
        snprintf(machine->huge_pages, sizeof machine->huge_pages, "%.*s",
                 (int)strcspn(word + 1, "]"), word + 1);
}

void kvad_machine_read(struct kvad_machine *machine) {
    *machine = (struct kvad_machine){.n_cpus = kvad_cpu_count_allowed(),
                                     .n_cores = kvad_cpu_count_default()};
    static const char cpuinfo[] = "/proc/cpuinfo";
    char flags[4096];
    if (!read_field(cpuinfo, "model name", machine->cpu, sizeof machine->cpu))
        read_field(cpuinfo, "CPU part", machine->cpu, sizeof machine->cpu);
    if (read_field(cpuinfo, "flags", flags, sizeof flags))
        machine->is_virtual = strstr(flags, " hypervisor") != NULL;
    read_caches(machine);
    read_huge_pages(machine);
    long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (n_pages > 0 && page > 0) machine->memory_bytes = (uint64_t)n_pages * (uint64_t)page;
}

uint64_t kvad_machine_huge_page_bytes(void) {
    char text[64];
    if (!read_field("/proc/self/smaps_rollup", "AnonHugePages", text, sizeof text)) return 0;
    return strtoull(text, NULL, 10) << 10;
}
