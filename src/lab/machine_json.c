#include "lab/machine_json.h"

/* The kernel writes ASCII; anything else is left out rather than making the report fail. */
static json_t *string_of(const char *text) {
    json_t *string = json_string(text);
    return string ? string : json_string("");
}

json_t *kvad_machine_json(const struct kvad_machine *machine) {
    json_t *caches = json_array();
    int failed = !caches;
    for (unsigned i = 0; i < machine->n_caches && !failed; i++) {
        const struct kvad_machine_cache *cache = &machine->caches[i];
        failed |= json_array_append_new(
            caches, json_pack("{s:i, s:o, s:I}", "level", (int)cache->level, "kind",
                              string_of(cache->kind), "bytes", (json_int_t)cache->bytes));
    }
    json_t *object =
        json_pack("{s:o, s:i, s:i, s:b, s:o, s:I, s:o}", "cpu", string_of(machine->cpu), "cpus",
                  (int)machine->n_cpus, "cores", (int)machine->n_cores, "virtual",
                  (int)machine->is_virtual, "caches", caches, "memory_bytes",
                  (json_int_t)machine->memory_bytes, "huge_pages", string_of(machine->huge_pages));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
