#include "kv/sequence.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/faults.h"
#include "kv/rows.h"

static size_t area_bytes(const struct kvad_kv_sequence *s, size_t n_blocks) {
    return n_blocks * s->shape->block_bytes;
}

/* An area of its own for `n_blocks` blocks, with table entries 0, 1, 2, ... */
static enum kvad_status make_area(struct kvad_kv_sequence *s, size_t n_blocks, unsigned char **area,
                                  struct kvad_error *err) {
    size_t bytes;
    if (!kvad_mul_size(n_blocks, s->shape->block_bytes, &bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a cache of %zu blocks is too large", n_blocks);
    *area = kvad_alloc(s->heap, bytes);
    return *area ? KVAD_OK : kvad_fail_memory(err, "KV cache", bytes);
}

enum kvad_status kvad_kv_sequence_init(struct kvad_kv_sequence *sequence,
                                       const struct kvad_kv_shape *shape,
                                       enum kvad_kv_source source, struct kvad_kv_pool *pool,
                                       size_t n_max, struct kvad_heap *heap,
                                       struct kvad_error *err) {
    *sequence = (struct kvad_kv_sequence){
        .shape = shape, .source = source, .pool = pool, .heap = heap, .n_max = n_max};
    size_t n_table = kvad_kv_blocks_for(shape, n_max);
    sequence->table = kvad_alloc_zero(heap, n_table, sizeof *sequence->table);
    if (!sequence->table) {
        *sequence = (struct kvad_kv_sequence){0};
        return kvad_fail_memory(err, "block table", n_table * sizeof *sequence->table);
    }
    if (source == KVAD_KV_PAGED) {
        sequence->base = pool->blocks;
        return KVAD_OK;
    }
    for (size_t i = 0; i < n_table; i++)
        sequence->table[i] = (uint32_t)i;
    if (source == KVAD_KV_STATIC) {
        enum kvad_status status = make_area(sequence, n_table, &sequence->base, err);
        if (status != KVAD_OK) {
            kvad_kv_sequence_deinit(sequence);
            return status;
        }
        sequence->n_area_blocks = n_table;
    }
    return KVAD_OK;
}

void kvad_kv_sequence_deinit(struct kvad_kv_sequence *sequence) {
    if (!sequence->heap) return;
    kvad_kv_sequence_truncate(sequence, 0);
    if (sequence->source != KVAD_KV_PAGED)
        kvad_free(sequence->heap, sequence->base, area_bytes(sequence, sequence->n_area_blocks));
    kvad_free(sequence->heap, sequence->table, kvad_kv_sequence_table_bytes(sequence));
    *sequence = (struct kvad_kv_sequence){0};
}

/* Bytes of each block that a fresh area takes over: all of it. */
static size_t bytes_to_move(const struct kvad_kv_shape *shape) {
    return KVAD_FAULT(GROW_ONE_LAYER, shape->block_bytes, shape->layer_bytes);
}

/* Blocks that a fresh area of `n_blocks` takes over: all that fit. */
static size_t blocks_to_move(const struct kvad_kv_sequence *s, size_t n_blocks) {
    size_t n = kvad_min_size(n_blocks, s->n_area_blocks);
    return KVAD_FAULT(GROW_DROPS_PART, n, kvad_min_size(n, s->length / s->shape->block_tokens));
}

static void note_move(struct kvad_kv_moves *moves, size_t bytes) {
    moves->n_bytes += bytes;
    moves->n_moves += bytes > 0;
    if (bytes > moves->twice_peak) moves->twice_peak = bytes;
}

/* Replace the area by a fresh one of `n_blocks` blocks that holds the first of the old one's. */
static enum kvad_status replace_area(struct kvad_kv_sequence *s, size_t n_blocks,
                                     struct kvad_error *err) {
    unsigned char *area = NULL;
    KVAD_TRY(make_area(s, n_blocks, &area, err));
    size_t stride = s->shape->block_bytes, n_moved = blocks_to_move(s, n_blocks);
    for (size_t i = 0; i < n_moved; i++)
        memcpy(area + i * stride, s->base + i * stride, bytes_to_move(s->shape));
    if (s->moves) note_move(s->moves, area_bytes(s, n_moved));
    kvad_free(s->heap, s->base, area_bytes(s, s->n_area_blocks));
    s->base = area;
    s->n_area_blocks = n_blocks;
    return KVAD_OK;
}

/* ---------------------------------------------------------------- blocks of the pool */

/* Whether this sequence may write into its i-th block as it is. */
static bool may_write(const struct kvad_kv_sequence *s, size_t i) {
    return KVAD_FAULT(SHARED_BLOCK_WRITTEN, kvad_kv_pool_may_write(s->pool, s->table[i]), true);
}

/* Whether appending starts inside a block that has to be copied first. */
static bool splits_block(const struct kvad_kv_sequence *s) {
    return s->n_ready % s->shape->block_tokens != 0 &&
           !may_write(s, s->n_ready / s->shape->block_tokens);
}

size_t kvad_kv_sequence_blocks_needed(const struct kvad_kv_sequence *sequence, size_t n_more) {
    const struct kvad_kv_sequence *s = sequence;
    if (s->source != KVAD_KV_PAGED || s->length + n_more <= s->n_ready) return 0;
    size_t wanted = kvad_kv_blocks_for(s->shape, s->length + n_more);
    return wanted - s->n_blocks + splits_block(s);
}

static size_t bytes_to_copy(const struct kvad_kv_shape *shape) {
    size_t bytes = KVAD_FAULT(HALF_COPY, shape->block_bytes, shape->block_bytes / 2);
    return KVAD_FAULT(COPY_WITHOUT_LAST_LAYER, bytes, bytes - shape->layer_bytes);
}

void kvad_kv_sequence_replace(struct kvad_kv_sequence *sequence, size_t i, uint32_t block) {
    kvad_kv_pool_retain(sequence->pool, block);
    kvad_kv_pool_release(sequence->pool, sequence->table[i]);
    sequence->table[i] = block;
}

/* Make the block of the next row this sequence's own. The pool has room, or the block has no other
 * holder and the index forgets it. */
static void split_block(struct kvad_kv_sequence *s, bool has_room) {
    size_t i = s->n_ready / s->shape->block_tokens;
    struct kvad_kv_pool *pool = s->pool;
    s->n_published = kvad_min_size(s->n_published, i);
    if (!has_room) {
        pool->forget(pool->owner, s->table[i]);
        return;
    }
    uint32_t fresh = KVAD_KV_NO_BLOCK;
    (void)kvad_kv_pool_acquire(pool, &fresh);
    memcpy(kvad_kv_pool_block(pool, fresh), kvad_kv_pool_block(pool, s->table[i]),
           bytes_to_copy(s->shape));
    kvad_kv_pool_release(pool, s->table[i]);
    s->table[i] = fresh;
    pool->n_copies++;
}

static enum kvad_status acquire_blocks(struct kvad_kv_sequence *s, size_t n_more,
                                       struct kvad_error *err) {
    size_t missing = kvad_kv_sequence_blocks_needed(s, n_more);
    if (missing == 0) return KVAD_OK;
    size_t available = kvad_kv_pool_available(s->pool);
    bool splits = splits_block(s), has_room = missing <= available;
    /* The only holder of a cached block does without the copy when there is no room for it. */
    if (!has_room && splits && missing - 1 <= available &&
        s->pool->states[s->table[s->n_ready / s->shape->block_tokens]].references == 1)
        missing--;
    if (missing > available)
        return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                         "KV pool: %zu blocks needed, %zu of %zu are free; end a sequence or "
                         "give the pool more memory",
                         missing, available, s->pool->n_blocks);
    if (splits) split_block(s, has_room);
    size_t wanted = kvad_kv_blocks_for(s->shape, s->length + n_more);
    while (s->n_blocks < wanted)
        kvad_kv_pool_acquire(s->pool, &s->table[s->n_blocks++]);
    return KVAD_OK;
}

/* Whether the i-th block of a sequence comes back when the sequence gives it back. */
static bool comes_back(size_t i) {
    (void)i;
    return KVAD_FAULT(BLOCK_LEAKED, true, i > 0);
}

/* Give back all blocks but the first `kept`, the last one first: the pool then gives a sequence's
 * own tail out before its head. */
static void release_blocks(struct kvad_kv_sequence *s, size_t kept) {
    if (KVAD_FAULT(DOUBLE_RELEASE, false, s->n_blocks > kept))
        kvad_kv_pool_release(s->pool, s->table[s->n_blocks - 1]);
    while (s->n_blocks > kept)
        if (comes_back(--s->n_blocks)) kvad_kv_pool_release(s->pool, s->table[s->n_blocks]);
}

/* The fault of forks: the blocks are there, and nobody counts the second holder. */
static void count_holder(struct kvad_kv_pool *pool, uint32_t block) {
    if (KVAD_FAULT(FORK_WITHOUT_REFERENCE, true, pool->states[block].references == 0))
        kvad_kv_pool_retain(pool, block);
}

void kvad_kv_sequence_attach(struct kvad_kv_sequence *sequence, const uint32_t *table,
                             size_t n_tokens) {
    struct kvad_kv_sequence *s = sequence;
    assert(s->source == KVAD_KV_PAGED && s->n_blocks == 0 && n_tokens <= s->n_max);
    size_t n_blocks = kvad_kv_blocks_for(s->shape, n_tokens);
    for (; s->n_blocks < n_blocks; s->n_blocks++) {
        count_holder(s->pool, table[s->n_blocks]);
        s->table[s->n_blocks] = table[s->n_blocks];
    }
    s->length = s->n_ready = n_tokens;
}

void kvad_kv_sequence_rewind(struct kvad_kv_sequence *sequence, size_t length) {
    assert(length <= sequence->length);
    sequence->length = length;
}

enum kvad_status kvad_kv_sequence_reserve(struct kvad_kv_sequence *sequence, size_t n_more,
                                          struct kvad_error *err) {
    if (n_more > sequence->n_max - sequence->length)
        return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                         "%zu tokens after the %zu in the cache exceed the context of %zu", n_more,
                         sequence->length, sequence->n_max);
    if (sequence->source == KVAD_KV_PAGED) return acquire_blocks(sequence, n_more, err);
    size_t wanted = kvad_kv_blocks_for(sequence->shape, sequence->length + n_more);
    if (sequence->source == KVAD_KV_GROW && n_more > 0)
        KVAD_TRY(replace_area(sequence, wanted, err));
    sequence->n_blocks = wanted;
    return KVAD_OK;
}

