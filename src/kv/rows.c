#include "kv/rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
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

/* A row of Q8: element i goes to quants[i * step]. */
static void write_q8(int8_t *quants, size_t step, float *scale, const float *x, size_t n) {
    float s = q8_scale(x, n);
    for (size_t i = 0; i < n; i++) {
        float rounded = s > 0 ? (x[i] / s + Q8_SHIFT) - Q8_SHIFT : 0;
        quants[i * step] = (int8_t)rounded;
    }
    *scale = s;
}

/* Keys of n tokens, rounded to 16 bits, into consecutive lanes of a tile [head_dim][16]. */
static void write_half_keys(kvad_narrow_fn *narrow, uint16_t *tile, const float *x, size_t stride,
                            size_t n, size_t head_dim) {
    enum { PART = 64 }; /* of a row */
    uint16_t half[KVAD_KV_TILE][PART];
    for (size_t first = 0; first < head_dim; first += PART) {
        size_t n_part = kvad_min_size(head_dim - first, PART);
        for (size_t i = 0; i < n; i++)
            narrow(half[i], x + i * stride + first, n_part);
        for (size_t d = 0; d < n_part; d++)
            for (size_t i = 0; i < n; i++)
                tile[(first + d) * KVAD_KV_TILE + i] = half[i][d];
    }
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

/* Keys of n tokens from t on, which lie in one tile. */
static void write_keys(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                       unsigned char *area, size_t t, size_t n, const float *x, size_t stride) {
    size_t head_dim = shape->head_dim, at = kvad_kv_k_index(shape, t, 0);
    float *floats = (float *)(void *)area + at;
    uint16_t *halves = (uint16_t *)(void *)area + at;
    switch (shape->k_type) {
    case KVAD_KV_F16: write_half_keys(kernels->narrow_f16, halves, x, stride, n, head_dim); return;
    case KVAD_KV_BF16:
        write_half_keys(kernels->narrow_bf16, halves, x, stride, n, head_dim);
        return;
    case KVAD_KV_Q8:
        for (size_t i = 0; i < n; i++)
            write_q8((int8_t *)area + at + i, KVAD_KV_TILE,
                     scales_of(shape, area) + scale_index(t + i), x + i * stride, head_dim);
        return;
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    for (size_t d = 0; d < head_dim; d++)
        for (size_t i = 0; i < n; i++)
            floats[d * KVAD_KV_TILE + i] = x[i * stride + d];
}

static void write_value(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                        unsigned char *area, size_t t, const float *x) {
    size_t head_dim = shape->head_dim, at = t * head_dim;
    switch (shape->v_type) {
    case KVAD_KV_F16: kernels->narrow_f16((uint16_t *)(void *)area + at, x, head_dim); return;
    case KVAD_KV_BF16: kernels->narrow_bf16((uint16_t *)(void *)area + at, x, head_dim); return;
    case KVAD_KV_Q8:
        write_q8((int8_t *)area + at, 1, scales_of(shape, area) + scale_index(t), x, head_dim);
        return;
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    memcpy((float *)(void *)area + at, x, head_dim * sizeof *x);
}

void kvad_kv_write_rows(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                        unsigned char *block, size_t layer, size_t head, size_t t, size_t n,
                        const float *k, const float *v, size_t stride) {
    unsigned char *values = block + kvad_kv_v_offset(shape, layer, head);
    write_keys(kernels, shape, block + kvad_kv_k_offset(shape, layer, head), t, n, k, stride);
    for (size_t i = 0; i < n; i++)
        write_value(kernels, shape, values, t + i, v + i * stride);
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
