/* Attention of few rows by many workers: a text's chunks are units of their own.
 *
 * Partial results lie in forward->chunks as [chunk][row of the step][query head]: o[head_dim], m,
 * l. After a barrier each (row, head) is folded over its chunks in ascending order, exactly as one
 * worker alone would fold them. */
#include <string.h>

#include "model/forward_attention.h"

static float *partial_of(const struct kvad_forward *f, size_t chunk, size_t row, size_t head) {
    const struct kvad_description *d = &f->model->description;
    size_t at = (chunk * FORWARD_SPLIT_ROWS + row) * d->n_heads + head;
    return f->chunks + at * (d->head_dim + 2);
}

static void attend_unit(const struct kvad_forward *f, struct forward_worker *w,
                        const struct forward_tile *tile, size_t layer, size_t kv_head,
                        size_t chunk) {
    size_t head_dim = f->model->description.head_dim, start = chunk * KVAD_CHUNK;
    if (start >= kvad_forward_seen(f, tile->first_row + tile->n_rows - 1)) return;
    kvad_forward_queries(f, w, tile, layer, kv_head);
    kvad_forward_chunk(f, w, tile, layer, kv_head, start, w->o, w->m, w->l);
    for (size_t g = 0; g < f->n_group; g++)
        for (size_t r = 0; r < tile->n_rows; r++) {
            size_t i = g * tile->n_rows + r;
            if (w->visible[i] == 0) continue;
            size_t head = kvad_forward_query_head(f, kv_head, g);
            float *out = partial_of(f, chunk, tile->first_row + r, head);
            memcpy(out, w->o + i * head_dim, head_dim * sizeof *out);
            out[head_dim] = w->m[i];
            out[head_dim + 1] = w->l[i];
        }
}

/* Fold the chunks of one row and head in place of the first one, and divide. */
static void fold_row(const struct kvad_forward *f, size_t row, size_t head) {
    size_t head_dim = f->model->description.head_dim, n_seen = kvad_forward_seen(f, row);
    float *sum = partial_of(f, 0, row, head);
    for (size_t chunk = 1; chunk * KVAD_CHUNK < n_seen; chunk++) {
        const float *part = partial_of(f, chunk, row, head);
        float maximum = forward_chunk_maximum(sum[head_dim], part[head_dim]);
        f->kernels->attention_merge(sum, &sum[head_dim], &sum[head_dim + 1], part, maximum,
                                    part[head_dim + 1], head_dim);
    }
    float *y = kvad_forward_output(f, row, head);
    f->kernels->divide(y, sum, sum[head_dim + 1], head_dim);
}

void kvad_forward_attention_split(struct kvad_forward *f, struct forward_worker *worker,
                                  size_t layer, unsigned index, unsigned count) {
    const struct kvad_description *d = &f->model->description;
    size_t n_units = f->n_tiles * d->n_kv_heads * f->n_chunks, first, last;
    for (;;) {
        size_t unit = atomic_fetch_add_explicit(&f->claims[layer], 1, memory_order_relaxed);
        if (unit >= n_units) break;
        size_t chunk = unit % f->n_chunks, rest = unit / f->n_chunks;
        attend_unit(f, worker, &f->tiles[rest / d->n_kv_heads], layer, rest % d->n_kv_heads, chunk);
    }
    forward_barrier(f, worker, KVAD_PART_ATTENTION);
    forward_part(f->n_rows * d->n_heads, index, count, &first, &last);
    for (size_t i = first; i < last; i++)
        fold_row(f, i / d->n_heads, i % d->n_heads);
}
