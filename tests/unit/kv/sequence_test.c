/* The three sources of a sequence's rows, without a model. */
#include "kv/rows.h"
#include "kv/sequence.h"
#include "random.h"
#include "test.h"
#include "test_heap.h"

/* A heap with its checking hook. */
struct memory {
    struct test_heap hook;
    struct kvad_heap heap;
};

static void memory_init(struct memory *memory) {
    *memory = (struct memory){0};
    struct kvad_allocator hook = test_heap_hook(&memory->hook);
    kvad_heap_init(&memory->heap, &hook);
}

static void assert_no_leak(const struct memory *memory) {
    assert_int_equal(atomic_load(&memory->hook.n_live), 0);
    assert_int_equal(atomic_load(&memory->heap.bytes), 0);
}

static struct kvad_kv_shape make_shape(size_t layers, size_t heads, size_t head_dim,
                                       size_t tokens) {
    struct kvad_kv_shape shape = {
        .n_layers = layers, .n_kv_heads = heads, .head_dim = head_dim, .block_tokens = tokens};
    struct kvad_error err;
    assert_ok(kvad_kv_shape_init(&shape, &err), &err);
    return shape;
}

/* ---------------------------------------------------------------- sequences */

static const enum kvad_kv_source sources[] = {KVAD_KV_PAGED, KVAD_KV_STATIC, KVAD_KV_GROW};

/* A value that names its place. */
static float value_at(size_t layer, size_t head, size_t t, size_t d, bool is_v) {
    return (float)(((layer * 10 + head) * 1000 + t) * 100 + d * 2 + is_v);
}

static void write_rows(struct kvad_kv_sequence *s, size_t first, size_t n) {
    const struct kvad_kv_shape *shape = s->shape;
    struct kvad_kernels kernels;
    float k[8], v[8];
    kvad_kernels_pick(&kernels, KVAD_CPU_BASELINE);
    for (size_t t = first; t < first + n; t++)
        for (size_t layer = 0; layer < shape->n_layers; layer++)
            for (size_t head = 0; head < shape->n_kv_heads; head++) {
                for (size_t d = 0; d < shape->head_dim; d++) {
                    k[d] = value_at(layer, head, t, d, false);
                    v[d] = value_at(layer, head, t, d, true);
                }
                kvad_kv_write_rows(&kernels, shape, kvad_kv_sequence_block(s, t), layer, head,
                                   t % shape->block_tokens, 1, k, v, 0);
            }
}

static void append(struct kvad_kv_sequence *s, size_t n) {
    struct kvad_error err;
    assert_ok(kvad_kv_sequence_reserve(s, n, &err), &err);
    write_rows(s, s->length, n);
    kvad_kv_sequence_commit(s, n);
}

/* All rows as they were written, in every layer and head, by reading and through spans. */
static void check_rows(const struct kvad_kv_sequence *s) {
    const struct kvad_kv_shape *shape = s->shape;
    size_t n = s->length, dim = shape->head_dim;
    float *k = malloc((shape->n_kv_heads * n * dim + 1) * 2 * sizeof *k);
    assert_non_null(k);
    float *v = k + shape->n_kv_heads * n * dim;
    for (size_t layer = 0; layer < shape->n_layers; layer++) {
        kvad_kv_sequence_read(s, layer, 0, n, k, v);
        for (size_t head = 0; head < shape->n_kv_heads; head++)
            for (size_t t = 0; t < n; t++)
                for (size_t d = 0; d < dim; d++) {
                    size_t i = (head * n + t) * dim + d;
                    assert_true(k[i] == value_at(layer, head, t, d, false));
                    assert_true(v[i] == value_at(layer, head, t, d, true));
                }
    }
    free(k);
}

