#include "lab/trace_json.h"

#include "lab/bench_json.h"
#include "lab/machine_json.h"

static json_t *number(double value) {
    return kvad_bench_number_json(value);
}

static json_t *places_json(const struct kvad_trace_policy *p) {
    json_t *object = json_object();
    int failed = !object;
    for (enum kvad_trace_place i = 0; i < KVAD_TRACE_PLACES && !failed; i++)
        failed |= json_object_set_new(object, kvad_trace_place_name(i), number(p->percent[i]));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static json_t *policy_json(const struct kvad_trace_policy *p) {
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:I, "
        "s:I, "
        "s:I}",
        "policy", kvad_cache_policy_name(p->policy), "steps", (json_int_t)p->n_steps, "refused",
        (json_int_t)p->n_refused, "preemptions", (json_int_t)p->n_preemptions, "output_tokens",
        (json_int_t)p->n_output_tokens, "recomputed_tokens", (json_int_t)p->n_recomputed_tokens,
        "seconds", number(p->seconds), "tokens_per_s",
        number((double)p->n_output_tokens / p->seconds), "mean_in_flight",
        number(p->mean_in_flight), "mean_waiting", number(p->mean_waiting), "max_in_flight",
        (json_int_t)p->max_in_flight, "first_token_ms", number(p->first_token_ms),
        "longest_wait_steps", (json_int_t)p->longest_wait, "fairness", number(p->fairness),
        "percent_of_budget", places_json(p), "waste_percent", number(p->waste_percent),
        "copied_bytes", (json_int_t)p->copied_bytes, "copies", (json_int_t)p->copies,
        "twice_peak_bytes", (json_int_t)p->twice_peak);
}

static json_t *policies_json(const struct kvad_trace_result *r) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < KVAD_TRACE_POLICIES && !failed; i++)
        failed |= json_array_append_new(array, policy_json(&r->policies[i]));
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *padded_json(const struct kvad_trace_padded *p) {
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "sequences",
        (json_int_t)p->n_sequences, "padded_rows", (json_int_t)p->padded_rows, "ragged_rows",
        (json_int_t)p->ragged_rows, "padded_flops", number(p->padded_flops), "ragged_flops",
        number(p->ragged_flops), "wasted_rows_percent",
        number(100 - 100 * (double)p->ragged_rows / (double)p->padded_rows), "measured_batches",
        (json_int_t)p->n_measured, "measured_padded_rows", (json_int_t)p->measured_padded,
        "measured_ragged_rows", (json_int_t)p->measured_ragged, "padded_seconds",
        number(p->padded_seconds), "ragged_seconds", number(p->ragged_seconds));
}

static json_t *prefix_json(const struct kvad_trace_prefix *p) {
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I}", "requests", (json_int_t)p->n_requests,
        "common_tokens", (json_int_t)p->n_common, "prompt_tokens", (json_int_t)p->n_prompt,
        "tokens_off", (json_int_t)p->tokens_off, "tokens_on", (json_int_t)p->tokens_on,
        "first_token_ms_off", number(p->mean_off.median), "first_token_ms_on",
        number(p->mean_on.median), "last_first_token_ms_off", number(p->last_off.median),
        "last_first_token_ms_on", number(p->last_on.median), "rounds", (json_int_t)p->mean_on.n);
}

static json_t *overheads_json(const struct kvad_trace_result *r) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < KVAD_TRACE_OVERHEADS && !failed; i++) {
        const struct kvad_trace_overhead *o = &r->overheads[i];
        failed |= json_array_append_new(
            array, json_pack("{s:I, s:o, s:o, s:o, s:o}", "sequences", (json_int_t)o->n_sequences,
                             "step_us", number(o->step_us), "forward_us", number(o->forward_us),
                             "sampling_us", number(o->sampling_us), "overhead_percent",
                             number(o->percent)));
    }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *trace_json(const struct kvad_trace_result *r) {
    return json_pack("{s:I, s:I, s:I, s:I}", "requests", (json_int_t)r->n_requests, "prompt_tokens",
                     (json_int_t)r->n_prompt_tokens, "output_tokens",
                     (json_int_t)r->n_output_tokens, "longest", (json_int_t)r->longest);
}

/* One field; NULL for lack of memory fails the whole. */
static int set(json_t *object, const char *name, json_t *value) {
    return json_object_set_new(object, name, value);
}

static int set_results(json_t *object, const struct kvad_trace_result *r) {
    int failed = set(object, "trace", trace_json(r));
    failed |= set(object, "policies", policies_json(r));
    failed |= set(object, "padded", padded_json(&r->padded));
    failed |= set(object, "prefix", prefix_json(&r->prefix));
    return failed | set(object, "overheads", overheads_json(r));
}

json_t *kvad_trace_json(const struct kvad_trace_result *result, const char *name) {
    const struct kvad_trace_result *r = result;
    json_t *object = json_object();
    json_t *shown = json_string(name);
    int failed = !object;
    failed |= set(object, "schema", json_integer(1));
    failed |= set(object, "version", json_string(kvad_version()));
    failed |= set(object, "void", r->is_void ? json_string(r->void_why) : json_null());
    failed |= set(object, "model", shown ? shown : json_string(""));
    failed |= set(object, "machine", kvad_machine_json(&r->machine));
    failed |=
        set(object, "engine", json_pack("{s:s, s:i}", "cpu", r->cpu, "threads", (int)r->n_threads));
    failed |= set(object, "budget_bytes", json_integer((json_int_t)r->budget));
    failed |= set(object, "token_bytes", json_integer((json_int_t)r->token_bytes));
    failed |= set(object, "block_tokens", json_integer((json_int_t)r->block_tokens));
    if (!failed && !r->is_void) failed = set_results(object, r);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
