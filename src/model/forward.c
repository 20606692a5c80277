/* One step: the parts of a layer, what every worker runs, and the plan of who computes what. */
#include "model/forward.h"

#include <string.h>

#include "base/error.h"
#include "base/faults.h"
#include "model/build.h"
#include "model/forward_internal.h"

/* ---------------------------------------------------------------- the parts of a layer */

/* The last entry of the position table. */
static size_t last_position(const struct kvad_forward *f) {
    size_t last = f->model->description.n_ctx - 1;
    return KVAD_FAULT(LAST_POSITION_TWICE, last, last - (last > 0));
}

/* Position of a row: index into the learned position table. */
static size_t position_of(const struct kvad_forward *f, const struct forward_row *row) {
    const struct kvad_forward_item *item = &f->items[row->item];
    size_t position = item->position + row->index;
    position = KVAD_FAULT(POSITION_OF_ONE_ROW, position, f->items[0].position + row->index);
    position = KVAD_FAULT(POSITION_TWICE, position, position + item->position);
    position = KVAD_FAULT(POSITION_IN_CHUNK, position, item->n_tokens > 1 ? row->index : position);
    /* Never beyond the table: the engine checks lengths, so this holds anyway in an ordinary build.
     */
    return kvad_min_size(position, last_position(f));
}

static void embed_row(const struct kvad_forward *f, size_t r) {
    const struct forward_row *row = &f->rows[r];
    size_t d_model = f->model->description.d_model;
    float *h = f->hidden + r * f->d_stride;
    kvad_model_embed(f->model, (size_t)f->items[row->item].tokens[row->index], h);
    f->kernels->add(h, f->model->positions + position_of(f, row) * d_model, d_model);
}

/* Norm of every row: few rows by every worker for itself, many rows in shares and a barrier. */
static const float *norm_rows(const struct kvad_forward *f, const struct forward_worker *worker,
                              const struct kvad_norm_weights *norm, unsigned index,
                              unsigned count) {
    const struct kvad_description *d = &f->model->description;
    bool is_private = f->n_rows <= FORWARD_PRIVATE_ROWS;
    float *normed = is_private ? worker->normed : f->normed;
    for (size_t r = is_private ? 0 : index; r < f->n_rows; r += is_private ? 1 : count)
        f->kernels->layer_norm(normed + r * f->d_stride, f->hidden + r * f->d_stride, norm->weight,
                               norm->bias, d->d_model, d->norm_eps);
    if (is_private)
        forward_mark(worker, KVAD_PART_NORM);
    else
        forward_barrier(f, worker, KVAD_PART_NORM);
    return normed;
}

/* hidden += linear(x), for this worker's columns; also looks for values that are not finite. What
 * is added lies in pieces, one for each worker: in rows that two workers share their cache lines
 * would go to and fro, for a CPU fetches lines beyond those that it is told to. */
static void add_linear(const struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                       const struct kvad_linear_weights *linear, const float *x, size_t x_stride,
                       enum kvad_part part, unsigned index, unsigned count) {
    struct forward_input input =
        kvad_forward_input(f, worker, x, x_stride, f->n_rows, linear->k, index, count);
    size_t first, last;
    forward_part(kvad_panel_count(linear->n), index, count, &first, &last);
    size_t column = first * KVAD_PANEL, stride = (last - first) * KVAD_PANEL;
    float *delta = f->delta + f->n_rows * column;
    kvad_forward_linear(f, worker, linear, delta - column, stride, input, f->n_rows, part, index,
                        count);
    /* Without the padding of the last panel: nothing clears it, so that what a failed step left
     * there would be found again for ever. */
    size_t end = kvad_min_size(last * KVAD_PANEL, linear->n);
    if (column >= end) return;
    size_t n_columns = end - column;
    for (size_t r = 0; r < f->n_rows; r++) {
        float *h = f->hidden + r * f->d_stride + column;
        f->kernels->add(h, delta + r * stride, n_columns);
        if (!kvad_forward_is_finite(h, n_columns)) kvad_forward_mark_bad(worker, layer, r);
    }
}

/* Write all rows' keys and values (this worker's share), before anybody reads them. Shares are of
 * heads and tiles: keys of neighbouring tokens lie side by side, and two workers must not write to
 * the same cache lines. */
