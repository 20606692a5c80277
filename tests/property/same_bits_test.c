/* The logits of every step are the same bits, whatever the cache policy, the chunks, the threads,
 * the place in the batch, the slices, the block size. */
#include "bits.h"
#include "reference.h"
#include "test.h"

enum { N_ITEMS = 5 };

static const size_t chunk_sizes[] = {1, 2, 3, 5, 16, 17, SIZE_MAX};
static const unsigned thread_counts[] = {1, 2, 3};
enum { N_CHUNK_SIZES = 7, N_THREAD_COUNTS = 3 };

/* One way to compute a text again. */
struct way {
    enum kvad_cache_policy policy;
    size_t chunk;
    unsigned n_threads;
    size_t place, n_items; /* which item of the batch is the text, of how many */
};

static const char *way_text(const struct way *way) {
    return label("%s, chunks of %zd, %u threads, item %zu of %zu",
                 kvad_cache_policy_name(way->policy), (ssize_t)way->chunk, way->n_threads,
                 way->place, way->n_items);
}

/* The text and its neighbours, all of different lengths. */
struct texts {
    struct reference *item[N_ITEMS];
};

static struct texts make_texts(const struct tiny_sizes *sizes, size_t n) {
    struct texts texts;
    texts.item[0] = reference_create(sizes, n);
    for (size_t i = 1; i < N_ITEMS; i++)
        texts.item[i] = reference_more(texts.item[0], n - 3 * i, i);
    return texts;
}

static void free_texts(struct texts *texts) {
    for (size_t i = N_ITEMS; i-- > 0;)
        reference_destroy(texts->item[i]);
}

/* How a sequence of a batch stands. */
struct run {
    const struct reference *reference;
    struct kvad_sequence *sequence;
    size_t done, n; /* tokens before the step; of the step's item */
    float *logits, *hidden;
};

static struct run start(struct kvad_engine *engine, const struct reference *reference) {
    const struct kvad_description *d = &reference->tiny->description;
    struct run run = {.reference = reference, .sequence = new_sequence(engine)};
    run.logits = malloc(reference->n * d->n_vocab * sizeof *run.logits);
    run.hidden = malloc((d->n_layers + 1) * reference->n * d->d_model * sizeof *run.hidden);
    assert_non_null(run.logits);
    assert_non_null(run.hidden);
    return run;
}

static void end(struct run *run) {
    kvad_sequence_destroy(&run->sequence);
    free(run->logits);
    free(run->hidden);
}

/* The next chunk of a text as an item; without a cache the whole window again. */
static struct kvad_eval_item next_item(struct run *run, const struct way *way) {
    const struct kvad_description *d = &run->reference->tiny->description;
    size_t first = run->done;
    run->n = kvad_min_size(way->chunk, run->reference->n - first);
    if (way->policy == KVAD_CACHE_NONE) {
        cut(run->sequence, 0);
        run->n += first;
        first = 0;
    }
    poison(run->logits, run->n * d->n_vocab);
    poison(run->hidden, (d->n_layers + 1) * run->n * d->d_model);
    return (struct kvad_eval_item){.sequence = run->sequence,
                                   .tokens = run->reference->tokens + first,
                                   .n_tokens = run->n,
                                   .n_rows = run->n,
                                   .logits = run->logits,
                                   .hidden = run->hidden};
}

static void check_step(struct run *run, const struct way *way) {
    size_t first = way->policy == KVAD_CACHE_NONE ? 0 : run->done;
    const char *where = way_text(way);
    assert_rows(run->reference, first, run->n, run->logits, where);
    assert_hidden(run->reference, first, run->n, run->hidden, where);
    run->done = first + run->n;
}

/* The neighbours are some tokens ahead, each by another number: no two positions are equal. */
static void give_start(struct kvad_engine *engine, struct run *run, const struct way *way,
                       size_t n) {
    struct way start_way = *way;
    start_way.chunk = n;
    struct kvad_eval_item item = next_item(run, &start_way);
    struct kvad_error err;
    assert_ok(kvad_eval(engine, &item, 1, &err), &err);
    check_step(run, &start_way);
}