void kvad_kv_sequence_commit(struct kvad_kv_sequence *sequence, size_t n_more) {
    sequence->length += n_more;
    if (sequence->n_ready < sequence->length) sequence->n_ready = sequence->length;
    assert(sequence->length <= sequence->n_max);
}

void kvad_kv_sequence_unreserve(struct kvad_kv_sequence *sequence) {
    if (sequence->source == KVAD_KV_PAGED)
        release_blocks(sequence, kvad_kv_blocks_for(sequence->shape, sequence->n_ready));
    else
        kvad_kv_sequence_truncate(sequence, sequence->length);
}

/* Rows that still count after a truncation to `length`. */
static size_t rows_after_truncate(const struct kvad_kv_sequence *s, size_t length) {
    size_t in_blocks = kvad_kv_blocks_for(s->shape, length) * s->shape->block_tokens;
    (void)in_blocks;
    length = KVAD_FAULT(TRIM_BY_BLOCKS, length, kvad_min_size(s->length, in_blocks));
    length =
        KVAD_FAULT(Q8_NOT_TRIMMED, length, s->shape->k_type == KVAD_KV_Q8 ? s->length : length);
    return KVAD_FAULT(STALE_AFTER_TRUNCATE, length, s->length);
}

/* Rows that may be taken for those of the tokens that come next. */
static size_t ready_after_truncate(const struct kvad_kv_sequence *s, size_t length) {
    size_t in_blocks = kvad_kv_blocks_for(s->shape, length) * s->shape->block_tokens;
    (void)in_blocks;
    return KVAD_FAULT(LENGTH_ONLY_TRIM, length, kvad_min_size(s->n_ready, in_blocks));
}