static void store_rows(const struct kvad_forward *f, const struct forward_worker *worker,
                       size_t layer, unsigned index, unsigned count) {
    size_t n_kv_heads = f->model->description.n_kv_heads, first, last;
    forward_part(f->n_tiles * n_kv_heads, index, count, &first, &last);
    for (size_t unit = first; unit < last; unit++) {
        const struct forward_tile *tile = &f->tiles[unit / n_kv_heads];
        for (size_t r = 0; r < tile->n_rows; r++)
            kvad_forward_store(f, layer, tile->first_row + r, unit % n_kv_heads);
    }
    forward_barrier(f, worker, KVAD_PART_STORE_KV);
}

static void attention_part(struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                           unsigned index, unsigned count) {
    const struct kvad_layer_weights *weights = &f->model->layers[layer];
    const float *x = norm_rows(f, worker, &weights->norm1, index, count);
    struct forward_input input =
        kvad_forward_input(f, worker, x, f->d_stride, f->n_rows, weights->qkv.k, index, count);
    kvad_forward_linear(f, worker, &weights->qkv, f->qkv, f->qkv_stride, input, f->n_rows,
                        KVAD_PART_QKV, index, count);
    forward_barrier(f, worker, KVAD_PART_QKV);
    if (!f->stores_in_units) store_rows(f, worker, layer, index, count);
    if (f->splits_attention)
        kvad_forward_attention_split(f, worker, layer, index, count);
    else
        kvad_forward_attention(f, worker, layer);
    forward_barrier(f, worker, KVAD_PART_ATTENTION);
    add_linear(f, worker, layer, &weights->out, f->attended, f->attended_stride, KVAD_PART_OUT,
               index, count);
    forward_barrier(f, worker, KVAD_PART_OUT);
}

static void mlp_part(struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                     unsigned index, unsigned count) {
    const struct kvad_layer_weights *weights = &f->model->layers[layer];
    const float *x = norm_rows(f, worker, &weights->norm2, index, count);
    struct forward_input input =
        kvad_forward_input(f, worker, x, f->d_stride, f->n_rows, weights->up.k, index, count);
    struct forward_panels own = kvad_forward_linear(f, worker, &weights->up, f->ff, f->ff_stride,
                                                    input, f->n_rows, KVAD_PART_UP, index, count);
    forward_mark(worker, KVAD_PART_UP);
    for (size_t r = 0; f->activation && own.first < own.last && r < f->n_rows; r++) {
        float *y = f->ff + r * f->ff_stride + own.first * KVAD_PANEL;
        f->activation(y, y, (own.last - own.first) * KVAD_PANEL);
    }
    forward_barrier(f, worker, KVAD_PART_ACTIVATION);
    add_linear(f, worker, layer, &weights->down, f->ff, f->ff_stride, KVAD_PART_DOWN, index, count);
    /* Worker 0 reads the flag, so that all workers stop at the same place. */
    if (index == 0) f->stop = f->interrupt && atomic_load(f->interrupt);
    forward_barrier(f, worker, KVAD_PART_DOWN);
}

/* Hand the rows' hidden states (this worker's share) to callers who want them. The last level is
 * after the final norm. */
static void copy_hidden(const struct kvad_forward *f, size_t level, unsigned index,
                        unsigned count) {
    const struct kvad_model *model = f->model;
    size_t d_model = model->description.d_model;
    for (size_t r = index; r < f->n_rows; r += count) {
        const struct kvad_forward_item *item = &f->items[f->rows[r].item];
        if (!item->hidden) continue;
        float *out = item->hidden + (level * item->hidden_stride + f->rows[r].index) * d_model;
        const float *h = f->hidden + r * f->d_stride;
        if (level == model->description.n_layers)
            f->kernels->layer_norm(out, h, model->final_norm.weight, model->final_norm.bias,
                                   d_model, model->description.norm_eps);
        else
            memcpy(out, h, d_model * sizeof *out);
    }
}

/* What every worker runs. */
static void run_worker(void *ctx, unsigned index, unsigned count) {
    struct kvad_forward *f = ctx;
    struct forward_worker *worker = &f->workers[index];
    worker->is_bad = false;
    forward_mark(worker, KVAD_PART_WAIT);
    for (size_t r = index; r < f->n_rows; r += count)
        embed_row(f, r);
    forward_barrier(f, worker, KVAD_PART_EMBED);
    copy_hidden(f, 0, index, count);
    for (size_t layer = 0; layer < f->model->description.n_layers; layer++) {
        attention_part(f, worker, layer, index, count);
        mlp_part(f, worker, layer, index, count);
        if (f->stop) return;
        copy_hidden(f, layer + 1, index, count);
    }
    kvad_forward_logits(f, worker, index, count);
}

/* ---------------------------------------------------------------- a step */

