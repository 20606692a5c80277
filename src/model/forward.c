/* One step: the parts of a layer, what every worker runs, and the plan of who computes what. */
#include "model/forward.h"

#include <string.h>

#include "base/error.h"
#include "base/faults.h"
#include "model/build.h"
#include "model/forward_linear.h"

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

static void norm_row(const struct kvad_forward *f, const struct kvad_norm_weights *norm, float *y,
                     size_t row) {
    const struct kvad_description *d = &f->model->description;
    f->kernels->layer_norm(y, f->hidden + row * f->d_stride, norm->weight, norm->bias, d->d_model,
                           d->norm_eps);
}

/* Norm and quantise the rows [first, last), a few at a time. */
static void norm_and_quantise(const struct kvad_forward *f, const struct forward_worker *worker,
                              const struct kvad_norm_weights *norm, size_t first, size_t last) {
    size_t d_model = f->model->description.d_model;
    for (size_t end; first < last; first = end) {
        end = kvad_min_size(first + FORWARD_PRIVATE_ROWS, last);
        for (size_t r = first; r < end; r++)
            norm_row(f, norm, worker->normed + (r - first) * f->d_stride, r);
        forward_mark(worker, KVAD_PART_NORM);
        for (size_t r = first; r < end; r++)
            f->kernels->quantise_row(f->quant + r * f->quant_stride, d_model, 0,
                                     worker->normed + (r - first) * f->d_stride, d_model);
        forward_mark(worker, KVAD_PART_QUANTISE);
    }
}

/* Norm of every row, as a linear reads it: few rows by every worker for itself, many rows in shares
 * and a barrier. */
static struct forward_input norm_rows(const struct kvad_forward *f,
                                      const struct forward_worker *worker,
                                      const struct kvad_norm_weights *norm, unsigned index,
                                      unsigned count) {
    if (!forward_shares_rows(f)) {
        for (size_t r = 0; r < f->n_rows; r++)
            norm_row(f, norm, worker->normed + r * f->d_stride, r);
        forward_mark(worker, KVAD_PART_NORM);
        return kvad_forward_input(f, worker, worker->normed, f->d_stride, f->n_rows,
                                  f->model->description.d_model, index, count);
    }
    bool is_quantised = f->quant_stride > 0;
    size_t first, last;
    forward_part(f->n_rows, index, count, &first, &last);
    if (is_quantised) norm_and_quantise(f, worker, norm, first, last);
    for (size_t r = first; !is_quantised && r < last; r++)
        norm_row(f, norm, f->normed + r * f->d_stride, r);
    forward_barrier(f, worker, KVAD_PART_NORM);
    return (struct forward_input){is_quantised ? NULL : f->normed, f->d_stride, f->quant,
                                  f->quant_stride};
}

/* hidden += what the panels [first, last) of a linear gave; also looks for values that are not
 * finite. */
static void add_columns(const struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                        const struct kvad_linear_weights *linear, const float *delta, size_t first,
                        size_t last) {
    /* Without the padding of the last panel: nothing clears it, so that what a failed step left
     * there would be found again for ever. */
    size_t column = first * KVAD_PANEL, end = kvad_min_size(last * KVAD_PANEL, linear->n);
    if (column >= end) return;
    for (size_t r = 0; r < f->n_rows; r++) {
        float *h = f->hidden + r * f->d_stride + column;
        const float *x = delta + r * (last - first) * KVAD_PANEL;
        if (!f->kernels->residual(h, x, end - column)) kvad_forward_mark_bad(worker, layer, r);
    }
}

/* hidden += linear(x), for this worker's columns. What is added lies in pieces, one for each
 * worker: in rows that two workers share their cache lines would go to and fro, for a CPU fetches
 * lines beyond those that it is told to. Many rows are added in blocks of columns, from the second
 * cache. */
static void add_linear(const struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                       const struct kvad_linear_weights *linear, struct forward_input input,
                       enum kvad_part part, unsigned index, unsigned count) {
    size_t first, last;
    forward_part(kvad_panel_count(linear->n), index, count, &first, &last);
    float *delta = f->delta + f->n_rows * first * KVAD_PANEL;
    if (!forward_shares_rows(f)) {
        kvad_forward_linear(f, worker, linear, delta - first * KVAD_PANEL,
                            (last - first) * KVAD_PANEL, input, f->n_rows, part, index, count);
        add_columns(f, worker, layer, linear, delta, first, last);
        return;
    }
    for (size_t end; first < last; first = end) {
        end = kvad_min_size(first + forward_block_panels(f), last);
        kvad_forward_panels(f, linear, delta - first * KVAD_PANEL, (end - first) * KVAD_PANEL,
                            input, f->n_rows, first, end);
        add_columns(f, worker, layer, linear, delta, first, end);
    }
}

/* Write all rows' keys and values (this worker's share), before anybody reads them. Shares are of
 * heads and tiles: keys of neighbouring tokens lie side by side, and two workers must not write to
 * the same cache lines. */
static void store_rows(const struct kvad_forward *f, const struct forward_worker *worker,
                       size_t layer, unsigned index, unsigned count) {
    size_t n_kv_heads = f->model->description.n_kv_heads, first, last;
    forward_part(f->n_tiles * n_kv_heads, index, count, &first, &last);
    for (size_t unit = first; unit < last; unit++)
        kvad_forward_store(f, layer, &f->tiles[unit / n_kv_heads], unit % n_kv_heads);
    forward_barrier(f, worker, KVAD_PART_STORE_KV);
}

