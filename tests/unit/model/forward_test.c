/* The forward pass against the oracle in every variant of a model, and what must not matter to it:
 * later tokens, who asks for hidden states, the caller's floating-point state, repeated kv heads.
 */
#include <math.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "bits.h"
#include "reference.h"
#include "test.h"

/* ---------------------------------------------------------------- variants */

/* reference_create() compares logits, hidden states, K and V with the oracle. */
static void check_variant(const struct tiny_sizes *sizes, size_t n) {
    reference_destroy(reference_create(sizes, n));
}

/* bugs.md LAYOUT-3, GROW-10 */
static void test_every_activation_is_that_of_the_oracle(void **state) {
    (void)state;
    for (int a = KVAD_ACTIVATION_GELU_TANH; a < KVAD_ACTIVATION_COUNT; a++) {
        struct tiny_sizes sizes = tiny_odd;
        sizes.activation = (enum kvad_activation)a;
        check_variant(&sizes, 23);
    }
}

static void test_biases_heads_and_scales_are_those_of_the_oracle(void **state) {
    (void)state;
    for (unsigned flags = 0; flags < 16; flags++) {
        struct tiny_sizes sizes = flags & 1 ? tiny_gqa : tiny_odd;
        sizes.no_bias = flags & 2;
        sizes.untied = flags & 4;
        sizes.no_scale = flags & 8;
        sizes.scale_by_layer = flags % 3 == 0;
        check_variant(&sizes, 21);
    }
}

static void test_extreme_sizes_are_those_of_the_oracle(void **state) {
    (void)state;
    static const struct tiny_sizes extremes[] = {
        {.n_layers = 1,
         .n_heads = 1,
         .n_kv_heads = 1,
         .head_dim = 1,
         .d_ff = 1,
         .n_vocab = 2,
         .n_ctx = 1},
        {.n_layers = 1,
         .n_heads = 1,
         .n_kv_heads = 1,
         .head_dim = 2,
         .d_ff = 3,
         .n_vocab = 17,
         .n_ctx = 3},
        {.n_layers = 5,
         .n_heads = 1,
         .n_kv_heads = 1,
         .head_dim = 31,
         .d_ff = 16,
         .n_vocab = 15,
         .n_ctx = 18},
        {.n_layers = 2,
         .n_heads = 16,
         .n_kv_heads = 4,
         .head_dim = 1,
         .d_ff = 400,
         .n_vocab = 300,
         .n_ctx = 20},
        {.n_layers = 1,
         .n_heads = 2,
         .n_kv_heads = 2,
         .head_dim = 130,
         .d_ff = 128,
         .n_vocab = 33,
         .n_ctx = 33},
    };
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++)
        check_variant(&extremes[i], extremes[i].n_ctx);
    check_variant(&tiny_wide, tiny_wide.n_ctx);
    check_variant(&tiny_long, 300);
}

/* ---------------------------------------------------------------- kv heads */

/* Logits and hidden states of a model and of the same one with K and V repeated: equal bits. */
static void check_repeated(uint32_t n_heads, uint32_t n_kv_heads) {
    struct tiny_sizes sizes = tiny_gqa;
    sizes.n_heads = n_heads;
    sizes.n_kv_heads = n_kv_heads;
    struct reference *few = reference_create(&sizes, 40);
    struct tiny_model *tiny = tiny_model_repeat_kv(few->tiny);
    struct kvad_model *model = tiny_model_build(tiny);
    struct reference *all = reference_of(tiny, model, few->tokens, few->n);
    const char *where = label("%u heads on %u", n_heads, n_kv_heads);
    assert_rows(all, 0, 40, few->logits, where);
    assert_hidden(all, 0, 40, few->hidden, where);
    reference_destroy(all);
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
    reference_destroy(few);
}

/* bugs.md LAYOUT-1, LAYOUT-2 */
static void test_fewer_kv_heads_are_the_same_as_repeated_ones(void **state) {
    (void)state;
    static const uint32_t pairs[][2] = {{6, 2}, {6, 1}, {6, 3}, {6, 6}, {4, 2}, {9, 3}, {32, 1}};
    for (size_t i = 0; i < 7; i++)
        check_repeated(pairs[i][0], pairs[i][1]);
}

/* ---------------------------------------------------------------- what must not matter */

