/* What kvad bench measures with and prints. */
#ifndef KVAD_CLI_BENCH_REPORT_H
#define KVAD_CLI_BENCH_REPORT_H

#include "cli/progress.h"
#include "lab/experiment.h"

/** The model to measure, of its own callback's `user`: a struct cli_measuring. `threads` load it;
 * NULL: a pool for that alone. */
enum kvad_status cli_bench_open_model(void *user, enum kvad_weight_type weights,
                                      struct kvad_threads *threads, struct kvad_model **out,
                                      struct kvad_error *err);

/* ---- a bench */

/** One JSON object (docs/benchmarks.md); of a void run without any number. `name` is MODEL or the
 * synthetic size. Returns an exit code. */
int cli_bench_print_json(const struct kvad_bench_result *result, const char *name);

/** Tables and a chart for people. */
int cli_bench_print_tables(const struct kvad_bench_result *result, const char *name);

/** Model, machine and engine: what stands above all tables. */
void cli_bench_print_head(const struct kvad_bench_result *result, const char *name);

/** What the CPU's counters saw of a case, which `what` names; nothing where there are none, or no
 * case. */
void cli_bench_print_counters(const struct kvad_bench_result *result,
                              const struct kvad_bench_case *c, const char *what);

/** A line if most cases spread widely: a machine that does something else gives rough numbers, and
 * should say so. */
void cli_bench_print_warning(const struct kvad_bench_result *result);

/** The chart alone: milliseconds per token over contexts, for one type of weights and cache. */
void cli_bench_print_chart(const struct kvad_bench_result *result, enum kvad_weight_type weights,
                           enum kvad_kv_type kv);

/* ---- an experiment */

/** Measure and print; an exit code. */
int cli_bench_run_experiment(struct cli_measuring *measuring);

/** Tables for people. */
int cli_experiment_print_tables(const struct kvad_experiment_result *result, const char *name);

/* ---- a trace */

/** Make or read the trace that the settings ask for, run it on a model, print; an exit code. */
int cli_bench_run_trace(struct cli_measuring *measuring);

#endif
