#include "model/fill.h"

#include <string.h>

#include "base/error.h"
#include "model/forward.h"

/* Of a source that has its matrices transposed, a row gives a line to this many panels at a time:
 * few, that they stay in a cache; not one, that rows are read in long pieces. */
enum { STRIP_PANELS = 8, STRIP = STRIP_PANELS * KVAD_PANEL };

/* Bytes of float32 between two reports. */
enum { REPORT_BYTES = 4 << 20 };

struct fill {
    struct kvad_model *model;
    const struct kvad_model_source *source;
    struct kvad_progress progress;
    uint64_t total;           /* bytes of float32 */
    struct filler *fillers;   /* of each worker */
    _Atomic uint64_t done;    /* of `total`, by all */
    _Atomic size_t failed_at; /* the first array at which somebody failed; SIZE_MAX: none */
    _Atomic bool cancelled;   /* written by worker 0 */
};

/* One worker. */
struct filler {
    struct fill *fill;
    unsigned index, count;
    float *scratch; /* 16 rows and their panel, or a row and all panels of a strip */
    size_t array;   /* arrays before the one it fills */
    uint64_t next_report;
    enum kvad_status status;
    struct kvad_error err;
};

static enum kvad_status cancel(struct filler *w, uint64_t done) {
    atomic_store(&w->fill->cancelled, true);
    return kvad_fail(&w->err, KVAD_ERR_CANCELLED, "loading was cancelled after %llu of %llu bytes",
                     (unsigned long long)done, (unsigned long long)w->fill->total);
}

/* Count, report, and learn whether to go on. Whoever fails lets the others finish the array, so
 * that the first of all failures is known. */
static enum kvad_status advance(struct filler *w, size_t n_floats) {
    struct fill *fill = w->fill;
    uint64_t bytes = n_floats * sizeof(float);
    uint64_t done = atomic_fetch_add_explicit(&fill->done, bytes, memory_order_relaxed) + bytes;
    if (atomic_load_explicit(&fill->cancelled, memory_order_relaxed) ||
        atomic_load_explicit(&fill->failed_at, memory_order_relaxed) < w->array)
        return KVAD_ERR_CANCELLED;
    if (w->index > 0 || !fill->progress.report || done < w->next_report) return KVAD_OK;
    w->next_report = done + REPORT_BYTES;
    return fill->progress.report(fill->progress.user, done, fill->total) ? KVAD_OK
                                                                         : cancel(w, done);
}

static enum kvad_status read_part(struct filler *w, enum kvad_parameter parameter, uint32_t layer,
                                  size_t row, size_t first, size_t n, float *out) {
    const struct kvad_model_source *source = w->fill->source;
    return source->read(source->user, parameter, layer, row, first, n, out, &w->err);
}

/* The bytes from the end of an array to the next cache line: in no gap may lie what was in memory
 * before, since a packed file takes the area as it is. */
static void clear_gap(void *array, size_t bytes) {
    memset((unsigned char *)array + bytes, 0, kvad_round_up(bytes, KVAD_ALIGNMENT) - bytes);
}

/* A table of rows that steps look up here and there: shared evenly. */
static enum kvad_status fill_rows(struct filler *w, enum kvad_parameter parameter, uint32_t layer,
                                  float *out) {
    size_t n_rows, n_columns, first, last;
    kvad_parameter_shape(&w->fill->model->description, parameter, &n_rows, &n_columns);
    kvad_forward_share(n_rows, w->index, w->count, &first, &last);
    for (size_t row = first; row < last; row++) {
        KVAD_TRY(read_part(w, parameter, layer, row, 0, n_columns, out + row * n_columns));
        KVAD_TRY(advance(w, n_columns));
    }
    if (last == n_rows) clear_gap(out, n_rows * n_columns * sizeof *out);
    w->array++;
    return KVAD_OK;
}

static void put_panel(struct kvad_linear_weights *linear, size_t panel, const float *values) {
    kvad_convert_panel(linear->type, linear->panels + panel * linear->panel_bytes, values,
                       linear->k);
}

/* Rows are outputs: 16 of them make a panel. */
static enum kvad_status fill_panel(struct filler *w, struct kvad_linear_weights *linear,
                                   enum kvad_parameter parameter, uint32_t layer, size_t panel) {
    size_t k = linear->k, first = panel * KVAD_PANEL;
    size_t n = kvad_min_size(KVAD_PANEL, linear->n - first);
    float *values = w->scratch + KVAD_PANEL * k;
    for (size_t i = 0; i < n; i++)
        KVAD_TRY(read_part(w, parameter, layer, first + i, 0, k, w->scratch + i * k));
    kvad_pack_panels_f32(values, w->scratch, n, k, k, 1, 0, 1);
    put_panel(linear, panel, values);
    return advance(w, n * k);
}

