/* The kernels against long double: the bounds that docs/numerics.md states. */
#include "check.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* 2^-24, half a unit in the last place of 1. */
static const long double half_ulp = 0x1p-24L;

static long double exact_exp(long double x) {
    return expl(x);
}
/* x sigmoid(z); the limit where e^-z overflows. */
static long double exact_gated(long double x, long double z) {
    long double divisor = 1.0L + expl(-z);
    return isinf(divisor) ? -0.0L : x / divisor;
}
static long double exact_gelu_tanh(long double x) {
    static const long double two_over_pi = 0.6366197723675813430755350534900574L;
    return exact_gated(x, 2.0L * sqrtl(two_over_pi) * (x + 0.044715L * x * x * x));
}
static long double exact_gelu_erf(long double x) {
    static const long double sqrt_half = 0.7071067811865475244008443621048490L;
    return isinf(x) && x < 0 ? -0.0L : 0.5L * x * erfcl(-x * sqrt_half);
}
static long double exact_relu(long double x) {
    return x < 0 ? 0.0L : x;
}
static long double exact_silu(long double x) {
    return exact_gated(x, x);
}
static long double exact_tanh(long double x) {
    return tanhl(x);
}
static long double exact_sigmoid(long double x) {
    return 1.0L / (1.0L + expl(-x));
}
static long double exact_quick_gelu(long double x) {
    return exact_gated(x, 1.702L * x);
}

/* Bounds in units in the last place: everywhere, and for x >= -1 (the activations' error grows with
 * the exponent of their tail, where their values vanish). */
struct function {
    const char *name;
    long double (*exact)(long double x);
    double bound, bound_near;
};

static const struct function functions[] = {
    {"exp", exact_exp, 1.0, 1.0},           {"gelu_tanh", exact_gelu_tanh, 200.0, 3.0},
    {"gelu_erf", exact_gelu_erf, 8.0, 3.0}, {"relu", exact_relu, 0.0, 0.0},
    {"silu", exact_silu, 4.0, 3.0},         {"tanh", exact_tanh, 1.5, 1.5},
    {"sigmoid", exact_sigmoid, 3.0, 3.0},   {"quick_gelu", exact_quick_gelu, 100.0, 3.0},
};

/* Error in units in the last place of the exact value. Where that is below 2^-120 the functions may
 * already be zero. */
static double error_ulp(float y, long double exact) {
    if (y == (float)exact || fabsl((long double)y - exact) < 0x1p-120L) return 0.0;
    int exponent;
    frexpl(exact, &exponent);
    return (double)(fabsl((long double)y - exact) / ldexpl(1.0L, exponent - 24));
}

struct worst {
    double ulp, near_ulp; /* near: x >= -1 */
    float x, near_x;
};

static void measure(struct check *c, const struct function *f, kvad_unary_fn *run, const float *x,
                    size_t n, struct worst *worst) {
    enum { BATCH = 4096 };
    float y[BATCH];
    run(y, x, n);
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]) != isnan(y[i]))
            check_fail(c, "%s(%a) is %a", f->name, (double)x[i], (double)y[i]);
        if (isnan(x[i])) continue;
        double error = error_ulp(y[i], f->exact((long double)x[i]));
        if (error > worst->ulp) worst->ulp = error, worst->x = x[i];
        if (x[i] >= -1.0f && error > worst->near_ulp) worst->near_ulp = error, worst->near_x = x[i];
    }
}

/* With step 1 every float is measured where the functions bend; beyond they are constant or linear
 * within each power of two. */
static uint64_t step_at(uint32_t bits, uint64_t step) {
    uint32_t magnitude = bits & 0x7fffffffu;
    bool bends =
        magnitude >= kvad_bits_from_float(0x1p-27f) && magnitude < kvad_bits_from_float(128.0f);
    return step == 1 && !bends ? 101 : step;
}

