/* Models that lie in the CPU's caches: read ceilings of the controls go over as much memory as a
 * step reads, and what no ceiling foretells is not judged. */
#include <math.h>

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
    for (size_t i = 0; i < KVAD_CONTROLS; i++)
        if (strcmp(result.controls[i].id, "bus_decode") == 0)
            assert_int_equal(result.controls[i].verdict, KVAD_CONTROL_NOT_SHOWN);
    kvad_experiment_result_deinit(&result);
}

static const struct experiment_measured whole = {
    .decode_ms = 12, .prefill_ms = 50, .read_rate = 20e9, .fma_rate = 60e9};

static void test_a_load_beside_a_model_in_caches_shows_prefill_alone(void **state) {
    (void)state;
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, whole};
    pair.base.is_in_caches = true;
    experiment_name_controls(controls);
    pair.changed.read_rate = 10e9;
    pair.changed.decode_ms = 24;
    pair.changed.prefill_ms = 60;
    experiment_judge_bus(controls, &pair);
    assert_int_equal(controls[CONTROL_BUS_DECODE].verdict, KVAD_CONTROL_NOT_SHOWN);
    assert_non_null(strstr(controls[CONTROL_BUS_DECODE].why, "caches"));
    assert_true(isnan(controls[CONTROL_BUS_DECODE].measured));
    assert_int_equal(controls[CONTROL_BUS_PREFILL].verdict, KVAD_CONTROL_HOLDS);
    assert_true(controls[CONTROL_BUS_PREFILL].predicted == 2);
    pair.base.is_in_caches = false;
    experiment_judge_bus(controls, &pair);
    assert_int_equal(controls[CONTROL_BUS_DECODE].verdict, KVAD_CONTROL_HOLDS);
}

/* Of 12 ms: 4 + 2 of reading, 3 of arithmetic, 1 sampling, 1.5 waiting, 0.5 other. One thread reads
 * two thirds as fast and computes half as fast: 6 * 1.5 + 3 * 2 + 1 + 0.5 = 16.5. */
static void test_one_thread_slows_each_share_by_its_own_ceiling(void **state) {
    (void)state;
    static const struct kvad_experiment_gap gap = {.wall_ms = 12,
                                                   .share_ms = {[KVAD_SHARE_WEIGHTS] = 4,
                                                                [KVAD_SHARE_CACHE] = 2,
                                                                [KVAD_SHARE_ARITHMETIC] = 3,
                                                                [KVAD_SHARE_SAMPLING] = 1,
                                                                [KVAD_SHARE_SYNCHRONISATION] = 1.5,
                                                                [KVAD_SHARE_OTHER] = 0.5}};
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, whole};
    pair.changed.read_rate = 20e9 / 1.5;
    pair.changed.fma_rate = 30e9;
    static const struct {
        double ms;
        enum kvad_control_verdict verdict;
    } cases[] = {{16.5 * 1.14, KVAD_CONTROL_HOLDS},
                 {16.5 * 1.16, KVAD_CONTROL_FAILS},
                 {16.5 * 0.86, KVAD_CONTROL_HOLDS},
                 {16.5 * 0.84, KVAD_CONTROL_FAILS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        experiment_name_controls(controls);
        pair.changed.decode_ms = cases[i].ms;
        experiment_judge_one_thread(controls, &gap, &pair);
        assert_true(fabs(controls[CONTROL_ONE_DECODE].predicted - 16.5) < 1e-9);
        assert_int_equal(controls[CONTROL_ONE_DECODE].verdict, cases[i].verdict);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_read_ceiling_goes_over_the_weights_or_as_much_as_is_asked),
        cmocka_unit_test(test_the_bytes_of_a_step_are_weights_and_cache),
        cmocka_unit_test(test_controls_read_what_a_step_reads),
        cmocka_unit_test(test_a_load_beside_a_model_in_caches_shows_prefill_alone),
        cmocka_unit_test(test_one_thread_slows_each_share_by_its_own_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
