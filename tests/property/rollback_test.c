/* Going back: after a truncation, and after values that were not finite, all is as if the rest had
 * never been. */
#include <math.h>

#include "bits.h"
#include "reference.h"
#include "test.h"

/* ---------------------------------------------------------------- truncation */

/* bugs.md ROLL-1, ROLL-2, ROLL-4, POS-1 */
static void test_going_on_after_any_truncation_is_as_if_the_rest_never_was(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, 50);
    int32_t *others = tiny_tokens(tiny_odd.n_vocab, 50, 99);
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct kvad_engine_options options = engine_options(policies[p], 1);
        struct kvad_engine *engine = open_engine(reference->model, &options);
        struct kvad_sequence *sequence = new_sequence(engine);
        for (size_t length = 0; length <= 44; length++) {
            const char *where =
                label("%s: cut to %zu", kvad_cache_policy_name(policies[p]), length);
            cut(sequence, 0);
            if (length > 0) follow(reference, sequence, length, where);
            for (int round = 0; round < 3; round++) {
                feed(sequence, others, 50 - length, NULL, NULL);
                feed(sequence, others, length ? 1 : 11, NULL, NULL);
                cut(sequence, length);
                follow(reference, sequence, 1, where);
                follow(reference, sequence, 5, where);
                cut(sequence, length);
            }
        }
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    free(others);
    reference_destroy(reference);
}

/* bugs.md ROLL-3 */
static void test_lengths_are_values_that_a_step_does_not_change_behind_the_caller(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, 20);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine = open_engine(reference->model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    follow(reference, sequence, 4, "before");
    size_t before = kvad_sequence_length(sequence);
    follow(reference, sequence, 3, "after");
    assert_int_equal(before, 4);
    assert_int_equal(kvad_sequence_length(sequence), 7);
    struct kvad_error err;
    assert_fails(kvad_sequence_truncate(sequence, 8, &err), KVAD_ERR_ARGUMENT, &err, "8");
    assert_int_equal(kvad_sequence_length(sequence), 7);
    follow(reference, sequence, 1, "after a refused truncation");
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
    reference_destroy(reference);
}

/* ---------------------------------------------------------------- values that are not finite */

static void damage(struct tiny_model *tiny, size_t level, enum kvad_parameter p, size_t i,
                   float value) {
    tiny->parameters[level][p][i] = value;
}

