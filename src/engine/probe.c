#include "engine/probe.h"

#include <string.h>

#include "base/error.h"

static const char *const names[KVAD_PART_COUNT] = {
#define PART_NAME(suffix, name) name,
    KVAD_PART_LIST(PART_NAME)
#undef PART_NAME
};

enum kvad_status kvad_probe_init(struct kvad_probe *probe, const struct kvad_threads *threads,
                                 struct kvad_heap *heap, struct kvad_error *err) {
    *probe = (struct kvad_probe){.n_workers = kvad_threads_count(threads)};
    probe->clocks = kvad_alloc_zero(heap, probe->n_workers, sizeof *probe->clocks);
    if (probe->clocks) return KVAD_OK;
    return kvad_fail_memory(err, "clocks", probe->n_workers * sizeof *probe->clocks);
}

void kvad_probe_deinit(struct kvad_probe *probe, struct kvad_heap *heap) {
    kvad_free(heap, probe->clocks, probe->n_workers * sizeof *probe->clocks);
    *probe = (struct kvad_probe){0};
}

void kvad_probe_clear(const struct kvad_probe *probe) {
    memset(probe->clocks, 0, probe->n_workers * sizeof *probe->clocks);
}

uint64_t kvad_probe_ns(const struct kvad_probe *probe, enum kvad_part part) {
    uint64_t ns = 0;
    for (unsigned i = 0; i < probe->n_workers; i++)
        ns += probe->clocks[i].ns[part];
    return ns;
}

const char *kvad_part_name(enum kvad_part part) {
    return (unsigned)part < KVAD_PART_COUNT ? names[part] : "unknown";
}

void kvad_engine_set_probe(struct kvad_engine *engine, const struct kvad_probe *probe) {
    engine->probe = probe;
    engine->forward_ns = 0;
    kvad_forward_set_probe(engine->forward, probe);
}
