#include "lab/bench_json.h"

#include <math.h>

json_t *kvad_bench_number_json(double value) {
    if (!isfinite(value)) return json_null();
    double scale = value != 0 ? pow(10, 6 - ceil(log10(fabs(value)))) : 1;
    return json_real(round(value * scale) / scale);
}

json_t *kvad_bench_ceilings_json(double read, double fma, double dot) {
    return json_pack("{s:o, s:o, s:o}", "read_gb_s", kvad_bench_number_json(read * 1e-9),
                     "fma_gflop_s", kvad_bench_number_json(fma * 1e-9), "int8_gop_s",
                     dot > 0 ? kvad_bench_number_json(dot * 1e-9) : json_null());
}

json_t *kvad_bench_parts_json(const struct kvad_bench_case *c) {
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; c && i < KVAD_BENCH_PARTS && !failed; i++)
        failed |=
            json_object_set_new(object, c->parts[i].name, kvad_bench_number_json(c->parts[i].ms));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

json_t *kvad_bench_counters_json(const struct kvad_bench_result *result,
                                 const struct kvad_bench_case *c) {
    if (!result->has_counters) return json_null();
    json_t *object = json_object();
    int failed = !object;
    for (unsigned i = 0; i < KVAD_COUNTERS && !failed; i++)
        failed |= json_object_set_new(object, kvad_counter_name(i),
                                      c->counters[i] < 0 ? json_null()
                                                         : kvad_bench_number_json(c->counters[i]));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

json_t *kvad_bench_model_json(const struct kvad_model_info *info, json_t *name) {
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", name, "family",
                     info->family, "n_parameters", (json_int_t)info->n_parameters, "n_layers",
                     (json_int_t)info->n_layers, "n_heads", (json_int_t)info->n_heads, "d_model",
                     (json_int_t)info->d_model, "d_ff", (json_int_t)info->d_ff, "n_vocab",
                     (json_int_t)info->n_vocab, "n_ctx", (json_int_t)info->n_ctx);
}
