/* The result of a trace as JSON. */
#ifndef KVAD_LAB_TRACE_JSON_H
#define KVAD_LAB_TRACE_JSON_H

#include <jansson.h>

#include "lab/trace.h"

/** One object (docs/benchmarks.md has its names); of a void run without any number. `name` is MODEL
 * or the synthetic size. NULL when memory is out. The caller owns it. */
json_t *kvad_trace_json(const struct kvad_trace_result *result, const char *name);

#endif
