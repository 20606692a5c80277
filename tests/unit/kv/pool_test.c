/* Where a row lies in a block, and the pool of blocks. */
#include "kv/pool.h"
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

static enum kvad_status init_shape(size_t layers, size_t heads, size_t head_dim, size_t tokens,
                                   struct kvad_error *err) {
    struct kvad_kv_shape shape = {
        .n_layers = layers, .n_kv_heads = heads, .head_dim = head_dim, .block_tokens = tokens};
    return kvad_kv_shape_init(&shape, err);
}

/* ---------------------------------------------------------------- shape */

static void test_a_block_holds_exactly_its_rows_and_no_padding(void **state) {
    (void)state;
    static const size_t sizes[][4] = {
        {12, 12, 64, 16}, {3, 5, 7, 16}, {2, 1, 1, 256}, {1, 3, 33, 64}, {4, 2, 20, 128}};
    for (size_t i = 0; i < 5; i++) {
        const size_t *s = sizes[i];
        struct kvad_kv_shape shape = make_shape(s[0], s[1], s[2], s[3]);
        assert_int_equal(shape.block_bytes, s[3] * s[0] * s[1] * 2 * s[2] * 4);
        assert_int_equal(kvad_kv_token_bytes(&shape), s[0] * s[1] * 2 * s[2] * 4);
    }
    struct kvad_kv_shape gpt2 = make_shape(12, 12, 64, 16);
    assert_int_equal(kvad_kv_token_bytes(&gpt2), 72 * 1024); /* 72 KiB per token */
}

/* Every element has a place of its own and all places are used. */
static void test_every_element_of_a_block_has_its_own_place(void **state) {
    (void)state;
    struct kvad_kv_shape shape = make_shape(3, 5, 7, 32);
    unsigned char *is_used = calloc(shape.block_bytes / sizeof(float), 1);
    assert_non_null(is_used);
    for (size_t layer = 0; layer < 3; layer++)
        for (size_t head = 0; head < 5; head++)
            for (size_t t = 0; t < 32; t++)
                for (size_t d = 0; d < 7; d++) {
                    size_t k = kvad_kv_k_offset(&shape, layer, head) / sizeof(float) +
                               kvad_kv_k_index(&shape, t, d);
                    size_t v = kvad_kv_v_offset(&shape, layer, head) / sizeof(float) + t * 7 + d;
                    assert_true(k < shape.block_bytes / 4 && v < shape.block_bytes / 4);
                    assert_false(is_used[k]++);
                    assert_false(is_used[v]++);
                }
    for (size_t i = 0; i < shape.block_bytes / sizeof(float); i++)
        assert_int_equal(is_used[i], 1);
    free(is_used);
}

/* What the CPU fetches beyond the keys of a head are its values (decision 0008). */
static void test_keys_and_values_of_a_head_are_one_piece(void **state) {
    (void)state;
    struct kvad_kv_shape shape = {.n_layers = 2,
                                  .n_kv_heads = 3,
                                  .head_dim = 5,
                                  .block_tokens = 32,
                                  .k_type = KVAD_KV_F16,
                                  .v_type = KVAD_KV_Q8};
    struct kvad_error err;
    assert_ok(kvad_kv_shape_init(&shape, &err), &err);
    size_t end = 0;
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t head = 0; head < 3; head++) {
            assert_int_equal(kvad_kv_k_offset(&shape, layer, head), end);
            assert_int_equal(kvad_kv_v_offset(&shape, layer, head), end + 32 * 5 * 2);
            end += 32 * (5 * 2 + 5 + 4);
        }
    assert_int_equal(shape.block_bytes, end);
}

static void test_blocks_for_tokens_round_up(void **state) {
    (void)state;
    struct kvad_kv_shape shape = make_shape(1, 1, 1, 16);
    static const size_t cases[][2] = {{0, 0}, {1, 1}, {15, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}};
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(kvad_kv_blocks_for(&shape, cases[i][0]), cases[i][1]);
    assert_int_equal(kvad_kv_blocks_for(&shape, SIZE_MAX), SIZE_MAX / 16 + 1);
}

static void test_impossible_shapes_are_refused(void **state) {
    (void)state;
    static const size_t tokens[] = {0, 1, 8, 15, 17, 24, 48, 96, 512, SIZE_MAX};
    struct kvad_error err;
    for (size_t i = 0; i < 10; i++)
        assert_fails(init_shape(1, 1, 1, tokens[i], &err), KVAD_ERR_ARGUMENT, &err, "block_tokens");
    assert_fails(init_shape(SIZE_MAX / 8, 2, 2, 16, &err), KVAD_ERR_ARGUMENT, &err, "too large");
    assert_fails(init_shape(2, SIZE_MAX / 2 + 1, 2, 16, &err), KVAD_ERR_ARGUMENT, &err,
                 "too large");
    assert_fails(init_shape(1, 1, SIZE_MAX / 8, 16, &err), KVAD_ERR_ARGUMENT, &err, "too large");
}

/* ---------------------------------------------------------------- pool */

