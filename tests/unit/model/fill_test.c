/* Filling weights by several workers: the same bytes, by those that read them, and one failure. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/engine.h"
#include "model/fill.h"
#include "support.h"
#include "test.h"

static struct kvad_error err;

/* Nothing a multiple of 16 or of a cache line, so that arrays have gaps behind them: matrices too,
 * which takes an odd number of panels with an odd number of inputs. */
static const struct kvad_description odd = {.family = "test",
                                            .n_layers = 2,
                                            .n_heads = 6,
                                            .n_kv_heads = 2,
                                            .head_dim = 5,
                                            .d_model = 23,
                                            .d_ff = 537,
                                            .n_vocab = 45,
                                            .n_ctx = 19,
                                            .activation = KVAD_ACTIVATION_RELU,
                                            .norm_eps = 1e-5f,
                                            .eos = -1};

static bool is_matrix(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_QKV_WEIGHT || p == KVAD_PARAMETER_OUT_WEIGHT ||
           p == KVAD_PARAMETER_UP_WEIGHT || p == KVAD_PARAMETER_DOWN_WEIGHT ||
           p == KVAD_PARAMETER_HEAD_WEIGHT;
}

/* ---------------------------------------------------------------- a source that keeps a diary */

enum { MAX_PANELS = 64, MAX_LAYERS = 3 };

/* An element that cannot be read. */
struct hole {
    enum kvad_parameter parameter;
    uint32_t layer;
    size_t row;
};

struct diary {
    struct kvad_description description;
    bool is_transposed, has_no_bias;
    const struct hole *holes;
    size_t n_holes;
    pthread_t who[KVAD_PARAMETER_COUNT][MAX_LAYERS][MAX_PANELS]; /* read the rows of a panel */
};

static enum kvad_status read_noted(void *user, enum kvad_parameter parameter, uint32_t layer,
                                   size_t row, size_t first, size_t n, float *out,
                                   struct kvad_error *e) {
    struct diary *diary = user;
    for (size_t i = 0; i < diary->n_holes; i++) {
        const struct hole *hole = &diary->holes[i];
        if (hole->parameter == parameter && hole->layer == layer && hole->row == row)
            return kvad_fail(e, KVAD_ERR_FORMAT, "a hole in %s of layer %u, row %zu",
                             kvad_parameter_name(parameter), layer, row);
    }
    bool is_turned = diary->is_transposed && is_matrix(parameter);
    for (size_t i = 0; i < n; i++) {
        size_t output = is_turned ? first + i : row, input = is_turned ? row : first + i;
        /* Not a value of one type of quants alone. */
        out[i] = element(parameter, layer, output, input) * 0.37f;
        if (is_matrix(parameter))
            diary->who[parameter][layer][output / KVAD_PANEL] = pthread_self();
    }
    return KVAD_OK;
}

static struct kvad_model_source source_of(struct diary *diary) {
    struct kvad_model_source source = {.read = read_noted, .user = diary};
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
        source.present[p] = !diary->has_no_bias || !strstr(kvad_parameter_name(p), "bias");
        source.transposed[p] = diary->is_transposed && is_matrix(p);
    }
    return source;
}

/* Memory that is never the same. */
static void *allocate_dirty(void *user, size_t size, size_t alignment) {
    static unsigned char filling = 1;
    void *memory = NULL;
    (void)user;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
    return memset(memory, filling += 37, size);
}
static void release_dirty(void *user, void *memory, size_t size) {
    (void)user, (void)size;
    free(memory);
}

static struct kvad_model *build_by(struct diary *diary, struct kvad_threads *threads,
                                   enum kvad_weight_type type) {
    struct kvad_model *model = NULL;
    struct kvad_model_source source = source_of(diary);
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.allocator = (struct kvad_allocator){allocate_dirty, release_dirty, NULL};
    options.weights = type;
    options.threads = threads;
    assert_ok(kvad_model_build(&diary->description, &source, &options, &model, &err), &err);
    return model;
}

static struct kvad_threads *pool_of(unsigned n) {
    struct kvad_threads *threads = NULL;
    assert_ok(kvad_threads_create(n, NULL, &threads, &err), &err);
    return threads;
}

/* ---------------------------------------------------------------- the same bytes */

