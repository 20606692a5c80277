/* Controls: changes whose effect follows from where the time is said to go. Each is measured beside
 * an unchanged run of its own, so that a slow minute hits both. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "lab/experiment_internal.h"
#include "lab/load.h"
#include "lab/synthetic.h"

enum { PREFILL = 128, EMPTY_CONTEXT = 16 /* positions of the model of nothing */ };

/* In the order of the result. */
enum control {
    HALF_LAYERS,
    HALF_STEP,
    BUS_DECODE,
    BUS_PREFILL,
    EMPTY_STEP,
    ONE_DECODE,
    ONE_PREFILL,
    ONE_WAIT
};

static const struct kvad_control controls[KVAD_CONTROLS] = {
    [HALF_LAYERS] = {.id = "half_layers", .what = "half the layers: their time", .unit = "ms"},
    [HALF_STEP] = {.id = "half_step", .what = "half the layers: the step", .unit = "ms"},
    [BUS_DECODE] = {.id = "bus_decode", .what = "busy memory: decode slows", .unit = "times"},
    [BUS_PREFILL] = {.id = "bus_prefill",
                     .what = "busy memory: prefill slows less",
                     .unit = "times"},
    [EMPTY_STEP] = {.id = "empty_step", .what = "a step with nothing in it", .unit = "ms"},
    [ONE_DECODE] = {.id = "one_decode", .what = "one thread: decode", .unit = "ms"},
    [ONE_PREFILL] = {.id = "one_prefill", .what = "one thread: prefill", .unit = "ms"},
    [ONE_WAIT] = {.id = "one_wait", .what = "one thread: waiting", .unit = "%"},
};

/* A decode step at the longest context, a prompt, and the ceilings beside them. */
struct measured {
    double decode_ms, prefill_ms;
    double layers_ms, wait_ms, outside_ms; /* of the decode step: layers; waiting; all but linear
                                              layers and cache */
    double read_rate, fma_rate;
};

static void take(const struct kvad_bench_result *result, struct measured *out) {
    const struct kvad_bench_case *decode = &result->cases[0], *prefill = &result->cases[1];
    *out = (struct measured){.decode_ms = decode->ms.median,
                             .prefill_ms = prefill->ms.median,
                             .layers_ms = experiment_parts_ms(decode, EXPERIMENT_LAYERS),
                             .wait_ms = experiment_parts_ms(decode, 1 << KVAD_PART_WAIT),
                             .outside_ms =
                                 decode->ms.median -
                                 experiment_parts_ms(decode, EXPERIMENT_LINEAR | EXPERIMENT_CACHE),
                             .read_rate = result->models[0].read_rate.median,
                             .fma_rate = result->models[0].fma_rate.median};
}

static enum kvad_status measure(struct experiment *x, const char *stage, struct kvad_model *model,
                                unsigned n_threads, struct measured *out, struct kvad_error *err) {
    static const uint32_t policy[] = {KVAD_CACHE_PAGED};
    uint32_t context = x->contexts[x->n_contexts - 1], prefill = PREFILL;
    struct experiment_bench what = {.model = model,
                                    .policies = {policy, 1, false},
                                    .contexts = {&context, 1, true},
                                    .prefills = {&prefill, 1, true},
                                    .n_threads = n_threads,
                                    .n_rounds = x->n_rounds};
    struct kvad_bench_result result;
    x->stage = stage;
    enum kvad_status status = experiment_bench(x, &what, &result, err);
    x->stage = NULL;
    if (status == KVAD_OK && !x->result->is_void) take(&result, out);
    kvad_bench_result_deinit(&result);
    return status;
}

/* A change between two unchanged runs, whose mean is `base`: a machine that grows slower or faster
 * meanwhile does so for both. */
struct pair {
    struct measured base, changed;
};

static double mean(double a, double b) {
    return (a + b) / 2;
}

static struct measured mean_of(const struct measured *a, const struct measured *b) {
    return (struct measured){.decode_ms = mean(a->decode_ms, b->decode_ms),
                             .prefill_ms = mean(a->prefill_ms, b->prefill_ms),
                             .layers_ms = mean(a->layers_ms, b->layers_ms),
                             .wait_ms = mean(a->wait_ms, b->wait_ms),
                             .outside_ms = mean(a->outside_ms, b->outside_ms),
                             .read_rate = mean(a->read_rate, b->read_rate),
                             .fma_rate = mean(a->fma_rate, b->fma_rate)};
}

