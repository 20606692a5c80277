/* Panels of weights in the other types, and back to floats. Plain C that every CPU compiles to the
 * same bits. */
#include <float.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/kernels.h"

enum { SCALES = 64 }; /* bytes of scales at the start of a superblock */

static size_t group_bytes(enum kvad_weight_type type) {
    return type == KVAD_WEIGHTS_Q8 ? (KVAD_Q8_SUPERBLOCK - SCALES) / 2
                                   : (KVAD_Q4_SUPERBLOCK - SCALES) / 2;
}

static size_t superblock_bytes(enum kvad_weight_type type) {
    return type == KVAD_WEIGHTS_Q8 ? KVAD_Q8_SUPERBLOCK : KVAD_Q4_SUPERBLOCK;
}

size_t kvad_panel_bytes(enum kvad_weight_type type, size_t k) {
    switch (type) {
    case KVAD_WEIGHTS_BF16:
    case KVAD_WEIGHTS_F16: return k * KVAD_PANEL * 2;
    case KVAD_WEIGHTS_Q8:
    case KVAD_WEIGHTS_Q4: return (kvad_quant_groups(k) + 1) / 2 * superblock_bytes(type);
    case KVAD_WEIGHTS_F32:
    case KVAD_WEIGHT_TYPE_COUNT: break;
    }
    return k * KVAD_PANEL * sizeof(float);
}

/* 1 / scale, and 0 where that or the scale is not finite, or the scale 0: its quants are 0 then,
 * and so is a scale as small as that in f16. */
static float inverse_of(float scale) {
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    return inverse >= -FLT_MAX && inverse <= FLT_MAX ? inverse : 0.0f;
}

/* Round half away from zero, for |x| < 2^22. */
static int round_half_away(float x) {
    int toward_zero = (int)x;
    float rest = x - (float)toward_zero;
    return toward_zero + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Where the group g of a panel begins: its scales and its quants. */
static unsigned char *scales_of(enum kvad_weight_type type, unsigned char *panel, size_t g) {
    return panel + g / 2 * superblock_bytes(type) + g % 2 * (KVAD_PANEL * 2);
}
static unsigned char *quants_of(enum kvad_weight_type type, unsigned char *panel, size_t g) {
    return panel + g / 2 * superblock_bytes(type) + SCALES + g % 2 * group_bytes(type);
}

/* Output j of the panel is lane j, and every loop over lanes becomes vectors. */
typedef float lanes[KVAD_PANEL];

static void put_scale(unsigned char *scales, size_t lane, float scale) {
    uint16_t half = kvad_f16_from_float(scale);
    scales[2 * lane] = (unsigned char)(half & 255);
    scales[2 * lane + 1] = (unsigned char)(half >> 8);
}

/* Four bytes of each lane side by side: byte r of lane j is the low one of quads[r][j]. */
static void put_quads(unsigned char *out, const uint32_t (*quads)[KVAD_PANEL]) {
    for (size_t j = 0; j < KVAD_PANEL; j++) {
        uint32_t word = quads[0][j] | quads[1][j] << 8 | quads[2][j] << 16 | quads[3][j] << 24;
        for (size_t r = 0; r < 4; r++)
            out[4 * j + r] = (unsigned char)(word >> 8 * r);
    }
}

/* One group to q8: scale max|x| / 127, quotient rounded half away from zero (the reference
 * quantiser of Q8_0). */
static void convert_q8(unsigned char *scales, unsigned char *quants, const lanes *x, size_t n) {
    lanes max = {0}, inverse;
    uint32_t q[KVAD_GROUP][KVAD_PANEL];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < KVAD_PANEL; j++) {
            float magnitude = x[i][j] < 0 ? -x[i][j] : x[i][j];
            /* A NaN stays and becomes the scale, so that it is not lost. */
            bool is_larger = max[j] == max[j] && !(magnitude <= max[j]);
            max[j] = is_larger ? magnitude : max[j];
        }
    for (size_t j = 0; j < KVAD_PANEL; j++) {
        inverse[j] = inverse_of(max[j] / 127.0f);
        put_scale(scales, j, max[j] / 127.0f);
    }
    for (size_t i = 0; i < n; i++) {
        lanes scaled; /* in loops of their own: both become vectors */
        for (size_t j = 0; j < KVAD_PANEL; j++)
            scaled[j] = (inverse[j] != 0 ? x[i][j] : 0) * inverse[j]; /* not infinity times 0 */
        for (size_t j = 0; j < KVAD_PANEL; j++)
            q[i][j] = (uint32_t)(round_half_away(scaled[j]) + 128);
    }
    for (size_t i = n; i < KVAD_GROUP; i++)
        for (size_t j = 0; j < KVAD_PANEL; j++)
            q[i][j] = 128;
    for (size_t i = 0; i < KVAD_GROUP; i += 4)
        put_quads(quants + i * KVAD_PANEL, &q[i]);
}