static void test_any_workers_and_either_order_of_a_file_give_the_same_bytes(void **state) {
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 8, 64};
    struct diary rows = {.description = odd}, columns = {.description = odd, .is_transposed = true};
    for (int type = 0; type < KVAD_WEIGHT_TYPE_COUNT; type++) {
        struct kvad_threads *alone = pool_of(1);
        struct kvad_model *wanted = build_by(&rows, alone, (enum kvad_weight_type)type);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct kvad_threads *threads = pool_of(counts[i]);
            for (int order = 0; order < 2; order++) {
                struct kvad_model *model =
                    build_by(order ? &columns : &rows, threads, (enum kvad_weight_type)type);
                assert_int_equal(model->area_bytes, wanted->area_bytes);
                assert_memory_equal(model->area, wanted->area, wanted->area_bytes);
                kvad_model_release(&model);
            }
            kvad_threads_release(&threads);
        }
        kvad_model_release(&wanted);
        kvad_threads_release(&alone);
    }
}

static void test_a_copy_by_any_workers_has_every_byte(void **state) {
    (void)state;
    struct diary diary = {.description = odd};
    for (unsigned n = 1; n < 12; n++) {
        struct kvad_threads *threads = pool_of(n);
        struct kvad_model *from = build_by(&diary, threads, KVAD_WEIGHTS_Q4);
        struct kvad_model *to = build_by(&diary, threads, KVAD_WEIGHTS_Q4);
        memset(to->area, 0xee, to->area_bytes);
        kvad_model_fill_copy(to, from->area, threads);
        assert_memory_equal(to->area, from->area, from->area_bytes);
        kvad_model_release(&from);
        kvad_model_release(&to);
        kvad_threads_release(&threads);
    }
}

/* ---------------------------------------------------------------- who writes is who reads */

/* Of the engine under test; a kernel has no argument of its own. */
static struct {
    kvad_linear_f32_fn *linear;
    const struct kvad_model *model;
    const struct diary *diary;
    _Atomic size_t n_own, n_foreign;
} watched;

static void note_panels(const struct kvad_linear_weights *linear, enum kvad_parameter parameter,
                        uint32_t layer, const struct kvad_linear_f32_args *args) {
    const unsigned char *first = (const void *)args->w;
    if (first < linear->panels ||
        first >= linear->panels + kvad_panel_count(linear->n) * linear->panel_bytes)
        return;
    size_t panel = (size_t)(first - linear->panels) / linear->panel_bytes;
    for (size_t i = panel; i < panel + args->n_panels; i++)
        atomic_fetch_add(pthread_equal(watched.diary->who[parameter][layer][i], pthread_self())
                             ? &watched.n_own
                             : &watched.n_foreign,
                         1);
}

static void watch_linear(const struct kvad_linear_f32_args *args) {
    const struct kvad_model *model = watched.model;
    for (uint32_t l = 0; l < model->description.n_layers; l++) {
        const struct kvad_layer_weights *layer = &model->layers[l];
        note_panels(&layer->qkv, KVAD_PARAMETER_QKV_WEIGHT, l, args);
        note_panels(&layer->out, KVAD_PARAMETER_OUT_WEIGHT, l, args);
        note_panels(&layer->up, KVAD_PARAMETER_UP_WEIGHT, l, args);
        note_panels(&layer->down, KVAD_PARAMETER_DOWN_WEIGHT, l, args);
    }
    note_panels(&model->head, KVAD_PARAMETER_HEAD_WEIGHT, 0, args);
    watched.linear(args);
}

