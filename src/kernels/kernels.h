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

#include "kernels/weights.h"
#include "kvad/kvad.h"

enum {
    KVAD_SEGMENT = 128, /* a dot product's chain is cut at multiples of this along k */
    KVAD_CHUNK = 256,   /* attention's tokens are cut at absolute multiples of this */
    KVAD_KV_TILE = 16,  /* tokens of one K tile, side by side */
    KVAD_LANES = 16     /* lanes of a lane sum */
};

/* y[r][n] = sum_k x[r][k] * w[n][k] (+ bias[n]) for r < n_rows and n < 16 * n_panels, in segments
 * (docs/numerics.md, linear). */
struct kvad_linear_f32_args {
    float *y; /* [n_rows][y_stride]; 16 * n_panels columns are written */
    size_t y_stride;
    const float *x; /* [n_rows][x_stride]; k columns are read */
    size_t x_stride;
    size_t n_rows;
    size_t k;
    const float *w; /* panels [n_panels][k][16] */
    size_t n_panels;
    const float *bias; /* [16 * n_panels] or NULL */
};
typedef void kvad_linear_f32_fn(const struct kvad_linear_f32_args *args);

/* The same with 16-bit weights, widened exactly (bf16 or f16, by the function's name). */
struct kvad_linear_half_args {
    float *y;
    size_t y_stride;
    const float *x;
    size_t x_stride;
    size_t n_rows;
    size_t k;
    const uint16_t *w; /* panels [n_panels][k][16] */
    size_t n_panels;
    const float *bias;
};
typedef void kvad_linear_half_fn(const struct kvad_linear_half_args *args);

/* acc = fma(s_x * s_w, (float)(sum of q_x * q_w), acc) over groups, in segments (docs/numerics.md,
 * quantised linear). */
struct kvad_linear_quant_args {
    float *y;
    size_t y_stride;
    const unsigned char *x; /* quantised rows, aligned to 64 bytes */
    size_t x_stride;        /* in bytes */
    size_t n_rows;
    size_t k;
    const unsigned char *w; /* panels, aligned to 64 bytes */
    size_t n_panels;
    const float *bias;
};
typedef void kvad_linear_quant_fn(const struct kvad_linear_quant_args *args);

/* Groups of an activation row of k floats into its quantised form of kvad_quant_row_bytes(k) bytes:
 * n floats, those from group `first` on; whole groups but for the last of the row. */
typedef void kvad_quantise_row_fn(unsigned char *out, size_t k, size_t first, const float *x,
                                  size_t n);

/* y[i] = (x[i] - mean) / sqrt(var + eps) * weight[i] + bias[i]; bias may be NULL; n >= 1; y may
 * equal x. */
typedef void kvad_layer_norm_fn(float *y, const float *x, const float *weight, const float *bias,
                                size_t n, float eps);

/* y[i] = f(x[i]); y may equal x. */
typedef void kvad_unary_fn(float *y, const float *x, size_t n);

/* out[i] = x[i] rounded to nearest even, as f16 or bf16 (by the function's name); NaN stays NaN. */
typedef void kvad_narrow_fn(uint16_t *out, const float *x, size_t n);

/* y[i] = y[i] + x[i]. */
typedef void kvad_add_fn(float *y, const float *x, size_t n);

/* The same, the residual h + (total + b); returns whether all sums are finite. */
typedef bool kvad_residual_fn(float *y, const float *x, size_t n);

/* y[i] = x[i] * scale, rounded once: the scaled query; y may equal x. */
typedef void kvad_scale_fn(float *y, const float *x, float scale, size_t n);

/* Consecutive tokens of one kv head as a block of the cache holds them, in its types.
 *   k tiles [ceil(n_tokens / 16)][head_dim][16]: token t is lane t % 16 of tile t / 16
 *   v       [n_tokens][head_dim]
 * With Q8 each token has a scale: its score is chain(q, k) * k_scale, and its value enters as fma(p
 * * v_scale, v, o). */
struct kvad_kv_span {
    const void *k, *v;
    const float *k_scales, *v_scales; /* [n_tokens], read with Q8 only */
    size_t n_tokens;                  /* a multiple of 16, except in the last span */
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
    enum kvad_kv_type k_type, v_type; /* of the spans; widened exactly */
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
    const char *isa; /* name of the level: for logs and tables */
    kvad_linear_f32_fn *linear_f32;
    kvad_linear_half_fn *linear_bf16;
    kvad_linear_half_fn *linear_f16;
    kvad_linear_quant_fn *linear_q8;
    kvad_linear_quant_fn *linear_q4;
    kvad_quantise_row_fn *quantise_row;
    kvad_layer_norm_fn *layer_norm;
    kvad_narrow_fn *narrow_f16;
    kvad_narrow_fn *narrow_bf16;
    kvad_add_fn *add;
    kvad_residual_fn *residual;
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
    KVAD_CPU_AVX2,     /* with FMA and F16C */
    KVAD_CPU_AVX512,   /* F, BW, VL, DQ */
    KVAD_CPU_AVX512_VNNI, /* the same, with integer dot products for q8 and q4 */
    KVAD_CPU_NEON,
    KVAD_CPU_NEON_DOTPROD, /* the same, with integer dot products for q8 and q4 */
    KVAD_CPU_LEVEL_COUNT
};

/** Name of a level ("avx2", "avx512-vnni"), and back; false for an unknown name. */
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

#endif
