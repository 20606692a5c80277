/* A step that fails, for whatever cause and wherever, changes nothing and can be repeated. */
#include <math.h> /* NAN alone */

#include "bits.h"
#include "reference.h"
#include "test.h"

enum { N_TEXTS = 3 };

/* ---------------------------------------------------------------- failures change nothing */

/* Three texts in one engine, with what must not change when a step fails. */
struct world {
    struct reference *texts[N_TEXTS];
    struct kvad_engine *engine;
    struct kvad_sequence *sequences[N_TEXTS];
    struct kvad_eval_item items[N_TEXTS];
    float *rows;
    size_t lengths[N_TEXTS], n_free;
    uint64_t kv_bytes;
};

static void remember(struct world *w) {
    for (size_t i = 0; i < N_TEXTS; i++)
        w->lengths[i] = kvad_sequence_length(w->sequences[i]);
    w->n_free = w->engine->pool.n_free;
    w->kv_bytes = kvad_engine_kv_bytes(w->engine);
}

static void assert_unchanged(const struct world *w, const char *where) {
    for (size_t i = 0; i < N_TEXTS; i++) {
        assert_int_equal(kvad_sequence_length(w->sequences[i]), w->lengths[i]);
        assert_cache(w->texts[i], w->sequences[i], where);
    }
    assert_int_equal(w->engine->pool.n_free, w->n_free);
    assert_int_equal(kvad_engine_kv_bytes(w->engine), w->kv_bytes);
    if (w->engine->pool.heap) assert_true(kvad_kv_pool_is_sound(&w->engine->pool));
}

static void open_world(struct world *w, const struct kvad_engine_options *options) {
    *w = (struct world){.texts[0] = reference_create(&tiny_odd, 48)};
    for (size_t i = 1; i < N_TEXTS; i++)
        w->texts[i] = reference_more(w->texts[0], 48, 100 + i); /* other tokens than the first */
    struct kvad_engine_options o = *options;
    o.n_sequences = N_TEXTS;
    w->engine = open_engine(w->texts[0]->model, &o);
    for (size_t i = 0; i < N_TEXTS; i++) {
        w->sequences[i] = new_sequence(w->engine);
        follow(w->texts[i], w->sequences[i], 14 + i, "start");
    }
    w->rows = malloc(N_TEXTS * 48 * tiny_odd.n_vocab * sizeof *w->rows);
    assert_non_null(w->rows);
    remember(w);
}

static void close_world(struct world *w) {
    for (size_t i = 0; i < N_TEXTS; i++)
        kvad_sequence_destroy(&w->sequences[i]);
    close_engine(&w->engine);
    for (size_t i = N_TEXTS; i-- > 0;)
        reference_destroy(w->texts[i]);
    free(w->rows);
}

/* A step of all texts, `n` more tokens each: the items to spoil. */
static void plan(struct world *w, size_t n) {
    for (size_t i = 0; i < N_TEXTS; i++)
        w->items[i] = (struct kvad_eval_item){.sequence = w->sequences[i],
                                              .tokens = w->texts[i]->tokens + w->lengths[i],
                                              .n_tokens = n,
                                              .n_rows = n,
                                              .logits = w->rows + i * 48 * tiny_odd.n_vocab};
    poison(w->rows, N_TEXTS * 48 * tiny_odd.n_vocab);
}

/* The same step unspoilt: the bits are those of the texts; then back to where it was. */
static void retry(struct world *w, size_t n, const char *where) {
    plan(w, n);
    struct kvad_error err;
    assert_ok(kvad_eval(w->engine, w->items, N_TEXTS, &err), &err);
    for (size_t i = 0; i < N_TEXTS; i++) {
        assert_rows(w->texts[i], w->lengths[i], n, w->items[i].logits, where);
        assert_cache(w->texts[i], w->sequences[i], where);
        cut(w->sequences[i], w->lengths[i]);
    }
    remember(w);
}

static void expect(struct world *w, enum kvad_status status, const char *part, const char *where) {
    struct kvad_error err;
    assert_fails(kvad_eval(w->engine, w->items, N_TEXTS, &err), status, &err, part);
    assert_unchanged(w, where);
}

typedef void spoil_fn(struct world *w);