static void run_tokens(struct kvad_engine *engine, size_t n, size_t n_vocab) {
    static const int32_t tokens[] = {1, 2, 3, 5, 8, 13, 21, 34};
    struct kvad_sequence *sequence = NULL;
    float *logits = malloc(n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_ok(kvad_sequence_create(engine, &sequence, &err), &err);
    struct kvad_eval_item item = {
        .sequence = sequence, .tokens = tokens, .n_tokens = n, .n_rows = 1, .logits = logits};
    assert_ok(kvad_eval(engine, &item, 1, &err), &err);
    kvad_sequence_destroy(&sequence);
    free(logits);
}

/* Every panel is read once in a step, all by the worker that wrote it. */
static void check_readers(unsigned n_threads, bool is_transposed, size_t n_tokens) {
    struct diary diary = {.description = odd, .is_transposed = is_transposed};
    struct kvad_description *d = &diary.description;
    d->n_heads = d->n_kv_heads = 6;
    d->head_dim = 32;
    d->d_model = 192;
    d->d_ff = 384;
    d->n_vocab = 570;
    struct kvad_threads *threads = pool_of(n_threads);
    struct kvad_model *model = build_by(&diary, threads, KVAD_WEIGHTS_F32);
    struct kvad_engine *engine = NULL;
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.threads = threads;
    assert_ok(kvad_engine_open(model, &options, &engine, &err), &err);
    watched.linear = engine->kernels.linear_f32;
    watched.model = model;
    watched.diary = &diary;
    watched.n_own = watched.n_foreign = 0;
    engine->kernels.linear_f32 = watch_linear;
    run_tokens(engine, n_tokens, d->n_vocab);
    assert_int_equal(watched.n_foreign, 0);
    assert_int_equal(watched.n_own, 2 * (36 + 12 + 24 + 12) + 36);
    kvad_engine_close(&engine);
    kvad_model_release(&model);
    kvad_threads_release(&threads);
}

static void test_who_first_writes_a_panel_reads_it_in_every_step(void **state) {
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 4, 6, 12};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int order = 0; order < 2; order++) {
            check_readers(counts[i], order, 1);
            check_readers(counts[i], order, 8);
        }
}

/* Large pieces of memory that nobody has touched, and how many of their pages somebody has. */
struct fresh {
    struct diary diary;
    void *area;
    size_t area_bytes, n_touched;
    _Atomic bool is_asked;
};

static void *allocate_fresh(void *user, size_t size, size_t alignment) {
    struct fresh *fresh = user;
    void *memory = NULL;
    if (size < 1 << 20) return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (fresh->area_bytes < size) fresh->area = memory, fresh->area_bytes = size;
    return memory;
}

static void release_fresh(void *user, void *memory, size_t size) {
    (void)user;
    if (size < 1 << 20)
        free(memory);
    else
        munmap(memory, size);
}

static enum kvad_status read_asking(void *user, enum kvad_parameter parameter, uint32_t layer,
                                    size_t row, size_t first, size_t n, float *out,
                                    struct kvad_error *e) {
    struct fresh *fresh = user;
    if (!atomic_exchange(&fresh->is_asked, true)) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = fresh->area_bytes / page;
        unsigned char *pages = calloc(n_pages, 1);
        if (!pages || mincore(fresh->area, n_pages * page, pages) != 0) fresh->n_touched = n_pages;
        for (size_t i = 0; pages && i < n_pages; i++)
            fresh->n_touched += pages[i] & 1;
        free(pages);
    }
    return read_noted(&fresh->diary, parameter, layer, row, first, n, out, e);
}

static void test_no_page_of_the_weights_is_touched_before_the_workers_come(void **state) {
    (void)state;
    struct fresh fresh = {.diary = {.description = odd}};
    fresh.diary.description.n_ctx = 50000; /* 4.6 MB of positions */
    struct kvad_model_source source = source_of(&fresh.diary);
    source.read = read_asking;
    source.user = &fresh;
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    kvad_model_options_init(&options);
    options.allocator = (struct kvad_allocator){allocate_fresh, release_fresh, &fresh};
    options.n_threads = 1; /* others might write before the first one asks */
    assert_ok(kvad_model_build(&fresh.diary.description, &source, &options, &model, &err), &err);
    assert_ptr_equal(model->area, fresh.area);
    assert_true(fresh.is_asked);
    assert_int_equal(fresh.n_touched, 0);
    kvad_model_release(&model);
}

/* ---------------------------------------------------------------- failures and progress */

static void check_failure(const struct hole *holes, size_t n, bool has_no_bias,
                          const char *wanted) {
    static const unsigned counts[] = {1, 2, 5, 9};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int round = 0; round < 5; round++) {
            struct diary diary = {
                .description = odd, .holes = holes, .n_holes = n, .has_no_bias = has_no_bias};
            struct kvad_model_source source = source_of(&diary);
            struct kvad_model_options options;
            struct kvad_model *model = NULL;
            kvad_model_options_init(&options);
            options.n_threads = counts[i];
            assert_fails(kvad_model_build(&odd, &source, &options, &model, &err), KVAD_ERR_FORMAT,
                         &err, wanted);
            assert_null(model);
        }
}

