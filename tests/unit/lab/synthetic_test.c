#include "lab/synthetic.h"

#include "model/build.h"
#include "test.h"

/* As published for the four sizes, a tied head counted once. */
static void test_sizes_have_the_published_numbers_of_parameters(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t n;
    } sizes[] = {{"gpt2", 124439808},
                 {"gpt2-medium", 354823168},
                 {"gpt2-large", 774030080},
                 {"gpt2-xl", 1557611200}};
    bool present[KVAD_PARAMETER_COUNT];
    for (size_t p = 0; p < KVAD_PARAMETER_COUNT; p++)
        present[p] = p != KVAD_PARAMETER_HEAD_WEIGHT && p != KVAD_PARAMETER_HEAD_BIAS;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kvad_model model = {0};
        struct kvad_error err;
        assert_string_equal(kvad_synthetic_name((unsigned)i), sizes[i].name);
        assert_ok(kvad_synthetic_describe(sizes[i].name, &model.description, &err), &err);
        assert_ok(kvad_model_measure(&model.description, present, &model, &err), &err);
        assert_true(model.n_parameters == sizes[i].n);
    }
}

static struct kvad_model *build(uint64_t seed) {
    struct kvad_model *model;
    struct kvad_error err;
    assert_ok(kvad_synthetic_build("tiny", seed, NULL, &model, &err), &err);
    return model;
}

static void test_weights_are_a_function_of_the_seed(void **state) {
    (void)state;
    struct kvad_model *a = build(1), *b = build(1), *c = build(2);
    assert_int_equal(a->area_bytes, b->area_bytes);
    assert_memory_equal(a->head.panels, b->head.panels, a->head.panel_bytes);
    assert_memory_equal(a->layers[1].up.panels, b->layers[1].up.panels,
                        a->layers[1].up.panel_bytes);
    assert_memory_not_equal(a->head.panels, c->head.panels, a->head.panel_bytes);
    kvad_model_release(&a);
    kvad_model_release(&b);
    kvad_model_release(&c);
}

static void test_weights_have_the_deviation_of_gpt2(void **state) {
    (void)state;
    struct kvad_model *model = build(1);
    const float *w = (const float *)(const void *)model->layers[0].up.panels;
    size_t n = model->layers[0].up.k * KVAD_PANEL;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
    }
    /* 1024 numbers: five standard errors of the mean and of the mean square. */
    assert_true(sum / (double)n > -0.0032 && sum / (double)n < 0.0032);
    assert_true(squares / (double)n > 0.00034 && squares / (double)n < 0.00046);
    assert_true(model->layers[0].norm1.weight[0] > 0.9f);
    kvad_model_release(&model);
}

static void test_unknown_size_is_refused_by_name(void **state) {
    (void)state;
    struct kvad_model *model;
    struct kvad_error err;
    assert_fails(kvad_synthetic_build("gpt5", 1, NULL, &model, &err), KVAD_ERR_NOT_FOUND, &err,
                 "gpt5");
    assert_null(kvad_synthetic_name(6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_have_the_published_numbers_of_parameters),
        cmocka_unit_test(test_weights_are_a_function_of_the_seed),
        cmocka_unit_test(test_weights_have_the_deviation_of_gpt2),
        cmocka_unit_test(test_unknown_size_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
