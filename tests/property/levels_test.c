/* Every kernel level that this CPU has gives the same bits on whole models, in every chunk size
 * that meets other tile shapes. */
#include "bits.h"
#include "reference.h"
#include "test.h"

static const size_t chunk_sizes[] = {SIZE_MAX, 1, 7, 2, 3, 5, 6, 13, 16, 17, 31};
enum { N_CHUNK_SIZES = 11 };

/* The text once more on one level, in chunks. */
static void check_level(const struct reference *reference, const char *level, size_t chunk,
                        unsigned n_threads) {
    const struct kvad_description *d = &reference->tiny->description;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, n_threads);
    options.cpu = level;
    struct kvad_engine *engine = open_engine(reference->model, &options);
    struct kvad_engine_info info;
    kvad_engine_get_info(engine, &info);
    assert_string_equal(info.cpu, level);
    struct kvad_sequence *sequence = new_sequence(engine);
    float *rows = malloc(reference->n * d->n_vocab * sizeof *rows);
    float *hidden = malloc((d->n_layers + 1) * reference->n * d->d_model * sizeof *hidden);
    assert_non_null(rows);
    assert_non_null(hidden);
    for (size_t first = 0; first < reference->n; first = kvad_sequence_length(sequence)) {
        size_t n = kvad_min_size(chunk, reference->n - first);
        const char *where = label("%s, chunks of %zd", level, (ssize_t)chunk);
        feed(sequence, reference->tokens + first, n, rows, hidden);
        assert_rows(reference, first, n, rows, where);
        assert_hidden(reference, first, n, hidden, where);
    }
    assert_cache(reference, sequence, level);
    free(rows);
    free(hidden);
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
}

/* All levels on a text of one model, in the first `n_chunk_sizes` sizes of chunks. */
static void check_levels(const struct tiny_sizes *sizes, size_t n, size_t n_chunk_sizes) {
    struct reference *reference = reference_create(sizes, n);
    for (unsigned i = 0; kvad_cpu_supported(i); i++) {
        /* The lowest level emulates fma and is slow. */
        size_t n_used = i == 0 ? kvad_min_size(n_chunk_sizes, 2) : n_chunk_sizes;
        for (size_t c = 0; c < n_used; c++)
            check_level(reference, kvad_cpu_supported(i), chunk_sizes[c], i == 0 ? 1 : 2);
    }
    reference_destroy(reference);
}

/* bugs.md DET-3, DET-5 */
static void test_all_levels_give_the_same_bits_on_odd_models(void **state) {
    (void)state;
    check_levels(&tiny_odd, 37, N_CHUNK_SIZES);
    check_levels(&tiny_gqa, 34, N_CHUNK_SIZES);
    check_levels(&tiny_wide, 19, N_CHUNK_SIZES);
}

/* Head sizes around the widths of vectors, several segments of inputs, every activation. */
static void test_all_levels_give_the_same_bits_on_other_shapes(void **state) {
    (void)state;
    static const uint32_t head_dims[] = {1, 8, 15, 16, 17, 33, 64};
    static const enum kvad_activation activations[] = {
        KVAD_ACTIVATION_GELU_TANH, KVAD_ACTIVATION_GELU_ERF,   KVAD_ACTIVATION_RELU,
        KVAD_ACTIVATION_SILU,      KVAD_ACTIVATION_TANH,       KVAD_ACTIVATION_SIGMOID,
        KVAD_ACTIVATION_LINEAR,    KVAD_ACTIVATION_QUICK_GELU,
    };
    for (size_t i = 0; i < 7; i++) {
        struct tiny_sizes sizes = {.n_layers = 2,
                                   .n_heads = 3,
                                   .n_kv_heads = 3,
                                   .head_dim = head_dims[i],
                                   .d_ff = 129,
                                   .n_vocab = 35,
                                   .n_ctx = 24,
                                   .activation = activations[i],
                                   .seed = 10 + i};
        check_levels(&sizes, 21, 3);
    }
    struct tiny_sizes sizes = {.n_layers = 1,
                               .n_heads = 2,
                               .n_kv_heads = 1,
                               .head_dim = 12,
                               .d_ff = 257,
                               .n_vocab = 16,
                               .n_ctx = 24,
                               .activation = activations[7],
                               .no_scale = true,
                               .seed = 20};
    check_levels(&sizes, 21, 3);
}

static void test_all_levels_give_the_same_bits_across_chunks_of_256(void **state) {
    (void)state;
    check_levels(&tiny_long, 530, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_levels_give_the_same_bits_on_odd_models),
        cmocka_unit_test(test_all_levels_give_the_same_bits_on_other_shapes),
        cmocka_unit_test(test_all_levels_give_the_same_bits_across_chunks_of_256),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