static void test_the_failure_that_one_worker_would_meet_is_reported(void **state) {
    (void)state;
    static const struct hole holes[] = {
        {KVAD_PARAMETER_HEAD_WEIGHT, 0, 3}, {KVAD_PARAMETER_UP_WEIGHT, 1, 500},
        {KVAD_PARAMETER_UP_WEIGHT, 1, 499}, {KVAD_PARAMETER_OUT_WEIGHT, 1, 21},
        {KVAD_PARAMETER_UP_WEIGHT, 0, 530}, {KVAD_PARAMETER_UP_WEIGHT, 0, 2},
        {KVAD_PARAMETER_EMBEDDING, 0, 44}};
    check_failure(holes, 1, false, "head weight of layer 0, row 3");
    check_failure(holes, 2, false, "mlp up weight of layer 1, row 500");
    check_failure(holes, 3, false, "mlp up weight of layer 1, row 499");
    check_failure(holes, 4, false, "attention output weight of layer 1, row 21");
    check_failure(holes, 5, false, "mlp up weight of layer 0, row 530");
    check_failure(holes, 6, false, "mlp up weight of layer 0, row 2");
    check_failure(holes, 7, false, "token embedding of layer 0, row 44");
    /* Nothing lies between the arrays of a pair: the last row of one, the first of the next. */
    static const struct hole matrices[] = {{KVAD_PARAMETER_OUT_WEIGHT, 0, 0},
                                           {KVAD_PARAMETER_QKV_WEIGHT, 0, 49}};
    static const struct hole tables[] = {{KVAD_PARAMETER_POSITIONS, 0, 0},
                                         {KVAD_PARAMETER_EMBEDDING, 0, 44}};
    check_failure(matrices, 2, true, "qkv weight of layer 0, row 49");
    check_failure(tables, 2, false, "token embedding of layer 0, row 44");
}

struct reports {
    pthread_t caller;
    size_t n, n_foreign, stop_at;
    uint64_t last, total;
};

static bool report(void *user, uint64_t done, uint64_t total) {
    struct reports *r = user;
    r->n_foreign += !pthread_equal(r->caller, pthread_self()) || done < r->last;
    r->last = done;
    r->total = total;
    return ++r->n != r->stop_at;
}

static void test_progress_is_told_to_the_caller_alone_and_stops_all(void **state) {
    (void)state;
    struct diary diary = {.description = odd};
    diary.description.n_ctx = 500000; /* 44 MB of positions */
    struct kvad_model_source source = source_of(&diary);
    for (unsigned n_threads = 1; n_threads < 5; n_threads++)
        for (size_t stop_at = 0; stop_at < 4; stop_at++) {
            struct reports reports = {.caller = pthread_self(), .stop_at = stop_at};
            struct kvad_model_options options;
            struct kvad_model *model = NULL;
            kvad_model_options_init(&options);
            options.n_threads = n_threads;
            options.progress = (struct kvad_progress){report, &reports};
            enum kvad_status status =
                kvad_model_build(&diary.description, &source, &options, &model, &err);
            assert_int_equal(status, reports.n == stop_at ? KVAD_ERR_CANCELLED : KVAD_OK);
            assert_int_equal(reports.n_foreign, 0);
            assert_true(reports.n <= reports.total / (4 << 20) + 2);
            if (stop_at == 0) assert_true(reports.n > 1 && reports.last == reports.total);
            if (stop_at == 1) assert_non_null(strstr(err.text, "loading was cancelled after"));
            kvad_model_release(&model);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_workers_and_either_order_of_a_file_give_the_same_bytes),
        cmocka_unit_test(test_a_copy_by_any_workers_has_every_byte),
        cmocka_unit_test(test_who_first_writes_a_panel_reads_it_in_every_step),
        cmocka_unit_test(test_no_page_of_the_weights_is_touched_before_the_workers_come),
        cmocka_unit_test(test_the_failure_that_one_worker_would_meet_is_reported),
        cmocka_unit_test(test_progress_is_told_to_the_caller_alone_and_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
