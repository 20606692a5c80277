/* Memory that is refused: every allocation of opening, of sequences, of requests and of loading a
 * model fails once, alone and with all after it; what comes back is a clean error and no byte. */
#include <unistd.h>

#include "bits.h"
#include "golden.h"
#include "reference.h"
#include "requests.h"
#include "test.h"

/* What is tried with a failing heap: KVAD_OK, or the error; leaves nothing allocated behind. */
typedef enum kvad_status attempt_fn(struct test_heap *heap, struct kvad_error *err);

/* The k-th allocation fails, for every k there is; returns how many there are. */
static size_t fail_each(attempt_fn *attempt, size_t last, const char *what) {
    size_t k = 1;
    for (;; k++) {
        struct test_heap heap = {0};
        struct kvad_error err = {0};
        test_heap_fail(&heap, k, last ? last : k);
        enum kvad_status status = attempt(&heap, &err);
        if (atomic_load(&heap.n_live) != 0)
            print_error("%s: %zu pieces are left after failure %zu\n", what,
                        atomic_load(&heap.n_live), k);
        assert_int_equal(atomic_load(&heap.n_live), 0);
        assert_int_equal(atomic_load(&heap.n_bytes), 0);
        if (status == KVAD_OK) break; /* there is no k-th */
        if (status != KVAD_ERR_NO_MEMORY)
            print_error("%s: allocation %zu: %s\n", what, k, err.text);
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_int_equal(err.status, KVAD_ERR_NO_MEMORY);
        assert_non_null(strstr(err.text, "memory"));
        assert_null(strchr(err.text, '\n'));
        assert_true(k < 5000);
    }
    return k - 1;
}

static void fail_all(attempt_fn *attempt, size_t at_least, const char *name) {
    char what[100]; /* a label() lasts for eight calls only */
    snprintf(what, sizeof what, "%s", name);
    size_t n = fail_each(attempt, 0, what);
    assert_int_equal(fail_each(attempt, SIZE_MAX, what), n);
    print_message("%s: %zu allocations\n", what, n);
    assert_true(n >= at_least);
}

/* ---------------------------------------------------------------- what is tried */

static struct reference *reference;
static enum kvad_cache_policy policy;
static uint32_t n_ctx; /* 0: the model's */
static bool own_threads;

static enum kvad_status open_with(struct test_heap *heap, struct kvad_engine **engine,
                                  struct kvad_error *err) {
    struct kvad_engine_options options = engine_options(policy, 1);
    options.allocator = test_heap_hook(heap);
    options.n_sequences = 2;
    options.n_batch_tokens = 8;
    options.n_ctx = n_ctx;
    if (own_threads) {
        options.threads = NULL;
        options.n_threads = 2;
    }
    return kvad_engine_open(reference->model, &options, engine, err);
}

static enum kvad_status try_open(struct test_heap *heap, struct kvad_error *err) {
    struct kvad_engine *engine = NULL;
    enum kvad_status status = open_with(heap, &engine, err);
    if (status != KVAD_OK) assert_null(engine);
    kvad_engine_close(&engine);
    return status;
}

/* The rest wants the engine itself opened without failures. */
static void open_first(struct test_heap *heap, struct kvad_engine **engine) {
    size_t first = heap->fail_first, last = heap->fail_last;
    struct kvad_error err;
    test_heap_fail(heap, 0, 0);
    assert_ok(open_with(heap, engine, &err), &err);
    test_heap_fail(heap, first, last);
}

