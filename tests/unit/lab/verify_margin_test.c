/* How far real models stay below the bound of the float64 check: what docs/verify.md says of it. */
#include <math.h>

#include "golden.h"
#include "lab/verify.h"
#include "test.h"

/* The bound is at least so many times what a model needs: of the RMS error, of the largest one. */
static const double RMS_MARGIN = 2.4, MAX_MARGIN = 7.5;

struct margin {
    double rms, max;
};

static void take(struct margin *least, const struct kvad_verify_error *bound,
                 const struct kvad_verify_error *error) {
    least->rms = fmin(least->rms, bound->rms / error->rms);
    least->max = fmin(least->max, bound->max / error->max);
}

static struct margin margin_of(struct kvad_model *model, enum kvad_kv_type kv, uint64_t seed) {
    struct kvad_verify_options options = {.seed = seed, .n_threads = 1, .kv = kv};
    struct kvad_verify *verify;
    struct kvad_verify_result result;
    struct kvad_error err;
    struct margin least = {INFINITY, INFINITY};
    assert_ok(kvad_verify_open(model, &options, &verify, &err), &err);
    assert_ok(kvad_verify_run(verify, kvad_verify_find("reference"), &result, &err), &err);
    assert_int_equal(result.verdict, KVAD_VERDICT_PASS);
    for (size_t i = 0; i < result.n_layers; i++)
        take(&least, &result.bound, &result.layers[i]);
    take(&least, &result.bound, &result.logits);
    kvad_verify_result_deinit(&result);
    kvad_verify_close(&verify);
    return least;
}

/* The shipped model is a hundred times larger than the others: what comes nearest to its bounds. */
static bool is_left_out(const char *name, enum kvad_weight_type weights, enum kvad_kv_type kv,
                        uint64_t seed) {
    if (strcmp(name, "shakespeare-char") != 0) return false;
    bool is_near = (weights == KVAD_WEIGHTS_F32 && kv == KVAD_KV_F32) ||
                   (weights == KVAD_WEIGHTS_BF16 && kv == KVAD_KV_F16);
    return !is_near || seed > 1;
}

static void check_model(const char *name, const struct golden *golden, struct margin *least) {
    for (int w = 0; w < KVAD_WEIGHT_TYPE_COUNT; w++) {
        struct kvad_model *model = golden_load_as(golden, (enum kvad_weight_type)w);
        for (int kv = 0; kv < KVAD_KV_TYPE_COUNT; kv++)
            for (uint64_t seed = 1; seed <= 2; seed++) {
                if (is_left_out(name, (enum kvad_weight_type)w, (enum kvad_kv_type)kv, seed))
                    continue;
                struct margin margin = margin_of(model, (enum kvad_kv_type)kv, seed);
                if (margin.rms < RMS_MARGIN || margin.max < MAX_MARGIN)
                    fail_msg("%s, weights %s, cache %s, seed %u: %.3g and %.3g times", name,
                             kvad_weight_type_name((enum kvad_weight_type)w),
                             kvad_kv_type_name((enum kvad_kv_type)kv), (unsigned)seed, margin.rms,
                             margin.max);
                least->rms = fmin(least->rms, margin.rms);
                least->max = fmin(least->max, margin.max);
            }
        kvad_model_release(&model);
    }
}

static void test_the_bound_is_far_from_what_any_model_needs(void **state) {
    (void)state;
    struct margin least = {INFINITY, INFINITY};
    size_t n_models = 0;
    for (size_t i = 0; i < GOLDEN_NAMES; i++) {
        const char *folder = golden_folder(golden_names[i]);
        if (!folder) continue;
        struct golden golden;
        golden_open(&golden, folder);
        check_model(golden_names[i], &golden, &least);
        golden_close(&golden);
        n_models++;
    }
    print_message("%zu models: %.3g and %.3g times\n", n_models, least.rms, least.max);
    assert_true(n_models >= 5); /* those in the repository */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bound_is_far_from_what_any_model_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
