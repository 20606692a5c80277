/* The same bits at the edges: of blocks, of attention's chunks of 256, of the step's memory, of the
 * context; and through any order of blocks. */
#include "bits.h"
#include "random.h"
#include "reference.h"
#include "test.h"

/* Room for the rows of a whole text. */
static float *new_rows(const struct reference *reference) {
    float *rows = malloc(reference->n * reference_vocab(reference) * sizeof *rows);
    assert_non_null(rows);
    return rows;
}

/* Append the next `n` tokens of the text (without a cache: all of them again) and compare. */
static void go_on(const struct reference *reference, struct kvad_sequence *sequence, size_t n,
                  float *rows, const char *where) {
    size_t first = kvad_sequence_length(sequence);
    if (sequence->engine->cache == KVAD_CACHE_NONE) {
        cut(sequence, 0);
        n += first;
        first = 0;
    }
    feed(sequence, reference->tokens + first, n, rows, NULL);
    assert_rows(reference, first, n, rows, where);
}

/* ---------------------------------------------------------------- edges of blocks and chunks */

/* Two more single tokens and a chunk of three, after a prompt of `n`. */
static void check_length(const struct reference *reference, struct kvad_sequence *sequence,
                         size_t n, float *rows) {
    static const size_t more[] = {1, 1, 3};
    const char *where =
        label("%s: prompt of %zu, %u threads", kvad_cache_policy_name(sequence->engine->cache), n,
              kvad_threads_count(sequence->engine->threads));
    go_on(reference, sequence, n, rows, where);
    for (size_t i = 0; i < 3; i++)
        if (kvad_sequence_length(sequence) + more[i] <= reference->n)
            go_on(reference, sequence, more[i], rows, where);
    assert_cache(reference, sequence, where);
    cut(sequence, 0);
}