/* Run all texts of the batch to their ends, step by step; every step's rows are compared. */
static void run_way(struct kvad_engine *engine, const struct texts *texts, const struct way *way) {
    struct run runs[N_ITEMS];
    /* Rotate so that the text texts->item[0] is at `place`. */
    for (size_t i = 0; i < way->n_items; i++) {
        runs[i] = start(engine, texts->item[(i + way->n_items - way->place) % way->n_items]);
        if (i != way->place) give_start(engine, &runs[i], way, 1 + i);
    }
    for (;;) {
        struct kvad_eval_item items[N_ITEMS];
        struct run *owners[N_ITEMS];
        size_t n_items = 0;
        for (size_t i = 0; i < way->n_items; i++)
            if (runs[i].done < runs[i].reference->n) {
                owners[n_items] = &runs[i];
                items[n_items++] = next_item(&runs[i], way);
            }
        if (n_items == 0) break;
        struct kvad_error err;
        assert_ok(kvad_eval(engine, items, n_items, &err), &err);
        for (size_t i = 0; i < n_items; i++)
            check_step(owners[i], way);
    }
    for (size_t i = 0; i < way->n_items; i++) {
        assert_cache(runs[i].reference, runs[i].sequence, way_text(way));
        end(&runs[i]);
    }
}

static struct kvad_engine *open_for(const struct texts *texts, enum kvad_cache_policy policy,
                                    unsigned n_threads) {
    struct kvad_engine_options options = engine_options(policy, n_threads);
    options.n_sequences = N_ITEMS;
    return open_engine(texts->item[0]->model, &options);
}

/* Every chunk size and place in the batch for one policy and number of threads. */
static void run_all_ways(const struct texts *texts, struct way way) {
    static const size_t places[][2] = {{2, 5}, {0, 1}, {0, 5}, {4, 5}};
    struct kvad_engine *engine = open_for(texts, way.policy, way.n_threads);
    for (size_t c = 0; c < N_CHUNK_SIZES; c++)
        for (size_t p = 0; p < (test_is_slow() ? 1 : 4); p++) {
            way.chunk = chunk_sizes[c];
            way.place = places[p][0];
            way.n_items = places[p][1];
            run_way(engine, texts, &way);
            assert_idle(engine);
        }
    close_engine(&engine);
}

static void run_everything(const struct tiny_sizes *sizes, size_t n) {
    struct texts texts = make_texts(sizes, n);
    for (size_t p = 0; p < N_POLICIES; p++)
        for (size_t t = test_is_slow() ? 1 : 0; t < (test_is_slow() ? 2 : N_THREAD_COUNTS); t++)
            run_all_ways(&texts,
                         (struct way){.policy = policies[p], .n_threads = thread_counts[t]});
    free_texts(&texts);
}

/* bugs.md POS-1, POS-4, POS-5, MASK-1, MASK-3, MASK-10, MASK-11, DET-3, DET-4, DET-5 */
static void test_odd_model_same_bits_for_policy_chunk_threads_and_place(void **state) {
    (void)state;
    run_everything(&tiny_odd, 37);
}

/* bugs.md LAYOUT-1, LAYOUT-2 */
static void test_gqa_model_same_bits_for_policy_chunk_threads_and_place(void **state) {
    (void)state;
    run_everything(&tiny_gqa, 34);
}

static void test_wide_model_same_bits_for_policy_chunk_threads_and_place(void **state) {
    (void)state;
    run_everything(&tiny_wide, 19);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_model_same_bits_for_policy_chunk_threads_and_place),
        cmocka_unit_test(test_gqa_model_same_bits_for_policy_chunk_threads_and_place),
        cmocka_unit_test(test_wide_model_same_bits_for_policy_chunk_threads_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
