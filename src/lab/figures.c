#include "lab/figures.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thousands separated by commas; digits[] holds an optional sign, digits, an optional fraction. */
static void add_commas(const char *digits, char out[KVAD_FIGURE_SIZE]) {
    size_t used = 0;
    if (*digits == '-') out[used++] = *digits++;
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; digits[i] && used < KVAD_FIGURE_SIZE - 2; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
}

/* Three significant digits, more only in front of the point; no zeros at the end of a fraction when
 * `is_short`. */
static void three_digits(double value, bool is_short, char out[KVAD_FIGURE_SIZE]) {
    char digits[KVAD_FIGURE_SIZE];
    double size = fabs(value);
    if (value != 0 && (size < 1e-4 || size >= 1e15)) {
        snprintf(out, KVAD_FIGURE_SIZE, "%.2e", value);
        return;
    }
    /* 9.995 has one digit in front of the point before rounding and two behind it. */
    int decimals = 2;
    for (double bound = 9.995; size >= bound && decimals > 0; bound *= 10)
        decimals--;
    for (double bound = 0.9995; value != 0 && size < bound && decimals < 6; bound /= 10)
        decimals++;
    snprintf(digits, sizeof digits, "%.*f", decimals, value);
    size_t n = strlen(digits);
    if (is_short && strchr(digits, '.')) {
        while (digits[n - 1] == '0')
            digits[--n] = 0;
        if (digits[n - 1] == '.') digits[--n] = 0;
    }
    add_commas(digits, out);
}

static const char *with_unit(double value, const char *unit, char out[KVAD_FIGURE_SIZE]) {
    three_digits(value, true, out);
    size_t n = strlen(out);
    snprintf(out + n, KVAD_FIGURE_SIZE - n, "%s", unit);
    return out;
}

/* In the first unit whose value stays below 1000 (999.5 would show as 1000). */
static const char *scaled(double value, double step, const char *const *units, size_t n_units,
                          char out[KVAD_FIGURE_SIZE]) {
    size_t unit = 0;
    for (; fabs(value) >= 999.5 && unit + 1 < n_units; unit++)
        value /= step;
    return with_unit(value, units[unit], out);
}

const char *kvad_figure(enum kvad_figure kind, double value, char out[KVAD_FIGURE_SIZE]) {
    static const char *const bytes[] = {"\u00a0bytes", "\u00a0KiB", "\u00a0MiB",
                                        "\u00a0GiB",   "\u00a0TiB", "\u00a0PiB"};
    static const char *const times[] = {"\u00a0ns", "\u00a0µs", "\u00a0ms", "\u00a0s"};
    static const char *const flops[] = {"\u00a0FLOP",  "\u00a0kFLOP", "\u00a0MFLOP",
                                        "\u00a0GFLOP", "\u00a0TFLOP", "\u00a0PFLOP"};
    if (!isfinite(value)) return strcpy(out, "–");
    switch (kind) {
    case KVAD_FIGURE_COUNT: {
        char digits[KVAD_FIGURE_SIZE];
        snprintf(digits, sizeof digits, fabs(value) < 1e15 ? "%.0f" : "%.2e", value);
        if (fabs(value) < 1e15)
            add_commas(digits, out);
        else
            strcpy(out, digits);
        return out;
    }
    case KVAD_FIGURE_ERROR:
        snprintf(out, KVAD_FIGURE_SIZE, value == 0 ? "0" : "%.1e", value);
        break;
    case KVAD_FIGURE_BYTES: return scaled(value, 1024, bytes, 6, out);
    case KVAD_FIGURE_MS:
        if (value == 0) return strcpy(out, "0\u00a0ms");
        if (fabs(value) >= 999.5) return with_unit(value / 1000, times[3], out);
        return scaled(value * 1e6, 1000, times, 4, out);
    case KVAD_FIGURE_RATIO: return with_unit(value, "×", out);
    case KVAD_FIGURE_PERCENT: return with_unit(value, "\u00a0%", out);
    case KVAD_FIGURE_FLOPS: return scaled(value, 1000, flops, 6, out);
    case KVAD_FIGURE_GB_S: return with_unit(value, "\u00a0GB/s", out);
    case KVAD_FIGURE_GFLOP_S: return with_unit(value, "\u00a0GFLOP/s", out);
    case KVAD_FIGURE_NUMBER: three_digits(value, false, out); break;
    }
    return out;
}

const char *kvad_figure_short(enum kvad_figure kind, double value, char out[KVAD_FIGURE_SIZE]) {
    if (!isfinite(value) || (kind != KVAD_FIGURE_NUMBER && kind != KVAD_FIGURE_ERROR))
        return kvad_figure(kind, value, out);
    if (kind == KVAD_FIGURE_NUMBER)
        three_digits(value, true, out);
    else
        snprintf(out, KVAD_FIGURE_SIZE, value == 0 ? "0" : "%.0e", value);
    return out;
}

void kvad_figure_exact(double value, char out[KVAD_FIGURE_SIZE]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, KVAD_FIGURE_SIZE, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}
