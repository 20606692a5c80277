/* kvad bench --experiment --json. The names are a promise to scripts: docs/latency.md. */
#include "lab/bench_json.h"
#include "lab/experiment.h"
#include "lab/machine_json.h"

struct field {
    const char *name;
    json_t *value; /* owned until it is in an object */
};

/* An object of fields; NULL when memory was out for it or any of them. */
static json_t *object_of(const struct field *fields, size_t n) {
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; i < n; i++)
        failed |= json_object_set_new(object, fields[i].name, fields[i].value);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
#define OBJECT(...)                                                                                \
    object_of((const struct field[]){__VA_ARGS__},                                                 \
              sizeof((const struct field[]){__VA_ARGS__}) / sizeof(struct field))

static json_t *number(double value) {
    return kvad_bench_number_json(value);
}

/* An array of what `make` says of each of n things. */
static json_t *array_of(json_t *(*make)(const void *result, size_t index), const void *result,
                        size_t n) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < n && !failed; i++)
        failed = json_array_append_new(array, make(result, i));
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

/* ---- cases */

/* What was done by formula, how fast, and what the CPU's counters saw. */
static json_t *work_json(const struct kvad_experiment_result *result,
                         const struct kvad_bench_case *c) {
    double seconds = c->ms.median * 1e-3;
    return OBJECT({"flops", number(c->flops)}, {"attention_flops", number(c->attention_flops)},
                  {"bytes", number(c->bytes)}, {"kv_bytes", number(c->kv_bytes)},
                  {"flop_per_byte", number(c->flops / c->bytes)},
                  {"gflop_per_s", number(c->flops / seconds * 1e-9)},
                  {"gb_per_s", number(c->bytes / seconds * 1e-9)},
                  {"percent_of_ceiling", number(c->percent_of_ceiling)},
                  {"bound", json_string(c->is_compute_bound ? "compute" : "read")},
                  {"parts", kvad_bench_parts_json(c)}, {"parts_wall_ms", number(c->parts_wall_ms)},
                  {"named_percent", number(c->named_percent)},
                  {"counters", kvad_bench_counters_json(&result->curve, c)});
}

static const enum kvad_cache_policy policies[KVAD_CACHE_POLICY_COUNT] = {
    KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC, KVAD_CACHE_PAGED};

/* A number of each policy by its name. */
static json_t *by_policy(const struct kvad_experiment_point *point, bool is_spread) {
    struct field fields[KVAD_CACHE_POLICY_COUNT];
    for (size_t i = 0; i < KVAD_CACHE_POLICY_COUNT; i++) {
        const struct kvad_stats *ms = &point->cases[policies[i]]->ms;
        fields[i].name = kvad_cache_policy_name(policies[i]);
        fields[i].value = number(is_spread ? kvad_stats_spread(ms) : ms->median);
    }
    return object_of(fields, KVAD_CACHE_POLICY_COUNT);
}

static json_t *point_json(const void *data, size_t i) {
    const struct kvad_experiment_result *result = data;
    const struct kvad_experiment_point *p = &result->points[i];
    return OBJECT({"context", json_integer(p->context)}, {"ms", by_policy(p, false)},
                  {"spread_percent", by_policy(p, true)}, {"time_ratio", number(p->time_ratio)},
                  {"flop_ratio", number(p->flop_ratio)}, {"byte_ratio", number(p->byte_ratio)},
                  {"thrown_away_percent", number(p->thrown_away_percent)},
                  {"naive", work_json(result, p->cases[KVAD_CACHE_NONE])},
                  {"cached", work_json(result, p->cases[KVAD_CACHE_PAGED])},
                  {"token", json_integer(p->cases[KVAD_CACHE_PAGED]->token)});
}

static json_t *prefill_json(const struct kvad_experiment_result *result) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < result->curve.n_cases && !failed; i++) {
        const struct kvad_bench_case *c = &result->curve.cases[i];
        if (c->kind != KVAD_BENCH_PREFILL) continue;
        json_t *object = work_json(result, c);
        failed |= json_object_set_new(object, "tokens", json_integer(c->n_tokens));
        failed |= json_object_set_new(object, "first_token_ms", number(c->ms.median));
        failed |= json_object_set_new(object, "spread_percent", number(kvad_stats_spread(&c->ms)));
        failed |= json_array_append_new(array, object);
    }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

/* ---- whole texts, the gap, controls, claims */

static json_t *total_json(const void *data, size_t i) {
    const struct kvad_experiment_result *result = data;
    const struct kvad_experiment_total *t = &result->totals[policies[i]];
    double difference = 100 * (t->measured_interpolated_seconds / t->measured_seconds - 1);
    return OBJECT(
        {"policy", json_string(kvad_cache_policy_name(t->policy))}, {"seconds", number(t->seconds)},
        {"measured", json_boolean(t->is_measured)},
        {"interpolated_seconds", number(t->interpolated_seconds)},
        {"measured_tokens", json_integer(t->n_measured)},
        {"measured_tokens_seconds", number(t->measured_seconds)},
        {"measured_tokens_interpolated_seconds", number(t->measured_interpolated_seconds)},
        {"difference_percent", number(difference)});
}

