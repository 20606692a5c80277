/* Sequences that share blocks, against a model of who holds what: no operation may change a row
 * that somebody counts on, lose a block, or lend rows to a text that they do not belong to. No
 * model of language is needed: the row of a token is a number made of all tokens before it. */
#include <unistd.h>

#include "kv/rows.h"
#include "kv/sharing.h"
#include "random.h"
#include "test.h"
#include "test_heap.h"

enum { N_TEXTS = 7, N_MAX = 100, DIM = 3, N_LAYERS = 2, N_SALTS = 3 };

/* A text with what its sequence must hold. */
struct text {
    struct kvad_kv_sequence kv;
    struct kvad_prefix_root *root;
    size_t salt;
    int32_t tokens[N_MAX];
};

struct world {
    struct test_heap hook;
    struct kvad_heap heap;
    struct kvad_kv_shape shape;
    struct kvad_kv_pool pool;
    struct kvad_prefix index;
    struct text texts[N_TEXTS];
    struct test_random random;
    size_t n_hits, n_partial, n_refused;
};

static const char *const salts[N_SALTS] = {NULL, "", "tenant"};

static void start_text(struct world *w, struct text *text, size_t salt) {
    struct kvad_error err;
    text->salt = salt;
    size_t size = salts[salt] ? strlen(salts[salt]) : 0;
    assert_ok(kvad_prefix_root_acquire(&w->index, salts[salt], size, &text->root, &err), &err);
    assert_ok(
        kvad_kv_sequence_init(&text->kv, &w->shape, KVAD_KV_PAGED, &w->pool, N_MAX, &w->heap, &err),
        &err);
}

static void end_text(struct world *w, struct text *text) {
    kvad_kv_sequence_deinit(&text->kv);
    kvad_prefix_root_release(&w->index, text->root);
}

static void open_world(struct world *w, size_t n_blocks, uint64_t seed) {
    *w = (struct world){.random = {seed}};
    struct kvad_allocator hook = test_heap_hook(&w->hook);
    kvad_heap_init(&w->heap, &hook);
    w->shape = (struct kvad_kv_shape){
        .n_layers = N_LAYERS, .n_kv_heads = 1, .head_dim = DIM, .block_tokens = 16};
    struct kvad_error err;
    assert_ok(kvad_kv_shape_init(&w->shape, &err), &err);
    assert_ok(kvad_kv_pool_init(&w->pool, &w->shape, n_blocks, &w->heap, &err), &err);
    assert_ok(kvad_prefix_init(&w->index, &w->pool, &w->shape, "m", 1, &w->heap, &err), &err);
    for (size_t i = 0; i < N_TEXTS; i++)
        start_text(w, &w->texts[i], i % N_SALTS);
}

static void close_world(struct world *w) {
    for (size_t i = 0; i < N_TEXTS; i++)
        end_text(w, &w->texts[i]);
    assert_int_equal(kvad_kv_pool_available(&w->pool), w->pool.n_blocks);
    assert_int_equal(w->pool.n_shared, 0);
    kvad_prefix_deinit(&w->index);
    assert_int_equal(w->pool.n_free, w->pool.n_blocks);
    kvad_kv_pool_deinit(&w->pool);
    assert_int_equal(atomic_load(&w->hook.n_live), 0);
    assert_int_equal(atomic_load(&w->heap.bytes), 0);
}

/* The row of token t: a number made of its salt and of all tokens up to it. */
static float row_value(const struct text *text, size_t t, size_t layer, bool is_v) {
    uint32_t sum = (uint32_t)text->salt * 77;
    for (size_t i = 0; i <= t; i++)
        sum = (sum + (uint32_t)text->tokens[i] + 1) * 2654435761u;
    return (float)((sum >> 8) + layer * 2 + is_v);
}

static void write_row(const struct text *text, size_t t) {
    struct kvad_kernels kernels;
    kvad_kernels_pick(&kernels, KVAD_CPU_BASELINE);
    for (size_t layer = 0; layer < N_LAYERS; layer++) {
        float k[DIM], v[DIM];
        for (size_t d = 0; d < DIM; d++) {
            k[d] = row_value(text, t, layer, false);
            v[d] = row_value(text, t, layer, true);
        }
        kvad_kv_write_rows(&kernels, text->kv.shape, kvad_kv_sequence_block(&text->kv, t), layer, 0,
                           t % 16, 1, k, v, 0);
    }
}

