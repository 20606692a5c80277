/* Controls: changes whose effect follows from where the time is said to go. Each is measured beside
 * an unchanged run of its own, so that a slow minute hits both. */
#include "base/error.h"
#include "lab/experiment_internal.h"
#include "lab/load.h"
#include "lab/synthetic.h"

enum { PREFILL = 128, EMPTY_CONTEXT = 16 /* positions of the model of nothing */ };

static void take(const struct kvad_bench_result *result, struct experiment_measured *out) {
    const struct kvad_bench_case *decode = &result->cases[0], *prefill = &result->cases[1];
    *out = (struct experiment_measured){
        .decode_ms = decode->ms.median,
        .prefill_ms = prefill->ms.median,
        .layers_ms = experiment_parts_ms(decode, EXPERIMENT_LAYERS),
        .wait_ms = experiment_parts_ms(decode, 1 << KVAD_PART_WAIT),
        .outside_ms =
            decode->ms.median - experiment_parts_ms(decode, EXPERIMENT_LINEAR | EXPERIMENT_CACHE),
        .read_rate = result->models[0].read_rate.median,
        .fma_rate = result->models[0].fma_rate.median};
}

/* Four times the largest cache, of which little stays there when it is read again and again. */
static size_t beyond_caches(const struct experiment *x) {
    const struct kvad_machine *machine = &x->result->curve.machine;
    uint64_t bytes = 16 << 20;
    for (unsigned i = 0; i < machine->n_caches; i++)
        if (4 * machine->caches[i].bytes > bytes) bytes = 4 * machine->caches[i].bytes;
    return (size_t)bytes;
}

size_t experiment_step_bytes(const struct kvad_model *model, uint32_t context) {
    struct kvad_model_info info;
    kvad_model_get_info(model, &info);
    struct kvad_work_step step = {.n_sequences = 1,
                                  .position = context,
                                  .n_rows = 1,
                                  .n_logits = 1,
                                  .n_batch_rows = 1,
                                  .kv_bytes_per_token = (size_t)info.kv_bytes_per_token};
    struct kvad_work work = kvad_work_of(model, &step);
    return (size_t)(work.weight_bytes + work.kv_bytes);
}

/* Read ceilings beside a step go over as much memory as the step reads: a CPU's cache that holds a
 * part of it is faster, the less there is. 0, the weights alone, where caches keep nothing. */
static size_t ceiling_bytes(const struct experiment *x, const struct kvad_model *model,
                            uint32_t context) {
    uint32_t longest = model->description.n_ctx - 1;
    size_t bytes = experiment_step_bytes(model, context < longest ? context : longest);
    return bytes < beyond_caches(x) ? bytes : 0;
}

static enum kvad_status measure(struct experiment *x, const char *stage, struct kvad_model *model,
                                unsigned n_threads, struct experiment_measured *out,
                                struct kvad_error *err) {
    static const uint32_t policy[] = {KVAD_CACHE_PAGED};
    uint32_t context = x->contexts[x->n_contexts - 1], prefill = PREFILL;
    struct experiment_bench what = {.model = model,
                                    .policies = {policy, 1, false},
                                    .contexts = {&context, 1, true},
                                    .prefills = {&prefill, 1, true},
                                    .n_threads = n_threads,
                                    .n_rounds = x->n_rounds,
                                    .ceiling_bytes = ceiling_bytes(x, model, context)};
    struct kvad_bench_result result;
    x->stage = stage;
    enum kvad_status status = experiment_bench(x, &what, &result, err);
    x->stage = NULL;
    if (status == KVAD_OK && !x->result->is_void) take(&result, out);
    out->is_in_caches = what.ceiling_bytes > 0;
    if (model == x->model && result.n_models)
        x->result->control_read_bytes = result.models[0].ceiling_bytes;
    kvad_bench_result_deinit(&result);
    return status;
}

static double mean(double a, double b) {
    return (a + b) / 2;
}

static struct experiment_measured mean_of(const struct experiment_measured *a,
                                          const struct experiment_measured *b) {
    return (struct experiment_measured){.decode_ms = mean(a->decode_ms, b->decode_ms),
                                        .prefill_ms = mean(a->prefill_ms, b->prefill_ms),
                                        .layers_ms = mean(a->layers_ms, b->layers_ms),
                                        .wait_ms = mean(a->wait_ms, b->wait_ms),
                                        .outside_ms = mean(a->outside_ms, b->outside_ms),
                                        .read_rate = mean(a->read_rate, b->read_rate),
                                        .fma_rate = mean(a->fma_rate, b->fma_rate),
                                        .is_in_caches = a->is_in_caches};
}

/* What is changed: the model, the threads, or what else uses the memory. */
struct change {
    const char *stage;
    struct kvad_model *model;   /* NULL: the experiment's */
    unsigned n_base, n_changed; /* threads */
    bool has_load;
};

static enum kvad_status measure_change(struct experiment *x, const struct change *change,
                                       struct experiment_measured *out, struct kvad_error *err) {
    struct kvad_load *load = NULL;
    if (change->has_load) KVAD_TRY(kvad_load_start(&x->heap, beyond_caches(x), &load, err));
    enum kvad_status status = measure(x, change->stage, change->model ? change->model : x->model,
                                      change->n_changed, out, err);
    kvad_load_stop(&load);
    return status;
}

