/* Rules of the kernels that a comparison of levels cannot show: what every level must do. */
#include "test.h"

#include <math.h>

#include "kernels/kernels.h"

enum { HEAD_DIM = 20, N_TOKENS = 40, N_TILES = (N_TOKENS + 15) / 16 };

/* Run `body` with `kernels` of each level of this CPU. */
#define FOR_EACH_LEVEL(kernels)                                                                    \
    for (int level_ = 0; level_ < KVAD_CPU_LEVEL_COUNT; level_++)                                  \
        if (kvad_cpu_level_supported((enum kvad_cpu_level)level_) &&                               \
            (kvad_kernels_pick(&(kernels), (enum kvad_cpu_level)level_), true))

static float value_of(size_t i) {
    return (float)((i * 2654435761u >> 7) % 2001) / 1000.0f - 1.0f;
}

static void test_level_names_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < KVAD_CPU_LEVEL_COUNT; i++) {
        enum kvad_cpu_level level = (enum kvad_cpu_level)i, found = KVAD_CPU_LEVEL_COUNT;
        assert_true(kvad_cpu_level_from_name(kvad_cpu_level_name(level), &found));
        assert_int_equal(found, level);
    }
    enum kvad_cpu_level untouched = KVAD_CPU_AVX512;
    assert_false(kvad_cpu_level_from_name("avx", &untouched));
    assert_false(kvad_cpu_level_from_name("", &untouched));
    assert_int_equal(untouched, KVAD_CPU_AVX512);
    assert_string_equal(kvad_cpu_level_name(KVAD_CPU_LEVEL_COUNT), "unknown");
}

static void test_baseline_is_always_supported_and_best_is_supported(void **state) {
    (void)state;
    assert_true(kvad_cpu_level_supported(KVAD_CPU_BASELINE));
    assert_true(kvad_cpu_level_supported(kvad_cpu_level_best()));
    assert_false(kvad_cpu_level_supported(KVAD_CPU_LEVEL_COUNT));
}

static void test_pick_names_the_level_and_fills_every_field(void **state) {
    (void)state;
    struct kvad_kernels kernels = {0};
    FOR_EACH_LEVEL(kernels) {
        assert_string_equal(kernels.isa, kvad_cpu_level_name((enum kvad_cpu_level)level_));
        assert_non_null(kernels.linear_f32);
        assert_non_null(kernels.linear_bf16);
        assert_non_null(kernels.linear_f16);
        assert_non_null(kernels.linear_q8);
        assert_non_null(kernels.linear_q4);
        assert_non_null(kernels.quantise_row);
        assert_non_null(kernels.layer_norm);
        assert_non_null(kernels.add);
        assert_non_null(kernels.scale);
        assert_non_null(kernels.attention_chunk);
        assert_non_null(kernels.attention_merge);
        assert_non_null(kernels.divide);
#define ASSERT_FIELD(name, text) assert_non_null(kernels.name);
        KVAD_UNARY_OPS(ASSERT_FIELD)
#undef ASSERT_FIELD
    }
}

static void test_pack_puts_outputs_side_by_side_and_pads_with_zero(void **state) {
    (void)state;
    enum { N = 19, K = 5, N_PANELS = 2 };
    float rows[N * K], columns[K * N], panels[N_PANELS * K * 16], again[N_PANELS * K * 16];
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++)
            rows[n * K + k] = columns[k * N + n] = (float)(1 + n * 100 + k);
    kvad_pack_panels_f32(panels, rows, N, K, K, 1, 0, N_PANELS);
    for (size_t n = 0; n < N_PANELS * 16; n++)
        for (size_t k = 0; k < K; k++) {
            float expected = n < N ? (float)(1 + n * 100 + k) : 0.0f;
            assert_float_equal(panels[(n / 16 * K + k) * 16 + n % 16], expected, 0.0f);
        }
    /* The transposed file layout, and one panel at a time. */
    kvad_pack_panels_f32(again, columns, N, K, 1, N, 1, 2);
    kvad_pack_panels_f32(again, columns, N, K, 1, N, 0, 1);
    assert_memory_equal(panels, again, sizeof panels);
}