static void check_spans(const struct kvad_kv_sequence *s) {
    const struct kvad_kv_shape *shape = s->shape;
    struct kvad_kv_span spans[KVAD_CHUNK / KVAD_KV_TILE];
    for (size_t start = 0; start < s->length; start += KVAD_CHUNK) {
        size_t n = kvad_min_size(s->length - start, KVAD_CHUNK), t = start;
        size_t n_spans = kvad_kv_sequence_spans(s, 1, 2, start, n, spans);
        for (size_t i = 0; i < n_spans; i++) {
            if (i + 1 < n_spans) assert_int_equal(spans[i].n_tokens % KVAD_KV_TILE, 0);
            const float *tiles = spans[i].k, *rows = spans[i].v;
            for (size_t j = 0; j < spans[i].n_tokens; j++, t++)
                for (size_t d = 0; d < shape->head_dim; d++) {
                    float k = tiles[kvad_kv_k_index(shape, j, d)];
                    assert_true(k == value_at(1, 2, t, d, false));
                    assert_true(rows[j * shape->head_dim + d] == value_at(1, 2, t, d, true));
                }
        }
        assert_int_equal(t, start + n);
    }
}

static void run_source(enum kvad_kv_source source, size_t block_tokens, uint64_t seed) {
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(2, 3, 5, block_tokens);
    struct kvad_kv_pool pool;
    struct kvad_kv_sequence s;
    struct kvad_error err;
    assert_ok(kvad_kv_pool_init(&pool, &shape, 40, &memory.heap, &err), &err);
    struct test_random random = {seed};
    random_shuffle(&random, pool.free_ids, pool.n_free);
    assert_ok(kvad_kv_sequence_init(&s, &shape, source, &pool, 600, &memory.heap, &err), &err);
    for (int i = 0; i < 60; i++) {
        size_t room = 600 - s.length;
        if (random_below(&random, 3) == 0)
            kvad_kv_sequence_truncate(&s, random_below(&random, s.length + 1));
        else
            append(&s, kvad_min_size(room, 1 + random_below(&random, 70)));
        check_rows(&s);
        check_spans(&s);
        assert_true(kvad_kv_pool_is_sound(&pool));
        size_t n_blocks = kvad_kv_blocks_for(&shape, s.length);
        if (source == KVAD_KV_STATIC) n_blocks = kvad_kv_blocks_for(&shape, 600);
        assert_int_equal(kvad_kv_sequence_bytes(&s), n_blocks * shape.block_bytes);
    }
    kvad_kv_sequence_deinit(&s);
    kvad_kv_sequence_deinit(&s); /* a zeroed one is allowed */
    assert_int_equal(pool.n_free, pool.n_blocks);
    kvad_kv_pool_deinit(&pool);
    assert_no_leak(&memory);
}

/* bugs.md GROW-6, GROW-10 */
static void test_all_layers_and_heads_keep_their_rows_through_growth_and_cuts(void **state) {
    (void)state;
    for (size_t source = 0; source < 3; source++)
        for (size_t block_tokens = 16; block_tokens <= 256; block_tokens *= 2)
            run_source(sources[source], block_tokens, source * 100 + block_tokens);
}

static void test_reserved_rows_count_only_after_the_commit(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct memory memory;
        memory_init(&memory);
        struct kvad_kv_shape shape = make_shape(2, 3, 5, 16);
        struct kvad_kv_pool pool;
        struct kvad_kv_sequence s;
        struct kvad_error err;
        assert_ok(kvad_kv_pool_init(&pool, &shape, 4, &memory.heap, &err), &err);
        assert_ok(kvad_kv_sequence_init(&s, &shape, sources[i], &pool, 60, &memory.heap, &err),
                  &err);
        append(&s, 20);
        size_t bytes = kvad_kv_sequence_bytes(&s), n_free = pool.n_free;
        for (int round = 0; round < 3; round++) {
            assert_ok(kvad_kv_sequence_reserve(&s, 30, &err), &err);
            assert_int_equal(s.length, 20);
            kvad_kv_sequence_truncate(&s, 20);
            assert_int_equal(kvad_kv_sequence_bytes(&s), bytes);
            assert_int_equal(pool.n_free, n_free);
            check_rows(&s);
        }
        assert_fails(kvad_kv_sequence_reserve(&s, 41, &err), KVAD_ERR_CONTEXT_FULL, &err, "60");
        assert_fails(kvad_kv_sequence_reserve(&s, SIZE_MAX, &err), KVAD_ERR_CONTEXT_FULL, &err,
                     "60");
        assert_ok(kvad_kv_sequence_reserve(&s, 0, &err), &err);
        check_rows(&s);
        kvad_kv_sequence_deinit(&s);
        kvad_kv_pool_deinit(&pool);
        assert_no_leak(&memory);
    }
}

