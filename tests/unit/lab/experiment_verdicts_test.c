/* Verdicts of the experiment's controls: from the numbers alone, on both sides of each bound. */
#include <math.h>
#include <string.h>

#include "lab/experiment_internal.h"
#include "test.h"

/* A step of 12 ms on two threads: 8 in layers, 1 at barriers, 2 outside weights and cache. */
static const struct experiment_measured whole = {.decode_ms = 12,
                                                 .prefill_ms = 50,
                                                 .layers_ms = 8,
                                                 .wait_ms = 1,
                                                 .outside_ms = 2,
                                                 .read_rate = 20e9,
                                                 .fma_rate = 60e9};

static void assert_control(const struct kvad_control controls[], enum experiment_control which,
                           double predicted, enum kvad_control_verdict verdict) {
    const struct kvad_control *c = &controls[which];
    if (c->verdict != verdict) print_error("%s: %g for %g\n", c->id, c->measured, c->predicted);
    assert_int_equal(c->verdict, verdict);
    assert_true(*c->why);
    if (verdict == KVAD_CONTROL_NOT_SHOWN)
        assert_true(isnan(c->predicted) && isnan(c->measured));
    else
        assert_true(fabs(c->predicted - predicted) < 1e-12);
}

static void test_half_the_layers_take_half_of_their_time(void **state) {
    (void)state;
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, whole};
    experiment_name_controls(controls);
    /* A quarter of the layers is left, read as fast as all of them: 2 ms, and 12 less 3/4 of 9. */
    pair.changed.layers_ms = 2.29;
    pair.changed.decode_ms = 6.03;
    experiment_judge_half(controls, 0.25, &pair);
    assert_control(controls, CONTROL_HALF_LAYERS, 2, KVAD_CONTROL_HOLDS);
    assert_control(controls, CONTROL_HALF_STEP, 5.25, KVAD_CONTROL_HOLDS);
    pair.changed.layers_ms = 2.31;
    pair.changed.decode_ms = 6.04;
    experiment_judge_half(controls, 0.25, &pair);
    assert_control(controls, CONTROL_HALF_LAYERS, 2, KVAD_CONTROL_FAILS);
    assert_control(controls, CONTROL_HALF_STEP, 5.25, KVAD_CONTROL_FAILS);
    /* Read twice as fast, since a cache holds them. */
    pair.changed.read_rate = 40e9;
    experiment_judge_half(controls, 0.25, &pair);
    assert_control(controls, CONTROL_HALF_LAYERS, 1, KVAD_CONTROL_FAILS);
    pair.changed.layers_ms = 0.86;
    experiment_judge_half(controls, 0.25, &pair);
    assert_control(controls, CONTROL_HALF_LAYERS, 1, KVAD_CONTROL_HOLDS);
}

static void test_an_empty_step_takes_no_more_than_what_is_outside(void **state) {
    (void)state;
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, {.decode_ms = 2}};
    experiment_name_controls(controls);
    experiment_judge_empty(controls, &pair);
    assert_control(controls, CONTROL_EMPTY_STEP, 2, KVAD_CONTROL_HOLDS);
    pair.changed.decode_ms = 2.01;
    experiment_judge_empty(controls, &pair);
    assert_control(controls, CONTROL_EMPTY_STEP, 2, KVAD_CONTROL_FAILS);
    pair.changed.decode_ms = NAN;
    experiment_judge_empty(controls, &pair);
    assert_control(controls, CONTROL_EMPTY_STEP, 2, KVAD_CONTROL_FAILS);
}

static void test_busy_memory_slows_decoding_as_it_slows_reading(void **state) {
    (void)state;
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, whole};
    experiment_name_controls(controls);
    pair.changed.read_rate = 10e9; /* half as fast */
    pair.changed.decode_ms = 12 * 1.75;
    pair.changed.prefill_ms = 50 * 1.7;
    experiment_judge_bus(controls, &pair);
    assert_control(controls, CONTROL_BUS_DECODE, 2, KVAD_CONTROL_HOLDS);
    assert_control(controls, CONTROL_BUS_PREFILL, 1.75, KVAD_CONTROL_HOLDS);
    pair.changed.decode_ms = 12 * 1.5;
    experiment_judge_bus(controls, &pair);
    assert_control(controls, CONTROL_BUS_DECODE, 2, KVAD_CONTROL_FAILS);
    assert_control(controls, CONTROL_BUS_PREFILL, 1.5, KVAD_CONTROL_FAILS);
    pair.changed.read_rate = 19e9; /* hardly slower: nothing is shown */
    experiment_judge_bus(controls, &pair);
    assert_control(controls, CONTROL_BUS_DECODE, 0, KVAD_CONTROL_NOT_SHOWN);
    assert_control(controls, CONTROL_BUS_PREFILL, 0, KVAD_CONTROL_NOT_SHOWN);
}

static void test_one_thread_is_slower_as_its_ceilings_are(void **state) {
    (void)state;
    static const struct kvad_experiment_gap reading = {
        .wall_ms = 3, .share_ms = {[KVAD_SHARE_WEIGHTS] = 2, [KVAD_SHARE_CACHE] = 1}};
    struct kvad_control controls[KVAD_CONTROLS];
    struct experiment_pair pair = {whole, whole};
    experiment_name_controls(controls);
    pair.changed.read_rate = 15e9;
    pair.changed.fma_rate = 30e9;
    pair.changed.decode_ms = 16 * 1.1;
    pair.changed.prefill_ms = 100 * 0.9;
    pair.changed.wait_ms = 0.17;
    experiment_judge_one_thread(controls, &reading, &pair);
    assert_control(controls, CONTROL_ONE_DECODE, 16, KVAD_CONTROL_HOLDS);
    assert_control(controls, CONTROL_ONE_PREFILL, 100, KVAD_CONTROL_HOLDS);
    assert_control(controls, CONTROL_ONE_WAIT, 1, KVAD_CONTROL_HOLDS);
    pair.changed.decode_ms = 16 * 1.2;
    pair.changed.prefill_ms = 100 * 0.8;
    pair.changed.wait_ms = 0.2;
    experiment_judge_one_thread(controls, &reading, &pair);
    assert_control(controls, CONTROL_ONE_DECODE, 16, KVAD_CONTROL_FAILS);
    assert_control(controls, CONTROL_ONE_PREFILL, 100, KVAD_CONTROL_FAILS);
    assert_control(controls, CONTROL_ONE_WAIT, 1, KVAD_CONTROL_FAILS);
}

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
        cmocka_unit_test(test_half_the_layers_take_half_of_their_time),
        cmocka_unit_test(test_an_empty_step_takes_no_more_than_what_is_outside),
        cmocka_unit_test(test_busy_memory_slows_decoding_as_it_slows_reading),
        cmocka_unit_test(test_one_thread_is_slower_as_its_ceilings_are),
        cmocka_unit_test(test_a_load_beside_a_model_in_caches_shows_prefill_alone),
        cmocka_unit_test(test_one_thread_slows_each_share_by_its_own_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