/* A sequence and three steps; what went well has the bits of the text. */
static enum kvad_status try_steps(struct test_heap *heap, struct kvad_error *err) {
    static const size_t chunks[] = {20, 1, 12};
    struct kvad_engine *engine = NULL;
    open_first(heap, &engine);
    struct kvad_sequence *sequence = NULL;
    float *rows = malloc(20 * reference_vocab(reference) * sizeof *rows);
    assert_non_null(rows);
    enum kvad_status status = kvad_sequence_create(engine, &sequence, err);
    for (size_t i = 0, first = 0; i < 3 && status == KVAD_OK; first += chunks[i++]) {
        struct kvad_eval_item item = {.sequence = sequence,
                                      .tokens = reference->tokens + first,
                                      .n_tokens = chunks[i],
                                      .n_rows = chunks[i],
                                      .logits = rows};
        status = kvad_eval(engine, &item, 1, err);
        if (status == KVAD_OK) assert_rows(reference, first, chunks[i], rows, "steps");
        assert_int_equal(kvad_sequence_length(sequence),
                         first + (status == KVAD_OK ? chunks[i] : 0));
        assert_cache(reference, sequence, "steps");
    }
    free(rows);
    kvad_sequence_destroy(&sequence);
    assert_idle(engine);
    kvad_engine_close(&engine);
    return status;
}

/* Two requests at once: each ends well or with the error of its memory. */
static enum kvad_status try_requests(struct test_heap *heap, struct kvad_error *err) {
    struct kvad_engine *engine = NULL;
    open_first(heap, &engine);
    struct kvad_request *requests[2] = {NULL, NULL};
    struct kvad_request_options options = greedy_options(reference->tokens, 17, 30);
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE; /* its ids outgrow what is reserved */
    enum kvad_status status = KVAD_OK;
    for (size_t i = 0; i < 2 && status == KVAD_OK; i++)
        status = kvad_request_submit(engine, &options, &requests[i], err);
    size_t n_active = status == KVAD_OK ? 2 : 0;
    while (n_active > 0) {
        assert_int_equal(kvad_engine_step(engine, &n_active, NULL), KVAD_OK);
        for (size_t i = 0; i < 2; i++) {
            struct kvad_event event;
            while (kvad_request_poll(requests[i], &event))
                if (event.finish == KVAD_FINISH_ERROR)
                    status = kvad_request_error(requests[i], err);
                else if (event.finish != KVAD_FINISH_NONE)
                    assert_int_equal(event.finish, KVAD_FINISH_LENGTH);
        }
    }
    assert_true(kvad_engine_kv_bytes(engine) == 0);
    for (size_t i = 0; i < 2; i++)
        kvad_request_destroy(&requests[i]);
    assert_idle(engine);
    kvad_engine_close(&engine);
    return status;
}

/* ---------------------------------------------------------------- engines, sequences, requests */

static int make_reference(void **state) {
    (void)state;
    reference = reference_create(&tiny_odd, 40);
    return 0;
}

static int free_reference(void **state) {
    reference_destroy(reference);
    return release_test_threads(state);
}

/* bugs.md MEM-1 */
static void test_opening_an_engine_without_memory_is_a_clean_error(void **state) {
    (void)state;
    for (size_t p = 0; p < N_POLICIES; p++) {
        policy = policies[p];
        for (int own = 0; own <= 1; own++) {
            own_threads = own;
            fail_all(try_open, 10, label("open, %s", kvad_cache_policy_name(policy)));
        }
    }
    own_threads = false;
}

static void test_sequences_and_steps_without_memory_are_clean_errors(void **state) {
    (void)state;
    for (size_t p = 0; p < 3; p++) {
        policy = policies[p];
        fail_all(try_steps, policy == KVAD_CACHE_GROW ? 5 : 2,
                 label("steps, %s", kvad_cache_policy_name(policy)));
    }
}

static void test_requests_without_memory_are_clean_errors(void **state) {
    (void)state;
    n_ctx = 20;
    for (size_t p = 0; p < N_POLICIES; p++) {
        policy = policies[p];
        fail_all(try_requests, 8, label("requests, %s", kvad_cache_policy_name(policy)));
    }
    n_ctx = 0;
}

/* ---------------------------------------------------------------- loading */

static const char *model_path;

