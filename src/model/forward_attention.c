/* Attention over the cache: writing keys and values, and the units that read them back. */
#include "base/faults.h"
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

/* Columns [first, last) of one row's keys (or values), counted from the first key (value). */
static void store_row(const struct kvad_kv_sequence *sequence, size_t layer, size_t row,
                      const float *values, size_t first, size_t last, bool is_key) {
    const struct kvad_kv_shape *shape = sequence->shape;
    float *block = kvad_kv_sequence_block(sequence, row);
    size_t t = row % shape->block_tokens;
    for (size_t c = first; c < last; c++) {
        size_t head = c / shape->head_dim, d = c % shape->head_dim;
        if (is_key)
            block[kvad_kv_k_offset(shape, layer, head) + kvad_kv_k_index(shape, t, d)] = values[c];
        else
            block[kvad_kv_v_offset(shape, layer, head) + t * shape->head_dim + d] = values[c];
    }
}

static size_t clamp(size_t x, size_t low, size_t high) {
    return x < low ? low : x > high ? high : x;
}

void kvad_forward_store_kv(const struct kvad_forward *f, size_t layer, size_t first, size_t last) {
    const struct kvad_description *d = &f->model->description;
    size_t n_q = (size_t)d->n_heads * d->head_dim, n_kv = (size_t)d->n_kv_heads * d->head_dim;
    /* The columns of qkv are all queries, then all keys, then all values. */
    size_t k_first = clamp(first, n_q, n_q + n_kv) - n_q;
    size_t k_last = clamp(last, n_q, n_q + n_kv) - n_q;
    size_t v_first = clamp(first, n_q + n_kv, n_q + 2 * n_kv) - n_q - n_kv;
    size_t v_last = clamp(last, n_q + n_kv, n_q + 2 * n_kv) - n_q - n_kv;
    for (size_t r = 0; r < f->n_rows; r++) {
        const struct kvad_forward_item *item = &f->items[f->rows[r].item];
        size_t row = append_row(item->position, f->rows[r].index, item->n_tokens);
        const float *k = f->qkv + r * f->qkv_stride + n_q;
        store_row(item->sequence, layer, row, k, k_first, k_last, true);
        store_row(item->sequence, layer, row, k + n_kv, v_first, v_last, false);
    }
}

/* Scale of one layer's scores, rounded once (Vaswani et al. 2017, eq. 1; division by the layer's
 * number is Hugging Face's scale_attn_by_inverse_layer_idx). */
static float query_scale(const struct kvad_forward *f, size_t layer) {
    bool by_layer = f->model->description.scale_attn_by_layer;
    return (float)(by_layer ? f->score_scale / (double)(layer + 1) : f->score_scale);
}

/* The scaled queries of a tile for all query heads of one kv head: [n_group][n_rows][head_dim]. */
static void gather_queries(const struct kvad_forward *f, const struct forward_tile *tile,
                           size_t layer, size_t kv_head, float *query) {
    const struct kvad_description *d = &f->model->description;
    float scale = query_scale(f, layer);
    for (size_t g = 0; g < f->n_group; g++)
        for (size_t r = 0; r < tile->n_rows; r++) {
            const float *row = f->qkv + (tile->first_row + r) * f->qkv_stride;
            f->kernels->scale(query + (g * tile->n_rows + r) * d->head_dim,
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

/* Sum over all chunks that the tile's rows see; chunks are cut at absolute multiples of KVAD_CHUNK.
 */
static void attend_chunks(const struct kvad_forward *f, struct forward_worker *w,
                          const struct forward_tile *tile, size_t layer, size_t kv_head) {
    const struct kvad_forward_item *item = &f->items[tile->item];
    size_t head_dim = f->model->description.head_dim, n = f->n_group * tile->n_rows;
    size_t last = f->rows[tile->first_row + tile->n_rows - 1].index;
    size_t n_seen = n_visible(item->position, last, item->n_tokens);
    struct kvad_kv_span spans[KVAD_CHUNK / KVAD_KV_TILE];
    for (size_t start = 0; start < n_seen; start += KVAD_CHUNK) {
        size_t n_tokens = kvad_min_size(n_seen - start, KVAD_CHUNK);
        for (size_t i = 0; i < n; i++) {
            size_t index = f->rows[tile->first_row + i % tile->n_rows].index;
            size_t seen = n_visible(item->position, index, item->n_tokens);
            w->visible[i] = seen <= start ? 0 : (uint32_t)kvad_min_size(seen - start, n_tokens);
        }
        struct kvad_attention_args args = {.q = w->query,
                                           .q_stride = head_dim,
                                           .n_rows = n,
                                           .head_dim = head_dim,
                                           .spans = spans,
                                           .visible = w->visible,
                                           .o = start ? w->chunk_o : w->o,
                                           .o_stride = head_dim,
                                           .m = start ? w->chunk_m : w->m,
                                           .l = start ? w->chunk_l : w->l};
        args.n_spans =
            kvad_kv_sequence_spans(item->sequence, layer, kv_head, start, n_tokens, spans);
        f->kernels->attention_chunk(&args);
        if (start) merge_chunk(f, w, n);
    }
}

static void attend_unit(const struct kvad_forward *f, struct forward_worker *w,
                        const struct forward_tile *tile, size_t layer, size_t kv_head) {
    size_t head_dim = f->model->description.head_dim;
    gather_queries(f, tile, layer, kv_head, w->query);
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
    }
}