/* What is changed: the model, the threads, or what else uses the memory. */
struct change {
    const char *stage;
    struct kvad_model *model;   /* NULL: the experiment's */
    unsigned n_base, n_changed; /* threads */
    bool has_load;
};

/* Four times the largest cache, so that little of it stays there. */
static size_t load_bytes(const struct kvad_machine *machine) {
    uint64_t bytes = 16 << 20;
    for (unsigned i = 0; i < machine->n_caches; i++)
        if (4 * machine->caches[i].bytes > bytes) bytes = 4 * machine->caches[i].bytes;
    return (size_t)bytes;
}

static enum kvad_status measure_change(struct experiment *x, const struct change *change,
                                       struct measured *out, struct kvad_error *err) {
    struct kvad_load *load = NULL;
    size_t bytes = load_bytes(&x->result->curve.machine);
    if (change->has_load) KVAD_TRY(kvad_load_start(&x->heap, bytes, &load, err));
    enum kvad_status status = measure(x, change->stage, change->model ? change->model : x->model,
                                      change->n_changed, out, err);
    kvad_load_stop(&load);
    return status;
}

static enum kvad_status measure_pair(struct experiment *x, const struct change *change,
                                     struct pair *pair, struct kvad_error *err) {
    const bool *is_void = &x->result->is_void;
    struct measured before = {0}, after = {0};
    KVAD_TRY(measure(x, "unchanged", x->model, change->n_base, &before, err));
    if (!*is_void) KVAD_TRY(measure_change(x, change, &pair->changed, err));
    if (!*is_void) KVAD_TRY(measure(x, "unchanged", x->model, change->n_base, &after, err));
    if (!*is_void) pair->base = mean_of(&before, &after);
    return KVAD_OK;
}

/* ---- verdicts */

static struct kvad_control *control(struct experiment *x, enum control which) {
    return &x->result->controls[which];
}

static void not_shown(struct experiment *x, enum control which, const char *why) {
    struct kvad_control *c = control(x, which);
    c->verdict = KVAD_CONTROL_NOT_SHOWN;
    c->predicted = c->measured = NAN;
    snprintf(c->why, sizeof c->why, "%s", why);
}

enum kvad_control_verdict experiment_control_verdict(double predicted, double measured,
                                                     double tolerance) {
    bool holds = tolerance > 0 ? fabs(measured - predicted) <= predicted * tolerance / 100
                               : measured <= predicted;
    return holds ? KVAD_CONTROL_HOLDS : KVAD_CONTROL_FAILS;
}

static void judge(struct experiment *x, enum control which, double predicted, double measured,
                  double tolerance, const char *why) {
    struct kvad_control *c = control(x, which);
    c->predicted = predicted;
    c->measured = measured;
    c->tolerance_percent = tolerance;
    c->verdict = experiment_control_verdict(predicted, measured, tolerance);
    snprintf(c->why, sizeof c->why, "%s", why);
}

/* ---- half the layers, and a model of nothing but layers */

static enum kvad_status half_the_layers(struct experiment *x, struct kvad_error *err) {
    struct kvad_description half = x->model->description;
    if (half.n_layers < 2) {
        not_shown(x, HALF_LAYERS, "the model has one layer");
        not_shown(x, HALF_STEP, "the model has one layer");
        return KVAD_OK;
    }
    double part = (double)(half.n_layers / 2) / half.n_layers;
    half.n_layers /= 2;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.weights = x->model->weights;
    struct change change = {"half the layers", NULL, x->n_threads, x->n_threads, false};
    struct pair pair = {0};
    KVAD_TRY(experiment_report(x, "making a model of half the layers", err));
    KVAD_TRY(
        kvad_synthetic_build_sizes(&half, x->model->has_bias, 1, &options, &change.model, err));
    enum kvad_status status = measure_pair(x, &change, &pair, err);
    kvad_model_release(&change.model);
    if (status != KVAD_OK || x->result->is_void) return status;
    const struct measured *base = &pair.base;
    /* Half the weights may lie in a cache that all of them do not fit. */
    double left = part * base->read_rate / pair.changed.read_rate;
    judge(x, HALF_LAYERS, left * base->layers_ms, pair.changed.layers_ms, 15,
          "the layers' parts of the whole model, times what is left of them, at the read ceiling "
          "of either");
    judge(x, HALF_STEP, base->decode_ms - (1 - left) * (base->layers_ms + base->wait_ms),
          pair.changed.decode_ms, 15,
          "the whole step with as much less in its layers and waits; head and sampling stay");
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
    struct pair pair = {0};
    KVAD_TRY(kvad_synthetic_build_sizes(&tiny, x->model->has_bias, 1, NULL, &change.model, err));
    enum kvad_status status = measure_pair(x, &change, &pair, err);
    kvad_model_release(&change.model);
    if (status != KVAD_OK || x->result->is_void) return status;
    judge(x, EMPTY_STEP, pair.base.outside_ms, pair.changed.decode_ms, 0,
          "no more than the whole step has outside weights and cache: calls and barriers are "
          "there");
    return KVAD_OK;
}