/* What attention gave, as `out` reads it. */
static struct forward_input attended_input(const struct kvad_forward *f,
                                           const struct forward_worker *worker, size_t k,
                                           unsigned index, unsigned count) {
    if (f->quantises_heads)
        return (struct forward_input){.quant = f->quant, .quant_stride = f->quant_stride};
    return kvad_forward_input(f, worker, f->attended, f->attended_stride, f->n_rows, k, index,
                              count);
}

static void attention_part(struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                           unsigned index, unsigned count) {
    const struct kvad_layer_weights *weights = &f->model->layers[layer];
    struct forward_input input = norm_rows(f, worker, &weights->norm1, index, count);
    kvad_forward_linear(f, worker, &weights->qkv, f->qkv, f->qkv_stride, input, f->n_rows,
                        KVAD_PART_QKV, index, count);
    forward_barrier(f, worker, KVAD_PART_QKV);
    if (!f->stores_in_units) store_rows(f, worker, layer, index, count);
    if (f->splits_attention)
        kvad_forward_attention_split(f, worker, layer, index, count);
    else
        kvad_forward_attention(f, worker, layer);
    forward_barrier(f, worker, KVAD_PART_ATTENTION);
    input = attended_input(f, worker, weights->out.k, index, count);
    add_linear(f, worker, layer, &weights->out, input, KVAD_PART_OUT, index, count);
    forward_barrier(f, worker, KVAD_PART_OUT);
}

static void activate(const struct kvad_forward *f, float *y, size_t n) {
    if (f->activation) f->activation(y, y, n);
}

/* Few rows, or floats: y = activation(up(x)) in f->ff, then what `down` reads. */
static struct forward_input up_rows(const struct kvad_forward *f,
                                    const struct forward_worker *worker,
                                    const struct kvad_layer_weights *weights,
                                    struct forward_input input, unsigned index, unsigned count) {
    struct forward_panels own = kvad_forward_linear(f, worker, &weights->up, f->ff, f->ff_stride,
                                                    input, f->n_rows, KVAD_PART_UP, index, count);
    forward_mark(worker, KVAD_PART_UP);
    for (size_t r = 0; own.first < own.last && r < f->n_rows; r++)
        activate(f, f->ff + r * f->ff_stride + own.first * KVAD_PANEL,
                 (own.last - own.first) * KVAD_PANEL);
    forward_barrier(f, worker, KVAD_PART_ACTIVATION);
    return kvad_forward_input(f, worker, f->ff, f->ff_stride, f->n_rows, weights->down.k, index,
                              count);
}

/* Activation and quants of the panels [first, last) of `up`, a few rows at a time. */
static void activate_and_quantise(const struct kvad_forward *f, const struct forward_worker *worker,
                                  float *y, size_t first, size_t last) {
    size_t stride = (last - first) * KVAD_PANEL, column = first * KVAD_PANEL;
    size_t k = f->model->description.d_ff, n = kvad_min_size(stride, k - column);
    for (size_t row = 0, end; row < f->n_rows; row = end) {
        end = kvad_min_size(row + FORWARD_TILE_ROWS, f->n_rows);
        for (size_t r = row; r < end; r++)
            activate(f, y + r * stride, n);
        forward_mark(worker, KVAD_PART_ACTIVATION);
        for (size_t r = row; r < end; r++)
            f->kernels->quantise_row(f->ff_quant + r * f->ff_quant_stride, k, column / KVAD_GROUP,
                                     y + r * stride, n);
        forward_mark(worker, KVAD_PART_QUANTISE);
    }
}

/* Many rows for quantised weights: a worker's columns in blocks, each as quants before the next
 * one, so that its floats never leave the second cache. */
static struct forward_input up_quants(const struct kvad_forward *f,
                                      const struct forward_worker *worker,
                                      const struct kvad_linear_weights *up,
                                      struct forward_input input, unsigned index, unsigned count) {
    enum { PANELS = KVAD_GROUP / KVAD_PANEL };
    size_t n_panels = kvad_panel_count(up->n), first, last;
    forward_part((n_panels + PANELS - 1) / PANELS, index, count, &first, &last);
    first *= PANELS;
    last = kvad_min_size(last * PANELS, n_panels);
    float *y = f->ff + f->n_rows * first * KVAD_PANEL;
    for (size_t end; first < last; first = end) {
        end = kvad_min_size(first + forward_block_panels(f), last);
        kvad_forward_panels(f, up, y - first * KVAD_PANEL, (end - first) * KVAD_PANEL, input,
                            f->n_rows, first, end);
        forward_mark(worker, KVAD_PART_UP);
        activate_and_quantise(f, worker, y, first, end);
    }
    forward_barrier(f, worker, KVAD_PART_QUANTISE);
    return (struct forward_input){.quant = f->ff_quant, .quant_stride = f->ff_quant_stride};
}

static void mlp_part(struct kvad_forward *f, struct forward_worker *worker, size_t layer,
                     unsigned index, unsigned count) {
    const struct kvad_layer_weights *weights = &f->model->layers[layer];
    struct forward_input input = norm_rows(f, worker, &weights->norm2, index, count);
    bool is_fused = f->quant_stride > 0 && forward_shares_rows(f);
    input = is_fused ? up_quants(f, worker, &weights->up, input, index, count)
                     : up_rows(f, worker, weights, input, index, count);
    add_linear(f, worker, layer, &weights->down, input, KVAD_PART_DOWN, index, count);
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
    f->quantises_heads = f->quant_stride > 0 && forward_shares_rows(f) &&
                         f->model->description.head_dim % KVAD_GROUP == 0;
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
