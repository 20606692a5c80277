/* kvad_model_build(): layout, counts, progress, failure. */
#include "failing_heap.h"
#include "support.h"
#include "test.h"

static struct kvad_error err;

/* 6 query heads on 2 kv heads, a head narrower than d_model / n_heads, nothing a multiple of 16. */
static const struct kvad_description grouped = {.family = "test",
                                                .n_layers = 2,
                                                .n_heads = 6,
                                                .n_kv_heads = 2,
                                                .head_dim = 5,
                                                .d_model = 22,
                                                .d_ff = 37,
                                                .n_vocab = 45,
                                                .n_ctx = 19,
                                                .activation = KVAD_ACTIVATION_RELU,
                                                .norm_eps = 1e-5f,
                                                .eos = -1};

static enum kvad_status read_elements(void *user, enum kvad_parameter parameter, uint32_t layer,
                                      size_t row, size_t first, size_t n, float *out,
                                      struct kvad_error *e) {
    const struct kvad_description *d = user;
    size_t n_rows, n_columns;
    (void)e;
    kvad_parameter_shape(d, parameter, &n_rows, &n_columns);
    assert_true(row < n_rows && first + n <= n_columns);
    for (size_t i = 0; i < n; i++)
        out[i] = element(parameter, layer, row, first + i);
    return KVAD_OK;
}

static struct kvad_model_source source_of(const struct kvad_description *d) {
    struct kvad_model_source source = {.read = read_elements, .user = (void *)(uintptr_t)d};
    for (size_t p = 0; p < KVAD_PARAMETER_COUNT; p++)
        source.present[p] = true;
    return source;
}

static void check_panels(const struct kvad_linear_weights *linear, enum kvad_parameter parameter,
                         uint32_t layer, size_t n, size_t k) {
    assert_int_equal(linear->n, n);
    assert_int_equal(linear->k, k);
    float *row = calloc(k, sizeof *row);
    for (size_t r = 0; r < n; r++) {
        kvad_panel_row(linear->type, linear->panels + r / 16 * linear->panel_bytes, r % 16, k, row);
        for (size_t i = 0; i < k; i++)
            assert_true(row[i] == element(parameter, layer, r, i));
    }
    free(row);
}

static void test_grouped_kv_heads_have_rows_of_their_own_number(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    struct kvad_model_source source = source_of(&grouped);
    assert_ok(kvad_model_build(&grouped, &source, NULL, &model, &err), &err);
    for (uint32_t l = 0; l < 2; l++) {
        check_panels(&model->layers[l].qkv, KVAD_PARAMETER_QKV_WEIGHT, l, 50, 22);
        check_panels(&model->layers[l].out, KVAD_PARAMETER_OUT_WEIGHT, l, 22, 30);
        check_panels(&model->layers[l].up, KVAD_PARAMETER_UP_WEIGHT, l, 37, 22);
        check_panels(&model->layers[l].down, KVAD_PARAMETER_DOWN_WEIGHT, l, 22, 37);
    }
    check_panels(&model->head, KVAD_PARAMETER_HEAD_WEIGHT, 0, 45, 22);
    struct kvad_model_info info;
    kvad_model_get_info(model, &info);
    assert_int_equal(info.kv_bytes_per_token, 2 * 2 * 5 * 2 * 4);
    assert_int_equal(info.n_kv_heads, 2);
    assert_int_equal(info.n_tokens, 45);
    assert_true(info.has_bias);
    kvad_model_release(&model);
}

static void test_a_measure_equals_what_a_build_takes(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++)
        for (int bias = 0; bias < 2; bias++) {
            struct kvad_description d = grouped;
            d.head_tied = tied;
            struct kvad_model_source source = source_of(&d);
            if (!bias) no_biases(source.present);
            struct kvad_model measured = {.description = d}, *model = NULL;
            assert_ok(kvad_model_measure(&d, source.present, &measured, &err), &err);
            assert_ok(kvad_model_build(&d, &source, NULL, &model, &err), &err);
            assert_int_equal(measured.area_bytes, model->area_bytes);
            assert_int_equal(measured.n_parameters, model->n_parameters);
            assert_true(measured.has_bias == bias && model->has_bias == bias);
            /* Counted by hand: ends, then 2 layers. */
            size_t n = 19 * 22 + 22 + 45 * 22 * (tied ? 1 : 2) +
                       2 * (2 * 22 + 50 * 22 + 22 * 30 + 37 * 22 + 22 * 37);
            if (bias) n += 22 + 45 + 2 * (2 * 22 + 50 + 22 + 37 + 22);
            assert_int_equal(model->n_parameters, n);
            assert_true(model->area_bytes >= n * sizeof(float));
            kvad_model_release(&model);
        }
}

