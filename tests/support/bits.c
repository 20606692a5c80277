#include "bits.h"

#include <math.h>

#include "test.h"

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

size_t bits_first_difference(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return i;
    return n;
}

static size_t first_not_finite(const float *values, size_t n) {
    size_t i = 0;
    while (i < n && isfinite(values[i]))
        i++;
    return i;
}

bool bits_are_finite(const float *values, size_t n) {
    return first_not_finite(values, n) == n;
}

const char *label(const char *format, ...) {
    static char texts[8][200];
    static unsigned next;
    char *text = texts[next++ % 8];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof texts[0], format, args);
    va_end(args);
    return text;
}

static void check_finite(const float *values, size_t n, const char *which, const char *where,
                         const char *file, int line) {
    size_t i = first_not_finite(values, n);
    if (i == n) return;
    print_error("%s: %s[%zu] is %g\n", where, which, i, (double)values[i]);
    _fail(file, line);
}

void assert_same_bits_at(const float *got, const float *wanted, size_t n, const char *where,
                         const char *file, int line) {
    check_finite(wanted, n, "wanted", where, file, line);
    check_finite(got, n, "got", where, file, line);
    size_t i = bits_first_difference(got, wanted, n);
    if (i == n) return;
    print_error("%s: element %zu of %zu is %.9g (0x%08x), wanted %.9g (0x%08x)\n", where, i, n,
                (double)got[i], bits_of(got[i]), (double)wanted[i], bits_of(wanted[i]));
    _fail(file, line);
}

void assert_close_at(const float *got, const double *wanted, size_t n, double bound,
                     const char *where, const char *file, int line) {
    check_finite(got, n, "got", where, file, line);
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(wanted[i])) {
            print_error("%s: wanted[%zu] is %g\n", where, i, wanted[i]);
            _fail(file, line);
        }
        largest = fmax(largest, fabs(wanted[i]));
    }
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)got[i] - wanted[i]) <= bound * (1 + largest)) continue;
        print_error("%s: element %zu of %zu is %.9g, wanted %.9g within %g\n", where, i, n,
                    (double)got[i], wanted[i], bound * (1 + largest));
        _fail(file, line);
    }
}
