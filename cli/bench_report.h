/* What kvad bench prints. */
#ifndef KVAD_CLI_BENCH_REPORT_H
#define KVAD_CLI_BENCH_REPORT_H

#include "lab/bench.h"

/** One JSON object (docs/benchmarks.md); of a void run without any number. `name` is MODEL or the
 * synthetic size. Returns an exit code. */
int cli_bench_print_json(const struct kvad_bench_result *result, const char *name);

/** Tables and a chart for people. */
int cli_bench_print_tables(const struct kvad_bench_result *result, const char *name);

/** The chart alone: milliseconds per token over contexts, for one type of weights and cache. */
void cli_bench_print_chart(const struct kvad_bench_result *result, enum kvad_weight_type weights,
                           enum kvad_kv_type kv);

#endif