static enum kvad_status measure_pair(struct experiment *x, const struct change *change,
                                     struct experiment_pair *pair, struct kvad_error *err) {
    const bool *is_void = &x->result->is_void;
    struct experiment_measured before = {0}, after = {0};
    KVAD_TRY(measure(x, "unchanged", x->model, change->n_base, &before, err));
    if (!*is_void) KVAD_TRY(measure_change(x, change, &pair->changed, err));
    if (!*is_void) KVAD_TRY(measure(x, "unchanged", x->model, change->n_base, &after, err));
    if (!*is_void) pair->base = mean_of(&before, &after);
    return KVAD_OK;
}

static struct kvad_control *controls_of(struct experiment *x) {
    return x->result->controls;
}

/* ---- half the layers, and a model of nothing but layers */

static enum kvad_status half_the_layers(struct experiment *x, struct kvad_error *err) {
    struct kvad_description half = x->model->description;
    if (half.n_layers < 2) {
        experiment_not_shown(controls_of(x), CONTROL_HALF_LAYERS, "the model has one layer");
        experiment_not_shown(controls_of(x), CONTROL_HALF_STEP, "the model has one layer");
        return KVAD_OK;
    }
    double part = (double)(half.n_layers / 2) / half.n_layers;
    half.n_layers /= 2;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.weights = x->model->weights;
    struct change change = {"half the layers", NULL, x->n_threads, x->n_threads, false};
    struct experiment_pair pair = {0};
    KVAD_TRY(experiment_report(x, "making a model of half the layers", err));
    KVAD_TRY(
        kvad_synthetic_build_sizes(&half, x->model->has_bias, 1, &options, &change.model, err));
    enum kvad_status status = measure_pair(x, &change, &pair, err);
    kvad_model_release(&change.model);
    if (status != KVAD_OK || x->result->is_void) return status;
    experiment_judge_half(controls_of(x), part, &pair);
    return KVAD_OK;
}

/* As many layers, hence calls and barriers, of one head of 16 numbers each. */
static enum kvad_status empty_step(struct experiment *x, struct kvad_error *err) {
    struct kvad_description tiny = x->model->description;
    tiny.n_heads = tiny.n_kv_heads = 1;
    tiny.head_dim = tiny.d_model = tiny.d_ff = tiny.n_vocab = KVAD_PANEL;
    tiny.n_ctx = EMPTY_CONTEXT;
    tiny.eos = -1;
    struct change change = {"a step with nothing in it", NULL, x->n_threads, x->n_threads, false};
    struct experiment_pair pair = {0};
    KVAD_TRY(kvad_synthetic_build_sizes(&tiny, x->model->has_bias, 1, NULL, &change.model, err));
    enum kvad_status status = measure_pair(x, &change, &pair, err);
    kvad_model_release(&change.model);
    if (status != KVAD_OK || x->result->is_void) return status;
    experiment_judge_empty(controls_of(x), &pair);
    return KVAD_OK;
}

/* ---- a competing load on the bus */

static enum kvad_status busy_memory(struct experiment *x, struct kvad_error *err) {
    unsigned n_cores = x->result->curve.machine.n_cores;
    unsigned n = x->n_threads < n_cores ? x->n_threads : n_cores - 1;
    if (n == 0) {
        static const char why[] = "there is one core: the load would take time, not memory";
        experiment_not_shown(controls_of(x), CONTROL_BUS_DECODE, why);
        experiment_not_shown(controls_of(x), CONTROL_BUS_PREFILL, why);
        return KVAD_OK;
    }
    struct change change = {"memory busy", NULL, n, n, true};
    struct experiment_pair pair = {0};
    KVAD_TRY(measure_pair(x, &change, &pair, err));
    if (x->result->is_void) return KVAD_OK;
    experiment_judge_bus(controls_of(x), &pair);
    return KVAD_OK;
}

/* ---- one thread */

static enum kvad_status one_thread(struct experiment *x, struct kvad_error *err) {
    if (x->n_threads == 1) {
        static const char why[] = "the whole run has one thread";
        experiment_not_shown(controls_of(x), CONTROL_ONE_DECODE, why);
        experiment_not_shown(controls_of(x), CONTROL_ONE_PREFILL, why);
        experiment_not_shown(controls_of(x), CONTROL_ONE_WAIT, why);
        return KVAD_OK;
    }
    struct change change = {"one thread", NULL, x->n_threads, 1, false};
    struct experiment_pair pair = {0};
    KVAD_TRY(measure_pair(x, &change, &pair, err));
    if (x->result->is_void) return KVAD_OK;
    experiment_judge_one_thread(controls_of(x), &x->result->gap, &pair);
    return KVAD_OK;
}

enum kvad_status experiment_run_controls(struct experiment *x, struct kvad_error *err) {
    const bool *is_void = &x->result->is_void;
    experiment_name_controls(controls_of(x));
    KVAD_TRY(half_the_layers(x, err));
    if (!*is_void) KVAD_TRY(empty_step(x, err));
    if (!*is_void) KVAD_TRY(one_thread(x, err));
    if (!*is_void) KVAD_TRY(busy_memory(x, err));
    return KVAD_OK;
}