static void check_text(const struct text *text) {
    const struct kvad_kv_sequence *s = &text->kv;
    assert_int_equal(s->n_blocks, kvad_kv_blocks_for(s->shape, s->n_ready));
    for (size_t layer = 0; layer < N_LAYERS; layer++)
        for (size_t t = 0; t < s->n_ready; t++) {
            float k[DIM], v[DIM];
            kvad_kv_read_row(s->shape, kvad_kv_sequence_block(s, t), layer, 0, t % 16, k, v);
            for (size_t d = 0; d < DIM; d++) {
                assert_true(k[d] == row_value(text, t, layer, false));
                assert_true(v[d] == row_value(text, t, layer, true));
            }
        }
}

/* Every reference has a holder and every holder a reference. */
static void check_world(const struct world *w) {
    uint32_t n_holders[64] = {0};
    for (size_t i = 0; i < N_TEXTS; i++) {
        check_text(&w->texts[i]);
        for (size_t j = 0; j < w->texts[i].kv.n_blocks; j++)
            n_holders[w->texts[i].kv.table[j]]++;
    }
    for (size_t i = 0; i < w->pool.n_blocks; i++)
        assert_int_equal(w->pool.states[i].references, n_holders[i]);
    assert_true(kvad_kv_pool_is_sound(&w->pool));
    assert_true(kvad_prefix_is_sound(&w->index));
}

/* Append n tokens, taking rows that are ready as they are. */
static bool append(struct world *w, struct text *text, const int32_t *tokens, size_t n) {
    struct kvad_kv_sequence *s = &text->kv;
    size_t n_needed = kvad_kv_sequence_blocks_needed(s, n);
    size_t n_available = kvad_kv_pool_available(&w->pool);
    if (kvad_kv_sequence_reserve(s, n, NULL) != KVAD_OK) {
        w->n_refused++;
        assert_true(n_needed > n_available);
        assert_int_equal(kvad_kv_pool_available(&w->pool), n_available);
        return false;
    }
    if (tokens) memcpy(text->tokens + s->length, tokens, n * sizeof *tokens);
    for (size_t t = s->length; t < s->length + n; t++)
        if (t >= s->n_ready) write_row(text, t);
    kvad_kv_sequence_commit(s, n);
    kvad_kv_sequence_publish(s, &w->index, text->root, text->tokens);
    return true;
}

/* A new text of n tokens from few ids, so that beginnings meet. */
static void begin(struct world *w, struct text *text) {
    kvad_kv_sequence_truncate(&text->kv, 0);
    end_text(w, text);
    start_text(w, text, random_below(&w->random, N_SALTS));
    size_t n = 1 + random_below(&w->random, N_MAX - 1), from = random_below(&w->random, 3);
    for (size_t t = 0; t < n; t++) {
        bool is_usual = t < n - n % 23;
        text->tokens[t] = (int32_t)(is_usual ? from + t % 5 : random_below(&w->random, 4));
    }
    uint32_t table[N_MAX / 16 + 1];
    struct kvad_prefix_match match =
        kvad_prefix_find(&w->index, text->root, text->tokens, n, table);
    assert_true(match.n_tokens <= n);
    assert_int_equal(match.miss == KVAD_PREFIX_WHOLE, match.n_tokens == n);
    w->n_hits += match.n_tokens > 0;
    w->n_partial += match.n_tokens % 16 != 0;
    kvad_kv_sequence_attach(&text->kv, table, match.n_tokens);
    text->kv.n_published = match.n_tokens / 16;
    check_text(text);
    if (match.n_tokens == n) kvad_kv_sequence_rewind(&text->kv, n - 1);
    size_t length = text->kv.length;
    if (n > length) append(w, text, text->tokens + length, n - length);
}

static void fork_text(struct world *w, struct text *to, const struct text *from) {
    if (to == from) return;
    end_text(w, to);
    start_text(w, to, from->salt);
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    size_t n = random_below(&w->random, from->kv.length + 1);
    if (random_below(&w->random, 2)) n = from->kv.length;
    kvad_kv_sequence_attach(&to->kv, from->kv.table, n);
    to->kv.n_published = kvad_min_size(from->kv.n_published, n / 16);
}

static void do_something(struct world *w) {
    struct text *text = &w->texts[random_below(&w->random, N_TEXTS)];
    struct kvad_kv_sequence *s = &text->kv;
    int32_t more[40];
    for (size_t i = 0; i < 40; i++)
        more[i] = (int32_t)random_below(&w->random, 3);
    switch (random_below(&w->random, 8)) {
    case 0: begin(w, text); break;
    case 1: fork_text(w, text, &w->texts[random_below(&w->random, N_TEXTS)]); break;
    case 2: kvad_kv_sequence_truncate(s, random_below(&w->random, s->length + 1)); break;
    case 3: /* reserved and given back */
        if (kvad_kv_sequence_reserve(s, kvad_min_size(20, N_MAX - s->length), NULL) == KVAD_OK)
            kvad_kv_sequence_unreserve(s);
        break;
    case 4:
        if (random_below(&w->random, 10) == 0) kvad_prefix_clear(&w->index);
        break;
    default: append(w, text, more, kvad_min_size(random_below(&w->random, 40), N_MAX - s->length));
    }
}