void kvad_kv_sequence_truncate(struct kvad_kv_sequence *sequence, size_t length) {
    assert(length <= sequence->length);
    if (length > 0) length = rows_after_truncate(sequence, length);
    size_t kept = kvad_kv_blocks_for(sequence->shape, length);
    sequence->length = length;
    sequence->n_ready = ready_after_truncate(sequence, length);
    if (sequence->source == KVAD_KV_PAGED) {
        sequence->n_published =
            kvad_min_size(sequence->n_published, length / sequence->shape->block_tokens);
        release_blocks(sequence, kept);
        return;
    }
    if (sequence->source == KVAD_KV_GROW && kept < sequence->n_area_blocks) {
        /* Giving memory back must not fail: without memory for a smaller area the larger one stays.
         */
        if (kept > 0) {
            (void)replace_area(sequence, kept, NULL);
        } else {
            kvad_free(sequence->heap, sequence->base,
                      area_bytes(sequence, sequence->n_area_blocks));
            sequence->base = NULL;
            sequence->n_area_blocks = 0;
        }
    }
    sequence->n_blocks = kept;
}

size_t kvad_kv_sequence_table_bytes(const struct kvad_kv_sequence *sequence) {
    return kvad_kv_blocks_for(sequence->shape, sequence->n_max) * sizeof *sequence->table;
}