static void test_every_array_lies_at_a_cache_line(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    struct kvad_model_source source = source_of(&grouped);
    assert_ok(kvad_model_build(&grouped, &source, NULL, &model, &err), &err);
    const void *arrays[] = {model->embedding,
                            model->positions,
                            model->final_norm.weight,
                            model->final_norm.bias,
                            model->head.panels,
                            model->head.bias,
                            model->layers[1].qkv.panels,
                            model->layers[1].qkv.bias,
                            model->layers[1].down.panels,
                            model->layers[1].norm2.bias};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        assert_int_equal((uintptr_t)arrays[i] % KVAD_ALIGNMENT, 0);
        assert_true((uintptr_t)arrays[i] - (uintptr_t)model->area < model->area_bytes);
    }
    kvad_model_release(&model);
}

static void test_arrays_build_the_same_model(void **state) {
    (void)state;
    struct kvad_model *model = NULL, *other = NULL;
    struct kvad_model_source source = source_of(&grouped);
    assert_ok(kvad_model_build(&grouped, &source, NULL, &model, &err), &err);
    const float *arrays[3][KVAD_PARAMETER_COUNT] = {{NULL}};
    for (uint32_t set = 0; set < 3; set++)
        for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
            size_t n_rows, n_columns;
            if (kvad_parameter_is_per_layer(p) != (set > 0)) continue;
            kvad_parameter_shape(&grouped, p, &n_rows, &n_columns);
            float *values = calloc(n_rows * n_columns, sizeof *values);
            for (size_t r = 0; r < n_rows; r++)
                read_elements((void *)(uintptr_t)&grouped, p, set ? set - 1 : 0, r, 0, n_columns,
                              values + r * n_columns, NULL);
            arrays[set][p] = values;
        }
    const float *const(*const_arrays)[KVAD_PARAMETER_COUNT] =
        (const float *const(*)[KVAD_PARAMETER_COUNT])arrays;
    assert_ok(kvad_model_build_arrays(&grouped, const_arrays, NULL, &other, &err), &err);
    assert_int_equal(model->area_bytes, other->area_bytes);
    for (uint32_t l = 0; l < 2; l++)
        assert_memory_equal(model->layers[l].qkv.panels, other->layers[l].qkv.panels,
                            4 * model->layers[l].qkv.panel_bytes);
    assert_memory_equal(model->head.bias, other->head.bias, 45 * sizeof(float));
    kvad_model_release(&other);
    /* A weight that is missing is refused by name. */
    free((void *)(uintptr_t)arrays[2][KVAD_PARAMETER_UP_WEIGHT]);
    arrays[2][KVAD_PARAMETER_UP_WEIGHT] = NULL;
    assert_fails(kvad_model_build_arrays(&grouped, const_arrays, NULL, &other, &err),
                 KVAD_ERR_ARGUMENT, &err, "mlp up weight of layer 1 is missing");
    for (size_t i = 0; i < 3 * KVAD_PARAMETER_COUNT; i++)
        free((void *)(uintptr_t)arrays[i / KVAD_PARAMETER_COUNT][i % KVAD_PARAMETER_COUNT]);
    kvad_model_release(&model);
}

static void assert_refused(const struct kvad_description *d, const char *wanted) {
    struct kvad_model *model = NULL;
    struct kvad_model_source source = source_of(d);
    enum kvad_status status = kvad_model_build(d, &source, NULL, &model, &err);
    assert_true(status == KVAD_ERR_FORMAT || status == KVAD_ERR_UNSUPPORTED);
    if (!strstr(err.text, wanted)) print_error("text is: %s\n", err.text);
    assert_non_null(strstr(err.text, wanted));
    assert_null(model);
}

static void test_senseless_descriptions_are_refused_by_field(void **state) {
    (void)state;
    struct kvad_description d = grouped;
#define REFUSE(field, value, wanted)                                                               \
    do {                                                                                           \
        d = grouped;                                                                               \
        d.field = value;                                                                           \
        assert_refused(&d, wanted);                                                                \
    } while (0)
    static const uint32_t sizes[] = {0, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        REFUSE(n_layers, sizes[i], "number of layers");
        REFUSE(n_heads, sizes[i], "number of heads");
        REFUSE(n_kv_heads, sizes[i], "number of kv heads");
        REFUSE(head_dim, sizes[i], "size of a head");
        REFUSE(d_model, sizes[i], "model width");
        REFUSE(d_ff, sizes[i], "mlp width");
        REFUSE(n_vocab, sizes[i], "vocabulary size");
        REFUSE(n_ctx, sizes[i], "context length");
    }
    REFUSE(n_kv_heads, 4, "4 kv heads do not divide 6 heads");
    REFUSE(n_kv_heads, 12, "12 kv heads do not divide 6 heads");
    REFUSE(activation, KVAD_ACTIVATION_AUTO, "activation");
    REFUSE(activation, KVAD_ACTIVATION_COUNT, "activation");
    REFUSE(norm_eps, -1, "epsilon");
    REFUSE(norm_eps, (float)strtod("nan", NULL), "epsilon");
    REFUSE(eos, -2, "end id");
    REFUSE(eos, 45, "end id");
    d = grouped;
    d.n_heads = d.n_kv_heads = d.head_dim = 1u << 16;
    assert_refused(&d, "wider");
}

