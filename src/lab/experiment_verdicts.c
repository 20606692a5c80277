/* What each control must give if the time goes where it is said to go, and whether it did. */
#include <math.h>
#include <stdio.h>

#include "lab/experiment_internal.h"

static const struct kvad_control names[KVAD_CONTROLS] = {
    [CONTROL_HALF_LAYERS] = {.id = "half_layers",
                             .what = "half the layers: their time",
                             .unit = "ms"},
    [CONTROL_HALF_STEP] = {.id = "half_step", .what = "half the layers: the step", .unit = "ms"},
    [CONTROL_BUS_DECODE] = {.id = "bus_decode",
                            .what = "busy memory: decode slows",
                            .unit = "times"},
    [CONTROL_BUS_PREFILL] = {.id = "bus_prefill",
                             .what = "busy memory: prefill slows less",
                             .unit = "times"},
    [CONTROL_EMPTY_STEP] = {.id = "empty_step", .what = "a step with nothing in it", .unit = "ms"},
    [CONTROL_ONE_DECODE] = {.id = "one_decode", .what = "one thread: decode", .unit = "ms"},
    [CONTROL_ONE_PREFILL] = {.id = "one_prefill", .what = "one thread: prefill", .unit = "ms"},
    [CONTROL_ONE_WAIT] = {.id = "one_wait", .what = "one thread: waiting", .unit = "%"},
};

void experiment_name_controls(struct kvad_control controls[]) {
    for (size_t i = 0; i < KVAD_CONTROLS; i++)
        controls[i] = names[i];
}

void experiment_not_shown(struct kvad_control controls[], enum experiment_control which,
                          const char *why) {
    struct kvad_control *c = &controls[which];
    c->verdict = KVAD_CONTROL_NOT_SHOWN;
    c->predicted = c->measured = NAN;
    snprintf(c->why, sizeof c->why, "%s", why);
}

/* `tolerance` in per cent of predicted, both ways; 0: at most what was predicted. What is not a
 * number fails. */
static void judge(struct kvad_control *c, double predicted, double measured, double tolerance,
                  const char *why) {
    bool holds = tolerance > 0 ? fabs(measured - predicted) <= predicted * tolerance / 100
                               : measured <= predicted;
    c->predicted = predicted;
    c->measured = measured;
    c->tolerance_percent = tolerance;
    c->verdict = holds ? KVAD_CONTROL_HOLDS : KVAD_CONTROL_FAILS;
    snprintf(c->why, sizeof c->why, "%s", why);
}

void experiment_judge_half(struct kvad_control controls[], double part,
                           const struct experiment_pair *pair) {
    const struct experiment_measured *base = &pair->base, *half = &pair->changed;
    /* Half the weights may lie in a cache that all of them do not fit. */
    double left = part * base->read_rate / half->read_rate;
    judge(&controls[CONTROL_HALF_LAYERS], left * base->layers_ms, half->layers_ms, 15,
          "the layers' parts of the whole model, times what is left of them, at the read ceiling "
          "of either");
    judge(&controls[CONTROL_HALF_STEP],
          base->decode_ms - (1 - left) * (base->layers_ms + base->wait_ms), half->decode_ms, 15,
          "the whole step with as much less in its layers and waits; head and sampling stay");
}

void experiment_judge_empty(struct kvad_control controls[], const struct experiment_pair *pair) {
    judge(&controls[CONTROL_EMPTY_STEP], pair->base.outside_ms, pair->changed.decode_ms, 0,
          "no more than the whole step has outside weights and cache: calls and barriers are "
          "there");
}

void experiment_judge_bus(struct kvad_control controls[], const struct experiment_pair *pair) {
    double predicted = pair->base.read_rate / pair->changed.read_rate;
    double decode = pair->changed.decode_ms / pair->base.decode_ms;
    double prefill = pair->changed.prefill_ms / pair->base.prefill_ms;
    judge(&controls[CONTROL_BUS_DECODE], predicted, decode, 15,
          "read ceiling alone, divided by the read ceiling under the load");
    judge(&controls[CONTROL_BUS_PREFILL], decode, prefill, 0,
          "less than decode: it has more operations per byte");
    if (pair->base.is_in_caches)
        experiment_not_shown(controls, CONTROL_BUS_DECODE,
                             "weights and cache lie in the CPU's caches, at least in part: the "
                             "load takes their place there, which no read ceiling foretells");
    if (predicted >= 1.1) return; /* too small a difference would be proof of nothing */
    static const char why[] = "the load of one thread slows reading by less than a tenth";
    experiment_not_shown(controls, CONTROL_BUS_DECODE, why);
    experiment_not_shown(controls, CONTROL_BUS_PREFILL, why);
}

void experiment_judge_one_thread(struct kvad_control controls[],
                                 const struct kvad_experiment_gap *gap,
                                 const struct experiment_pair *pair) {
    const struct experiment_measured *base = &pair->base, *one = &pair->changed;
    const double *ms = gap->share_ms;
    double reading = ms[KVAD_SHARE_WEIGHTS] + ms[KVAD_SHARE_CACHE];
    double slower = reading * base->read_rate / one->read_rate +
                    ms[KVAD_SHARE_ARITHMETIC] * base->fma_rate / one->fma_rate +
                    ms[KVAD_SHARE_SAMPLING] + ms[KVAD_SHARE_OTHER];
    judge(&controls[CONTROL_ONE_DECODE], base->decode_ms * slower / gap->wall_ms, one->decode_ms,
          15,
          "the shares of weights and cache as much slower as one thread reads slower, that of "
          "arithmetic as its FMA ceiling; no waiting");
    judge(&controls[CONTROL_ONE_PREFILL], base->prefill_ms * base->fma_rate / one->fma_rate,
          one->prefill_ms, 15, "as much slower as one thread multiplies and adds slower");
    judge(&controls[CONTROL_ONE_WAIT], 1, 100 * one->wait_ms / one->decode_ms, 0,
          "nobody is there to wait for: below 1 % of the step");
}
