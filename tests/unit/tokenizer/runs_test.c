/* Long runs, memory and threads. */
#include <pthread.h>

#include "hook.h"
#include "support.h"

#include "tokenizer/pretokenize.h"

enum { RUN = 1000000 };

/* A text of `size` bytes made of one unit. */
static char *repeat(const char *unit, size_t size) {
    char *text = malloc(size ? size : 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = unit[i % strlen(unit)];
    return text;
}

/* Encode one piece, check that it decodes to itself, and return the heap operations it took. */
static uint64_t steps_of(const struct kvad_tokenizer *t, const char *text, size_t size) {
    struct kvad_error err;
    struct kvad_bpe_scratch scratch = {0};
    struct kvad_id_sink sink = {malloc(size * sizeof(int32_t)), size, 0};
    assert_ok(kvad_bpe_encode(&t->bpe, text, size, 0, &scratch, &sink, &err), &err);
    size_t n;
    char *back = decode(t, (struct ids){sink.ids, sink.n}, &n);
    assert_int_equal(n, size);
    assert_memory_equal(back, text, size);
    free(back);
    free(sink.ids);
    uint64_t steps = scratch.n_steps;
    kvad_bpe_scratch_free(&scratch, t->scratch_heap);
    return steps;
}

static void check_runs(const struct kvad_tokenizer *t) {
    static const char *const units[] = {"a", "^", " ", "\n", "0", "_", "\xe6\x97\xa5", "ll", "LO"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t size = RUN / strlen(units[i]) * strlen(units[i]);
        char *text = repeat(units[i], size);
        assert_int_equal(kvad_pretokenize(text, size), size); /* one piece indeed */
        /* size - 1 entries at first and at most two more per merge, each taken out once: linear,
         * and no jump when the text doubles. */
        uint64_t half = steps_of(t, text, size / 2), whole = steps_of(t, text, size);
        assert_true(whole <= 3 * size);
        assert_true(2 * whole <= 5 * half + 10);
        free(text);
    }
}

/* bugs.md TOK-4 TOK-5 TOK-10 */
static void test_a_million_equal_characters_take_a_linear_number_of_steps(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    check_runs(t);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-4 TOK-5 */
static void test_a_million_equal_characters_are_linear_with_gpt2_too(void **state) {
    (void)state;
    if (!test_fixture("gpt2-tokenizer/vocab.json")) skip();
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(kvad_tokenizer_open(test_fixture("gpt2-tokenizer/vocab.json"), NULL, &t, &err), &err);
    check_runs(t);
    kvad_tokenizer_release(&t);
}

static void *encode_ten_million(void *argument) {
    const struct kvad_tokenizer *t = argument;
    struct kvad_error err;
    size_t size = 10u * RUN, n = 0;
    char *text = repeat("^", size);
    int32_t last[1];
    enum kvad_status status = kvad_tokenizer_encode(t, text, size, 0, last, 1, &n, &err);
    free(text);
    return status == KVAD_OK && n == size ? argument : NULL;
}

/* bugs.md TOK-5: nothing recurses, so a small stack is enough. */
static void test_ten_million_equal_characters_fit_a_stack_of_256_kb(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    pthread_attr_t attr;
    pthread_t thread;
    void *result = NULL;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, encode_ten_million, t), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    pthread_attr_destroy(&attr);
    assert_ptr_equal(result, t);
    kvad_tokenizer_release(&t);
}

static void test_memory_of_a_call_is_linear_in_the_longest_piece_and_given_back(void **state) {
    (void)state;
    struct hook hook;
    hook_init(&hook, 0);
    struct kvad_tokenizer *t = open_small_bpe(&hook.allocator);
    size_t before = hook.bytes, n;
    struct kvad_error err;
    char *text = repeat("lo", 100000);
    hook.peak = 0;
    assert_ok(kvad_tokenizer_encode(t, text, 100000, 0, NULL, 0, &n, &err), &err);
    assert_true(hook.peak - before <= 32 * 100000);
    assert_int_equal(hook.bytes, before);
    size_t n_calls = hook.n_calls; /* short pieces need no memory at all */
    assert_ok(kvad_tokenizer_encode(t, NASTY, strlen(NASTY), 0, NULL, 0, &n, &err), &err);
    assert_int_equal(hook.n_calls, n_calls);
    free(text);
    kvad_tokenizer_release(&t);
    assert_int_equal(hook.bytes, 0);
}

static void test_a_failed_allocation_in_encode_is_a_clean_error(void **state) {
    (void)state;
    struct hook hook;
    hook_init(&hook, 0);
    struct kvad_tokenizer *t = open_small_bpe(&hook.allocator);
    char *text = repeat("lo", 1000);
    struct kvad_error err;
    size_t n = 321, before = hook.bytes;
    hook.fail_at = hook.n_calls + 1;
    assert_fails(kvad_tokenizer_encode(t, text, 1000, 0, NULL, 0, &n, &err), KVAD_ERR_NO_MEMORY,
                 &err, "merging a long piece");
    assert_int_equal(n, 321);
    assert_int_equal(hook.bytes, before);
    assert_round_trip(t, text, 1000); /* and the next call works */
    free(text);
    kvad_tokenizer_release(&t);
    assert_int_equal(hook.bytes, 0);
}

enum { N_THREADS = 8, N_TEXTS = 16, N_ROUNDS = 600 };

struct shared {
    struct kvad_tokenizer *t;
    char texts[N_TEXTS][400];
    size_t sizes[N_TEXTS];
    struct ids serial[N_TEXTS];
};
struct worker {
    const struct shared *shared;
    unsigned number, n_wrong;
};

static void *encode_and_compare(void *argument) {
    struct worker *worker = argument;
    const struct shared *s = worker->shared;
    struct kvad_tokenizer *mine = kvad_tokenizer_retain(s->t);
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        unsigned i = (round * 7 + worker->number * 3) % N_TEXTS;
        int32_t ids[400];
        size_t n = 0, size;
        const char *bytes;
        enum kvad_status status =
            kvad_tokenizer_encode(mine, s->texts[i], s->sizes[i], 0, ids, 400, &n, NULL);
        bool same = status == KVAD_OK && n == s->serial[i].n &&
                    memcmp(ids, s->serial[i].ids, n * sizeof *ids) == 0;
        for (size_t k = 0, at = 0; k < n && same; k++, at += size) {
            same = kvad_tokenizer_piece(mine, ids[k], &bytes, &size, NULL) == KVAD_OK &&
                   memcmp(bytes, s->texts[i] + at, size) == 0;
        }
        worker->n_wrong += !same;
    }
    kvad_tokenizer_release(&mine);
    return NULL;
}

