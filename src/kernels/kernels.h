/* The operations of the forward pass on plain views (pointers, lengths, strides), one table per CPU
 * level.
 *
 * portable/ defines the bits of each operation; docs/numerics.md gives the definitions. Every other
 * level must equal it under memcmp (all NaNs equal). Kernels touch no byte outside the given
 * ranges, keep no state and may run on any thread. `restrict` is implied nowhere: where an output
 * may equal an input, the comment says so. */
#ifndef KVAD_KERNELS_KERNELS_H
#define KVAD_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kvad/kvad.h"

enum {
    KVAD_PANEL = 16,    /* outputs of one weight panel, side by side */
    KVAD_SEGMENT = 128, /* a dot product's chain is cut at multiples of this along k */
    KVAD_CHUNK = 256,   /* attention's tokens are cut at absolute multiples of this */
    KVAD_KV_TILE = 16,  /* tokens of one K tile, side by side */
    KVAD_LANES = 16     /* lanes of a lane sum */
};

/* y[r][n] = sum_k x[r][k] * w[n][k] (+ bias[n]) for r < n_rows and n < 16 * n_panels, in segments
 * (docs/numerics.md, linear). y    [n_rows][y_stride], 16 * n_panels columns are written x
 * [n_rows][x_stride], k columns are read w    panels [n_panels][k][16] bias [16 * n_panels] or NULL
 */
struct kvad_linear_f32_args {
    float *y;
    size_t y_stride;
    const float *x;
    size_t x_stride;
    size_t n_rows;
    size_t k;
    const float *w;
    size_t n_panels;
    const float *bias;
};
typedef void kvad_linear_f32_fn(const struct kvad_linear_f32_args *args);

/* y[i] = (x[i] - mean) / sqrt(var + eps) * weight[i] + bias[i]; bias may be NULL; n >= 1; y may
 * equal x. */
typedef void kvad_layer_norm_fn(float *y, const float *x, const float *weight, const float *bias,
                                size_t n, float eps);

/* y[i] = f(x[i]); y may equal x. */
typedef void kvad_unary_fn(float *y, const float *x, size_t n);

/* y[i] = y[i] + x[i]: the residual h + (total + b). */
typedef void kvad_add_fn(float *y, const float *x, size_t n);

/* y[i] = x[i] * scale, rounded once: the scaled query; y may equal x. */
typedef void kvad_scale_fn(float *y, const float *x, float scale, size_t n);

/* Consecutive tokens of one kv head: a block or a part of one.
 *   k tiles [ceil(n_tokens / 16)][head_dim][16]: token t is lane t % 16 of tile t / 16
 *   v       [n_tokens][head_dim] */
struct kvad_kv_span {
    const float *k;
    const float *v;
    size_t n_tokens; /* a multiple of 16, except in the last span */
};

/* Attention of n_rows query rows over the tokens of ONE chunk; row r sees the first visible[r] of
 * them. Rows with visible[r] == 0 are left untouched. Partial results, per row: m = max score, l =
 * lane sum of exp(s - m), o[head_dim] = sum of p * v. Lanes and rows of spans that no row sees may
 * hold anything, NaN included. */
struct kvad_attention_args {
    const float *q; /* [n_rows][q_stride], scaled */
    size_t q_stride;
    size_t n_rows;
    size_t head_dim;
    const struct kvad_kv_span *spans; /* in order; together at most KVAD_CHUNK tokens */
    size_t n_spans;
    const uint32_t *visible; /* [n_rows] */
    float *o;                /* [n_rows][o_stride] */
    size_t o_stride;
    float *m; /* [n_rows] */
    float *l; /* [n_rows] */
};
typedef void kvad_attention_chunk_fn(const struct kvad_attention_args *args);

/* Fold the next chunk's (oc, mc, lc) into (o, *m, *l). */
typedef void kvad_attention_merge_fn(float *o, float *m, float *l, const float *oc, float mc,
                                     float lc, size_t head_dim);
/* y[i] = o[i] / l; y may equal o. */
typedef void kvad_divide_fn(float *y, const float *o, float l, size_t n);

/* The unary operations. X(field, what it computes) drives the table, the tests and the benches. */
#define KVAD_UNARY_OPS(X)                                                                          \
    X(exp, "exp(x), +0 below -87.33")                                                              \
    X(gelu_tanh, "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))")                                \
    X(gelu_erf, "0.5 x (1 + erf(x / sqrt 2))")                                                     \
    X(relu, "max(x, 0), NaN stays NaN")                                                            \
    X(silu, "x * sigmoid(x)")                                                                      \
    X(tanh, "tanh(x)")                                                                             \
    X(sigmoid, "1 / (1 + exp(-x))")                                                                \
    X(quick_gelu, "x * sigmoid(1.702 x)")

struct kvad_kernels {
    const char *isa; /* "baseline", "portable", "avx2", "avx512", "neon": for logs and tables */
    kvad_linear_f32_fn *linear_f32;
    kvad_layer_norm_fn *layer_norm;
    kvad_add_fn *add;
    kvad_scale_fn *scale;
    kvad_attention_chunk_fn *attention_chunk;
    kvad_attention_merge_fn *attention_merge;
    kvad_divide_fn *divide;
#define KVAD_UNARY_FIELD(name, text) kvad_unary_fn *name;
    KVAD_UNARY_OPS(KVAD_UNARY_FIELD)
#undef KVAD_UNARY_FIELD
};

enum kvad_cpu_level {
    KVAD_CPU_BASELINE, /* portable C for the oldest CPU of the architecture; fma emulated exactly */
    KVAD_CPU_PORTABLE, /* the same C compiled with the CPU's fma */
    KVAD_CPU_AVX2,
    KVAD_CPU_AVX512,
    KVAD_CPU_NEON,
    KVAD_CPU_LEVEL_COUNT
};

/** Name of a level ("avx2"), and back; false for an unknown name. */
const char *kvad_cpu_level_name(enum kvad_cpu_level level);
bool kvad_cpu_level_from_name(const char *name, enum kvad_cpu_level *out);
/** Whether this CPU and operating system can run a level (cpuid and xgetbv; cached after the first
 * call). */
bool kvad_cpu_level_supported(enum kvad_cpu_level level);
/** Highest supported level. */
enum kvad_cpu_level kvad_cpu_level_best(void);
/** Fill the table for a supported level: lower levels first, then what the level itself brings.
 * Pure function. */
void kvad_kernels_pick(struct kvad_kernels *kernels, enum kvad_cpu_level level);

/** Weights [n][k] (row n at w + n * row_stride, element k at + k * k_stride, in floats) into panels
 * [ceil(n/16)][k][16] for the panels [first, last); columns beyond n are +0. */
void kvad_pack_panels_f32(float *panels, const float *w, size_t n, size_t k, size_t row_stride,
                          size_t k_stride, size_t first_panel, size_t last_panel);

#endif
