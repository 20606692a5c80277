#include "base/math.h"

#include <float.h>
#include <math.h> /* INFINITY and NAN alone */

#if FLT_EVAL_METHOD != 0
#error "arithmetic must be in the types' own precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

/* x = 2^k m with m in [sqrt(1/2), sqrt 2); f = m - 1, s = f / (2 + f), so that
 * log m = log((1 + s) / (1 - s)) = 2 s + s R, R = 2 s^2 / 3 + 2 s^4 / 5 + ...
 * As 2 s = f - s f, this is f - (f^2 / 2 - s (f^2 / 2 + R)): the large term f stays exact.
 * |s| < 0.1716, so the first term left out, s^24 2 / 25, is below 2^-60 of R's first. */
double kvad_log(double x) {
    if (x == 0) return -INFINITY;
    if (!(x > 0)) return NAN;
    if (x > DBL_MAX) return x;
    int k = 0;
    if (x < DBL_MIN) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t bits = kvad_bits_from_double(x);
    /* Subtracting sqrt(1/2) from the bits moves the cut between exponents there. */
    const uint64_t root_half = UINT64_C(0x3fe6a09e667f3bcd);
    uint64_t moved = bits - root_half + (UINT64_C(1023) << 52);
    k += (int)(moved >> 52) - 1023;
    double m = kvad_double_from_bits((moved & ((UINT64_C(1) << 52) - 1)) + root_half);

    double f = m - 1, s = f / (2 + f), z = s * s;
    double r = 2.0 / 23;
    r = r * z + 2.0 / 21;
    r = r * z + 2.0 / 19;
    r = r * z + 2.0 / 17;
    r = r * z + 2.0 / 15;
    r = r * z + 2.0 / 13;
    r = r * z + 2.0 / 11;
    r = r * z + 2.0 / 9;
    r = r * z + 2.0 / 7;
    r = r * z + 2.0 / 5;
    r = r * z + 2.0 / 3;
    r = r * z;
    double half_square = 0.5 * f * f;
    double tail = s * (half_square + r) + k * KVAD_LN2_LOW;
    return k * KVAD_LN2_HIGH - ((half_square - tail) - f);
}