/* Rows are inputs: each gives one line of 16 outputs to every panel of the strip [first, last). */
static enum kvad_status fill_strip(struct filler *w, struct kvad_linear_weights *linear,
                                   enum kvad_parameter parameter, uint32_t layer, size_t first,
                                   size_t last) {
    size_t column = first * KVAD_PANEL, n_panels = last - first, k = linear->k;
    size_t n = kvad_min_size(n_panels * KVAD_PANEL, linear->n - column);
    float *row = w->scratch, *panels = w->scratch + STRIP;
    memset(row, 0, STRIP * sizeof *row);
    for (size_t i = 0; i < k; i++) {
        KVAD_TRY(read_part(w, parameter, layer, i, column, n, row));
        for (size_t p = 0; p < n_panels; p++)
            memcpy(panels + (p * k + i) * KVAD_PANEL, row + p * KVAD_PANEL,
                   KVAD_PANEL * sizeof *row);
    }
    for (size_t p = 0; p < n_panels; p++)
        put_panel(linear, first + p, panels + p * k * KVAD_PANEL);
    return advance(w, n * k);
}

static enum kvad_status fill_panels(struct filler *w, struct kvad_linear_weights *linear,
                                    enum kvad_parameter parameter, uint32_t layer) {
    bool is_transposed = w->fill->source->transposed[parameter];
    size_t n_panels = kvad_panel_count(linear->n), step = is_transposed ? STRIP_PANELS : 1;
    size_t first, last;
    kvad_forward_share(n_panels, w->index, w->count, &first, &last);
    for (size_t panel = first; panel < last; panel += step)
        KVAD_TRY(is_transposed ? fill_strip(w, linear, parameter, layer, panel,
                                            kvad_min_size(panel + step, last))
                               : fill_panel(w, linear, parameter, layer, panel));
    if (last == n_panels) clear_gap(linear->panels, n_panels * linear->panel_bytes);
    w->array++;
    return KVAD_OK;
}

static enum kvad_status fill_linear(struct filler *w, struct kvad_linear_weights *linear,
                                    enum kvad_parameter weight, enum kvad_parameter bias,
                                    uint32_t layer) {
    KVAD_TRY(fill_panels(w, linear, weight, layer));
    if (!linear->bias) return KVAD_OK;
    return fill_rows(w, bias, layer, linear->bias);
}

static enum kvad_status fill_norm(struct filler *w, struct kvad_norm_weights *norm,
                                  enum kvad_parameter weight, enum kvad_parameter bias,
                                  uint32_t layer) {
    KVAD_TRY(fill_rows(w, weight, layer, norm->weight));
    return norm->bias ? fill_rows(w, bias, layer, norm->bias) : KVAD_OK;
}

static enum kvad_status fill_layer(struct filler *w, uint32_t l) {
    struct kvad_layer_weights *layer = &w->fill->model->layers[l];
    KVAD_TRY(
        fill_norm(w, &layer->norm1, KVAD_PARAMETER_NORM1_WEIGHT, KVAD_PARAMETER_NORM1_BIAS, l));
    KVAD_TRY(fill_linear(w, &layer->qkv, KVAD_PARAMETER_QKV_WEIGHT, KVAD_PARAMETER_QKV_BIAS, l));
    KVAD_TRY(fill_linear(w, &layer->out, KVAD_PARAMETER_OUT_WEIGHT, KVAD_PARAMETER_OUT_BIAS, l));
    KVAD_TRY(
        fill_norm(w, &layer->norm2, KVAD_PARAMETER_NORM2_WEIGHT, KVAD_PARAMETER_NORM2_BIAS, l));
    KVAD_TRY(fill_linear(w, &layer->up, KVAD_PARAMETER_UP_WEIGHT, KVAD_PARAMETER_UP_BIAS, l));
    return fill_linear(w, &layer->down, KVAD_PARAMETER_DOWN_WEIGHT, KVAD_PARAMETER_DOWN_BIAS, l);
}

static enum kvad_parameter head_parameter(const struct kvad_model *model) {
    return model->embedding ? KVAD_PARAMETER_HEAD_WEIGHT : KVAD_PARAMETER_EMBEDDING;
}

static enum kvad_status fill_share(struct filler *w) {
    struct kvad_model *model = w->fill->model;
    if (model->embedding) KVAD_TRY(fill_rows(w, KVAD_PARAMETER_EMBEDDING, 0, model->embedding));
    KVAD_TRY(fill_rows(w, KVAD_PARAMETER_POSITIONS, 0, model->positions));
    for (uint32_t l = 0; l < model->description.n_layers; l++)
        KVAD_TRY(fill_layer(w, l));
    KVAD_TRY(fill_norm(w, &model->final_norm, KVAD_PARAMETER_FINAL_NORM_WEIGHT,
                       KVAD_PARAMETER_FINAL_NORM_BIAS, 0));
    return fill_linear(w, &model->head, head_parameter(model), KVAD_PARAMETER_HEAD_BIAS, 0);
}

/* ---- all workers */

static void run_filler(void *ctx, unsigned index, unsigned count) {
    struct fill *fill = ctx;
    struct filler *w = &fill->fillers[index];
    w->index = index;
    w->count = count;
    w->status = fill_share(w);
    if (w->status == KVAD_OK) return;
    size_t first = atomic_load(&fill->failed_at);
    while (w->array < first && !atomic_compare_exchange_weak(&fill->failed_at, &first, w->array)) {
    }
}

