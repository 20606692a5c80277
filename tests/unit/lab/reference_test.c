/* The forward pass in double precision: against what PyTorch computed in float64, and against the
 * tests' own, which reads other arrays. */
#include "lab/reference.h"

#include <math.h>

#include "base/bytes.h"
#include "golden.h"
#include "oracle.h"
#include "test.h"
#include "test_heap.h"

/* Two ways to sum in double precision, relative to the largest value. PyTorch's epsilon of the
 * norms is a double, ours the nearest float: 2.5e-8 of it, which counts where a row is small. */
static const double BOUND = 1e-12, TORCH_BOUND = 1e-9;

static void assert_near(const double *got, const double *wanted, size_t n, double bound,
                        const char *where) {
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(wanted[i]));
    for (size_t i = 0; i < n; i++) {
        if (fabs(got[i] - wanted[i]) <= bound * (1 + largest)) continue;
        print_error("%s: element %zu of %zu is %.17g, wanted %.17g\n", where, i, n, got[i],
                    wanted[i]);
        fail();
    }
}

/* ---------------------------------------------------------------- PyTorch */

static void compare_with_golden(const struct golden *golden, const char *name,
                                const struct kvad_reference *r) {
    size_t n;
    double *wanted = golden_doubles(golden, "logits_f64", &n);
    assert_int_equal(n, r->n_logits);
    assert_near(r->logits, wanted, n, TORCH_BOUND, name);
    free(wanted);
    if (!golden_has(golden, "hidden_f64")) return;
    wanted = golden_doubles(golden, "hidden_f64", &n);
    assert_int_equal(n, r->n_hidden);
    assert_near(r->hidden, wanted, n, TORCH_BOUND, name);
    free(wanted);
    wanted = golden_doubles(golden, "k_f64", &n);
    assert_int_equal(n, r->n_kv);
    assert_near(r->k, wanted, n, TORCH_BOUND, name);
    free(wanted);
    wanted = golden_doubles(golden, "v_f64", NULL);
    assert_near(r->v, wanted, n, TORCH_BOUND, name);
    free(wanted);
}

/* bugs.md GROW-10, LAYOUT-3 */
static void test_the_reference_is_pytorch_in_float64(void **state) {
    (void)state;
    struct test_heap counted = {0};
    struct kvad_allocator hook = test_heap_hook(&counted);
    struct kvad_heap heap;
    kvad_heap_init(&heap, &hook);
    size_t n_models = 0;
    for (size_t i = 0; i < GOLDEN_NAMES; i++) {
        const char *folder = golden_folder(golden_names[i]);
        if (!folder) continue;
        struct golden golden;
        golden_open(&golden, folder);
        struct kvad_model *model = golden_load(&golden);
        size_t n;
        int32_t *tokens = golden_ids(&golden, "tokens", &n);
        struct kvad_reference reference;
        struct kvad_error err;
        assert_ok(kvad_reference_run(model, tokens, n, &heap, NULL, NULL, &reference, &err), &err);
        compare_with_golden(&golden, golden_names[i], &reference);
        kvad_reference_deinit(&reference);
        free(tokens);
        kvad_model_release(&model);
        golden_close(&golden);
        n_models++;
    }
    assert_int_equal(atomic_load(&counted.n_live), 0);
    print_message("%zu models\n", n_models);
    assert_true(n_models >= 5); /* those in the repository */
}

/* ---------------------------------------------------------------- types of weights */

/* What a weight is in each type, by the formulas of docs/numerics.md, for one group of inputs. */
static void round_group(enum kvad_weight_type type, float *w, size_t n) {
    float largest = 0, extreme = 0;
    for (size_t i = 0; i < n; i++) {
        if (fabsf(w[i]) <= largest) continue;
        largest = fabsf(w[i]);
        extreme = w[i];
    }
    float d = type == KVAD_WEIGHTS_Q8 ? largest / 127.0f : extreme / -8.0f;
    float scale = kvad_float_from_f16(kvad_f16_from_float(d)), inverse = d != 0 ? 1.0f / d : 0;
    for (size_t i = 0; i < n; i++)
        switch (type) {
        case KVAD_WEIGHTS_BF16: w[i] = kvad_float_from_bf16(kvad_bf16_from_float(w[i])); break;
        case KVAD_WEIGHTS_F16: w[i] = kvad_float_from_f16(kvad_f16_from_float(w[i])); break;
        case KVAD_WEIGHTS_Q8: w[i] = scale * roundf(w[i] * inverse); break;
        case KVAD_WEIGHTS_Q4: w[i] = scale * (fminf(15, truncf(w[i] * inverse + 8.5f)) - 8); break;
        case KVAD_WEIGHTS_F32:
        case KVAD_WEIGHT_TYPE_COUNT: break;
        }
}

static bool is_linear(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_EMBEDDING || p == KVAD_PARAMETER_QKV_WEIGHT ||
           p == KVAD_PARAMETER_OUT_WEIGHT || p == KVAD_PARAMETER_UP_WEIGHT ||
           p == KVAD_PARAMETER_DOWN_WEIGHT || p == KVAD_PARAMETER_HEAD_WEIGHT;
}

