/* What the cache and the step hold besides the text may be anything, NaN included: it changes
 * nothing. K and V apart, since a NaN in V survives a weight of 0 and one in K does not show in V.
 */
#include <math.h>

#include "bits.h"
#include "reference.h"
#include "test.h"

static const enum kvad_poison targets[] = {KVAD_POISON_K, KVAD_POISON_V, KVAD_POISON_KV};
static const float poisons[] = {NAN, INFINITY, -INFINITY, 1e30f};
enum { N_TARGETS = 3, N_POISONS = 4 };

/* Append the next `n` tokens after everything unused was poisoned, and compare rows and cache. */
static void go_on(const struct reference *reference, struct kvad_sequence *sequence, size_t n,
                  enum kvad_poison target, float value) {
    const struct kvad_description *d = &reference->tiny->description;
    size_t first = kvad_sequence_length(sequence);
    float *rows = malloc(n * d->n_vocab * sizeof *rows);
    float *hidden = malloc((d->n_layers + 1) * n * d->d_model * sizeof *hidden);
    assert_non_null(rows);
    assert_non_null(hidden);
    kvad_engine_poison_cache(sequence->engine, target, value);
    kvad_engine_poison_step(sequence->engine, value);
    feed(sequence, reference->tokens + first, n, rows, hidden);
    const char *where = label("%s: %g in %d", kvad_cache_policy_name(sequence->engine->cache),
                              (double)value, (int)target);
    assert_rows(reference, first, n, rows, where);
    assert_hidden(reference, first, n, hidden, where);
    kvad_engine_poison_cache(sequence->engine, target, value);
    assert_cache(reference, sequence, where);
    free(rows);
    free(hidden);
}

