/* The machine as every report of the lab writes it. */
#ifndef KVAD_LAB_MACHINE_JSON_H
#define KVAD_LAB_MACHINE_JSON_H

#include <jansson.h>

#include "lab/machine.h"

/** {"cpu", "cpus", "cores", "virtual", "caches": [{"level", "kind", "bytes"}], "memory_bytes",
 * "huge_pages"}; NULL when memory is out. The caller owns it. */
json_t *kvad_machine_json(const struct kvad_machine *machine);

#endif
