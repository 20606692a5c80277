/* The result as JSON. The names are a promise to scripts: docs/verify.md. */
#include <math.h>

#include "lab/machine_json.h"
#include "lab/verify_internal.h"

/* null where it is not finite, which JSON cannot say. */
static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *difference_json(const struct kvad_verify_difference *d) {
    if (!d->is_known) return json_null();
    return json_pack("{s:I, s:s, s:I, s:I, s:o, s:o}", "position", (json_int_t)d->position, "place",
                     kvad_verify_place_name(d->place), "layer", (json_int_t)d->layer, "element",
                     (json_int_t)d->element, "got", number(d->got), "wanted", number(d->wanted));
}

static json_t *check_json(const struct kvad_verify_result *r) {
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:s, s:s, s:o}", "name", r->check->name, "compares",
                     r->check->compares, "verdict", kvad_verdict_name(r->verdict), "compared",
                     (json_int_t)r->n_compared, "seconds", number(r->seconds), "case", r->where,
                     "text", r->text, "difference", difference_json(&r->difference));
}

static json_t *error_json(const struct kvad_verify_error *e) {
    return json_pack("{s:o, s:o}", "rms", number(e->rms), "max", number(e->max));
}

/* What the check "reference" measured; null where it did not run or failed before. */
static json_t *reference_json(const struct kvad_verify *v, const struct kvad_verify_result *r) {
    if (!r) return json_null();
    json_t *layers = json_array();
    int failed = !layers;
    for (size_t i = 0; i < r->n_layers && !failed; i++)
        failed |= json_array_append_new(layers, json_pack("{s:I, s:o, s:o}", "layer", (json_int_t)i,
                                                          "rms", number(r->layers[i].rms), "max",
                                                          number(r->layers[i].max)));
    json_t *object =
        json_pack("{s:I, s:o, s:o, s:o}", "tokens", (json_int_t)v->n_reference, "bound",
                  error_json(&r->bound), "logits", error_json(&r->logits), "layers", layers);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static json_t *checks_json(const struct kvad_verify_result *results, size_t n) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < n && !failed; i++)
        failed |= json_array_append_new(array, check_json(&results[i]));
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *model_json(const struct kvad_verify *v, const char *name) {
    const struct kvad_description *d = &v->model->description;
    json_t *string = json_string(name);
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "name",
                     string ? string : json_string(""), "family", d->family, "n_parameters",
                     (json_int_t)v->model->n_parameters, "n_layers", (json_int_t)d->n_layers,
                     "n_heads", (json_int_t)d->n_heads, "n_kv_heads", (json_int_t)d->n_kv_heads,
                     "d_model", (json_int_t)d->d_model, "n_ctx", (json_int_t)d->n_ctx, "weights",
                     kvad_weight_type_name(v->model->weights));
}

json_t *kvad_verify_json(const struct kvad_verify *verify, const char *model,
                         const struct kvad_verify_result *results, size_t n) {
    const struct kvad_verify_options *o = &verify->options;
    const struct kvad_verify_result *reference = NULL;
    size_t counts[3] = {0};
    double seconds = 0;
    for (size_t i = 0; i < n; i++) {
        counts[results[i].verdict]++;
        seconds += results[i].seconds;
        if (results[i].layers) reference = &results[i];
    }
    struct kvad_machine machine;
    kvad_machine_read(&machine);
    return json_pack(
        "{s:i, s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "schema", 1,
        "version", kvad_version(), "machine", kvad_machine_json(&machine), "model",
        model_json(verify, model), "engine",
        json_pack("{s:s, s:I}", "cpu", verify->cpu, "threads",
                  (json_int_t)kvad_threads_count(verify->threads)),
        "kv", kvad_kv_type_name(o->kv), "level", o->level == KVAD_VERIFY_FULL ? "full" : "quick",
        "seed", (json_int_t)o->seed, "tokens", (json_int_t)verify->n, "passed",
        (json_int_t)counts[KVAD_VERDICT_PASS], "failed", (json_int_t)counts[KVAD_VERDICT_FAIL],
        "skipped", (json_int_t)counts[KVAD_VERDICT_SKIP], "seconds", number(seconds), "reference",
        reference_json(verify, reference), "checks", checks_json(results, n));
}