static void test_pool_gives_each_block_once_and_takes_it_back(void **state) {
    (void)state;
    enum { N = 5 };
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(1, 1, 4, 16);
    struct kvad_kv_pool pool;
    struct kvad_error err;
    assert_ok(kvad_kv_pool_init(&pool, &shape, N, &memory.heap, &err), &err);
    for (int round = 0; round < 3; round++) {
        bool is_given[N] = {false};
        uint32_t id = 77;
        for (size_t i = 0; i < N; i++) {
            assert_true(kvad_kv_pool_acquire(&pool, &id));
            assert_false(is_given[id]);
            is_given[id] = true;
            assert_true(kvad_kv_pool_is_sound(&pool));
        }
        id = 77;
        assert_false(kvad_kv_pool_acquire(&pool, &id));
        assert_int_equal(id, 77);
        for (uint32_t i = 0; i < N; i++) {
            kvad_kv_pool_release(&pool, (i * 2 + 1) % N);
            assert_int_equal(pool.n_free, i + 1);
            assert_true(kvad_kv_pool_is_sound(&pool));
        }
    }
    kvad_kv_pool_deinit(&pool);
    kvad_kv_pool_deinit(&pool); /* twice is allowed */
    assert_no_leak(&memory);
}

static void test_a_pool_of_no_or_too_many_blocks_is_refused(void **state) {
    (void)state;
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(12, 12, 64, 256);
    struct kvad_kv_pool pool;
    struct kvad_error err;
    assert_fails(kvad_kv_pool_init(&pool, &shape, 0, &memory.heap, &err), KVAD_ERR_ARGUMENT, &err,
                 "0 KV blocks");
    assert_fails(kvad_kv_pool_init(&pool, &shape, (size_t)UINT32_MAX + 1, &memory.heap, &err),
                 KVAD_ERR_ARGUMENT, &err, "must be");
    for (size_t k = 1; k <= 3; k++) {
        test_heap_fail(&memory.hook, k, k);
        assert_fails(kvad_kv_pool_init(&pool, &shape, 2, &memory.heap, &err), KVAD_ERR_NO_MEMORY,
                     &err, "KV pool");
        kvad_kv_pool_deinit(&pool);
        assert_no_leak(&memory);
    }
}

/* bugs.md MEM-1, SHARE-9 */
static void test_a_block_with_two_references_stays_until_both_are_gone(void **state) {
    (void)state;
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(1, 1, 4, 16);
    struct kvad_kv_pool pool;
    struct kvad_error err;
    assert_ok(kvad_kv_pool_init(&pool, &shape, 2, &memory.heap, &err), &err);
    uint32_t id;
    assert_true(kvad_kv_pool_acquire(&pool, &id));
    kvad_kv_pool_retain(&pool, id);
    assert_int_equal(pool.n_shared, 1);
    kvad_kv_pool_release(&pool, id);
    assert_int_equal(pool.n_free, 1);
    assert_true(kvad_kv_pool_is_sound(&pool));
    kvad_kv_pool_release(&pool, id);
    assert_int_equal(pool.n_free, 2);
    assert_true(kvad_kv_pool_is_sound(&pool));
    kvad_kv_pool_deinit(&pool);
    assert_no_leak(&memory);
}

static void test_the_pool_check_sees_every_kind_of_damage(void **state) {
    (void)state;
    struct memory memory;
    memory_init(&memory);
    struct kvad_kv_shape shape = make_shape(1, 1, 4, 16);
    struct kvad_kv_pool pool;
    struct kvad_error err;
    assert_ok(kvad_kv_pool_init(&pool, &shape, 4, &memory.heap, &err), &err);
    uint32_t id;
    assert_true(kvad_kv_pool_acquire(&pool, &id));
    pool.states[id].references = 0; /* lost */
    assert_false(kvad_kv_pool_is_sound(&pool));
    pool.states[id].references = 1;
    uint32_t kept = pool.free_ids[0];
    pool.free_ids[0] = pool.free_ids[1]; /* free twice */
    assert_false(kvad_kv_pool_is_sound(&pool));
    pool.free_ids[0] = id; /* free and in use */
    assert_false(kvad_kv_pool_is_sound(&pool));
    pool.free_ids[0] = 4; /* no block */
    assert_false(kvad_kv_pool_is_sound(&pool));
    pool.free_ids[0] = kept;
    pool.n_free--; /* a leak */
    assert_false(kvad_kv_pool_is_sound(&pool));
    pool.n_free++;
    assert_true(kvad_kv_pool_is_sound(&pool));
    kvad_kv_pool_deinit(&pool);
    assert_no_leak(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_holds_exactly_its_rows_and_no_padding),
        cmocka_unit_test(test_every_element_of_a_block_has_its_own_place),
        cmocka_unit_test(test_keys_and_values_of_a_head_are_one_piece),
        cmocka_unit_test(test_blocks_for_tokens_round_up),
        cmocka_unit_test(test_impossible_shapes_are_refused),
        cmocka_unit_test(test_pool_gives_each_block_once_and_takes_it_back),
        cmocka_unit_test(test_a_pool_of_no_or_too_many_blocks_is_refused),
        cmocka_unit_test(test_a_block_with_two_references_stays_until_both_are_gone),
        cmocka_unit_test(test_the_pool_check_sees_every_kind_of_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