/* Every step-th float, and many of ordinary size. */
static void check_function(struct check *c, const struct function *f, kvad_unary_fn *run,
                           uint64_t step) {
    enum { BATCH = 4096 };
    float x[BATCH];
    struct worst worst = {0};
    const uint64_t n_rounds = step == 1 ? 0 : 1 + 250000 / step;
    size_t n = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step_at((uint32_t)bits, step)) {
        x[n++] = kvad_float_from_bits((uint32_t)bits);
        if (n < BATCH) continue;
        measure(c, f, run, x, n, &worst);
        n = 0;
    }
    measure(c, f, run, x, n, &worst);
    for (uint64_t round = 0; round < n_rounds; round++) {
        for (n = 0; n < BATCH; n++)
            x[n] = 12.0f * check_float(c, PATTERN_PLAIN);
        measure(c, f, run, x, n, &worst);
    }
    printf("  %-10s %8.3f ulp at %-14.8g  x >= -1: %.3f ulp at %.8g\n", f->name, worst.ulp,
           (double)worst.x, worst.near_ulp, (double)worst.near_x);
    if (worst.ulp > f->bound || worst.near_ulp > f->bound_near)
        check_fail(c, "%s: the bounds are %g and %g ulp", f->name, f->bound, f->bound_near);
}

/* An fma chain of n terms is off by at most n half ulps of the sum of the magnitudes. */
static void check_linear_accuracy(struct check *c, const struct kvad_kernels *kernels) {
    static const size_t ks[] = {1, 16, 100, 128, 129, 768, 3072};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        size_t k = ks[i], n_segments = (k + KVAD_SEGMENT - 1) / KVAD_SEGMENT;
        check_case(c, "k=%zu", k);
        const float *x = check_input(c, k, PATTERN_WIDE), *b = check_input(c, 16, PATTERN_WIDE);
        const float *w = check_input(c, k * KVAD_PANEL, PATTERN_WIDE);
        float y[KVAD_PANEL];
        kernels->linear_f32(&(struct kvad_linear_f32_args){y, 16, x, k, 1, k, w, 1, b});
        for (size_t j = 0; j < KVAD_PANEL; j++) {
            long double sum = (long double)b[j], magnitude = fabsl(sum);
            for (size_t t = 0; t < k; t++) {
                long double term = (long double)x[t] * (long double)w[t * KVAD_PANEL + j];
                sum += term;
                magnitude += fabsl(term);
            }
            size_t n_roundings = (k < KVAD_SEGMENT ? k : KVAD_SEGMENT) + n_segments + 1;
            if (fabsl((long double)y[j] - sum) > (long double)n_roundings * half_ulp * magnitude)
                check_fail(c, "linear is %a, exact %La", (double)y[j], sum);
        }
    }
}

static void check_layer_norm_accuracy(struct check *c, const struct kvad_kernels *kernels) {
    static const size_t sizes[] = {1, 2, 17, 192, 768};
    const float eps = 1e-5f;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        check_case(c, "n=%zu", n);
        const float *x = check_input(c, n, PATTERN_PLAIN), *w = check_input(c, n, PATTERN_PLAIN);
        const float *b = check_input(c, n, PATTERN_PLAIN);
        float y[768];
        kernels->layer_norm(y, x, w, b, n, eps);
        long double mean = 0, variance = 0, magnitude = 0;
        for (size_t j = 0; j < n; j++)
            mean += (long double)x[j], magnitude += fabsl((long double)x[j]);
        mean /= (long double)n, magnitude /= (long double)n;
        for (size_t j = 0; j < n; j++)
            variance += powl((long double)x[j] - mean, 2);
        variance /= (long double)n;
        long double r = 1.0L / sqrtl(variance + (long double)eps);
        /* n / 16 additions in a lane, 4 in the fold, and the few roundings after them. */
        long double chain = (long double)(n / 16 + 12) * half_ulp;
        for (size_t j = 0; j < n; j++) {
            long double d = (long double)x[j] - mean, scaled = d * r * (long double)w[j];
            long double bound = chain * (fabsl((long double)w[j]) * r * magnitude + fabsl(scaled)) +
                                2 * half_ulp * (fabsl(scaled) + fabsl((long double)b[j]));
            if (fabsl((long double)y[j] - scaled - (long double)b[j]) > bound)
                check_fail(c, "layer_norm is %a, exact %La", (double)y[j],
                           scaled + (long double)b[j]);
        }
    }
}

