/* Pieces of JSON that bench, experiment and trace have in common; each is NULL when memory is out,
 * and the caller owns it. */
#ifndef KVAD_LAB_BENCH_JSON_H
#define KVAD_LAB_BENCH_JSON_H

#include <jansson.h>

#include "lab/bench.h"

/** Six digits, which is more than clocks and ceilings give; null where it is not finite. */
json_t *kvad_bench_number_json(double value);

/** {"read_gb_s", "fma_gflop_s", "int8_gop_s"} from bytes and operations per second; null for a
 * `dot` of 0. */
json_t *kvad_bench_ceilings_json(double read, double fma, double dot);

/** {"reserve": ms, ...} of a case; {} for NULL. */
json_t *kvad_bench_parts_json(const struct kvad_bench_case *c);

/** {"cycles": events of a step, ...} of a case, null for an event that is not to be had; null where
 * the kernel gives none. */
json_t *kvad_bench_counters_json(const struct kvad_bench_result *result,
                                 const struct kvad_bench_case *c);

/** {"name", "family", "n_parameters", ...}; takes `name` over; NULL: out of memory. */
json_t *kvad_bench_model_json(const struct kvad_model_info *info, json_t *name);

#endif