static void name_twice(struct world *w) {
    w->items[2].sequence = w->items[0].sequence;
}
static void forget_sequence(struct world *w) {
    w->items[1].sequence = NULL;
}
static void forget_tokens(struct world *w) {
    w->items[2].n_tokens = w->items[2].n_rows = 0;
}
static void want_too_many_rows(struct world *w) {
    w->items[1].n_rows = 4;
}
static void forget_logits(struct world *w) {
    w->items[2].logits = NULL;
}
static void descend_rows(struct world *w) {
    static const size_t rows[] = {1, 0, 2};
    w->items[2].rows = rows;
}
static void name_row_outside(struct world *w) {
    static const size_t rows[] = {0, 1, 3};
    w->items[2].rows = rows;
}
static void name_id_above(struct world *w) {
    static const int32_t ids[] = {5, 6, 101};
    w->items[2].tokens = ids;
}
static void name_id_below(struct world *w) {
    static const int32_t ids[] = {5, -1, 6};
    w->items[1].tokens = ids;
}
static void overfill(struct world *w) {
    static const int32_t ids[60] = {1};
    w->items[2].tokens = ids;
    w->items[2].n_tokens = 60;
}

/* bugs.md SERV-9, GROW-13, BATCH-7 */
static void test_a_refused_step_changes_nothing_and_can_be_repeated(void **state) {
    (void)state;
    static const struct {
        spoil_fn *spoil;
        enum kvad_status status;
        const char *part;
    } cases[] = {
        {name_twice, KVAD_ERR_ARGUMENT, "twice"},
        {forget_sequence, KVAD_ERR_ARGUMENT, "item 1"},
        {forget_tokens, KVAD_ERR_ARGUMENT, "item 2"},
        {want_too_many_rows, KVAD_ERR_ARGUMENT, "item 1"},
        {forget_logits, KVAD_ERR_ARGUMENT, "item 2"},
        {descend_rows, KVAD_ERR_ARGUMENT, "rows[1]"},
        {name_row_outside, KVAD_ERR_ARGUMENT, "rows[2] is 3"},
        {name_id_above, KVAD_ERR_ARGUMENT, "id 101"},
        {name_id_below, KVAD_ERR_ARGUMENT, "id -1"},
        {overfill, KVAD_ERR_CONTEXT_FULL, "61"},
    };
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct kvad_engine_options options = engine_options(policies[p], 2);
        struct world w;
        open_world(&w, &options);
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
            for (int round = 0; round < 3; round++) {
                const char *where =
                    label("%s: %s", kvad_cache_policy_name(policies[p]), cases[c].part);
                plan(&w, 3);
                cases[c].spoil(&w);
                expect(&w, cases[c].status, cases[c].part, where);
                retry(&w, 3, where);
            }
        struct kvad_error err;
        assert_fails(kvad_eval(w.engine, w.items, 0, &err), KVAD_ERR_ARGUMENT, &err, "0 items");
        assert_fails(kvad_eval(w.engine, w.items, 4, &err), KVAD_ERR_ARGUMENT, &err, "4 items");
        assert_unchanged(&w, "number of items");
        close_world(&w);
    }
}

/* A pool that lacks one block for the last of three texts. */
static void test_a_step_without_blocks_changes_nothing_and_works_with_them(void **state) {
    (void)state;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    size_t block_bytes = 16 * 4 * 2 * tiny_odd.n_layers * tiny_odd.n_heads * tiny_odd.head_dim;
    options.kv_bytes = 5 * block_bytes;
    struct world w;
    open_world(&w, &options); /* lengths 14, 15, 16 in three blocks */
    for (int round = 0; round < 3; round++) {
        plan(&w, 3);
        expect(&w, KVAD_ERR_NO_BLOCKS, "of 5", "no blocks");
        retry(&w, 1, "one block is enough");
    }
    close_world(&w);
}

/* ---------------------------------------------------------------- interrupts */

/* Stands in for the norm kernel and interrupts the engine at the n-th call. */
static struct {
    struct kvad_engine *engine;
    kvad_layer_norm_fn *layer_norm;
    int calls_left;
} hook;

static void norm_and_interrupt(float *y, const float *x, const float *weight, const float *bias,
                               size_t n, float eps) {
    if (--hook.calls_left == 0) kvad_engine_interrupt(hook.engine);
    hook.layer_norm(y, x, weight, bias, n, eps);
}

static void test_an_interrupt_anywhere_in_a_step_changes_nothing(void **state) {
    (void)state;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_GROW, 1);
    options.n_batch_tokens = 5; /* 9 rows: two slices */
    struct world w;
    open_world(&w, &options);
    hook.engine = w.engine;
    hook.layer_norm = w.engine->kernels.layer_norm;
    int n_cancelled = 0, n_late = 0;
    for (int call = 1;; call++) {
        hook.calls_left = call;
        w.engine->kernels.layer_norm = norm_and_interrupt;
        plan(&w, 3);
        struct kvad_error err;
        enum kvad_status status = kvad_eval(w.engine, w.items, N_TEXTS, &err);
        w.engine->kernels.layer_norm = hook.layer_norm;
        if (hook.calls_left > 0) { /* the step has fewer calls */
            assert_int_equal(status, KVAD_OK);
            break;
        }
        if (status == KVAD_OK) { /* too late for this step: the next one is told */
            n_late++;
            for (size_t i = 0; i < N_TEXTS; i++)
                cut(w.sequences[i], w.lengths[i]);
            plan(&w, 3);
            expect(&w, KVAD_ERR_CANCELLED, "interrupted", "late");
        } else {
            n_cancelled++;
            assert_int_equal(status, KVAD_ERR_CANCELLED);
            assert_unchanged(&w, "interrupted");
        }
        retry(&w, 3, "after an interrupt");
    }
    assert_true(n_cancelled >= 2 * (int)tiny_odd.n_layers && n_late >= 1);
    close_world(&w);
}