/* Chunks of attention, merged and divided, against softmax(q k) v. */
static void check_attention_accuracy(struct check *c, const struct kvad_kernels *kernels) {
    enum { HEAD_DIM = 64, N_CHUNKS = 3, N_LAST = 40, N = (N_CHUNKS - 1) * KVAD_CHUNK + N_LAST };
    check_case(c, "%d tokens", N);
    const float *q = check_input(c, HEAD_DIM, PATTERN_PLAIN);
    const float *k = check_input(c, (N + 15) / 16 * 16 * HEAD_DIM, PATTERN_PLAIN);
    const float *v = check_input(c, N * HEAD_DIM, PATTERN_PLAIN);
    float o[HEAD_DIM], oc[HEAD_DIM], m, l, mc, lc;
    for (size_t i = 0; i < N_CHUNKS; i++) {
        uint32_t n = i + 1 < N_CHUNKS ? KVAD_CHUNK : N_LAST;
        struct kvad_kv_span span = {
            .k = k + i * KVAD_CHUNK * HEAD_DIM, .v = v + i * KVAD_CHUNK * HEAD_DIM, .n_tokens = n};
        kernels->attention_chunk(
            &(struct kvad_attention_args){q, HEAD_DIM, 1, HEAD_DIM, KVAD_KV_F32, KVAD_KV_F32, &span,
                                          1, &n, i ? oc : o, HEAD_DIM, i ? &mc : &m, i ? &lc : &l});
        if (i) kernels->attention_merge(o, &m, &l, oc, mc, lc, HEAD_DIM);
    }
    kernels->divide(o, o, l, HEAD_DIM);

    long double total = 0, exact[HEAD_DIM] = {0}, magnitude[HEAD_DIM] = {0}, score_error = 0;
    for (size_t t = 0; t < N; t++) {
        long double s = 0, size = 0;
        for (size_t d = 0; d < HEAD_DIM; d++) {
            long double term =
                (long double)q[d] * (long double)k[(t / 16 * HEAD_DIM + d) * 16 + t % 16];
            s += term, size += fabsl(term);
        }
        if (size * HEAD_DIM * half_ulp > score_error) score_error = size * HEAD_DIM * half_ulp;
        long double p = expl(s);
        total += p;
        for (size_t d = 0; d < HEAD_DIM; d++) {
            exact[d] += p * (long double)v[t * HEAD_DIM + d];
            magnitude[d] += p * fabsl((long double)v[t * HEAD_DIM + d]);
        }
    }
    for (size_t d = 0; d < HEAD_DIM; d++) {
        long double bound = (4 * score_error + (KVAD_CHUNK + 20) * half_ulp) * magnitude[d] / total;
        if (fabsl((long double)o[d] - exact[d] / total) > bound)
            check_fail(c, "attention is %a, exact %La", (double)o[d], exact[d] / total);
    }
}

void check_accuracy(struct check *c, const struct kvad_kernels *kernels, uint64_t step) {
    c->op = "accuracy";
    printf("accuracy of %s at every %" PRIu64 "th float (all with --exhaustive):\n", kernels->isa,
           step);
    size_t index = 0;
#define CHECK_FUNCTION(field, text)                                                                \
    check_case(c, "%s", #field);                                                                   \
    check_function(c, &functions[index++], kernels->field, step);
    KVAD_UNARY_OPS(CHECK_FUNCTION)
#undef CHECK_FUNCTION
    check_linear_accuracy(c, kernels);
    check_layer_norm_accuracy(c, kernels);
    check_half_accuracy(c, kernels);
    check_quant_accuracy(c, kernels);
    check_attention_accuracy(c, kernels);
    check_end(c);
}