/* The model whose weights are what those of `type` mean. */
static void round_model(struct tiny_model *tiny, enum kvad_weight_type type) {
    for (uint32_t level = 0; level <= tiny->description.n_layers; level++)
        for (int i = 0; i < KVAD_PARAMETER_COUNT; i++) {
            enum kvad_parameter p = (enum kvad_parameter)i;
            /* An embedding that is not the head stays as it is. */
            bool stays = p == KVAD_PARAMETER_EMBEDDING && !tiny->description.head_tied;
            if (!tiny->parameters[level][p] || !is_linear(p) || stays) continue;
            size_t n_rows, k;
            kvad_parameter_shape(&tiny->description, p, &n_rows, &k);
            for (size_t row = 0; row < n_rows; row++)
                for (size_t first = 0; first < k; first += KVAD_GROUP)
                    round_group(type, tiny->parameters[level][p] + row * k + first,
                                k - first < KVAD_GROUP ? k - first : KVAD_GROUP);
        }
}

static void compare_with_oracle(const struct tiny_sizes *sizes, enum kvad_weight_type type) {
    struct tiny_model *tiny = tiny_model_create(sizes);
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.weights = type;
    struct kvad_model *model;
    struct kvad_error err;
    assert_ok(tiny_model_try_build(tiny, &options, &model, &err), &err);
    round_model(tiny, type);
    enum { N = 21 };
    int32_t *tokens = tiny_tokens(sizes->n_vocab, N, 3);
    struct oracle *oracle = oracle_run(tiny, tokens, N);
    struct kvad_heap heap;
    kvad_heap_init(&heap, NULL);
    struct kvad_reference r;
    assert_ok(kvad_reference_run(model, tokens, N, &heap, NULL, NULL, &r, &err), &err);
    const char *name = kvad_weight_type_name(type);
    assert_near(r.hidden, oracle->hidden, r.n_hidden, BOUND, name);
    assert_near(r.k, oracle->k, r.n_kv, BOUND, name);
    assert_near(r.v, oracle->v, r.n_kv, BOUND, name);
    assert_near(r.logits, oracle->logits, r.n_logits, BOUND, name);
    kvad_reference_deinit(&r);
    oracle_destroy(oracle);
    free(tokens);
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
}

static void test_every_activation_is_that_of_the_tests(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    for (int i = KVAD_ACTIVATION_AUTO + 1; i < KVAD_ACTIVATION_COUNT; i++) {
        sizes.activation = (enum kvad_activation)i;
        compare_with_oracle(&sizes, KVAD_WEIGHTS_F32);
    }
}

static void test_weights_of_every_type_are_what_they_mean(void **state) {
    (void)state;
    for (int type = 0; type < KVAD_WEIGHT_TYPE_COUNT; type++) {
        compare_with_oracle(&tiny_odd, (enum kvad_weight_type)type);
        compare_with_oracle(&tiny_wide, (enum kvad_weight_type)type);
        compare_with_oracle(&tiny_gqa, (enum kvad_weight_type)type);
    }
}

/* ---------------------------------------------------------------- refusals */

static bool stop(void *user) {
    int *left = user;
    return (*left)-- > 0;
}

static void test_lengths_memory_and_interrupts_are_refused_without_a_trace(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct kvad_model *model = tiny_model_build(tiny);
    int32_t *tokens = tiny_tokens(tiny_odd.n_vocab, tiny_odd.n_ctx + 1, 1);
    struct test_heap counted = {0};
    struct kvad_allocator hook = test_heap_hook(&counted);
    struct kvad_heap heap;
    kvad_heap_init(&heap, &hook);
    struct kvad_reference r;
    struct kvad_error err;
    const size_t lengths[] = {0, tiny_odd.n_ctx + 1};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kvad_reference_run(model, tokens, lengths[i], &heap, NULL, NULL, &r, &err),
                         KVAD_ERR_ARGUMENT);
        kvad_reference_deinit(&r);
    }
    int left = 1;
    assert_int_equal(kvad_reference_run(model, tokens, 5, &heap, stop, &left, &r, &err),
                     KVAD_ERR_CANCELLED);
    kvad_reference_deinit(&r);
    enum kvad_status status = KVAD_ERR_NO_MEMORY;
    size_t n_failed = 0;
    for (size_t i = 1; status != KVAD_OK; i++) {
        test_heap_fail(&counted, i, i);
        status = kvad_reference_run(model, tokens, 5, &heap, NULL, NULL, &r, &err);
        if (status != KVAD_OK) assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        n_failed += status != KVAD_OK;
        kvad_reference_deinit(&r);
        assert_int_equal(atomic_load(&counted.n_live), 0);
    }
    assert_true(n_failed > 5);
    free(tokens);
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reference_is_pytorch_in_float64),
        cmocka_unit_test(test_every_activation_is_that_of_the_tests),
        cmocka_unit_test(test_weights_of_every_type_are_what_they_mean),
        cmocka_unit_test(test_lengths_memory_and_interrupts_are_refused_without_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