/* A damaged copy of tiny_odd fails with `part`, at every attempt; the text before it stays. */
static void check_damage(size_t level, enum kvad_parameter p, size_t i, float value,
                         const int32_t *tokens, const char *part) {
    struct tiny_sizes sizes = tiny_odd;
    sizes.untied = true; /* a damaged embedding is not in the head as well */
    struct tiny_model *tiny = tiny_model_create(&sizes);
    damage(tiny, level, p, i, value);
    struct kvad_model *model = tiny_model_build(tiny);
    for (size_t policy = 0; policy < 3; policy++)
        for (unsigned n_threads = 1; n_threads <= 2; n_threads++) {
            struct kvad_engine_options options = engine_options(policies[policy], n_threads);
            struct kvad_engine *engine = open_engine(model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            float rows[3 * 101];
            struct kvad_eval_item item = {
                .sequence = sequence, .tokens = tokens, .n_tokens = 3, .n_rows = 3, .logits = rows};
            struct kvad_error err;
            for (int round = 0; round < 3; round++) {
                assert_fails(kvad_eval(engine, &item, 1, &err), KVAD_ERR_NOT_FINITE, &err, part);
                assert_int_equal(kvad_sequence_length(sequence), 0);
            }
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
}

static void test_damaged_weights_are_reported_with_layer_and_position(void **state) {
    (void)state;
    static const int32_t tokens[] = {9, 8, 7};
    size_t d = (size_t)tiny_odd.n_heads * tiny_odd.head_dim;
    check_damage(0, KVAD_PARAMETER_EMBEDDING, 7 * d + 5, NAN, tokens, "layer 0 at position 2");
    check_damage(0, KVAD_PARAMETER_EMBEDDING, 8 * d + 34, INFINITY, tokens,
                 "layer 0 at position 1");
    check_damage(0, KVAD_PARAMETER_POSITIONS, d + 1, -INFINITY, tokens, "layer 0 at position 1");
    check_damage(2, KVAD_PARAMETER_DOWN_BIAS, 34, NAN, tokens, "layer 1 at position 0");
    check_damage(3, KVAD_PARAMETER_DOWN_WEIGHT, 17, INFINITY, tokens, "layer 2 at position 0");
    check_damage(1, KVAD_PARAMETER_QKV_WEIGHT, 3, NAN, tokens, "layer 0 at position 0");
    check_damage(0, KVAD_PARAMETER_HEAD_BIAS, 100, NAN, tokens, "logits at position 0");
    check_damage(0, KVAD_PARAMETER_FINAL_NORM_WEIGHT, 3, NAN, tokens, "logits at position 0");
}

/* One text meets a damaged embedding; it and its neighbours go on as if it had not. */
static void test_after_values_that_are_not_finite_all_goes_on_as_before(void **state) {
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    enum { DAMAGED = 77 };
    struct tiny_sizes sizes = tiny_odd;
    sizes.untied = true;
    struct tiny_model *tiny = tiny_model_create(&sizes);
    int32_t *tokens = tiny_tokens(77, 40, 3); /* without the damaged id */
    for (size_t v = 0; v < 3; v++) {
        damage(tiny, 0, KVAD_PARAMETER_EMBEDDING, DAMAGED * 35 + 4, 0);
        struct kvad_model *sound = tiny_model_build(tiny);
        struct reference *reference = reference_of(tiny, sound, tokens, 40);
        damage(tiny, 0, KVAD_PARAMETER_EMBEDDING, DAMAGED * 35 + 4, values[v]);
        struct kvad_model *model = tiny_model_build(tiny);
        struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
        struct kvad_engine *engine = open_engine(model, &options);
        struct kvad_sequence *sequence = new_sequence(engine);
        follow(reference, sequence, 13, "before");
        for (int round = 0; round < 3; round++) {
            int32_t bad[7] = {1, 2, 3, DAMAGED, 4, 5, 6};
            struct kvad_eval_item item = {.sequence = sequence, .tokens = bad, .n_tokens = 7};
            struct kvad_error err;
            assert_fails(kvad_eval(engine, &item, 1, &err), KVAD_ERR_NOT_FINITE, &err,
                         label("position %zu", kvad_sequence_length(sequence) + 3));
            /* As many rows as the failed step had, more of them, and a single one. */
            follow(reference, sequence, 7, "after");
            follow(reference, sequence, 1, "after");
            cut(sequence, 13);
            follow(reference, sequence, 20, "after");
            cut(sequence, 13);
        }
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
        reference_destroy(reference);
        kvad_model_release(&sound);
        kvad_model_release(&model);
    }
    free(tokens);
    tiny_model_destroy(tiny);
}

/* The other policies reserve everything before. */
static void test_steps_allocate_nothing_except_where_the_policy_is_grow(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, 48);
    static const enum kvad_cache_policy still[] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                   KVAD_CACHE_NONE};
    for (size_t p = 0; p < 3; p++) {
        struct test_heap heap = {0};
        struct kvad_engine_options options = engine_options(still[p], 2);
        options.allocator = test_heap_hook(&heap);
        struct kvad_engine *engine = open_engine(reference->model, &options);
        struct kvad_sequence *sequence = new_sequence(engine);
        test_heap_fail(&heap, 1, SIZE_MAX);
        follow(reference, sequence, 17, "no memory");
        follow(reference, sequence, 1, "no memory");
        cut(sequence, 3);
        follow(reference, sequence, 30, "no memory");
        assert_int_equal(atomic_load(&heap.n_requests), 0);
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    reference_destroy(reference);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_going_on_after_any_truncation_is_as_if_the_rest_never_was),
        cmocka_unit_test(test_lengths_are_values_that_a_step_does_not_change_behind_the_caller),
        cmocka_unit_test(test_damaged_weights_are_reported_with_layer_and_position),
        cmocka_unit_test(test_after_values_that_are_not_finite_all_goes_on_as_before),
        cmocka_unit_test(test_steps_allocate_nothing_except_where_the_policy_is_grow),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