static enum kvad_status try_load(struct test_heap *heap, struct kvad_error *err) {
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.allocator = test_heap_hook(heap);
    struct kvad_model *model = NULL;
    enum kvad_status status = kvad_model_load(model_path, &options, &model, err);
    if (status != KVAD_OK) assert_null(model);
    kvad_model_release(&model);
    return status;
}

static const char *const models[] = {
    "tests/data/models/hf-gpt2/upcast-fast-gelu",
    "tests/data/models/nanogpt/compiled-padded",
    "tests/data/models/hand-written/lecture-wrapped/model.pt",
};

static void test_loading_a_model_without_memory_is_a_clean_error(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        model_path = models[i];
        fail_all(try_load, 5, model_path);
    }
}

static enum kvad_status try_tokenizer(struct test_heap *heap, struct kvad_error *err) {
    struct kvad_allocator hook = test_heap_hook(heap);
    struct kvad_tokenizer *tokenizer = NULL;
    enum kvad_status status = kvad_tokenizer_open(model_path, &hook, &tokenizer, err);
    if (status != KVAD_OK) assert_null(tokenizer);
    kvad_tokenizer_release(&tokenizer);
    return status;
}

static void test_opening_a_tokenizer_without_memory_is_a_clean_error(void **state) {
    (void)state;
    static const char *const paths[] = {"tests/data/small-bpe/tokenizer-pairs.json",
                                        "models/shakespeare-char/meta.pkl"};
    for (size_t i = 0; i < 2; i++) {
        model_path = paths[i];
        fail_all(try_tokenizer, 3, model_path);
    }
}

/* ---------------------------------------------------------------- the JSON library's own memory */

/* jansson allocates for itself: its k-th request fails. It says so only at times (most often it
 * blames the text), and drops characters where its string buffer cannot grow (2.14), so that not
 * even failure can be asked for; only that nothing crashes and no byte of ours is left. */
static struct {
    size_t n, fail_at;
    bool fails_after;
} json;

static void *json_malloc(size_t size) {
    json.n++;
    bool fails =
        json.fail_at > 0 && (json.fails_after ? json.n >= json.fail_at : json.n == json.fail_at);
    return fails ? NULL : malloc(size);
}

static void fail_json(attempt_fn *attempt, bool fails_after, size_t stride) {
    json_set_alloc_funcs(json_malloc, free);
    size_t n_failed = 0;
    for (size_t k = 1;; k += stride) {
        struct test_heap heap = {0};
        struct kvad_error err = {0};
        json.n = 0;
        json.fail_at = k;
        json.fails_after = fails_after;
        enum kvad_status status = attempt(&heap, &err);
        assert_int_equal(atomic_load(&heap.n_live), 0);
        if (status != KVAD_OK) assert_true(strlen(err.text) > 10);
        if (json.n < k) {
            assert_int_equal(status, KVAD_OK);
            break;
        }
        n_failed += status != KVAD_OK;
    }
    json.fail_at = 0;
    json_set_alloc_funcs(malloc, free);
    print_message("%s: %zu failures of JSON allocations\n", model_path, n_failed);
    assert_true(n_failed > 5);
}

static void test_json_without_memory_neither_crashes_nor_leaks(void **state) {
    (void)state;
    model_path = models[0];
    fail_json(try_load, false, 1);
    fail_json(try_load, true, 1);
    model_path = "tests/data/small-bpe/tokenizer-pairs.json";
    fail_json(try_tokenizer, false, 7);
    fail_json(try_tokenizer, true, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_an_engine_without_memory_is_a_clean_error),
        cmocka_unit_test(test_sequences_and_steps_without_memory_are_clean_errors),
        cmocka_unit_test(test_requests_without_memory_are_clean_errors),
        cmocka_unit_test(test_loading_a_model_without_memory_is_a_clean_error),
        cmocka_unit_test(test_opening_a_tokenizer_without_memory_is_a_clean_error),
        cmocka_unit_test(test_json_without_memory_neither_crashes_nor_leaks),
    };
    return cmocka_run_group_tests(tests, make_reference, free_reference);
}
