/* Models that lie in the CPU's caches: read ceilings of the controls go over as much memory as a
 * step reads. */
#include "lab/experiment_internal.h"
#include "lab_host.h"

static struct kvad_bench_options bench_options(struct host *host) {
    static const uint32_t weights[] = {KVAD_WEIGHTS_F32}, kv[] = {KVAD_KV_F32};
    static const uint32_t policies[] = {KVAD_CACHE_PAGED}, contexts[] = {20};
    return (struct kvad_bench_options){.open_model = open_model,
                                       .user = host,
                                       .weights = {weights, 1, false},
                                       .kv = {kv, 1, false},
                                       .policies = {policies, 1, false},
                                       .contexts = {contexts, 1, false},
                                       .n_rounds = 1,
                                       .sample_seconds = 1e-6,
                                       .ceiling_seconds = 1e-6,
                                       .n_threads = 2};
}

static uint64_t ceiling_bytes(size_t asked, uint64_t *weight_bytes) {
    struct host host = {0};
    struct kvad_bench_options options = bench_options(&host);
    struct kvad_bench_result result;
    struct kvad_error err;
    options.ceiling_bytes = asked;
    assert_ok(kvad_bench_run(&options, &result, &err), &err);
    assert_true(result.cases[0].read_rate > 0);
    uint64_t bytes = result.models[0].ceiling_bytes;
    if (weight_bytes) *weight_bytes = result.models[0].weight_bytes;
    kvad_bench_result_deinit(&result);
    return bytes;
}

static void test_a_read_ceiling_goes_over_the_weights_or_as_much_as_is_asked(void **state) {
    (void)state;
    uint64_t weight_bytes, bytes = ceiling_bytes(0, &weight_bytes);
    assert_int_equal(ceiling_bytes(3 << 20, NULL), 3 << 20);
    assert_in_range(bytes, weight_bytes / 2, 2 * weight_bytes);
}

/* Layers of 12 * 64^2 weights, 13 * 64 numbers of biases and norms; a head of 301 ids in panels of
 * 16; a norm, the token's row and the position's. K and V of 21 tokens. */
static void test_the_bytes_of_a_step_are_weights_and_cache(void **state) {
    (void)state;
    struct kvad_model *model;
    struct kvad_error err;
    assert_ok(kvad_synthetic_build("tiny", 1, NULL, &model, &err), &err);
    size_t layers = 2 * (12 * 64 * 64 + 13 * 64), head = 304 * 64 + 2 * 64, rows = 2 * 64;
    size_t cache = 21 * 2 * 2 * 64;
    assert_int_equal(experiment_step_bytes(model, 20), 4 * (layers + head + rows + cache));
    kvad_model_release(&model);
}

static void test_controls_read_what_a_step_reads(void **state) {
    (void)state;
    static const uint32_t contexts[] = {3, 20};
    struct host host = {0};
    struct kvad_experiment_options options = {.open_model = open_model,
                                              .user = &host,
                                              .contexts = {contexts, 2, false},
                                              .n_rounds = 1,
                                              .n_threads = 2,
                                              .quick = true,
                                              .sample_seconds = 1e-6,
                                              .budget_seconds = 1e-9};
    struct kvad_experiment_result result;
    struct kvad_error err;
    assert_ok(kvad_experiment_run(&options, &result, &err), &err);
    const struct kvad_bench_case *step = result.points[1].cases[KVAD_CACHE_PAGED];
    assert_int_equal(result.control_read_bytes, (uint64_t)step->bytes);
    /* The tiny model lies in any CPU's caches: what a load does to it is not foretold. */
    const struct kvad_control *bus = &result.controls[CONTROL_BUS_DECODE];
    assert_string_equal(bus->id, "bus_decode");
    assert_int_equal(bus->verdict, KVAD_CONTROL_NOT_SHOWN);
    kvad_experiment_result_deinit(&result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_read_ceiling_goes_over_the_weights_or_as_much_as_is_asked),
        cmocka_unit_test(test_the_bytes_of_a_step_are_weights_and_cache),
        cmocka_unit_test(test_controls_read_what_a_step_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
