/* Little-endian and bit-level reads that need no alignment. */
#ifndef KVAD_BASE_BYTES_H
#define KVAD_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t kvad_load_u16le(const void *p) {
    const unsigned char *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t kvad_load_u32le(const void *p) {
    const unsigned char *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t kvad_load_u64le(const void *p) {
    return kvad_load_u32le(p) | (uint64_t)kvad_load_u32le((const unsigned char *)p + 4) << 32;
}
static inline float kvad_float_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t kvad_bits_from_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/** Exact value of an IEEE half and of a bfloat16. */
static inline float kvad_float_from_bf16(uint16_t h) {
    return kvad_float_from_bits((uint32_t)h << 16);
}
static inline float kvad_float_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 31) return kvad_float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return kvad_float_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal or zero: exact in float */
    return kvad_float_from_bits(sign | kvad_bits_from_float(magnitude));
}

/** Round to nearest even. NaN stays NaN (its payload may change); beyond the range: infinity. */
static inline uint16_t kvad_bf16_from_float(float f) {
    uint32_t bits = kvad_bits_from_float(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static inline uint16_t kvad_f16_from_float(float f) {
    uint32_t bits = kvad_bits_from_float(f), sign = bits >> 16 & 0x8000u, x = bits & 0x7fffffffu;
    if (x > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (x >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 rounds to infinity */
    if (x < 0x38800000u) {
        /* Subnormal half: the sum with 0.5 leaves its unit 2^-24 in the last place and rounds
         * there. */
        float rounded = kvad_float_from_bits(x) + 0.5f;
        return (uint16_t)(sign | (kvad_bits_from_float(rounded) - 0x3f000000u));
    }
    x += 0xfffu + (x >> 13 & 1u);
    return (uint16_t)(sign | ((x >> 13) - (112u << 10)));
}

#endif