static void check_lengths(const struct reference *reference, const size_t *lengths,
                          size_t n_lengths, uint32_t block_tokens) {
    float *rows = new_rows(reference);
    for (size_t p = 0; p < N_POLICIES; p++)
        for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
            struct kvad_engine_options options = engine_options(policies[p], n_threads);
            options.block_tokens = block_tokens;
            struct kvad_engine *engine = open_engine(reference->model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            for (size_t i = 0; i < n_lengths; i++)
                check_length(reference, sequence, lengths[i], rows);
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    free(rows);
}

/* bugs.md GROW-1, ROLL-1, DET-5 */
static void test_same_bits_one_below_at_and_above_every_block_edge(void **state) {
    (void)state;
    static const size_t at_16[] = {1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65};
    static const size_t at_32[] = {31, 32, 33, 63, 64, 65};
    struct reference *reference = reference_create(&tiny_long, 70);
    check_lengths(reference, at_16, 13, 16);
    check_lengths(reference, at_32, 6, 32);
    reference_destroy(reference);
}

/* bugs.md MASK-12 */
static void test_same_bits_across_chunks_of_256_and_512(void **state) {
    (void)state;
    static const size_t lengths[] = {255, 256, 257, 511, 512, 513, 530};
    struct reference *reference = reference_create(&tiny_long, 535);
    check_lengths(reference, lengths, 7, 16);
    check_lengths(reference, lengths, 7, 256);
    reference_destroy(reference);
}

/* bugs.md GROW-1, GROW-6 */
static void test_every_offset_and_every_append_up_to_two_blocks(void **state) {
    (void)state;
    enum { B = 16 };
    struct reference *reference = reference_create(&tiny_long, 4 * B + 1);
    float *rows = new_rows(reference);
    for (size_t p = 0; p < 3; p++) { /* `none` has no offset */
        struct kvad_engine_options options = engine_options(policies[p], 1);
        struct kvad_engine *engine = open_engine(reference->model, &options);
        struct kvad_sequence *sequence = new_sequence(engine);
        for (size_t offset = 0; offset <= 2 * B; offset++) {
            if (offset > 0) go_on(reference, sequence, 1, rows, "offset");
            for (size_t n = 1; n <= 2 * B + 1; n++) {
                go_on(reference, sequence, n, rows,
                      label("%s: %zu after %zu", kvad_cache_policy_name(policies[p]), n, offset));
                cut(sequence, offset);
            }
            assert_cache(reference, sequence, "after all appends");
        }
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    free(rows);
    reference_destroy(reference);
}

/* ---------------------------------------------------------------- block sizes and slices */

/* bugs.md DET-5, GROW-9, EVICT-10 */
static void test_same_bits_for_block_sizes_and_slices(void **state) {
    (void)state;
    static const uint32_t block_sizes[] = {16, 32, 64, 128, 256};
    static const uint32_t slices[] = {1, 2, 7, 16, 512};
    static const size_t chunks[] = {33, 1, 240, 7};
    struct reference *reference = reference_create(&tiny_long, 281);
    float *rows = new_rows(reference);
    for (size_t p = 0; p < N_POLICIES; p++)
        for (size_t b = 0; b < 5; b++)
            for (size_t s = 0; s < 5; s++) {
                struct kvad_engine_options options = engine_options(policies[p], 2);
                options.block_tokens = block_sizes[b];
                options.n_batch_tokens = slices[s];
                struct kvad_engine *engine = open_engine(reference->model, &options);
                struct kvad_sequence *sequence = new_sequence(engine);
                for (size_t c = 0; c < 4; c++)
                    go_on(reference, sequence, chunks[c], rows,
                          label("%s: blocks of %u, slices of %u",
                                kvad_cache_policy_name(policies[p]), block_sizes[b], slices[s]));
                kvad_sequence_destroy(&sequence);
                close_engine(&engine);
            }
    free(rows);
    reference_destroy(reference);
}

/* Slices cut items anywhere: the rows that are wanted must still be the right ones. */
static void test_chosen_rows_are_the_right_ones_in_any_slice(void **state) {
    (void)state;
    static const size_t wanted[] = {0, 3, 4, 11, 12, 19};
    struct reference *reference = reference_create(&tiny_odd, 20);
    size_t n_vocab = reference_vocab(reference);
    float *rows = new_rows(reference);
    for (uint32_t slice = 1; slice <= 21; slice++) {
        struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
        options.n_batch_tokens = slice;
        struct kvad_engine *engine = open_engine(reference->model, &options);
        struct kvad_sequence *sequence = new_sequence(engine);
        struct kvad_eval_item item = {.sequence = sequence,
                                      .tokens = reference->tokens,
                                      .n_tokens = 20,
                                      .rows = wanted,
                                      .n_rows = 6,
                                      .logits = rows};
        struct kvad_error err;
        assert_ok(kvad_eval(engine, &item, 1, &err), &err);
        for (size_t i = 0; i < 6; i++)
            assert_rows(reference, wanted[i], 1, rows + i * n_vocab, label("slice of %u", slice));
        for (size_t n = 1; n <= 20; n++) { /* the last n rows */
            cut(sequence, 0);
            item.rows = NULL;
            item.n_rows = n;
            poison(rows, n * n_vocab);
            assert_ok(kvad_eval(engine, &item, 1, &err), &err);
            assert_rows(reference, 20 - n, n, rows, label("slice of %u, last %zu", slice, n));
        }
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    free(rows);
    reference_destroy(reference);
}

/* ---------------------------------------------------------------- the end of the context */

/* bugs.md GROW-3, GROW-4, GROW-8, GROW-14 */
static void test_context_can_be_filled_exactly_and_no_further(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_odd, tiny_odd.n_ctx);
    float *rows = new_rows(reference);
    for (size_t p = 0; p < N_POLICIES; p++)
        for (size_t before = reference->n - 3; before <= reference->n; before++) {
            struct kvad_engine_options options = engine_options(policies[p], 1);
            struct kvad_engine *engine = open_engine(reference->model, &options);
            struct kvad_sequence *sequence = new_sequence(engine);
            go_on(reference, sequence, before, rows, "almost full");
            while (kvad_sequence_length(sequence) < reference->n)
                go_on(reference, sequence, 1, rows, kvad_cache_policy_name(policies[p]));
            struct kvad_eval_item more = {
                .sequence = sequence, .tokens = reference->tokens, .n_tokens = 1};
            struct kvad_error err;
            for (int i = 0; i < 3; i++)
                assert_fails(kvad_eval(engine, &more, 1, &err), KVAD_ERR_CONTEXT_FULL, &err, "61");
            assert_int_equal(kvad_sequence_length(sequence), reference->n);
            assert_cache(reference, sequence, "full");
            kvad_sequence_destroy(&sequence);
            close_engine(&engine);
        }
    free(rows);
    reference_destroy(reference);
}

/* ---------------------------------------------------------------- any order of blocks */

/* bugs.md LAYOUT-5, POS-9 */
static void test_same_bits_through_scrambled_block_tables(void **state) {
    (void)state;
    static const size_t chunks[] = {1, 30, 2, 45, 200, 1, 3};
    struct reference *reference = reference_create(&tiny_long, 282);
    float *rows = new_rows(reference);
    struct test_random random = {7};
    for (int round = 0; round < 6; round++) {
        struct kvad_engine_options options =
            engine_options(round % 2 ? KVAD_CACHE_STATIC : KVAD_CACHE_PAGED, 2);
        struct kvad_engine *engine = open_engine(reference->model, &options);
        random_shuffle(&random, engine->pool.free_ids, engine->pool.n_free);
        struct kvad_sequence *sequence = new_sequence(engine);
        random_shuffle(&random, sequence->kv.table, sequence->kv.n_area_blocks);
        for (size_t c = 0; c < 7; c++)
            go_on(reference, sequence, chunks[c], rows, label("round %d", round));
        bool ascends = true;
        for (size_t i = 1; i < sequence->kv.n_blocks; i++)
            ascends &= sequence->kv.table[i] == sequence->kv.table[i - 1] + 1;
        assert_false(ascends);
        assert_cache(reference, sequence, "scrambled");
        kvad_sequence_destroy(&sequence);
        close_engine(&engine);
    }
    free(rows);
    reference_destroy(reference);
}

/* bugs.md GROW-11, GROW-12 */
static void test_blocks_beyond_two_to_the_32_bytes_and_floats_work(void **state) {
    (void)state;
    struct reference *reference = reference_create(&tiny_long, 300);
    float *rows = new_rows(reference);
    struct test_heap heap = {0};
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.allocator = test_heap_hook(&heap);
    options.block_tokens = 256;
    options.kv_bytes = (uint64_t)18 << 30; /* more than 2^32 floats; its pages stay untouched */
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    if (kvad_engine_open(reference->model, &options, &engine, &err) != KVAD_OK) {
        print_message("SKIPPED: no address space for a pool of 18 GiB\n");
        skip();
    }
    struct kvad_kv_pool *pool = &engine->pool;
    for (size_t i = 0; i < pool->n_free; i++) /* the highest ids on top */
        pool->free_ids[i] = (uint32_t)i;
    struct kvad_sequence *sequence = new_sequence(engine);
    go_on(reference, sequence, 250, rows, "last block");
    go_on(reference, sequence, 1, rows, "last block");
    go_on(reference, sequence, 49, rows, "block before the last");
    assert_int_equal(sequence->kv.table[0], pool->n_blocks - 1);
    assert_true(((size_t)sequence->kv.table[1] * engine->shape.block_bytes / sizeof(float)) >> 32 !=
                0);
    assert_cache(reference, sequence, "high blocks");
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
    free(rows);
    reference_destroy(reference);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_one_below_at_and_above_every_block_edge),
        cmocka_unit_test(test_same_bits_across_chunks_of_256_and_512),
        cmocka_unit_test(test_every_offset_and_every_append_up_to_two_blocks),
        cmocka_unit_test(test_same_bits_for_block_sizes_and_slices),
        cmocka_unit_test(test_chosen_rows_are_the_right_ones_in_any_slice),
        cmocka_unit_test(test_context_can_be_filled_exactly_and_no_further),
        cmocka_unit_test(test_same_bits_through_scrambled_block_tables),
        cmocka_unit_test(test_blocks_beyond_two_to_the_32_bytes_and_floats_work),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