struct reports {
    uint64_t n, last, total, cancel_at;
};

static bool report(void *user, uint64_t done, uint64_t total) {
    struct reports *r = user;
    assert_true(done >= r->last && done <= total);
    *r = (struct reports){r->n + 1, done, total, r->cancel_at};
    return r->cancel_at == 0 || r->n < r->cancel_at;
}

static void test_progress_rises_to_the_total_and_can_cancel(void **state) {
    (void)state;
    struct kvad_description large = grouped;
    large.n_vocab = 100000; /* 8.8 MB, twice: the head is not tied */
    struct kvad_model_source source = source_of(&large);
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    struct reports reports = {0};
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.allocator = heap.heap.hook;
    options.progress = (struct kvad_progress){report, &reports};
    options.n_threads = 1; /* the caller of many reports less often */
    struct kvad_model *model = NULL;
    assert_ok(kvad_model_build(&large, &source, &options, &model, &err), &err);
    assert_true(reports.n >= 4);
    assert_int_equal(reports.last, reports.total);
    assert_int_equal(reports.total, model->n_parameters * sizeof(float));
    kvad_model_release(&model);
    reports = (struct reports){.cancel_at = 2};
    assert_fails(kvad_model_build(&large, &source, &options, &model, &err), KVAD_ERR_CANCELLED,
                 &err, "cancelled");
    assert_null(model);
    assert_int_equal(heap.n_live, 0);
}

static void test_a_wrong_number_of_workers_is_refused(void **state) {
    (void)state;
    struct kvad_model_source source = source_of(&grouped);
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    kvad_model_options_init(&options);
    options.n_threads = 5000;
    assert_fails(kvad_model_build(&grouped, &source, &options, &model, &err), KVAD_ERR_ARGUMENT,
                 &err, "threads: 5000 is more than 4096");
    assert_null(model);
}

static void test_failing_allocations_leave_nothing_behind(void **state) {
    (void)state;
    struct kvad_model_source source = source_of(&grouped);
    for (size_t k = 1;; k++) {
        struct failing_heap heap;
        failing_heap_init(&heap, k);
        struct kvad_model_options options;
        kvad_model_options_init(&options);
        options.allocator = heap.heap.hook;
        options.n_threads = 3;
        struct kvad_model *model = NULL;
        enum kvad_status status = kvad_model_build(&grouped, &source, &options, &model, &err);
        if (heap.n_calls < k) {
            assert_ok(status, &err);
            kvad_model_release(&model);
            assert_int_equal(heap.n_live, 0);
            break;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_null(model);
        assert_int_equal(heap.n_live, 0);
    }
}

static void test_a_model_lives_until_its_last_reference(void **state) {
    (void)state;
    struct kvad_model_source source = source_of(&grouped);
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.allocator = heap.heap.hook;
    struct kvad_model *model = NULL, *none = NULL;
    assert_ok(kvad_model_build(&grouped, &source, &options, &model, &err), &err);
    struct kvad_model *second = kvad_model_retain(model);
    assert_ptr_equal(second, model);
    kvad_model_release(&model);
    assert_null(model);
    assert_true(heap.n_live > 0);
    assert_true(second->positions[0] == element(KVAD_PARAMETER_POSITIONS, 0, 0, 0));
    kvad_model_release(&second);
    assert_int_equal(heap.n_live, 0);
    kvad_model_release(&none);
    kvad_model_release(NULL);
    assert_null(kvad_model_retain(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped_kv_heads_have_rows_of_their_own_number),
        cmocka_unit_test(test_a_measure_equals_what_a_build_takes),
        cmocka_unit_test(test_every_array_lies_at_a_cache_line),
        cmocka_unit_test(test_arrays_build_the_same_model),
        cmocka_unit_test(test_senseless_descriptions_are_refused_by_field),
        cmocka_unit_test(test_progress_rises_to_the_total_and_can_cancel),
        cmocka_unit_test(test_a_wrong_number_of_workers_is_refused),
        cmocka_unit_test(test_failing_allocations_leave_nothing_behind),
        cmocka_unit_test(test_a_model_lives_until_its_last_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