static void test_an_interrupt_before_a_step_cancels_exactly_one(void **state) {
    (void)state;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    struct world w;
    open_world(&w, &options);
    for (int round = 0; round < 3; round++) {
        kvad_engine_interrupt(w.engine);
        kvad_engine_interrupt(w.engine);
        plan(&w, 3);
        expect(&w, KVAD_ERR_CANCELLED, "interrupted", "before");
        retry(&w, 3, "after");
    }
    close_world(&w);
}

/* ---------------------------------------------------------------- numbers */

/* Stands in for the norm kernel: the result for one row of the embedding is no number. */
static struct {
    const float *row; /* [d_model] */
    kvad_layer_norm_fn *layer_norm;
} spoiler;

static void norm_and_spoil(float *y, const float *x, const float *weight, const float *bias,
                           size_t n, float eps) {
    bool is_row = memcmp(x, spoiler.row, n * sizeof *x) == 0;
    spoiler.layer_norm(y, x, weight, bias, n, eps);
    if (is_row) y[0] = NAN;
}

/* Whichever token of whichever text it is, and in whichever slice of the step. */
static void test_a_number_that_is_not_finite_is_blamed_on_its_own_text(void **state) {
    (void)state;
    for (uint32_t n_batch = 1; n_batch <= 9; n_batch++) {
        struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
        options.n_batch_tokens = n_batch;
        struct world w;
        open_world(&w, &options);
        spoiler.layer_norm = w.engine->kernels.layer_norm;
        for (size_t i = 0; i < 3 * N_TEXTS; i++) {
            size_t text = i / 3, position = w.lengths[text] + i % 3;
            const char *where = label("slices of %u, text %zu", n_batch, text);
            spoiler.row = w.texts[text]->hidden + position * w.texts[0]->tiny->description.d_model;
            w.engine->kernels.layer_norm = norm_and_spoil;
            plan(&w, 3);
            expect(&w, KVAD_ERR_NOT_FINITE, "position", where);
            w.engine->kernels.layer_norm = spoiler.layer_norm;
            assert_int_equal(w.engine->failed_item, text);
            retry(&w, 3, where);
        }
        close_world(&w);
    }
}

/* ---------------------------------------------------------------- memory */

/* Only `grow` allocates in a step. Any of its allocations may fail, on the way forward and back. */
static void test_growing_without_memory_changes_nothing(void **state) {
    (void)state;
    struct test_heap heap = {0};
    struct kvad_engine_options options = engine_options(KVAD_CACHE_GROW, 1);
    options.allocator = test_heap_hook(&heap);
    struct world w;
    open_world(&w, &options);
    size_t n_failed = 0;
    for (size_t k = 1;; k++) {
        plan(&w, 3);
        test_heap_fail(&heap, k, SIZE_MAX);
        struct kvad_error err;
        enum kvad_status status = kvad_eval(w.engine, w.items, N_TEXTS, &err);
        test_heap_fail(&heap, 0, 0);
        if (status == KVAD_OK) break;
        n_failed++;
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        for (size_t i = 0; i < N_TEXTS; i++) { /* a larger area may have stayed */
            assert_int_equal(kvad_sequence_length(w.sequences[i]), w.lengths[i]);
            assert_cache(w.texts[i], w.sequences[i], "no memory");
        }
        retry(&w, 3, "with memory");
    }
    assert_int_equal(n_failed, N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++) {
        test_heap_fail(&heap, 1, SIZE_MAX); /* truncating never fails */
        cut(w.sequences[i], 9);
        test_heap_fail(&heap, 0, 0);
        assert_cache(w.texts[i], w.sequences[i], "cut without memory");
        follow(w.texts[i], w.sequences[i], 20, "cut without memory");
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_step_changes_nothing_and_can_be_repeated),
        cmocka_unit_test(test_a_step_without_blocks_changes_nothing_and_works_with_them),
        cmocka_unit_test(test_an_interrupt_anywhere_in_a_step_changes_nothing),
        cmocka_unit_test(test_an_interrupt_before_a_step_cancels_exactly_one),
        cmocka_unit_test(test_a_number_that_is_not_finite_is_blamed_on_its_own_text),
        cmocka_unit_test(test_growing_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
