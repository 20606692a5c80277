#include "kv/rows.h"

#include <float.h>
#include <math.h>

#include "base/bytes.h"
#include "base/faults.h"

/* As in the quantised linear: below this a row is zero. */
#define Q8_SMALLEST 0x1p-100f
/* Adding and subtracting 1.5 * 2^23 rounds a small float to an integer, ties to even. */
#define Q8_SHIFT 0x1.8p+23f

/* Scale of a row for Q8: max|x| / 127; 0 for a row of zeros, NaN for one with a value that is not
 * finite. */
static float q8_scale(const float *x, size_t n) {
    float max = 0;
    for (size_t i = 0; i < n; i++) {
        float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (!(magnitude <= FLT_MAX)) return NAN;
        max = magnitude > max ? magnitude : max;
    }
    float scale = max < Q8_SMALLEST ? 0.0f : max / 127.0f;
    return KVAD_FAULT(Q8_SCALE_FLOORED, scale, scale > 1.0f ? scale : 1.0f);
}

/* Element i of the row goes to index start + i * step of the area. */
static void write(enum kvad_kv_type type, unsigned char *area, size_t start, size_t step,
                  float *scale, const float *x, size_t n) {
    float *floats = (float *)(void *)area;
    uint16_t *halves = (uint16_t *)(void *)area;
    switch (type) {
    case KVAD_KV_F16:
        for (size_t i = 0; i < n; i++)
            halves[start + i * step] = kvad_f16_from_float(x[i]);
        return;
    case KVAD_KV_BF16:
        for (size_t i = 0; i < n; i++)
            halves[start + i * step] = kvad_bf16_from_float(x[i]);
        return;
    case KVAD_KV_Q8: {
        float s = q8_scale(x, n);
        for (size_t i = 0; i < n; i++) {
            float rounded = s > 0 ? (x[i] / s + Q8_SHIFT) - Q8_SHIFT : 0;
            ((int8_t *)area)[start + i * step] = (int8_t)rounded;
        }
        *scale = s;
        return;
    }
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    for (size_t i = 0; i < n; i++)
        floats[start + i * step] = x[i];
}

static void read(enum kvad_kv_type type, const unsigned char *area, size_t start, size_t step,
                 float scale, float *x, size_t n) {
    const float *floats = (const float *)(const void *)area;
    const uint16_t *halves = (const uint16_t *)(const void *)area;
    for (size_t i = 0; i < n; i++) {
        size_t at = start + i * step;
        switch (type) {
        case KVAD_KV_F16: x[i] = kvad_float_from_f16(halves[at]); break;
        case KVAD_KV_BF16: x[i] = kvad_float_from_bf16(halves[at]); break;
        case KVAD_KV_Q8: x[i] = scale * (float)((const int8_t *)area)[at]; break;
        case KVAD_KV_F32:
        case KVAD_KV_TYPE_COUNT: x[i] = floats[at]; break;
        }
    }
}

/* Scales follow the tiles or rows of a head; only Q8 has them. */
static float *scales_of(const struct kvad_kv_shape *shape, const unsigned char *area) {
    return (float *)(uintptr_t)(area + kvad_kv_scales_offset(shape));
}

/* Which scale of a block is that of token `t`. */
static size_t scale_index(size_t t) {
    return KVAD_FAULT(Q8_SCALE_OF_NEIGHBOUR, t, t ^ 1);
}

void kvad_kv_write_row(const struct kvad_kv_shape *shape, unsigned char *block, size_t layer,
                       size_t head, size_t t, const float *k, const float *v) {
    unsigned char *keys = block + kvad_kv_k_offset(shape, layer, head);
    unsigned char *values = block + kvad_kv_v_offset(shape, layer, head);
    write(shape->k_type, keys, kvad_kv_k_index(shape, t, 0), KVAD_KV_TILE,
          scales_of(shape, keys) + scale_index(t), k, shape->head_dim);
    write(shape->v_type, values, t * shape->head_dim, 1, scales_of(shape, values) + scale_index(t),
          v, shape->head_dim);
}

void kvad_kv_read_row(const struct kvad_kv_shape *shape, const unsigned char *block, size_t layer,
                      size_t head, size_t t, float *k, float *v) {
    const unsigned char *keys = block + kvad_kv_k_offset(shape, layer, head);
    const unsigned char *values = block + kvad_kv_v_offset(shape, layer, head);
    bool k_scaled = shape->k_type == KVAD_KV_Q8, v_scaled = shape->v_type == KVAD_KV_Q8;
    read(shape->k_type, keys, kvad_kv_k_index(shape, t, 0), KVAD_KV_TILE,
         k_scaled ? scales_of(shape, keys)[t] : 0, k, shape->head_dim);
    read(shape->v_type, values, t * shape->head_dim, 1, v_scaled ? scales_of(shape, values)[t] : 0,
         v, shape->head_dim);
}