/* The same to q4: scale = the value of the largest magnitude / -8, n = min(15, x / scale + 8.5) (as
 * in Q4_0). */
static void convert_q4(unsigned char *scales, unsigned char *quants, const lanes *x, size_t n) {
    lanes max = {0}, extreme = {0}, inverse;
    uint32_t q[KVAD_GROUP][KVAD_PANEL];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < KVAD_PANEL; j++) {
            float v = x[i][j], magnitude = v < 0 ? -v : v;
            bool is_larger = max[j] == max[j] && !(magnitude <= max[j]);
            max[j] = is_larger ? magnitude : max[j];
            extreme[j] = is_larger ? v : extreme[j];
        }
    for (size_t j = 0; j < KVAD_PANEL; j++) {
        inverse[j] = inverse_of(extreme[j] / -8.0f);
        put_scale(scales, j, extreme[j] / -8.0f);
    }
    for (size_t i = 0; i < KVAD_GROUP; i++)
        for (size_t j = 0; j < KVAD_PANEL; j++) {
            float shifted = i < n ? x[i][j] * inverse[j] + 8.5f : 8.5f;
            shifted = shifted > 0 ? shifted : 0; /* NaN too */
            q[i][j] = (uint32_t)(int32_t)(shifted < 15 ? shifted : 15);
        }
    for (size_t i = 0; i < KVAD_GROUP; i += 8) {
        for (size_t r = 0; r < 4; r++)
            for (size_t j = 0; j < KVAD_PANEL; j++)
                q[i + r][j] |= q[i + 4 + r][j] << 4;
        put_quads(quants + i / 2 * KVAD_PANEL, &q[i]);
    }
}

static void convert_quant(enum kvad_weight_type type, unsigned char *out, const float *panel,
                          size_t k) {
    memset(out, 0, kvad_panel_bytes(type, k));
    for (size_t g = 0; g < kvad_quant_groups(k); g++) {
        const lanes *x = (const lanes *)(panel + g * KVAD_GROUP * KVAD_PANEL);
        size_t left = k - g * KVAD_GROUP, n = left < KVAD_GROUP ? left : KVAD_GROUP;
        (type == KVAD_WEIGHTS_Q8 ? convert_q8 : convert_q4)(scales_of(type, out, g),
                                                            quants_of(type, out, g), x, n);
    }
}

void kvad_convert_panel(enum kvad_weight_type type, void *out, const float *panel, size_t k) {
    uint16_t *half = out;
    switch (type) {
    case KVAD_WEIGHTS_BF16:
        for (size_t i = 0; i < k * KVAD_PANEL; i++)
            half[i] = kvad_bf16_from_float(panel[i]);
        return;
    case KVAD_WEIGHTS_F16:
        for (size_t i = 0; i < k * KVAD_PANEL; i++)
            half[i] = kvad_f16_from_float(panel[i]);
        return;
    case KVAD_WEIGHTS_Q8:
    case KVAD_WEIGHTS_Q4: convert_quant(type, out, panel, k); return;
    case KVAD_WEIGHTS_F32:
    case KVAD_WEIGHT_TYPE_COUNT: memcpy(out, panel, k * KVAD_PANEL * sizeof *panel); return;
    }
}

static float quant_value(enum kvad_weight_type type, const unsigned char *panel, size_t lane,
                         size_t i) {
    size_t g = i / KVAD_GROUP, r = i % KVAD_GROUP;
    /* The helpers find places and change nothing. */
    unsigned char *base = (unsigned char *)(uintptr_t)panel;
    const unsigned char *quants = quants_of(type, base, g);
    float scale = kvad_float_from_f16(kvad_load_u16le(scales_of(type, base, g) + 2 * lane));
    if (type == KVAD_WEIGHTS_Q8)
        return scale * (float)(quants[(r / 4 * KVAD_PANEL + lane) * 4 + r % 4] - 128);
    unsigned char both = quants[(r / 8 * KVAD_PANEL + lane) * 4 + r % 4];
    return scale * (float)((r % 8 < 4 ? both & 15 : both >> 4) - 8);
}

void kvad_panel_row(enum kvad_weight_type type, const void *panel, size_t lane, size_t k,
                    float *out) {
    const uint16_t *half = panel;
    const float *floats = panel;
    for (size_t i = 0; i < k; i++)
        switch (type) {
        case KVAD_WEIGHTS_BF16: out[i] = kvad_float_from_bf16(half[i * KVAD_PANEL + lane]); break;
        case KVAD_WEIGHTS_F16: out[i] = kvad_float_from_f16(half[i * KVAD_PANEL + lane]); break;
        case KVAD_WEIGHTS_Q8:
        case KVAD_WEIGHTS_Q4: out[i] = quant_value(type, panel, lane, i); break;
        case KVAD_WEIGHTS_F32:
        case KVAD_WEIGHT_TYPE_COUNT: out[i] = floats[i * KVAD_PANEL + lane]; break;
        }
}