static void run_random(size_t n_blocks, size_t n_operations, kvad_prefix_hash_fn *hash,
                       uint64_t seed) {
    struct world w;
    open_world(&w, n_blocks, seed);
    if (hash) w.index.hash = hash;
    for (size_t i = 0; i < n_operations; i++) {
        w.index.now++;
        do_something(&w);
        check_world(&w);
    }
    assert_true(w.n_hits > n_operations / 100 && w.n_partial > 0);
    assert_true(w.pool.n_copies > 0);
    close_world(&w);
}

/* bugs.md MEM-1, MEM-2, MEM-3, SHARE-7, SHARE-8, SHARE-9, SHARE-19, SHARE-20, BEAM-4, BEAM-11 */
static void test_random_sharing_loses_no_block_and_changes_no_row(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        run_random(1 + N_MAX / 16, 1500, NULL, seed); /* room for one longest text alone */
        run_random(20, 1500, NULL, 100 + seed);
        run_random(60, 1500, NULL, 200 + seed);
    }
}

static uint64_t constant_hash(const void *data, size_t size, uint64_t seed) {
    (void)data;
    (void)size;
    (void)seed;
    return 7;
}

/* bugs.md SHARE-1, SHARE-3 */
static void test_with_a_constant_hash_all_rows_are_the_same(void **state) {
    (void)state;
    run_random(20, 1500, constant_hash, 1);
    run_random(60, 1500, constant_hash, 2);
}

/* ---------------------------------------------------------------- single rules */

static void fill_text(struct world *w, struct text *text, const int32_t *tokens, size_t n) {
    kvad_kv_sequence_truncate(&text->kv, 0);
    assert_true(append(w, text, tokens, n));
}

static size_t n_found(struct world *w, const struct text *text, const int32_t *tokens, size_t n) {
    uint32_t table[N_MAX / 16 + 1];
    return kvad_prefix_find(&w->index, text->root, tokens, n, table).n_tokens;
}

/* With `hash` constant only the comparison with the entry itself tells the two apart. */
static void check_equal_blocks(kvad_prefix_hash_fn *hash) {
    struct world w;
    open_world(&w, 20, 1);
    if (hash) w.index.hash = hash;
    int32_t a[32], b[32];
    for (int i = 0; i < 32; i++) {
        a[i] = i < 16 ? 1 : i;
        b[i] = i < 16 ? 9 : i;
    }
    fill_text(&w, &w.texts[0], a, 32);
    assert_int_equal(n_found(&w, &w.texts[0], a, 32), 32);
    assert_int_equal(n_found(&w, &w.texts[0], b, 32), 0);
    assert_int_equal(n_found(&w, &w.texts[0], a + 16, 16), 0); /* its tokens as a beginning */
    fill_text(&w, &w.texts[3], b, 16);
    assert_int_equal(n_found(&w, &w.texts[3], b, 32), 16); /* both parents are there */
    assert_true(append(&w, &w.texts[3], b + 16, 16));
    assert_int_not_equal(w.texts[0].kv.table[1], w.texts[3].kv.table[1]);
    assert_int_equal(n_found(&w, &w.texts[3], b, 32), 32);
    check_world(&w);
    close_world(&w);
}

/* bugs.md SHARE-1, SHARE-3, SHARE-10 */
static void test_equal_blocks_after_different_beginnings_are_not_shared(void **state) {
    (void)state;
    check_equal_blocks(NULL);
    check_equal_blocks(constant_hash);
}

/* bugs.md SHARE-2, SEC-1, SEC-2 */
static void test_only_texts_with_the_same_salt_share(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 40, 1);
    int32_t tokens[32] = {1, 2, 3};
    for (size_t i = 0; i < N_SALTS; i++) {
        assert_int_equal(n_found(&w, &w.texts[i], tokens, 32), 0);
        fill_text(&w, &w.texts[i], tokens, 32);
        assert_int_equal(n_found(&w, &w.texts[i], tokens, 32), 32);
        assert_int_equal(n_found(&w, &w.texts[i + N_SALTS], tokens, 32), 32);
    }
    check_world(&w);
    close_world(&w);
}

