/* Forks and beams: sequences that share memory give what each gives alone. */
#include <math.h>

#include "bits.h"
#include "random.h"
#include "reference.h"
#include "test.h"

enum { N_TEXTS = 4, N_TOKENS = 60 };

/* Texts that are the same up to `n_common` and differ from there on. */
struct family {
    struct reference *texts[N_TEXTS];
    int32_t *ids[N_TEXTS];
};

static void family_init(struct family *family, const struct reference *first, size_t n_common) {
    for (size_t i = 0; i < N_TEXTS; i++) {
        family->ids[i] = tiny_tokens(tiny_odd.n_vocab, N_TOKENS, 10 + i);
        memcpy(family->ids[i], first->tokens, n_common * sizeof(int32_t));
        family->ids[i][n_common] = (int32_t)(20 + i);
        family->texts[i] = reference_of(first->tiny, first->model, family->ids[i], N_TOKENS);
    }
}

static void family_free(struct family *family) {
    for (size_t i = 0; i < N_TEXTS; i++) {
        reference_destroy(family->texts[i]);
        free(family->ids[i]);
    }
}

static struct kvad_engine *open_for(struct kvad_model *model, uint32_t n_sequences,
                                    enum kvad_cache_policy policy) {
    struct kvad_engine_options options = engine_options(policy, 2);
    options.n_sequences = n_sequences;
    return open_engine(model, &options);
}

static struct kvad_sequence *fork_of(const struct kvad_sequence *sequence) {
    struct kvad_sequence *fork = NULL;
    struct kvad_error err;
    assert_ok(kvad_sequence_fork(sequence, &fork, &err), &err);
    assert_int_equal(kvad_sequence_length(fork), kvad_sequence_length(sequence));
    return fork;
}

/* bugs.md BEAM-4, BEAM-11, SHARE-9, MEM-1 */
static void test_forks_at_every_token_go_their_own_ways(void **state) {
    (void)state;
    struct reference *first = reference_create(&tiny_odd, N_TOKENS);
    for (size_t n_common = 1; n_common < 40; n_common += n_common < 14 || n_common > 17 ? 5 : 1) {
        struct family family;
        family_init(&family, first, n_common);
        struct kvad_engine *engine = open_for(first->model, N_TEXTS, KVAD_CACHE_PAGED);
        struct kvad_sequence *sequences[N_TEXTS] = {new_sequence(engine)};
        follow(family.texts[0], sequences[0], n_common, "common");
        uint64_t bytes = kvad_engine_kv_bytes(engine);
        for (size_t i = 1; i < N_TEXTS; i++)
            sequences[i] = fork_of(sequences[i - 1]);
        assert_int_equal(kvad_engine_kv_bytes(engine), bytes);
        for (size_t round = 0; round < 5; round++)
            for (size_t i = 0; i < N_TEXTS; i++) {
                kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
                follow(family.texts[i], sequences[i], 1 + round, label("fork at %zu", n_common));
                for (size_t j = 0; j < N_TEXTS; j++)
                    assert_cache(family.texts[j], sequences[j], "the others");
            }
        assert_int_equal(engine->pool.n_copies, n_common % 16 ? N_TEXTS - 1 : 0);
        for (size_t i = 0; i < N_TEXTS; i++) {
            kvad_sequence_destroy(&sequences[(i + n_common) % N_TEXTS]);
            assert_true(kvad_kv_pool_is_sound(&engine->pool));
        }
        close_engine(&engine);
        family_free(&family);
    }
    reference_destroy(first);
}

/* bugs.md ROLL-1, ROLL-2, ROLL-4 */
static void test_cutting_one_fork_leaves_the_other_whole(void **state) {
    (void)state;
    struct reference *first = reference_create(&tiny_odd, N_TOKENS);
    struct family family;
    family_init(&family, first, 10);
    struct kvad_engine *engine = open_for(first->model, 2, KVAD_CACHE_PAGED);
    struct kvad_sequence *whole = new_sequence(engine);
    follow(first, whole, 50, "whole");
    for (size_t length = 0; length <= 10; length++) {
        struct kvad_sequence *fork = fork_of(whole);
        cut(fork, length);
        kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
        follow(family.texts[1], fork, 1, "cut fork");
        follow(family.texts[1], fork, 33, "cut fork");
        assert_cache(first, whole, "whole");
        kvad_sequence_destroy(&fork);
    }
    follow(first, whole, 10, "whole to the end");
    kvad_sequence_destroy(&whole);
    close_engine(&engine);
    family_free(&family);
    reference_destroy(first);
}

/* Beams: every few tokens each beam goes on from any of them. Which text a beam then is follows
 * from the same reordering of plain lists of tokens. */
