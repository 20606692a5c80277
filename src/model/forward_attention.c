/* Attention over the cache: writing keys and values, and the units that read them back. */
#include "model/forward_attention.h"

#include <string.h>

#include "kv/rows.h"

/* Row of the sequence that token `index` of a step of `n` tokens goes to, when `first` rows are
 * there. */
static size_t append_row(size_t first, size_t index, size_t n) {
    (void)n;
    size_t row = KVAD_FAULT(REVERSED_APPEND, first + index, first + n - 1 - index);
    return KVAD_FAULT(APPEND_OFF_BY_ONE, row, row > 0 ? row - 1 : row);
}

/* Whether token `index` of an item is written: not where the same bits are there, perhaps in a
 * block that others read now. */
static bool is_written(const struct kvad_forward_item *item, size_t index) {
    size_t n = item->n_tokens;
    (void)n;
    bool is = index >= item->n_kept;
    is = KVAD_FAULT(LAST_ROW_LOST, is, is && (n == 1 || index + 1 < n));
    return KVAD_FAULT(FIRST_ROW_NOT_WRITTEN, is, is && item->position + n > 1);
}

/* How many tokens row `index` of a step of `n` sees, itself included, when `first` are before the
 * step. */
static size_t n_visible(size_t first, size_t index, size_t n) {
    (void)n;
    size_t seen = KVAD_FAULT(TRIANGLE_AT_CHUNK, first + index + 1, index + 1);
    seen = KVAD_FAULT(MASK_ONE_MORE, seen, kvad_min_size(seen + 1, first + n));
    seen = KVAD_FAULT(SEES_UNWRITTEN, seen, n == 1 ? kvad_round_up(seen, KVAD_KV_TILE) : seen);
    return KVAD_FAULT(MASK_DROPPED, seen, first + n);
}

/* How many of `seen` tokens the blocks of a sequence hold for a step of `n`: all of them. */
static size_t n_in_blocks(size_t seen, size_t n, size_t block_tokens) {
    (void)n;
    (void)block_tokens;
    bool hides = KVAD_FAULT(FULL_BLOCK_IS_EMPTY, false,
                            n == 1 && seen > block_tokens && seen % block_tokens == 0);
    return hides ? seen - block_tokens : seen;
}

size_t kvad_forward_seen(const struct kvad_forward *f, size_t row) {
    const struct kvad_forward_item *item = &f->items[f->rows[row].item];
    size_t seen = n_visible(item->position, f->rows[row].index, item->n_tokens);
    return n_in_blocks(seen, item->n_tokens, item->sequence->shape->block_tokens);
}

size_t kvad_forward_query_head(const struct kvad_forward *f, size_t kv_head, size_t g) {
    return KVAD_FAULT(HEAD_OF_OTHER_GROUP, kv_head * f->n_group + g,
                      g * f->model->description.n_kv_heads + kv_head);
}

/* Heads lie side by side in a row. */
float *kvad_forward_output(const struct kvad_forward *f, size_t row, size_t head) {
    const struct kvad_description *d = &f->model->description;
    size_t index = f->rows[row].index, n = f->items[f->rows[row].item].n_tokens;
    size_t width = (size_t)d->n_heads * d->head_dim, at = (head * n + index) * d->head_dim;
    (void)width;
    (void)at;
    return KVAD_FAULT(HEADS_NOT_MERGED, f->attended + row * f->attended_stride + head * d->head_dim,
                      f->attended + (row - index + at / width) * f->attended_stride + at % width);
}

/* Tokens of the sequence that are written at once: consecutive ones of one K tile, the rows of the
 * step from `row` on. */
struct stored_run {
    size_t row, at, n;
};

static void store_run(const struct kvad_forward *f, size_t layer, size_t kv_head,
                      const struct stored_run *run) {
    if (run->n == 0) return;
    const struct kvad_description *d = &f->model->description;
    const struct kvad_kv_sequence *sequence = f->items[f->rows[run->row].item].sequence;
    const struct kvad_kv_shape *shape = sequence->shape;
    /* The columns of qkv are all queries, then all keys, then all values. */
    const float *k =
        f->qkv + run->row * f->qkv_stride + ((size_t)d->n_heads + kv_head) * d->head_dim;
    kvad_kv_write_rows(f->kernels, shape, kvad_kv_sequence_block(sequence, run->at), layer, kv_head,
                       run->at % shape->block_tokens, run->n, k,
                       k + (size_t)d->n_kv_heads * d->head_dim, f->qkv_stride);
}