static void run_poisoned(const struct reference *reference, enum kvad_cache_policy policy,
                         uint32_t block_tokens, enum kvad_poison target, float value) {
    static const size_t chunks[] = {5, 1, 16, 1, 2, 17, 8};
    struct kvad_engine_options options = engine_options(policy, 2);
    options.block_tokens = block_tokens;
    struct kvad_engine *engine = open_engine(reference->model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    for (int round = 0; round < 3; round++) {
        while (kvad_sequence_length(sequence) < reference->n)
            for (size_t c = 0; c < 7; c++) {
                size_t left = reference->n - kvad_sequence_length(sequence);
                if (left > 0)
                    go_on(reference, sequence, kvad_min_size(chunks[c], left), target, value);
            }
        cut(sequence, (size_t)(17 - 6 * round));
    }
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
}

/* bugs.md MASK-5, MASK-7, MASK-8, BATCH-5, ROLL-2 */
static void test_unused_rows_and_step_buffers_may_hold_anything(void **state) {
    (void)state;
    struct reference *odd = reference_create(&tiny_odd, 50);
    struct reference *gqa = reference_create(&tiny_gqa, 45);
    for (size_t p = 0; p < 3; p++)
        for (size_t t = 0; t < N_TARGETS; t++)
            for (size_t v = 0; v < N_POISONS; v++) {
                run_poisoned(odd, policies[p], 16, targets[t], poisons[v]);
                run_poisoned(gqa, policies[p], 32, targets[t], poisons[v]);
            }
    reference_destroy(odd);
    reference_destroy(gqa);
}

/* Rows behind a truncation belong to no one: poison them and go on with another text. */
/* bugs.md ROLL-2 */
static void test_rows_behind_a_truncation_may_hold_anything(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, 40);
    int32_t *others = tiny_tokens(tiny_odd.n_vocab, 40, 99);
    for (size_t p = 0; p < 3; p++)
        for (size_t length = 0; length < 36; length += 5) {
            struct kvad_engine_options options = engine_options(policies[p], 1);
            struct kvad_engine *engine = open_engine(reference->model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            if (length > 0) go_on(reference, sequence, length, KVAD_POISON_KV, NAN);
            feed(sequence, others, 40 - length, NULL, NULL);
            cut(sequence, length);
            go_on(reference, sequence, 3, KVAD_POISON_KV, NAN);
            go_on(reference, sequence, 1, KVAD_POISON_KV, NAN);
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    free(others);
    reference_destroy(reference);
}

/* ---------------------------------------------------------------- the smallest pool */

/* One step of all texts: `n` more tokens of each that has them. */
static void step_all(struct kvad_engine *engine, struct reference *const *texts,
                     struct kvad_sequence **sequences, size_t n_texts, size_t n) {
    struct kvad_eval_item items[4];
    float *rows[4];
    for (size_t i = 0; i < n_texts; i++) {
        rows[i] = malloc(n * reference_vocab(texts[i]) * sizeof *rows[i]);
        assert_non_null(rows[i]);
        poison(rows[i], n * reference_vocab(texts[i]));
        items[i] =
            (struct kvad_eval_item){.sequence = sequences[i],
                                    .tokens = texts[i]->tokens + kvad_sequence_length(sequences[i]),
                                    .n_tokens = n,
                                    .n_rows = n,
                                    .logits = rows[i]};
    }
    kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
    kvad_engine_poison_step(engine, NAN);
    struct kvad_error err;
    assert_ok(kvad_eval(engine, items, n_texts, &err), &err);
    for (size_t i = 0; i < n_texts; i++) {
        assert_rows(texts[i], kvad_sequence_length(sequences[i]) - n, n, rows[i],
                    label("text %zu of the smallest pool", i));
        free(rows[i]);
    }
}

/* bugs.md MASK-9, MASK-15, MEM-1 */
static void test_texts_share_the_smallest_pool_without_touching_each_other(void **state) {
    (void)state;
    enum { N = 2 };
    struct reference *texts[N];
    texts[0] = reference_create(&tiny_odd, 16);
    texts[1] = reference_more(texts[0], 16, 5);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.n_sequences = N;
    options.kv_bytes = N * tiny_block_bytes(&tiny_odd);
    struct kvad_engine *engine = open_engine(texts[0]->model, &options);
    assert_int_equal(engine->pool.n_blocks, N);
    for (int round = 0; round < 3; round++) {
        struct kvad_sequence *sequences[N];
        for (size_t i = 0; i < N; i++)
            sequences[i] = new_sequence(engine);
        static const size_t chunks[] = {1, 7, 3, 1, 4};
        for (size_t c = 0; c < 5; c++)
            step_all(engine, texts, sequences, N, chunks[c]);
        assert_int_equal(engine->pool.n_free, 0);
        for (size_t i = 0; i < N; i++) {
            assert_cache(texts[i], sequences[i], "smallest pool");
            kvad_sequence_destroy(&sequences[i]);
        }
        assert_idle(engine);
    }
    close_engine(&engine);
    reference_destroy(texts[1]);
    reference_destroy(texts[0]);
}

/* The checks themselves: NaN on either side fails, also where both are NaN. */
/* bugs.md MASK-14 */
static void test_the_harness_sees_what_it_should(void **state) {
    (void)state;
    float a[3] = {1, NAN, 3}, b[3] = {1, NAN, 3}, c[3] = {1, 2, 3};
    assert_false(bits_are_finite(a, 3));
    assert_true(bits_are_finite(c, 3));
    assert_int_equal(bits_first_difference(a, b, 3), 3);
    assert_int_equal(bits_first_difference(a, c, 3), 1);
    float minus = -0.0f, plus = 0.0f;
    assert_int_equal(bits_first_difference(&minus, &plus, 1), 0);
    float swapped[3] = {3, 2, 1}; /* same sum, same norm */
    assert_int_equal(bits_first_difference(c, swapped, 3), 0);
    /* Poison does reach the rows that it should: undone cover would show here. */
    struct reference *reference = reference_create(&tiny_odd, 20);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine = open_engine(reference->model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    feed(sequence, reference->tokens, 20, NULL, NULL);
    sequence->kv.length = sequence->kv.n_ready = 19;
    kvad_engine_poison_cache(engine, KVAD_POISON_V, NAN);
    sequence->kv.length = sequence->kv.n_ready = 20;
    float *k = malloc(2 * 35 * sizeof *k), *v = k + 35;
    assert_non_null(k);
    struct kvad_error err;
    assert_ok(kvad_sequence_read_kv(sequence, 2, 19, 1, k, v, &err), &err);
    assert_true(bits_are_finite(k, 35));
    for (size_t i = 0; i < 35; i++)
        assert_true(isnan(v[i]));
    free(k);
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
    reference_destroy(reference);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unused_rows_and_step_buffers_may_hold_anything),
        cmocka_unit_test(test_rows_behind_a_truncation_may_hold_anything),
        cmocka_unit_test(test_texts_share_the_smallest_pool_without_touching_each_other),
        cmocka_unit_test(test_the_harness_sees_what_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