/* bugs.md SHARE-8, SHARE-20 */
static void test_a_block_computed_twice_is_kept_once(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 20, 1);
    int32_t tokens[40] = {1, 2, 3};
    fill_text(&w, &w.texts[0], tokens, 40);
    fill_text(&w, &w.texts[3], tokens, 40);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(w.texts[0].kv.table[i], w.texts[3].kv.table[i]);
    assert_int_not_equal(w.texts[0].kv.table[2], w.texts[3].kv.table[2]);
    assert_int_equal(w.pool.n_free, 20 - 4);
    assert_int_equal(w.pool.n_shared, 2);
    check_world(&w);
    close_world(&w);
}

/* bugs.md SHARE-21 */
static void test_the_least_recently_used_goes_first_and_of_a_text_its_tail(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 8, 1);
    int32_t old[48] = {1}, young[48] = {2}, other[96] = {3};
    fill_text(&w, &w.texts[0], old, 48);
    fill_text(&w, &w.texts[3], young, 48);
    kvad_kv_sequence_truncate(&w.texts[0].kv, 0);
    kvad_kv_sequence_truncate(&w.texts[3].kv, 0);
    assert_int_equal(w.pool.n_idle, 6);
    assert_true(append(&w, &w.texts[6], other, 32));
    static const size_t left[][2] = {{48, 48}, {32, 48}, {16, 48}, {0, 48}, {0, 32}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(n_found(&w, &w.texts[0], old, 48), left[i][0]);
        assert_int_equal(n_found(&w, &w.texts[0], young, 48), left[i][1]);
        assert_true(append(&w, &w.texts[6], other + 32, i < 4 ? 16 : 0));
        check_world(&w);
    }
    struct kvad_prefix_match match;
    uint32_t table[4];
    match = kvad_prefix_find(&w.index, w.texts[0].root, old, 48, table);
    assert_int_equal(match.miss, KVAD_PREFIX_EVICTED);
    close_world(&w);
}

/* bugs.md BEAM-11 */
static void test_a_fork_copies_once_for_each_writer_but_the_last(void **state) {
    (void)state;
    for (size_t length = 1; length <= 33; length++) {
        struct world w;
        open_world(&w, 30, 1);
        int32_t tokens[40] = {0};
        fill_text(&w, &w.texts[0], tokens, length);
        for (size_t i = 1; i < 4; i++) {
            memcpy(w.texts[i].tokens, tokens, sizeof tokens);
            w.texts[i].salt = 0;
            kvad_kv_sequence_attach(&w.texts[i].kv, w.texts[0].kv.table, length);
        }
        assert_int_equal(w.pool.n_free, 30 - (length + 15) / 16);
        for (size_t i = 0; i < 4; i++) {
            int32_t own[5] = {(int32_t)(10 + i)};
            struct kvad_kv_sequence *s = &w.texts[i].kv;
            struct kvad_error err;
            assert_ok(kvad_kv_sequence_reserve(s, 5, &err), &err);
            memcpy(w.texts[i].tokens + length, own, sizeof own);
            for (size_t t = length; t < length + 5; t++)
                write_row(&w.texts[i], t);
            kvad_kv_sequence_commit(s, 5);
            check_world(&w);
        }
        assert_int_equal(w.pool.n_copies, length % 16 ? 3 : 0);
        close_world(&w);
    }
}

/* A cached block with one holder, and no room for its copy: the index gives it up. */
static void test_the_only_holder_writes_where_no_copy_fits(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 2, 1);
    int32_t tokens[32] = {1}, others[12] = {2};
    fill_text(&w, &w.texts[0], tokens, 32);
    kvad_kv_sequence_truncate(&w.texts[0].kv, 20);
    assert_true(append(&w, &w.texts[0], others, 12));
    assert_int_equal(w.pool.n_copies, 0);
    assert_int_equal(n_found(&w, &w.texts[0], tokens, 32), 20);
    check_world(&w);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sharing_loses_no_block_and_changes_no_row),
        cmocka_unit_test(test_with_a_constant_hash_all_rows_are_the_same),
        cmocka_unit_test(test_equal_blocks_after_different_beginnings_are_not_shared),
        cmocka_unit_test(test_only_texts_with_the_same_salt_share),
        cmocka_unit_test(test_a_block_computed_twice_is_kept_once),
        cmocka_unit_test(test_the_least_recently_used_goes_first_and_of_a_text_its_tail),
        cmocka_unit_test(test_a_fork_copies_once_for_each_writer_but_the_last),
        cmocka_unit_test(test_the_only_holder_writes_where_no_copy_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
