/* exp and log in double from the four operations alone: the same bits with every C library,
 * compiler and CPU. The C library's own differ between versions and between CPUs of one version. */
#ifndef KVAD_BASE_MATH_H
#define KVAD_BASE_MATH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t kvad_bits_from_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double kvad_double_from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ln 2 in two pieces: the first has 32 significant bits, so that its product with an exponent is
 * exact. */
#define KVAD_LN2_HIGH 0x1.62e42feep-1
#define KVAD_LN2_LOW  0x1.a39ef35793c76p-33

/** e^x: error below 1.1 ulp (largest seen 0.98), 0 below -745.14, subnormals rounded once, infinite
 * above 709.79; NaN gives NaN. Without branches, so that loops over it vectorise.
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor polynomial of degree 13, whose remainder
 * r^14 / 14! is below 2^-57; e^x = e^r 2^k, in two factors because 2^k alone may not be normal. */
static inline double kvad_exp(double x) {
    x = x < -746 ? -746 : x;
    x = x > 710 ? 710 : x;
    const double shift = 0x1.8p52; /* adding it rounds to an integer, found in the low bits */
    double shifted = x * 0x1.71547652b82fep0 + shift;
    double k = shifted - shift;
    double r = (x - k * KVAD_LN2_HIGH) - k * KVAD_LN2_LOW;
    double q = 1.0 / 6227020800;
    q = q * r + 1.0 / 479001600;
    q = q * r + 1.0 / 39916800;
    q = q * r + 1.0 / 3628800;
    q = q * r + 1.0 / 362880;
    q = q * r + 1.0 / 40320;
    q = q * r + 1.0 / 5040;
    q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120;
    q = q * r + 1.0 / 24;
    q = q * r + 1.0 / 6;
    q = q * r + 1.0 / 2;
    double y = 1 + (r + r * r * q);
    /* k + 2048 is positive: halving it needs no signed shift. */
    uint64_t biased = kvad_bits_from_double(shifted) - kvad_bits_from_double(shift) + 2048;
    uint64_t half = biased >> 1;
    double scale_1 = kvad_double_from_bits((half - 1) << 52);
    double scale_2 = kvad_double_from_bits((biased - half - 1) << 52);
    return y * scale_1 * scale_2;
}

/** Natural logarithm: error below 1 ulp (largest seen 0.85); log 0 = -infinity, of a negative
 * number NaN. */
double kvad_log(double x);

#endif