void kvad_forward_store(const struct kvad_forward *f, size_t layer, const struct forward_tile *tile,
                        size_t kv_head) {
    const struct kvad_forward_item *item = &f->items[tile->item];
    struct stored_run run = {0};
    for (size_t row = tile->first_row; row < tile->first_row + tile->n_rows; row++) {
        size_t index = f->rows[row].index;
        if (!is_written(item, index)) continue;
        size_t at = append_row(item->position, index, item->n_tokens);
        bool goes_on = run.row + run.n == row && run.at + run.n == at && at % KVAD_KV_TILE != 0;
        if (!goes_on) {
            store_run(f, layer, kv_head, &run);
            run = (struct stored_run){.row = row, .at = at};
        }
        run.n++;
    }
    store_run(f, layer, kv_head, &run);
}

/* Scale of one layer's scores, rounded once (Vaswani et al. 2017, eq. 1; division by the layer's
 * number is Hugging Face's scale_attn_by_inverse_layer_idx). */
static float query_scale(const struct kvad_forward *f, size_t layer) {
    bool by_layer = f->model->description.scale_attn_by_layer;
    return (float)(by_layer ? f->score_scale / (double)(layer + 1) : f->score_scale);
}

/* In the order [n_group][n_rows][head_dim]. */
void kvad_forward_queries(const struct kvad_forward *f, const struct forward_worker *worker,
                          const struct forward_tile *tile, size_t layer, size_t kv_head) {
    const struct kvad_description *d = &f->model->description;
    float scale = query_scale(f, layer);
    for (size_t g = 0; g < f->n_group; g++)
        for (size_t r = 0; r < tile->n_rows; r++) {
            const float *row = f->qkv + (tile->first_row + r) * f->qkv_stride;
            f->kernels->scale(worker->query + (g * tile->n_rows + r) * d->head_dim,
                              row + kvad_forward_query_head(f, kv_head, g) * d->head_dim, scale,
                              d->head_dim);
        }
}

/* Fold one chunk's partial results into the sums of the rows that saw it. */
static void merge_chunk(const struct kvad_forward *f, struct forward_worker *w, size_t n) {
    size_t head_dim = f->model->description.head_dim;
    for (size_t i = 0; i < n; i++)
        if (w->visible[i] > 0)
            f->kernels->attention_merge(
                w->o + i * head_dim, &w->m[i], &w->l[i], w->chunk_o + i * head_dim,
                forward_chunk_maximum(w->m[i], w->chunk_m[i]), w->chunk_l[i], head_dim);
}

/* Whether a row that sees `seen` tokens sees any of the chunk that starts at `start`. */
static bool reaches_chunk(size_t seen, size_t start) {
    return KVAD_FAULT(CHUNK_EDGE_LOST, seen > start, seen > start + (start > 0));
}

/* Which tokens of the chunk that starts at `start` each query row sees. */
static void set_visible(const struct kvad_forward *f, const struct forward_worker *w,
                        const struct forward_tile *tile, size_t start) {
    for (size_t i = 0; i < f->n_group * tile->n_rows; i++) {
        size_t seen = kvad_forward_seen(f, tile->first_row + i % tile->n_rows);
        size_t n = reaches_chunk(seen, start) ? kvad_min_size(seen - start, KVAD_CHUNK) : 0;
        w->visible[i] = (uint32_t)n;
    }
}

/* What the rows of a cache of this type are read as. */
static enum kvad_kv_type type_to_read(enum kvad_kv_type type) {
    return KVAD_FAULT(HALF_OF_OTHER_KIND, type, type == KVAD_KV_F16 ? KVAD_KV_BF16 : type);
}

/* Whose blocks an item of the step reads: its own sequence's. */
static const struct kvad_kv_sequence *sequence_to_read(const struct kvad_forward *f, size_t item) {
    const struct kvad_kv_sequence *own = f->items[item].sequence;
    const struct kvad_kv_sequence *other = item > 0 ? f->items[item - 1].sequence : own;
    (void)other;
    return KVAD_FAULT(TABLE_OF_NEIGHBOUR, own, other->n_blocks >= own->n_blocks ? other : own);
}