/* ---- a competing load on the bus */

static enum kvad_status busy_memory(struct experiment *x, struct kvad_error *err) {
    unsigned n_cores = x->result->curve.machine.n_cores;
    unsigned n = x->n_threads < n_cores ? x->n_threads : n_cores - 1;
    if (n == 0) {
        static const char why[] = "there is one core: the load would take time, not memory";
        not_shown(x, BUS_DECODE, why);
        not_shown(x, BUS_PREFILL, why);
        return KVAD_OK;
    }
    struct change change = {"memory busy", NULL, n, n, true};
    struct pair pair = {0};
    KVAD_TRY(measure_pair(x, &change, &pair, err));
    if (x->result->is_void) return KVAD_OK;
    double predicted = pair.base.read_rate / pair.changed.read_rate;
    double decode = pair.changed.decode_ms / pair.base.decode_ms;
    double prefill = pair.changed.prefill_ms / pair.base.prefill_ms;
    judge(x, BUS_DECODE, predicted, decode, 15,
          "read ceiling alone, divided by the read ceiling under the load");
    judge(x, BUS_PREFILL, decode, prefill, 0, "less than decode: it has more operations per byte");
    if (predicted < 1.1) { /* too small a difference would be proof of nothing */
        static const char why[] = "the load of one thread slows reading by less than a tenth";
        not_shown(x, BUS_DECODE, why);
        not_shown(x, BUS_PREFILL, why);
    }
    return KVAD_OK;
}

/* ---- one thread */

static enum kvad_status one_thread(struct experiment *x, struct kvad_error *err) {
    if (x->n_threads == 1) {
        static const char why[] = "the whole run has one thread";
        not_shown(x, ONE_DECODE, why);
        not_shown(x, ONE_PREFILL, why);
        not_shown(x, ONE_WAIT, why);
        return KVAD_OK;
    }
    struct change change = {"one thread", NULL, x->n_threads, 1, false};
    struct pair pair = {0};
    KVAD_TRY(measure_pair(x, &change, &pair, err));
    if (x->result->is_void) return KVAD_OK;
    const struct measured *base = &pair.base, *one = &pair.changed;
    judge(x, ONE_DECODE, base->decode_ms * base->read_rate / one->read_rate, one->decode_ms, 15,
          "as much slower as one thread reads slower");
    judge(x, ONE_PREFILL, base->prefill_ms * base->fma_rate / one->fma_rate, one->prefill_ms, 15,
          "as much slower as one thread multiplies and adds slower");
    judge(x, ONE_WAIT, 1, 100 * one->wait_ms / one->decode_ms, 0,
          "nobody is there to wait for: below 1 % of the step");
    return KVAD_OK;
}

enum kvad_status experiment_run_controls(struct experiment *x, struct kvad_error *err) {
    const bool *is_void = &x->result->is_void;
    for (size_t i = 0; i < KVAD_CONTROLS; i++)
        x->result->controls[i] = controls[i];
    KVAD_TRY(half_the_layers(x, err));
    if (!*is_void) KVAD_TRY(empty_step(x, err));
    if (!*is_void) KVAD_TRY(one_thread(x, err));
    if (!*is_void) KVAD_TRY(busy_memory(x, err));
    return KVAD_OK;
}
