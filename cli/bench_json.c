/* kvad bench --json. The names are a promise to scripts: docs/benchmarks.md. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "lab/bench_json.h"
#include "lab/machine_json.h"

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *models_json(const struct kvad_bench_result *result) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < result->n_models && !failed; i++) {
        const struct kvad_bench_model *m = &result->models[i];
        failed |= json_array_append_new(
            array,
            json_pack(
                "{s:s, s:o, s:I, s:I, s:o, s:o, s:o}", "weights", kvad_weight_type_name(m->weights),
                "load_ms", kvad_bench_number_json(m->load_ms), "weight_bytes",
                (json_int_t)m->weight_bytes, "huge_page_bytes", (json_int_t)m->huge_page_bytes,
                "ceilings",
                kvad_bench_ceilings_json(m->read_rate.median, m->fma_rate.median,
                                         m->dot_rate.median),
                "read_spread_percent", kvad_bench_number_json(kvad_stats_spread(&m->read_rate)),
                "fma_spread_percent", kvad_bench_number_json(kvad_stats_spread(&m->fma_rate))));
    }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *samples_json(const struct kvad_bench_case *c) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < c->ms.n && !failed; i++)
        failed |= json_array_append_new(array, kvad_bench_number_json(c->samples[i]));
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

/* Tokens that one step makes or reads. */
static double step_tokens(const struct kvad_bench_case *c) {
    return c->kind == KVAD_BENCH_PREFILL ? c->n_tokens : c->n_sequences;
}

static int add_named(json_t *object, const struct kvad_bench_case *c) {
    double per_second = 1e3 * step_tokens(c) / c->ms.median;
    int failed = json_object_set_new(object, "tokens_per_s", kvad_bench_number_json(per_second));
    switch (c->kind) {
    case KVAD_BENCH_DECODE:
        failed |= json_object_set_new(object, "context", integer(c->context));
        failed |= json_object_set_new(object, "ms_per_token", kvad_bench_number_json(c->ms.median));
        break;
    case KVAD_BENCH_PREFILL:
        failed |= json_object_set_new(object, "tokens", integer(c->n_tokens));
        failed |=
            json_object_set_new(object, "first_token_ms", kvad_bench_number_json(c->ms.median));
        failed |= json_object_set_new(object, "percent_of_peak",
                                      kvad_bench_number_json(c->percent_of_compute.median));
        break;
    case KVAD_BENCH_BATCH:
        failed |= json_object_set_new(object, "context", integer(c->context));
        failed |= json_object_set_new(object, "sequences", integer(c->n_sequences));
        failed |= json_object_set_new(object, "ms_per_step", kvad_bench_number_json(c->ms.median));
        break;
    }
    return failed;
}

static json_t *case_json(const struct kvad_bench_result *result, const struct kvad_bench_case *c) {
    double seconds = c->ms.median * 1e-3;
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "policy", kvad_cache_policy_name(c->policy), "weights",
                  kvad_weight_type_name(c->weights), "kv", kvad_kv_type_name(c->kv));
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"spread_percent", kvad_bench_number_json(kvad_stats_spread(&c->ms))},
        {"samples_ms", samples_json(c)},
        {"steps_per_sample", integer(c->n_steps)},
        {"percent_of_ceiling", kvad_bench_number_json(c->percent_of_ceiling)},
        {"bound", json_string(c->is_compute_bound ? "compute" : "read")},
        {"percent_of_read", kvad_bench_number_json(c->percent_of_read.median)},
        {"percent_of_compute", kvad_bench_number_json(c->percent_of_compute.median)},
        {"ceilings", kvad_bench_ceilings_json(c->read_rate, c->fma_rate, c->dot_rate)},
        {"bytes", kvad_bench_number_json(c->bytes)},
        {"kv_bytes", kvad_bench_number_json(c->kv_bytes)},
        {"flops", kvad_bench_number_json(c->flops)},
        {"gb_per_s", kvad_bench_number_json(c->bytes / seconds * 1e-9)},
        {"gflop_per_s", kvad_bench_number_json(c->flops / seconds * 1e-9)},
        {"parts", kvad_bench_parts_json(c)},
        {"parts_wall_ms", kvad_bench_number_json(c->parts_wall_ms)},
        {"named_percent", kvad_bench_number_json(c->named_percent)},
        {"counters", kvad_bench_counters_json(result, c)},
        {"token", json_integer(c->token)},
    };
    int failed = !object || add_named(object, c);
    for (size_t i = 0; i < CLI_COUNT_OF(fields); i++)
        failed |= json_object_set_new(object, fields[i].name, fields[i].value);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static json_t *cases_json(const struct kvad_bench_result *result, enum kvad_bench_kind kind) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < result->n_cases && !result->is_void && !failed; i++)
        if (result->cases[i].kind == kind)
            failed |= json_array_append_new(array, case_json(result, &result->cases[i]));
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

/* The case whose parts stand at the top: decoding with the last policy (the default's is paged) at
 * the longest context, with the first type of weights. */
static const struct kvad_bench_case *main_case(const struct kvad_bench_result *result) {
    const struct kvad_bench_case *best = NULL;
    for (size_t i = 0; i < result->n_cases && !result->is_void; i++) {
        const struct kvad_bench_case *c = &result->cases[i];
        if (c->kind != KVAD_BENCH_DECODE || c->weights != result->cases[0].weights ||
            c->kv != result->cases[0].kv)
            continue;
        if (!best || c->context >= best->context) best = c;
    }
    return best;
}

static json_t *parts_of_json(const struct kvad_bench_case *c) {
    if (!c) return json_null();
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "kind", "decode", "policy",
                     kvad_cache_policy_name(c->policy), "weights",
                     kvad_weight_type_name(c->weights), "kv", kvad_kv_type_name(c->kv), "context",
                     (json_int_t)c->context, "wall_ms", kvad_bench_number_json(c->parts_wall_ms),
                     "named_percent", kvad_bench_number_json(c->named_percent));
}

int cli_bench_print_json(const struct kvad_bench_result *result, const char *name) {
    const struct kvad_bench_model *first = &result->models[0];
    const struct kvad_bench_case *top = main_case(result);
    const char *why = result->no_counters_why;
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"schema", json_integer(1)},
        {"version", json_string(kvad_version())},
        {"void", result->is_void ? cli_json_string(result->void_why, strlen(result->void_why))
                                 : json_null()},
        {"machine", kvad_machine_json(&result->machine)},
        {"model", kvad_bench_model_json(&result->model, cli_json_string(name, strlen(name)))},
        {"engine", json_pack("{s:s, s:i}", "cpu", result->cpu, "threads", (int)result->n_threads)},
        {"ceilings", kvad_bench_ceilings_json(first->read_rate.median, first->fma_rate.median,
                                              first->dot_rate.median)},
        {"models", models_json(result)},
        {"decode", cases_json(result, KVAD_BENCH_DECODE)},
        {"prefill", cases_json(result, KVAD_BENCH_PREFILL)},
        {"batch", cases_json(result, KVAD_BENCH_BATCH)},
        {"parts", kvad_bench_parts_json(top)},
        {"parts_of", parts_of_json(top)},
        {"no_counters", result->has_counters ? json_null() : cli_json_string(why, strlen(why))},
    };
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; i < CLI_COUNT_OF(fields); i++)
        failed |= json_object_set_new(object, fields[i].name, fields[i].value);
    if (!failed) return cli_json_print(object);
    json_decref(object);
    return cli_json_print(NULL);
}