void kvad_forward_chunk(const struct kvad_forward *f, const struct forward_worker *worker,
                        const struct forward_tile *tile, size_t layer, size_t kv_head, size_t start,
                        float *o, float *m, float *l) {
    const struct kvad_kv_sequence *sequence = sequence_to_read(f, tile->item);
    size_t n_seen = kvad_forward_seen(f, tile->first_row + tile->n_rows - 1);
    const struct kvad_kv_shape *shape = sequence->shape;
    struct kvad_kv_span spans[KVAD_CHUNK / KVAD_KV_TILE];
    size_t n_spans = kvad_kv_sequence_spans(sequence, layer, kv_head, start,
                                            kvad_min_size(n_seen - start, KVAD_CHUNK), spans);
    set_visible(f, worker, tile, start);
    struct kvad_attention_args args = {.q = worker->query,
                                       .q_stride = shape->head_dim,
                                       .n_rows = f->n_group * tile->n_rows,
                                       .head_dim = shape->head_dim,
                                       .k_type = type_to_read(shape->k_type),
                                       .v_type = type_to_read(shape->v_type),
                                       .spans = spans,
                                       .n_spans = n_spans,
                                       .visible = worker->visible,
                                       .o = o,
                                       .o_stride = shape->head_dim,
                                       .m = m,
                                       .l = l};
    f->kernels->attention_chunk(&args);
}

/* Sum over all chunks that the tile's rows see; chunks are cut at absolute multiples of KVAD_CHUNK.
 * The first chunk's result is copied; the others are folded in, ascending. */
static void attend_chunks(const struct kvad_forward *f, struct forward_worker *w,
                          const struct forward_tile *tile, size_t layer, size_t kv_head) {
    size_t n_seen = kvad_forward_seen(f, tile->first_row + tile->n_rows - 1);
    kvad_forward_chunk(f, w, tile, layer, kv_head, 0, w->o, w->m, w->l);
    for (size_t start = KVAD_CHUNK; start < n_seen; start += KVAD_CHUNK) {
        kvad_forward_chunk(f, w, tile, layer, kv_head, start, w->chunk_o, w->chunk_m, w->chunk_l);
        merge_chunk(f, w, f->n_group * tile->n_rows);
    }
}

/* o / l of one row and head, for `out`: as floats or, where it reads quants and heads are whole
 * groups of them, as quants while they are in the first cache. */
static void put_output(const struct kvad_forward *f, size_t row, size_t head, float *o, float l) {
    const struct kvad_description *d = &f->model->description;
    float *y = kvad_forward_output(f, row, head);
    if (!f->quantises_heads) {
        f->kernels->divide(y, o, l, d->head_dim);
        return;
    }
    size_t at = (size_t)(y - f->attended), n = (size_t)d->n_heads * d->head_dim;
    f->kernels->divide(o, o, l, d->head_dim);
    f->kernels->quantise_row(f->quant + at / f->attended_stride * f->quant_stride, n,
                             at % f->attended_stride / KVAD_GROUP, o, d->head_dim);
}

static void attend_unit(const struct kvad_forward *f, struct forward_worker *w,
                        const struct forward_tile *tile, size_t layer, size_t kv_head) {
    size_t head_dim = f->model->description.head_dim;
    /* A step with one tile per sequence needs no barrier between writing its rows and reading them.
     */
    if (f->stores_in_units) {
        kvad_forward_store(f, layer, tile, kv_head);
        forward_mark(w, KVAD_PART_STORE_KV);
    }
    kvad_forward_queries(f, w, tile, layer, kv_head);
    attend_chunks(f, w, tile, layer, kv_head);
    for (size_t g = 0; g < f->n_group; g++)
        for (size_t r = 0; r < tile->n_rows; r++) {
            size_t i = g * tile->n_rows + r;
            put_output(f, tile->first_row + r, kvad_forward_query_head(f, kv_head, g),
                       w->o + i * head_dim, w->l[i]);
        }
}

/* Unit `i` of the order in which they are claimed. Later tiles see more tokens and come first.
 * Tiles of one text go through a head together, so that its keys and values stay in the second
 * cache; where every text has one tile, heads lie one after the other in memory. */
static void unit_at(const struct kvad_forward *f, size_t i, size_t *tile, size_t *kv_head) {
    size_t n_kv_heads = f->model->description.n_kv_heads;
    *kv_head = f->stores_in_units ? n_kv_heads - 1 - i % n_kv_heads : i / f->n_tiles;
    *tile = f->n_tiles - 1 - (f->stores_in_units ? i / n_kv_heads : i % f->n_tiles);
}

void kvad_forward_attention(struct kvad_forward *f, struct forward_worker *worker, size_t layer) {
    size_t n_units = f->n_tiles * f->model->description.n_kv_heads, tile, kv_head;
    for (;;) {
        /* Relaxed: a claim orders nothing; barriers before and after do. */
        size_t claim = atomic_fetch_add_explicit(&f->claims[layer], 1, memory_order_relaxed);
        if (claim >= n_units) return;
        unit_at(f, claim, &tile, &kv_head);
        attend_unit(f, worker, &f->tiles[tile], layer, kv_head);
        forward_mark(worker, KVAD_PART_ATTENTION);
    }
}
