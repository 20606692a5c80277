/* kvad_eval(): check a batch, make room, run it in slices that fit the step's memory, count the
 * rows. */
#include "base/error.h"
#include "base/faults.h"
#include "engine/budget.h"

static enum kvad_status check_rows(const struct kvad_eval_item *item, size_t i,
                                   struct kvad_error *err) {
    if (item->n_rows > item->n_tokens)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "item %zu: %zu rows wanted of %zu tokens", i,
                         item->n_rows, item->n_tokens);
    if (item->n_rows > 0 && !item->logits)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "item %zu: rows wanted, but logits is NULL", i);
    for (size_t j = 0; item->rows && j < item->n_rows; j++)
        if (item->rows[j] >= item->n_tokens || (j > 0 && item->rows[j] <= item->rows[j - 1]))
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "item %zu: rows[%zu] is %zu; rows must ascend and be below %zu", i, j,
                             item->rows[j], item->n_tokens);
    return KVAD_OK;
}

static enum kvad_status check_item(struct kvad_engine *e, const struct kvad_eval_item *item,
                                   size_t i, struct kvad_error *err) {
    if (!item->sequence || item->sequence->engine != e)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "item %zu: not a sequence of this engine", i);
    if (item->sequence->eval_stamp == e->eval_stamp)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "item %zu: its sequence is named twice", i);
    item->sequence->eval_stamp = e->eval_stamp;
    if (item->n_tokens == 0 || !item->tokens)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "item %zu: no tokens", i);
    uint32_t n_vocab = e->model->description.n_vocab;
    for (size_t j = 0; j < item->n_tokens; j++)
        if (item->tokens[j] < 0 || (uint32_t)item->tokens[j] >= n_vocab)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "item %zu: token %zu is id %ld, outside the vocabulary of %u", i, j,
                             (long)item->tokens[j], n_vocab);
    return check_rows(item, i, err);
}

/* Drop what was reserved for the first n items and not committed. */
static void roll_back(const struct kvad_eval_item *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        kvad_kv_sequence_unreserve(&items[i].sequence->kv);
}

/* For whom the index says that a block had to go. */
static void name_taker(struct kvad_engine *e, const struct kvad_eval_item *items, size_t i) {
    e->prefix.taker = items == e->step_items ? e->step_owners[i]->arrival : KVAD_NO_REQUEST;
}

static enum kvad_status reserve(struct kvad_engine *e, const struct kvad_eval_item *items,
                                size_t n_items, struct kvad_error *err) {
    size_t n_missing = kvad_budget_missing(e, items, n_items);
    if (n_missing > 0)
        return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                         "the cache that grows needs %zu blocks more than its memory (kv_bytes) of "
                         "%llu bytes has: end a sequence or give more",
                         n_missing, (unsigned long long)e->kv_budget);
    for (size_t i = 0; i < n_items; i++) {
        name_taker(e, items, i);
        enum kvad_status status =
            kvad_kv_sequence_reserve(&items[i].sequence->kv, items[i].n_tokens, err);
        if (status != KVAD_OK) {
            roll_back(items, i);
            e->failed_item = i;
            return status;
        }
    }
    kvad_engine_note_peak(e);
    return KVAD_OK;
}

/* Position of token `first` of an item. */
static size_t slice_position(const struct kvad_kv_sequence *kv, size_t first) {
    return KVAD_FAULT(SLICE_STARTS_OVER, kv->length + first, kv->length);
}

/* Tokens [first, first + n) of an item as a part of a step, with those of its wanted rows that lie
 * there. */
static struct kvad_forward_item slice(const struct kvad_engine *e,
                                      const struct kvad_eval_item *item, size_t first, size_t n) {
    const struct kvad_description *d = &e->model->description;
    const struct kvad_kv_sequence *kv = &item->sequence->kv;
    size_t n_ready = kv->n_ready - kv->length, n_kept = n_ready > first ? n_ready - first : 0;
    struct kvad_forward_item part = {.sequence = &item->sequence->kv,
                                     .tokens = item->tokens + first,
                                     .n_tokens = n,
                                     .position = slice_position(kv, first),
                                     .n_kept = n_kept,
                                     .row_base = first};
    size_t skipped = 0, last = first + n;
    if (item->rows) {
        while (skipped < item->n_rows && item->rows[skipped] < first)
            skipped++;
        while (skipped + part.n_rows < item->n_rows && item->rows[skipped + part.n_rows] < last)
            part.n_rows++;
        part.rows = item->rows + skipped;
    } else {
        size_t first_row = item->n_tokens - item->n_rows;
        if (first > first_row) skipped = kvad_min_size(first - first_row, item->n_rows);
        if (last > first_row) part.n_rows = kvad_min_size(last - first_row - skipped, n);
    }
    if (part.n_rows > 0) part.logits = item->logits + skipped * d->n_vocab;
    if (item->hidden) part.hidden = item->hidden + first * d->d_model;
    part.hidden_stride = item->n_tokens;
    return part;
}

/* Run all rows of all items, at most n_batch_tokens at once. */
static enum kvad_status run_slices(struct kvad_engine *e, const struct kvad_eval_item *items,
                                   size_t n_items, struct kvad_error *err) {
    size_t item = 0, done = 0; /* the next row: of which item, which of its tokens */
    while (item < n_items) {
        size_t n_parts = 0, n_rows = 0, first_item = item, failed = 0;
        while (item < n_items && n_rows < e->n_batch_tokens) {
            size_t n = kvad_min_size(items[item].n_tokens - done, e->n_batch_tokens - n_rows);
            e->items[n_parts++] = slice(e, &items[item], done, n);
            n_rows += n;
            done += n;
            if (done == items[item].n_tokens) {
                item++;
                done = 0;
            }
        }
        uint64_t start = e->probe ? kvad_clock_ns() : 0;
        enum kvad_status status =
            kvad_forward_run(e->forward, e->items, n_parts, &e->interrupt, &failed, err);
        if (e->probe) e->forward_ns += kvad_clock_ns() - start;
        if (status == KVAD_ERR_CANCELLED) atomic_store(&e->interrupt, false);
        if (status == KVAD_ERR_NOT_FINITE) e->failed_item = first_item + failed;
        if (status != KVAD_OK) return status;
    }
    return KVAD_OK;
}

enum kvad_status kvad_eval(struct kvad_engine *engine, const struct kvad_eval_item *items,
                           size_t n_items, struct kvad_error *err) {
    engine->eval_stamp++;
    engine->failed_item = SIZE_MAX;
    if (n_items == 0 || n_items > engine->n_sequences)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%zu items: must be 1 to %u (n_sequences)",
                         n_items, engine->n_sequences);
    for (size_t i = 0; i < n_items; i++) {
        engine->failed_item = i;
        KVAD_TRY(check_item(engine, &items[i], i, err));
    }
    engine->failed_item = SIZE_MAX;
    if (atomic_exchange(&engine->interrupt, false))
        return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
    kvad_probe_serial(engine->probe, KVAD_PART_OTHER);
    KVAD_TRY(reserve(engine, items, n_items, err));
    kvad_probe_serial(engine->probe, KVAD_PART_RESERVE);
    enum kvad_status status = run_slices(engine, items, n_items, err);
    if (status != KVAD_OK) {
        roll_back(items, n_items);
        return status;
    }
    for (size_t i = 0; i < n_items; i++)
        kvad_kv_sequence_commit(&items[i].sequence->kv, items[i].n_tokens);
    kvad_probe_serial(engine->probe, KVAD_PART_OTHER);
    return KVAD_OK;
}