/* Where an item's logits go. */
static float *logits_of(const struct kvad_forward_item *items, size_t n_items, size_t i) {
    const struct kvad_forward_item *own = &items[i];
    const struct kvad_forward_item *other = (i ^ 1) < n_items ? &items[i ^ 1] : own;
    (void)other;
    return KVAD_FAULT(LOGITS_OF_NEIGHBOUR, own->logits,
                      other->n_rows == own->n_rows ? other->logits : own->logits);
}

/* Lay the items out as rows, attention tiles and wanted logits. */
static void plan_step(struct kvad_forward *f, const struct kvad_forward_item *items,
                      size_t n_items) {
    f->items = items;
    f->n_rows = f->n_tiles = f->n_wants = f->n_chunks = 0;
    f->stores_in_units = true;
    for (size_t i = 0; i < n_items; i++) {
        const struct kvad_forward_item *item = &items[i];
        float *logits = logits_of(items, n_items, i);
        for (size_t j = 0; j < item->n_rows; j++) {
            size_t index =
                item->rows ? item->rows[j] - item->row_base : item->n_tokens - item->n_rows + j;
            f->wants[f->n_wants++] = (struct forward_want){
                (uint32_t)(f->n_rows + index), logits + j * f->model->description.n_vocab};
        }
        if (item->n_tokens > FORWARD_TILE_ROWS) f->stores_in_units = false;
        size_t n_chunks = (item->position + item->n_tokens + KVAD_CHUNK - 1) / KVAD_CHUNK;
        if (n_chunks > f->n_chunks) f->n_chunks = n_chunks;
        for (size_t t = 0; t < item->n_tokens; t += FORWARD_TILE_ROWS)
            f->tiles[f->n_tiles++] = (struct forward_tile){
                (uint32_t)i, (uint32_t)(f->n_rows + t),
                (uint32_t)kvad_min_size(item->n_tokens - t, FORWARD_TILE_ROWS)};
        for (size_t t = 0; t < item->n_tokens; t++)
            f->rows[f->n_rows++] = (struct forward_row){(uint32_t)i, (uint32_t)t};
    }
    f->splits_attention =
        f->n_chunk_floats > 0 &&
        forward_splits_attention(f->n_rows, f->n_tiles * f->model->description.n_kv_heads,
                                 f->n_chunks, f->n_workers);
    if (f->splits_attention) f->stores_in_units = false;
    for (size_t layer = 0; layer < f->model->description.n_layers; layer++)
        atomic_store_explicit(&f->claims[layer], 0, memory_order_relaxed);
}

static enum kvad_status report_bad(const struct kvad_forward *f, size_t *failed_item,
                                   struct kvad_error *err) {
    struct forward_worker first = {0};
    for (unsigned i = 0; i < f->n_workers; i++)
        if (f->workers[i].is_bad)
            kvad_forward_mark_bad(&first, f->workers[i].bad_layer, f->workers[i].bad_row);
    if (!first.is_bad) return KVAD_OK;
    const struct forward_row *row = &f->rows[first.bad_row];
    *failed_item = row->item;
    size_t position = f->items[row->item].position + row->index;
    if (first.bad_layer == f->model->description.n_layers)
        return kvad_fail(err, KVAD_ERR_NOT_FINITE,
                         "logits at position %zu are not finite: the head's weights overflow "
                         "or are damaged",
                         position);
    return kvad_fail(err, KVAD_ERR_NOT_FINITE,
                     "values after layer %u at position %zu are not finite: the weights overflow "
                     "or are damaged",
                     first.bad_layer, position);
}

void kvad_forward_set_probe(struct kvad_forward *forward, const struct kvad_probe *probe) {
    forward->probe = probe;
    for (unsigned i = 0; i < forward->n_workers; i++)
        forward->workers[i].clock = probe ? &probe->clocks[i] : NULL;
}

enum kvad_status kvad_forward_run(struct kvad_forward *forward,
                                  const struct kvad_forward_item *items, size_t n_items,
                                  const _Atomic bool *interrupt, size_t *failed_item,
                                  struct kvad_error *err) {
    struct kvad_forward *f = forward;
    plan_step(f, items, n_items);
    f->interrupt = interrupt;
    f->stop = false;
    for (unsigned i = 0; i < f->n_workers; i++)
        f->workers[i].is_bad = false;
    kvad_probe_serial(f->probe, KVAD_PART_OTHER);
    kvad_threads_run(f->threads, run_worker, f);
    kvad_probe_serial(f->probe, KVAD_PART_WAIT);
    if (f->stop) return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
    return report_bad(f, failed_item, err);
}