static json_t *text_json(const struct kvad_experiment_result *result) {
    const struct kvad_experiment_total *t = result->totals;
    return OBJECT({"prompt_tokens", json_integer(result->n_prompt)},
                  {"tokens", json_integer(result->n_tokens)},
                  {"time_ratio", number(t[KVAD_CACHE_NONE].seconds / t[KVAD_CACHE_PAGED].seconds)},
                  {"flop_ratio", number(result->total_flop_ratio)},
                  {"thrown_away_percent", number(result->total_thrown_away_percent)},
                  {"totals", array_of(total_json, result, KVAD_CACHE_POLICY_COUNT)});
}

static json_t *gap_json(const struct kvad_experiment_gap *gap) {
    struct field shares[KVAD_SHARE_COUNT];
    for (size_t i = 0; i < KVAD_SHARE_COUNT; i++) {
        shares[i].name = kvad_experiment_share_name((enum kvad_experiment_share)i);
        shares[i].value = number(gap->share_ms[i]);
    }
    return OBJECT({"context", json_integer(gap->context)}, {"wall_ms", number(gap->wall_ms)},
                  {"ideal_ms", number(gap->ideal_ms)},
                  {"shares_ms", object_of(shares, KVAD_SHARE_COUNT)},
                  {"named_percent", number(gap->named_percent)},
                  {"weights_floor_ms", number(gap->weights_floor_ms)},
                  {"cache_floor_ms", number(gap->cache_floor_ms)});
}

static json_t *control_json(const void *data, size_t i) {
    const struct kvad_experiment_result *result = data;
    const struct kvad_control *c = &result->controls[i];
    return OBJECT({"id", json_string(c->id)}, {"what", json_string(c->what)},
                  {"unit", json_string(c->unit)}, {"predicted", number(c->predicted)},
                  {"measured", number(c->measured)},
                  {"tolerance_percent", number(c->tolerance_percent)},
                  {"verdict", json_string(kvad_control_verdict_name(c->verdict))},
                  {"why", json_string(c->why)});
}

static json_t *claim_json(const void *data, size_t i) {
    const struct kvad_experiment_result *result = data;
    const struct kvad_claim *c = &result->claims[i];
    return OBJECT({"id", json_string(c->id)}, {"claim", json_string(c->claim)},
                  {"verdict", json_string(kvad_claim_verdict_name(c->verdict))},
                  {"figure", number(c->figure)}, {"ours", json_string(c->ours)},
                  {"when", *c->when ? json_string(c->when) : json_null()});
}

/* ---- the whole */

static json_t *protocol_json(const struct kvad_experiment_result *result) {
    const struct kvad_bench_case *c = &result->curve.cases[0];
    return OBJECT({"rounds", json_integer((json_int_t)c->ms.n)},
                  {"contexts_left_out", json_integer((json_int_t)result->n_left_out)},
                  {"budget_seconds", number(result->budget_seconds)},
                  {"seconds", number(result->seconds)},
                  {"control_read_bytes", json_integer((json_int_t)result->control_read_bytes)});
}

/* All numbers; nothing for a void run. */
static int add_numbers(json_t *object, const struct kvad_experiment_result *result, json_t *name) {
    const struct kvad_bench_result *curve = &result->curve;
    const struct kvad_bench_model *m = &curve->models[0];
    const struct field fields[] = {
        {"machine", kvad_machine_json(&curve->machine)},
        {"model", kvad_bench_model_json(&curve->model, name)},
        {"engine", OBJECT({"cpu", json_string(curve->cpu)},
                          {"threads", json_integer((json_int_t)curve->n_threads)})},
        {"protocol", protocol_json(result)},
        {"ceilings", kvad_bench_ceilings_json(m->read_rate.median, m->fma_rate.median, 0)},
        {"balance_flop_per_byte", number(m->fma_rate.median / m->read_rate.median)},
        {"points", array_of(point_json, result, result->n_points)},
        {"prefill", prefill_json(result)},
        {"text", text_json(result)},
        {"gap", gap_json(&result->gap)},
        {"controls", array_of(control_json, result, KVAD_CONTROLS)},
        {"claims", array_of(claim_json, result, KVAD_CLAIMS)},
        {"no_counters", curve->has_counters ? json_null() : json_string(curve->no_counters_why)},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        failed |= json_object_set_new(object, fields[i].name, fields[i].value);
    return failed;
}

json_t *kvad_experiment_json(const struct kvad_experiment_result *result, json_t *name) {
    json_t *object =
        OBJECT({"schema", json_integer(1)}, {"version", json_string(kvad_version())},
               {"kind", json_string("experiment")},
               {"void", result->is_void ? json_string(result->void_why) : json_null()});
    if (!object || result->is_void) {
        json_decref(name);
        return object;
    }
    if (add_numbers(object, result, name) == 0) return object;
    json_decref(object);
    return NULL;
}