/* 10000 random operations against a model of who holds what. */
/* bugs.md MEM-1, MEM-3 */
static void test_two_sequences_never_hold_the_same_block(void **state) {
    (void)state;
    enum { N = 6, N_BLOCKS = 20 };
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(1, 1, 2, 16);
    struct kvad_kv_pool pool;
    struct kvad_kv_sequence s[N];
    struct kvad_error err;
    assert_ok(kvad_kv_pool_init(&pool, &shape, N_BLOCKS, &memory.heap, &err), &err);
    for (size_t i = 0; i < N; i++)
        assert_ok(
            kvad_kv_sequence_init(&s[i], &shape, KVAD_KV_PAGED, &pool, 100, &memory.heap, &err),
            &err);
    struct test_random random = {42};
    size_t n_refused = 0;
    for (int op = 0; op < 10000; op++) {
        struct kvad_kv_sequence *one = &s[random_below(&random, N)];
        size_t n_free = pool.n_free, length = one->length;
        if (random_below(&random, 3) == 0) {
            kvad_kv_sequence_truncate(one, random_below(&random, length + 1));
        } else {
            size_t n = kvad_min_size(100 - length, random_below(&random, 40));
            if (kvad_kv_sequence_reserve(one, n, &err) == KVAD_OK) {
                kvad_kv_sequence_commit(one, n);
            } else { /* all or nothing */
                n_refused++;
                assert_int_equal(err.status, KVAD_ERR_NO_BLOCKS);
                assert_int_equal(pool.n_free, n_free);
                assert_int_equal(one->length, length);
            }
        }
        size_t n_held = 0;
        bool is_held[N_BLOCKS] = {false};
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(s[i].n_blocks, kvad_kv_blocks_for(&shape, s[i].length));
            for (size_t j = 0; j < s[i].n_blocks; j++, n_held++) {
                assert_false(is_held[s[i].table[j]]);
                is_held[s[i].table[j]] = true;
            }
        }
        assert_int_equal(n_held + pool.n_free, N_BLOCKS);
        assert_true(kvad_kv_pool_is_sound(&pool));
    }
    assert_true(n_refused > 100);
    for (size_t i = 0; i < N; i++)
        kvad_kv_sequence_deinit(&s[i]);
    assert_int_equal(pool.n_free, N_BLOCKS);
    kvad_kv_pool_deinit(&pool);
    assert_no_leak(&memory);
}

static void test_a_sequence_without_memory_leaves_nothing_behind(void **state) {
    (void)state;
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(2, 3, 5, 16);
    struct kvad_kv_sequence s;
    struct kvad_error err;
    for (size_t k = 1; k <= 2; k++) {
        test_heap_fail(&memory.hook, k, SIZE_MAX);
        enum kvad_status status =
            kvad_kv_sequence_init(&s, &shape, KVAD_KV_STATIC, NULL, 60, &memory.heap, &err);
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        kvad_kv_sequence_deinit(&s);
        assert_no_leak(&memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layers_and_heads_keep_their_rows_through_growth_and_cuts),
        cmocka_unit_test(test_reserved_rows_count_only_after_the_commit),
        cmocka_unit_test(test_two_sequences_never_hold_the_same_block),
        cmocka_unit_test(test_a_sequence_without_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
