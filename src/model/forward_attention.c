/* Attention over the cache: writing keys and values, and the units that read them back. */
#include <string.h>

#include "base/faults.h"
#include "kv/rows.h"
#include "model/forward_internal.h"

/* Row of the sequence that token `index` of a step of `n` tokens goes to, when `first` rows are
 * there. */
static size_t append_row(size_t first, size_t index, size_t n) {
    (void)n;
    size_t row = KVAD_FAULT(REVERSED_APPEND, first + index, first + n - 1 - index);
    return KVAD_FAULT(APPEND_OFF_BY_ONE, row, row > 0 ? row - 1 : row);
}

/* How many tokens row `index` of a step of `n` sees, itself included, when `first` are before the
 * step. */
static size_t n_visible(size_t first, size_t index, size_t n) {
    (void)n;
    size_t seen = KVAD_FAULT(TRIANGLE_AT_CHUNK, first + index + 1, index + 1);
    return KVAD_FAULT(MASK_DROPPED, seen, first + n);
}

size_t kvad_forward_seen(const struct kvad_forward *f, size_t row) {
    const struct kvad_forward_item *item = &f->items[f->rows[row].item];
    return n_visible(item->position, f->rows[row].index, item->n_tokens);
}

void kvad_forward_store(const struct kvad_forward *f, size_t layer, size_t row, size_t kv_head) {
    const struct kvad_description *d = &f->model->description;
    const struct kvad_forward_item *item = &f->items[f->rows[row].item];
    /* The same bits are there, perhaps in a block that others read now. */
    if (f->rows[row].index < item->n_kept) return;
    /* The columns of qkv are all queries, then all keys, then all values. */
    const float *k = f->qkv + row * f->qkv_stride + ((size_t)d->n_heads + kv_head) * d->head_dim;
    const float *v = k + (size_t)d->n_kv_heads * d->head_dim;
    size_t at = append_row(item->position, f->rows[row].index, item->n_tokens);
    const struct kvad_kv_shape *shape = item->sequence->shape;
    kvad_kv_write_row(shape, kvad_kv_sequence_block(item->sequence, at), layer, kv_head,
                      at % shape->block_tokens, k, v);
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
                              row + (kv_head * f->n_group + g) * d->head_dim, scale, d->head_dim);
        }
}

/* Fold one chunk's partial results into the sums of the rows that saw it. */
static void merge_chunk(const struct kvad_forward *f, struct forward_worker *w, size_t n) {
    size_t head_dim = f->model->description.head_dim;
    for (size_t i = 0; i < n; i++)
        if (w->visible[i] > 0)
            f->kernels->attention_merge(w->o + i * head_dim, &w->m[i], &w->l[i],
                                        w->chunk_o + i * head_dim, w->chunk_m[i], w->chunk_l[i],
                                        head_dim);
}

/* Which tokens of the chunk that starts at `start` each query row sees. */
static void set_visible(const struct kvad_forward *f, const struct forward_worker *w,
                        const struct forward_tile *tile, size_t start) {
    for (size_t i = 0; i < f->n_group * tile->n_rows; i++) {
        size_t seen = kvad_forward_seen(f, tile->first_row + i % tile->n_rows);
        w->visible[i] = seen <= start ? 0 : (uint32_t)kvad_min_size(seen - start, KVAD_CHUNK);
    }
}

void kvad_forward_chunk(const struct kvad_forward *f, const struct forward_worker *worker,
                        const struct forward_tile *tile, size_t layer, size_t kv_head, size_t start,
                        float *o, float *m, float *l) {
    const struct kvad_kv_sequence *sequence = f->items[tile->item].sequence;
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
                                       .k_type = shape->k_type,
                                       .v_type = shape->v_type,
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

static void attend_unit(const struct kvad_forward *f, struct forward_worker *w,
                        const struct forward_tile *tile, size_t layer, size_t kv_head) {
    size_t head_dim = f->model->description.head_dim;
    /* A step with one tile per sequence needs no barrier between writing its rows and reading them.
     */
    for (size_t r = 0; f->stores_in_units && r < tile->n_rows; r++)
        kvad_forward_store(f, layer, tile->first_row + r, kv_head);
    if (f->stores_in_units) forward_mark(w, KVAD_PART_STORE_KV);
    kvad_forward_queries(f, w, tile, layer, kv_head);
    attend_chunks(f, w, tile, layer, kv_head);
    for (size_t g = 0; g < f->n_group; g++)
        for (size_t r = 0; r < tile->n_rows; r++) {
            size_t i = g * tile->n_rows + r;
            float *y = f->attended + (tile->first_row + r) * f->attended_stride +
                       (kv_head * f->n_group + g) * head_dim;
            f->kernels->divide(y, w->o + i * head_dim, w->l[i], head_dim);
        }
}

void kvad_forward_attention(struct kvad_forward *f, struct forward_worker *worker, size_t layer) {
    size_t n_kv_heads = f->model->description.n_kv_heads;
    size_t n_units = f->n_tiles * n_kv_heads;
    for (;;) {
        /* Relaxed: a claim orders nothing; barriers before and after do. Later tiles see more
         * tokens and come first. */
        size_t claim = atomic_fetch_add_explicit(&f->claims[layer], 1, memory_order_relaxed);
        if (claim >= n_units) return;
        size_t unit = n_units - 1 - claim;
        attend_unit(f, worker, &f->tiles[unit / n_kv_heads], layer, unit % n_kv_heads);
        forward_mark(worker, KVAD_PART_ATTENTION);
    }
}