size_t kvad_kv_sequence_bytes(const struct kvad_kv_sequence *sequence) {
    size_t n = sequence->source == KVAD_KV_PAGED ? sequence->n_blocks : sequence->n_area_blocks;
    return area_bytes(sequence, n);
}

void kvad_kv_sequence_read(const struct kvad_kv_sequence *sequence, size_t layer, size_t first,
                           size_t n, float *k, float *v) {
    const struct kvad_kv_shape *shape = sequence->shape;
    for (size_t head = 0; head < shape->n_kv_heads; head++)
        for (size_t i = 0; i < n; i++)
            kvad_kv_read_row(shape, kvad_kv_sequence_block(sequence, first + i), layer, head,
                             (first + i) % shape->block_tokens,
                             k + (head * n + i) * shape->head_dim,
                             v + (head * n + i) * shape->head_dim);
}

/* Which entry of the table holds block `i` of the text. */
static size_t table_entry(const struct kvad_kv_sequence *s, size_t i) {
    (void)s;
    return KVAD_FAULT(TABLE_SWAPPED, i, (i ^ 1) < s->n_blocks ? (i ^ 1) : i);
}

/* Which head's K a head's scores are computed with. */
static size_t k_head(size_t head) {
    return KVAD_FAULT(K_OF_ONE_HEAD, head, 0);
}

/* Where block `id` of an area begins, in bytes. */
static size_t block_offset(const struct kvad_kv_shape *shape, uint32_t id) {
    size_t offset = (size_t)id * shape->block_bytes;
    return KVAD_FAULT(OFFSET_TOO_NARROW, offset, (uint16_t)offset);
}

/* Behind which rows the scales of the values lie: their own. */
static const unsigned char *value_scales(const unsigned char *k, const unsigned char *v) {
    (void)k;
    return KVAD_FAULT(Q8_V_WITH_K_SCALES, v, k);
}

size_t kvad_kv_sequence_spans(const struct kvad_kv_sequence *sequence, size_t layer, size_t head,
                              size_t first, size_t n, struct kvad_kv_span *spans) {
    const struct kvad_kv_shape *shape = sequence->shape;
    assert(first % shape->block_tokens == 0 && n <= KVAD_CHUNK);
    size_t n_spans = 0, scales = kvad_kv_scales_offset(shape);
    for (size_t t = 0; t < n; t += shape->block_tokens) {
        size_t entry = table_entry(sequence, (first + t) / shape->block_tokens);
        const unsigned char *block = sequence->base + block_offset(shape, sequence->table[entry]);
        const unsigned char *k = block + kvad_kv_k_offset(shape, layer, k_head(head));
        const unsigned char *v = block + kvad_kv_v_offset(shape, layer, head);
        spans[n_spans++] = (struct kvad_kv_span){
            .k = k,
            .v = v,
            .k_scales = (const float *)(const void *)(k + scales),
            .v_scales = (const float *)(const void *)(value_scales(k, v) + scales),
            .n_tokens = kvad_min_size(shape->block_tokens, n - t)};
    }
    return n_spans;
}
