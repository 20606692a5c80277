#include "lab/scale.h"

#include <math.h>

/* The largest of 1, 2, 5 times a power of ten that is at most `value` > 0 (or, going up, the
 * smallest that is at least it). The tolerance is for powers that pow() misses by an ulp. */
static double round_value(double value, bool up) {
    double power = pow(10, floor(log10(value)));
    const double steps[] = {1, 2, 5, 10};
    double best = steps[up ? 3 : 0] * power;
    for (int i = 0; i < 4; i++) {
        double step = steps[up ? 3 - i : i] * power;
        if (up ? step >= value * (1 - 1e-9) : step <= value * (1 + 1e-9)) best = step;
    }
    return best;
}

/* The smallest round step that cuts the distance into at most n. */
static double step_of(double distance, size_t n) {
    return round_value(distance / (double)n, true);
}

static void widen_linear(struct kvad_scale *scale) {
    double step = scale->unit * step_of((scale->high - scale->low) / scale->unit, 5);
    scale->low = floor(scale->low / step + 1e-9) * step;
    scale->high = ceil(scale->high / step - 1e-9) * step;
}

struct kvad_scale kvad_scale_make(double low, double high, struct kvad_scale_options options,
                                  double from, double to) {
    bool is_log = options.is_log;
    struct kvad_scale scale = {is_log ? 1 : 0, is_log ? 10 : 1, from, to, is_log, 1};
    /* Beyond these the steps between ticks would not be finite. */
    bool is_sane = isfinite(low) && isfinite(high) && low <= high && fabs(low) < 1e100 &&
                   fabs(high) < 1e100 && (!is_log || low > 1e-100);
    if (!is_sane) return scale;
    scale.low = low;
    scale.high = high;
    bool has_length = high - low > fmax(fabs(low), fabs(high)) * 1e-9;
    if (is_log) {
        if (options.widen || !has_length) {
            scale.low = round_value(low, false);
            scale.high = round_value(high, true);
        }
        if (scale.high <= scale.low) scale.high = scale.low * 10;
        return scale;
    }
    if (!has_length) {
        scale.low = low > 0 ? 0 : low - 1;
        scale.high = high > 0 ? high : scale.low + 1;
    }
    while (options.is_bytes && scale.high / scale.unit >= 1024)
        scale.unit *= 1024;
    if (options.widen) widen_linear(&scale);
    return scale;
}

double kvad_scale_at(const struct kvad_scale *scale, double value) {
    double share = scale->is_log ? log(value / scale->low) / log(scale->high / scale->low)
                                 : (value - scale->low) / (scale->high - scale->low);
    if (!(share > 0)) share = 0; /* NaN too: a logarithm of nothing */
    if (share > 1) share = 1;
    return scale->from + share * (scale->to - scale->from);
}

/* 1, 2 and 5 of each power of ten, or 1 alone, or every n-th power. */
static size_t log_ticks(const struct kvad_scale *scale, size_t max, double *ticks) {
    static const double mantissas[] = {1, 2, 5};
    int first = (int)floor(log10(scale->low) + 1e-9), last = (int)ceil(log10(scale->high) - 1e-9);
    for (int stride = 0;; stride++) {
        size_t n = 0;
        for (int power = first; power <= last; power += stride ? stride : 1)
            for (int i = 0; i < (stride ? 1 : 3); i++) {
                double tick = mantissas[i] * pow(10, power);
                if (tick < scale->low * (1 - 1e-9) || tick > scale->high * (1 + 1e-9)) continue;
                if (n < max) ticks[n] = tick;
                n++;
            }
        if (n <= max) return n;
    }
}

size_t kvad_scale_ticks(const struct kvad_scale *scale, size_t max,
                        double ticks[KVAD_SCALE_TICKS]) {
    if (max > KVAD_SCALE_TICKS) max = KVAD_SCALE_TICKS;
    if (max < 2) return 0;
    if (scale->is_log) return log_ticks(scale, max, ticks);
    double step = scale->unit * step_of((scale->high - scale->low) / scale->unit, max - 1);
    size_t n = 0;
    for (double i = ceil(scale->low / step - 1e-9); n < max; i++) {
        if (i * step > scale->high + step * 1e-9) break;
        ticks[n++] = i * step + 0.0; /* no minus in front of 0 */
    }
    return n;
}