static enum kvad_status result_of(struct fill *fill, unsigned n, struct kvad_error *err) {
    struct filler *first = &fill->fillers[0];
    for (unsigned i = 1; i < n && !fill->cancelled; i++) {
        struct filler *w = &fill->fillers[i];
        if (w->status != KVAD_OK && (first->status == KVAD_OK || w->array < first->array))
            first = w;
    }
    const struct kvad_progress *progress = &fill->progress;
    if (first->status == KVAD_OK && progress->report &&
        !progress->report(progress->user, fill->total, fill->total))
        first->status = cancel(first, fill->total);
    if (first->status != KVAD_OK && err) *err = first->err;
    return first->status;
}

static size_t widest_scratch(const struct kvad_model *model,
                             const struct kvad_model_source *source) {
    const struct kvad_layer_weights *layer = &model->layers[0];
    const struct {
        const struct kvad_linear_weights *linear;
        enum kvad_parameter parameter;
    } linears[] = {{&layer->qkv, KVAD_PARAMETER_QKV_WEIGHT},
                   {&layer->out, KVAD_PARAMETER_OUT_WEIGHT},
                   {&layer->up, KVAD_PARAMETER_UP_WEIGHT},
                   {&layer->down, KVAD_PARAMETER_DOWN_WEIGHT},
                   {&model->head, head_parameter(model)}};
    size_t widest = 0;
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        size_t k = linears[i].linear->k;
        size_t n = source->transposed[linears[i].parameter] ? STRIP * (k + 1) : 2 * KVAD_PANEL * k;
        if (n > widest) widest = n;
    }
    return kvad_round_up(widest, KVAD_PANEL);
}

enum kvad_status kvad_model_fill(struct kvad_model *model, const struct kvad_model_source *source,
                                 const struct kvad_progress *progress, struct kvad_threads *threads,
                                 struct kvad_error *err) {
    unsigned n = kvad_threads_count(threads);
    struct fill fill = {.model = model,
                        .source = source,
                        .progress = *progress,
                        .total = model->n_parameters * sizeof(float)};
    size_t n_floats = widest_scratch(model, source);
    size_t scratch_bytes = n * n_floats * sizeof(float);
    atomic_init(&fill.done, 0);
    atomic_init(&fill.failed_at, SIZE_MAX);
    atomic_init(&fill.cancelled, false);
    fill.fillers = kvad_alloc_zero(&model->heap, n, sizeof *fill.fillers);
    float *scratch = kvad_alloc(&model->heap, scratch_bytes);
    enum kvad_status status;
    if (fill.fillers && scratch) {
        for (unsigned i = 0; i < n; i++) {
            fill.fillers[i].fill = &fill;
            fill.fillers[i].scratch = scratch + i * n_floats;
        }
        kvad_threads_run(threads, run_filler, &fill);
        status = result_of(&fill, n, err);
    } else {
        status = kvad_fail_memory(err, "rows of weights", scratch_bytes);
    }
    kvad_free(&model->heap, scratch, scratch_bytes);
    kvad_free(&model->heap, fill.fillers, n * sizeof *fill.fillers);
    return status;
}

/* ---- from another area */

struct copy {
    const struct kvad_model *model;
    const unsigned char *from;
};

static void copy_bytes(const struct copy *copy, size_t first, size_t last) {
    unsigned char *area = copy->model->area;
    memcpy(area + first, copy->from + first, last - first);
}

/* Everything from `at` up to a linear's panels shared evenly, then its panels as steps read them.
 * Returns where it ends. */
static size_t copy_linear(const struct copy *copy, const struct kvad_linear_weights *linear,
                          size_t at, unsigned index, unsigned count) {
    const unsigned char *area = copy->model->area;
    size_t start = (size_t)(linear->panels - area), n_panels = kvad_panel_count(linear->n);
    size_t first, last;
    kvad_forward_share(start - at, index, count, &first, &last);
    copy_bytes(copy, at + first, at + last);
    kvad_forward_share(n_panels, index, count, &first, &last);
    copy_bytes(copy, start + first * linear->panel_bytes, start + last * linear->panel_bytes);
    return start + n_panels * linear->panel_bytes;
}

static void run_copy(void *ctx, unsigned index, unsigned count) {
    const struct copy *copy = ctx;
    const struct kvad_model *model = copy->model;
    size_t at = 0, first, last;
    for (uint32_t l = 0; l < model->description.n_layers; l++) {
        const struct kvad_layer_weights *layer = &model->layers[l];
        at = copy_linear(copy, &layer->qkv, at, index, count);
        at = copy_linear(copy, &layer->out, at, index, count);
        at = copy_linear(copy, &layer->up, at, index, count);
        at = copy_linear(copy, &layer->down, at, index, count);
    }
    at = copy_linear(copy, &model->head, at, index, count);
    kvad_forward_share(model->area_bytes - at, index, count, &first, &last);
    copy_bytes(copy, at + first, at + last);
}

void kvad_model_fill_copy(struct kvad_model *model, const void *area,
                          struct kvad_threads *threads) {
    struct copy copy = {model, area};
    kvad_threads_run(threads, run_copy, &copy);
}