/* bugs.md BEAM-1, BEAM-2, BEAM-3, BEAM-4 */
static void test_reordered_beams_are_the_texts_that_they_come_from(void **state) {
    (void)state;
    enum { N = 3, N_STEPS = 18 };
    struct reference *first = reference_create(&tiny_odd, N_TOKENS);
    struct kvad_engine *engine = open_for(first->model, N, KVAD_CACHE_PAGED);
    struct test_random random = {5};
    struct kvad_sequence *beams[N];
    int32_t ids[N][N_TOKENS], others[N][N_TOKENS];
    float row[101];
    for (size_t i = 0; i < N; i++) {
        beams[i] = new_sequence(engine);
        memcpy(ids[i], first->tokens, sizeof ids[i]);
        feed(beams[i], ids[i], 20, NULL, NULL);
    }
    for (size_t step = 0; step < N_STEPS; step++) {
        size_t sources[N], n = 20 + step;
        struct kvad_error err;
        for (size_t i = 0; i < N; i++)
            sources[i] = random_below(&random, N);
        assert_ok(kvad_sequence_reorder(beams, sources, N, &err), &err);
        memcpy(others, ids, sizeof ids);
        for (size_t i = 0; i < N; i++) {
            memcpy(ids[i], others[sources[i]], sizeof ids[i]);
            ids[i][n] = (int32_t)random_below(&random, 101);
            feed(beams[i], &ids[i][n], 1, row, NULL);
            struct reference *alone = reference_of(first->tiny, first->model, ids[i], n + 1);
            assert_rows(alone, n, 1, row, label("step %zu, beam %zu", step, i));
            assert_cache(alone, beams[i], "beam");
            reference_destroy(alone);
        }
        assert_true(kvad_kv_pool_is_sound(&engine->pool));
    }
    for (size_t i = 0; i < N; i++)
        kvad_sequence_destroy(&beams[i]);
    close_engine(&engine);
    reference_destroy(first);
}

static void test_what_cannot_be_forked_or_reordered_is_refused(void **state) {
    (void)state;
    struct reference *first = reference_create(&tiny_odd, N_TOKENS);
    struct kvad_error err;
    for (size_t p = 1; p < N_POLICIES; p++) {
        struct kvad_engine *engine = open_for(first->model, 2, policies[p]);
        struct kvad_sequence *sequence = new_sequence(engine), *fork = NULL;
        static const size_t self[] = {0};
        assert_fails(kvad_sequence_fork(sequence, &fork, &err), KVAD_ERR_UNSUPPORTED, &err,
                     "paged");
        assert_fails(kvad_sequence_reorder(&sequence, self, 1, &err), KVAD_ERR_UNSUPPORTED, &err,
                     "paged");
        assert_null(fork);
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    struct kvad_engine *engine = open_for(first->model, 2, KVAD_CACHE_PAGED);
    struct kvad_sequence *both[] = {new_sequence(engine), new_sequence(engine)}, *fork = NULL;
    struct kvad_sequence *twice[] = {both[0], both[0]};
    static const size_t outside[] = {0, 2}, ascending[] = {0, 1};
    assert_fails(kvad_sequence_fork(both[0], &fork, &err), KVAD_ERR_ARGUMENT, &err, "all are");
    assert_fails(kvad_sequence_reorder(both, outside, 2, &err), KVAD_ERR_ARGUMENT, &err, "2");
    assert_fails(kvad_sequence_reorder(twice, ascending, 2, &err), KVAD_ERR_ARGUMENT, &err,
                 "twice");
    assert_int_equal(kvad_sequence_reorder(NULL, NULL, 0, &err), KVAD_OK);
    kvad_sequence_destroy(&both[0]);
    kvad_sequence_destroy(&both[1]);
    close_engine(&engine);
    reference_destroy(first);
}

static void test_reordering_without_memory_changes_nothing(void **state) {
    (void)state;
    struct reference *first = reference_create(&tiny_odd, N_TOKENS);
    struct test_heap heap = {0};
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = 3;
    options.allocator = test_heap_hook(&heap);
    struct kvad_engine *engine = open_engine(first->model, &options);
    struct kvad_sequence *beams[2] = {new_sequence(engine), new_sequence(engine)}, *fork = NULL;
    static const size_t swap[] = {1, 0};
    follow(first, beams[0], 20, "long");
    follow(first, beams[1], 7, "short");
    for (size_t k = 1; k <= 3; k++) {
        struct kvad_error err;
        test_heap_fail(&heap, k, k);
        assert_fails(kvad_sequence_reorder(beams, swap, 2, &err), KVAD_ERR_NO_MEMORY, &err, "");
        assert_int_equal(kvad_sequence_length(beams[0]), 20);
        assert_int_equal(kvad_sequence_length(beams[1]), 7);
        if (k == 3) continue;
        test_heap_fail(&heap, k, k);
        assert_fails(kvad_sequence_fork(beams[0], &fork, &err), KVAD_ERR_NO_MEMORY, &err, "");
    }
    test_heap_fail(&heap, 0, 0);
    assert_int_equal(kvad_sequence_reorder(beams, swap, 2, NULL), KVAD_OK);
    follow(first, beams[0], 9, "short");
    follow(first, beams[1], 9, "long");
    kvad_sequence_destroy(&beams[0]);
    kvad_sequence_destroy(&beams[1]);
    close_engine(&engine);
    reference_destroy(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forks_at_every_token_go_their_own_ways),
        cmocka_unit_test(test_cutting_one_fork_leaves_the_other_whole),
        cmocka_unit_test(test_reordered_beams_are_the_texts_that_they_come_from),
        cmocka_unit_test(test_what_cannot_be_forked_or_reordered_is_refused),
        cmocka_unit_test(test_reordering_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