/* bugs.md LOAD-36 */
static void test_gelu_is_finite_and_right_at_any_size(void **state) {
    (void)state;
    static const float x[] = {-1e30f, -1e4f, -40.0f, -11.0f, -1e-8f, -0.0f,
                              0.0f,   11.0f, 40.0f,  1e4f,   1e30f};
    enum { N = sizeof x / sizeof *x };
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        float tanh_form[N], erf_form[N];
        kernels.gelu_tanh(tanh_form, x, N);
        kernels.gelu_erf(erf_form, x, N);
        for (size_t i = 0; i < N; i++) {
            double u = sqrt(2.0 / acos(-1.0)) * ((double)x[i] + 0.044715 * pow((double)x[i], 3));
            double expected = 0.5 * (double)x[i] * (1.0 + tanh(u));
            assert_true(isfinite(tanh_form[i]) && isfinite(erf_form[i]));
            assert_true(fabs((double)tanh_form[i] - expected) <= 1e-6 * fabs(expected) + 1e-12);
            expected = 0.5 * (double)x[i] * erfc(-(double)x[i] / sqrt(2.0));
            assert_true(fabs((double)erf_form[i] - expected) <= 1e-6 * fabs(expected) + 1e-12);
        }
    }
}

static void test_functions_at_the_edges_of_the_floats(void **state) {
    (void)state;
    float x[] = {NAN, INFINITY, -INFINITY, -0.0f, -87.4f, 88.8f, 0x1p-149f};
    enum { N = sizeof x / sizeof *x };
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        float y[N];
        kernels.exp(y, x, N);
        const float exps[] = {NAN, INFINITY, 0.0f, 1.0f, 0.0f, INFINITY, 1.0f};
        assert_true(isnan(y[0]));
        assert_memory_equal(y + 1, exps + 1, sizeof y - sizeof *y);
        kernels.tanh(y, x, N);
        const float tanhs[] = {NAN, 1.0f, -1.0f, -0.0f, -1.0f, 1.0f, 0x1p-149f};
        assert_true(isnan(y[0]));
        assert_memory_equal(y + 1, tanhs + 1, sizeof y - sizeof *y);
        kernels.relu(y, x, N);
        const float relus[] = {NAN, INFINITY, 0.0f, -0.0f, 0.0f, 88.8f, 0x1p-149f};
        assert_true(isnan(y[0]));
        assert_memory_equal(y + 1, relus + 1, sizeof y - sizeof *y);
#define ASSERT_GATED(name)                                                                         \
    kernels.name(y, x, N);                                                                         \
    assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == 0.0f && signbit(y[2]));                 \
    assert_true(y[3] == 0.0f && signbit(y[3]) && y[5] == 88.8f)
        ASSERT_GATED(gelu_tanh);
        ASSERT_GATED(gelu_erf);
        ASSERT_GATED(silu);
        ASSERT_GATED(quick_gelu);
#undef ASSERT_GATED
    }
}

/* Keys, values and queries of a small head, and the results of one call. */
struct attention {
    float q[4 * HEAD_DIM], k[N_TILES * 16 * HEAD_DIM], v[N_TOKENS * HEAD_DIM];
    float o[4 * HEAD_DIM], m[4], l[4];
};

static void attention_fill(struct attention *a) {
    for (size_t i = 0; i < sizeof a->q / 4; i++)
        a->q[i] = value_of(i);
    for (size_t i = 0; i < sizeof a->k / 4; i++)
        a->k[i] = value_of(i + 1000);
    for (size_t i = 0; i < sizeof a->v / 4; i++)
        a->v[i] = value_of(i + 9000);
    for (size_t i = 0; i < sizeof a->o / 4; i++)
        a->o[i] = 7.0f;
    for (size_t i = 0; i < 4; i++)
        a->m[i] = a->l[i] = 7.0f;
}

static void attention_run(struct attention *a, const struct kvad_kernels *kernels,
                          const uint32_t *visible, size_t first_row, size_t n_rows) {
    struct kvad_kv_span span = {.k = a->k, .v = a->v, .n_tokens = N_TOKENS};
    struct kvad_attention_args args = {.q = a->q + first_row * HEAD_DIM,
                                       .q_stride = HEAD_DIM,
                                       .n_rows = n_rows,
                                       .head_dim = HEAD_DIM,
                                       .spans = &span,
                                       .n_spans = 1,
                                       .visible = visible + first_row,
                                       .o = a->o + first_row * HEAD_DIM,
                                       .o_stride = HEAD_DIM,
                                       .m = a->m + first_row,
                                       .l = a->l + first_row};
    kernels->attention_chunk(&args);
}

static void assert_same_results(const struct attention *a, const struct attention *b) {
    for (size_t i = 0; i < 4 * HEAD_DIM; i++)
        assert_true(isfinite(a->o[i]));
    assert_memory_equal(a->o, b->o, sizeof a->o);
    assert_memory_equal(a->m, b->m, sizeof a->m);
    assert_memory_equal(a->l, b->l, sizeof a->l);
}