/* bugs.md DET-8 */
static void test_eight_threads_on_one_tokenizer_give_the_serial_ids(void **state) {
    (void)state;
    static struct shared shared;
    struct worker workers[N_THREADS];
    pthread_t threads[N_THREADS];
    shared.t = open_small_bpe(NULL);
    uint32_t seed = 4;
    for (int i = 0; i < N_TEXTS; i++) {
        shared.sizes[i] = 100 + next_random(&seed) % 300;
        for (size_t k = 0; k < shared.sizes[i]; k++) /* some are one long piece: scratch memory */
            shared.texts[i][k] = i % 4 ? NASTY[next_random(&seed) % strlen(NASTY)]
                                       : "lother"[next_random(&seed) % 6];
        shared.serial[i] = encode(shared.t, shared.texts[i], shared.sizes[i], 0);
    }
    for (unsigned i = 0; i < N_THREADS; i++) {
        workers[i] = (struct worker){&shared, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_and_compare, &workers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
    }
    for (int i = 0; i < N_TEXTS; i++)
        free(shared.serial[i].ids);
    kvad_tokenizer_release(&shared.t);
    assert_null(shared.t);
    kvad_tokenizer_release(&shared.t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_million_equal_characters_take_a_linear_number_of_steps),
        cmocka_unit_test(test_a_million_equal_characters_are_linear_with_gpt2_too),
        cmocka_unit_test(test_ten_million_equal_characters_fit_a_stack_of_256_kb),
        cmocka_unit_test(test_memory_of_a_call_is_linear_in_the_longest_piece_and_given_back),
        cmocka_unit_test(test_a_failed_allocation_in_encode_is_a_clean_error),
        cmocka_unit_test(test_eight_threads_on_one_tokenizer_give_the_serial_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