/* bugs.md MASK-2, MASK-6, LAYOUT-3 */
static void test_later_tokens_never_change_earlier_rows(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, 24);
    int32_t tokens[24];
    float rows[24 * 101];
    for (size_t p = 0; p < N_POLICIES; p++)
        for (size_t changed = 0; changed < 24; changed++) {
            memcpy(tokens, reference->tokens, sizeof tokens);
            for (size_t i = changed; i < 24; i++)
                tokens[i] = (tokens[i] + 1 + (int32_t)i) % 101;
            struct kvad_engine_options options = engine_options(policies[p], 1);
            struct kvad_engine *engine = open_engine(reference->model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            feed(sequence, tokens, 24, rows, NULL);
            assert_rows(reference, 0, changed, rows, label("changed from %zu", changed));
            /* and the changed row itself does change */
            assert_true(bits_first_difference(rows + changed * 101,
                                              reference->logits + changed * 101, 101) < 101);
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    reference_destroy(reference);
}

/* Rows that want logits, or hidden states, are computed like those that do not. */
static void test_asking_for_more_changes_no_bit(void **state) {
    (void)state;
    enum { N = 40 }; /* more rows than the head takes at once */
    struct reference *reference = reference_create(&tiny_odd, N);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    struct kvad_engine *engine = open_engine(reference->model, &options);
    float *rows = malloc(N * 101 * sizeof *rows);
    assert_non_null(rows);
    for (size_t n_rows = 0; n_rows <= N; n_rows++) {
        struct kvad_sequence *sequence = new_sequence(engine);
        struct kvad_eval_item item = {.sequence = sequence,
                                      .tokens = reference->tokens,
                                      .n_tokens = N,
                                      .n_rows = n_rows,
                                      .logits = rows};
        struct kvad_error err;
        poison(rows, N * 101);
        assert_ok(kvad_eval(engine, &item, 1, &err), &err);
        assert_rows(reference, N - n_rows, n_rows, rows, label("%zu rows", n_rows));
        for (size_t i = n_rows * 101; i < N * 101; i++)
            assert_true(isnan(rows[i])); /* nothing else is written */
        assert_cache(reference, sequence, "rows");
        kvad_sequence_destroy(&sequence);
    }
    free(rows);
    close_engine(&engine);
    reference_destroy(reference);
}

/* Hosts flush subnormals or round another way; a step has its own state and gives theirs back. */
static void test_the_callers_floating_point_state_changes_no_bit(void **state) {
    (void)state;
#if defined(__x86_64__)
    static const unsigned states[] = {0x8040, 0x2000, 0x4000, 0x6000, 0xe040};
    struct reference *reference = reference_create(&tiny_odd, 30);
    unsigned before = _mm_getcsr();
    for (size_t i = 0; i < 5; i++)
        for (unsigned n_threads = 1; n_threads <= 2; n_threads++) {
            struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, n_threads);
            struct kvad_engine *engine = open_engine(reference->model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            float rows[30 * 101];
            _mm_setcsr(before | states[i]);
            feed(sequence, reference->tokens, 30, rows, NULL);
            unsigned after = _mm_getcsr();
            _mm_setcsr(before);
            assert_int_equal(after & 0xe040u, states[i]);
            assert_rows(reference, 0, 30, rows, label("MXCSR %x", states[i]));
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    reference_destroy(reference);
#else
    skip();
#endif
}

/* A token on a long past needs no more room than on a short one. */
/* bugs.md GROW-9 */
static void test_one_row_of_step_memory_is_enough_for_any_past(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_long, 300);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_STATIC, 1);
    options.n_batch_tokens = 1;
    struct kvad_engine *engine = open_engine(reference->model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    follow(reference, sequence, 299, "slices of one");
    follow(reference, sequence, 1, "the last");
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
    reference_destroy(reference);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_activation_is_that_of_the_oracle),
        cmocka_unit_test(test_biases_heads_and_scales_are_those_of_the_oracle),
        cmocka_unit_test(test_extreme_sizes_are_those_of_the_oracle),
        cmocka_unit_test(test_fewer_kv_heads_are_the_same_as_repeated_ones),
        cmocka_unit_test(test_later_tokens_never_change_earlier_rows),
        cmocka_unit_test(test_asking_for_more_changes_no_bit),
        cmocka_unit_test(test_the_callers_floating_point_state_changes_no_bit),
        cmocka_unit_test(test_one_row_of_step_memory_is_enough_for_any_past),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