static void poison_from(struct attention *a, size_t first, float k_value, float v_value) {
    for (size_t t = first; t < N_TILES * 16; t++)
        for (size_t d = 0; d < HEAD_DIM; d++) {
            a->k[(t / 16 * HEAD_DIM + d) * 16 + t % 16] = k_value;
            if (t < N_TOKENS) a->v[t * HEAD_DIM + d] = v_value;
        }
}

/* bugs.md MASK-5, MASK-7, MASK-8 */
static void test_attention_uses_nothing_beyond_the_visible_tokens(void **state) {
    (void)state;
    static const float poisons[] = {NAN, INFINITY, -INFINITY, 1e30f};
    static const uint32_t visible[4] = {1, 5, 16, 21};
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        for (size_t i = 0; i < sizeof poisons / sizeof *poisons; i++)
            for (int where = 1; where <= 3; where++) {
                struct attention clean, poisoned;
                attention_fill(&clean);
                attention_fill(&poisoned);
                poison_from(&poisoned, 21, where & 1 ? poisons[i] : 0.5f,
                            where & 2 ? poisons[i] : 0.5f);
                attention_run(&clean, &kernels, visible, 0, 4);
                attention_run(&poisoned, &kernels, visible, 0, 4);
                assert_same_results(&clean, &poisoned);
            }
    }
}

static void test_attention_of_a_row_does_not_see_what_another_row_sees(void **state) {
    (void)state;
    static const uint32_t visible[4] = {40, 5, 40, 39};
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        struct attention clean, poisoned;
        attention_fill(&clean);
        attention_fill(&poisoned);
        poison_from(&poisoned, 5, NAN, NAN);
        attention_run(&clean, &kernels, visible, 0, 4);
        attention_run(&poisoned, &kernels, visible, 0, 4);
        assert_memory_equal(clean.o + HEAD_DIM, poisoned.o + HEAD_DIM, HEAD_DIM * sizeof(float));
        assert_memory_equal(&clean.m[1], &poisoned.m[1], sizeof(float));
        assert_memory_equal(&clean.l[1], &poisoned.l[1], sizeof(float));
    }
}

/* bugs.md MASK-12, MASK-15 */
static void test_attention_leaves_rows_that_see_nothing_untouched(void **state) {
    (void)state;
    static const uint32_t masks[][4] = {{0, 40, 7, 1}, {40, 0, 0, 1}, {3, 17, 40, 0}, {0, 0, 0, 0}};
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
            struct attention all, alone;
            attention_fill(&all);
            attention_fill(&alone);
            attention_run(&all, &kernels, masks[i], 0, 4);
            for (size_t row = 0; row < 4; row++)
                if (masks[i][row]) attention_run(&alone, &kernels, masks[i], row, 1);
            assert_same_results(&all, &alone);
        }
    }
}

/* bugs.md DET-3 */
static void test_row_of_linear_does_not_depend_on_the_rows_beside_it(void **state) {
    (void)state;
    enum { K = 150, N_ROWS = 33, N = 48 };
    static float x[N_ROWS * K], w[N * K], y[N_ROWS * N], alone[N];
    for (size_t i = 0; i < N_ROWS * K; i++)
        x[i] = value_of(i);
    for (size_t i = 0; i < N * K; i++)
        w[i] = value_of(i + 777);
    struct kvad_kernels kernels;
    FOR_EACH_LEVEL(kernels) {
        for (size_t n_rows = 1; n_rows <= N_ROWS; n_rows++) {
            struct kvad_linear_f32_args args = {.y = y,
                                                .y_stride = N,
                                                .x = x,
                                                .x_stride = K,
                                                .n_rows = n_rows,
                                                .k = K,
                                                .w = w,
                                                .n_panels = N / 16};
            kernels.linear_f32(&args);
            args.y = alone, args.n_rows = 1, args.x = x + (n_rows - 1) * K;
            kernels.linear_f32(&args);
            assert_memory_equal(alone, y + (n_rows - 1) * N, sizeof alone);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_names_round_trip),
        cmocka_unit_test(test_baseline_is_always_supported_and_best_is_supported),
        cmocka_unit_test(test_pick_names_the_level_and_fills_every_field),
        cmocka_unit_test(test_pack_puts_outputs_side_by_side_and_pads_with_zero),
        cmocka_unit_test(test_gelu_is_finite_and_right_at_any_size),
        cmocka_unit_test(test_functions_at_the_edges_of_the_floats),
        cmocka_unit_test(test_attention_uses_nothing_beyond_the_visible_tokens),
        cmocka_unit_test(test_attention_of_a_row_does_not_see_what_another_row_sees),
        cmocka_unit_test(test_attention_leaves_rows_that_see_nothing_untouched),
        cmocka_unit_test(test_row_of_linear_does_not_depend_on_the_rows_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
