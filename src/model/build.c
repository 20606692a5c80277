#include "model/build.h"

#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    bool per_layer;
} parameters[KVAD_PARAMETER_COUNT] = {
#define PARAMETER_ENTRY(suffix, name, per_layer) {name, per_layer},
    KVAD_PARAMETER_LIST(PARAMETER_ENTRY)
#undef PARAMETER_ENTRY
};

const char *kvad_parameter_name(enum kvad_parameter parameter) {
    return parameters[parameter].name;
}

bool kvad_parameter_is_per_layer(enum kvad_parameter parameter) {
    return parameters[parameter].per_layer;
}

void kvad_parameter_shape(const struct kvad_description *d, enum kvad_parameter parameter,
                          size_t *n_rows, size_t *n_columns) {
    size_t q = (size_t)d->n_heads * d->head_dim;
    size_t qkv = ((size_t)d->n_heads + 2 * (size_t)d->n_kv_heads) * d->head_dim;
    size_t rows = 1, columns = d->d_model;
    switch (parameter) {
    case KVAD_PARAMETER_EMBEDDING:
    case KVAD_PARAMETER_HEAD_WEIGHT: rows = d->n_vocab; break;
    case KVAD_PARAMETER_HEAD_BIAS: columns = d->n_vocab; break;
    case KVAD_PARAMETER_POSITIONS: rows = d->n_ctx; break;
    case KVAD_PARAMETER_QKV_WEIGHT: rows = qkv; break;
    case KVAD_PARAMETER_QKV_BIAS: columns = qkv; break;
    case KVAD_PARAMETER_OUT_WEIGHT: rows = d->d_model, columns = q; break;
    case KVAD_PARAMETER_UP_WEIGHT: rows = d->d_ff; break;
    case KVAD_PARAMETER_UP_BIAS: columns = d->d_ff; break;
    case KVAD_PARAMETER_DOWN_WEIGHT: rows = d->d_model, columns = d->d_ff; break;
    default: break; /* one row of d_model */
    }
    *n_rows = rows;
    *n_columns = columns;
}

/* ---- filling them */

struct builder {
    struct kvad_model *model;
    const struct kvad_model_source *source;
    struct kvad_progress progress;
    uint64_t done, total; /* bytes of float32 */
    uint64_t next_report;
    float *scratch; /* [n_scratch]: 16 rows and their panel, or a row and all panels of a transposed
                       matrix */
    size_t n_scratch;
    struct kvad_error *err;
};

static enum kvad_status advance(struct builder *b, size_t n_floats) {
    b->done += n_floats * sizeof(float);
    if (!b->progress.report || (b->done < b->next_report && b->done < b->total)) return KVAD_OK;
    b->next_report = b->done + (4u << 20);
    if (b->progress.report(b->progress.user, b->done, b->total)) return KVAD_OK;
    return kvad_fail(b->err, KVAD_ERR_CANCELLED, "loading was cancelled after %llu of %llu bytes",
                     (unsigned long long)b->done, (unsigned long long)b->total);
}

static enum kvad_status read_row(struct builder *b, enum kvad_parameter parameter, uint32_t layer,
                                 size_t row, float *out) {
    return b->source->read_row(b->source->user, parameter, layer, row, out, b->err);
}

static enum kvad_status fill_rows(struct builder *b, enum kvad_parameter parameter, uint32_t layer,
                                  float *out) {
    size_t n_rows, n_columns;
    kvad_parameter_shape(&b->model->description, parameter, &n_rows, &n_columns);
    for (size_t row = 0; row < n_rows; row++) {
        KVAD_TRY(read_row(b, parameter, layer, row, out + row * n_columns));
        KVAD_TRY(advance(b, n_columns));
    }
    return KVAD_OK;
}

static void put_panel(struct kvad_linear_weights *linear, size_t panel, const float *values) {
    kvad_convert_panel(linear->type, linear->panels + panel * linear->panel_bytes, values,
                       linear->k);
}

/* Rows are outputs: 16 of them make a panel. */
static enum kvad_status fill_panels(struct builder *b, struct kvad_linear_weights *linear,
                                    enum kvad_parameter parameter, uint32_t layer) {
    size_t k = linear->k;
    float *panel = b->scratch + KVAD_PANEL * k;
    for (size_t first = 0; first < linear->n; first += KVAD_PANEL) {
        size_t n = kvad_min_size(KVAD_PANEL, linear->n - first);
        for (size_t i = 0; i < n; i++)
            KVAD_TRY(read_row(b, parameter, layer, first + i, b->scratch + i * k));
        kvad_pack_panels_f32(panel, b->scratch, n, k, k, 1, 0, 1);
        put_panel(linear, first / KVAD_PANEL, panel);
        KVAD_TRY(advance(b, n * k));
    }
    return KVAD_OK;
}

/* Rows are inputs: each gives one line of 16 outputs to every panel. */
static enum kvad_status fill_panels_transposed(struct builder *b,
                                               struct kvad_linear_weights *linear,
                                               enum kvad_parameter parameter, uint32_t layer) {
    size_t n_panels = kvad_panel_count(linear->n), n_padded = n_panels * KVAD_PANEL;
    float *row = b->scratch, *panels = b->scratch + n_padded;
    memset(row, 0, n_padded * sizeof *row);
    for (size_t i = 0; i < linear->k; i++) {
        KVAD_TRY(read_row(b, parameter, layer, i, row));
        for (size_t p = 0; p < n_panels; p++)
            memcpy(panels + (p * linear->k + i) * KVAD_PANEL, row + p * KVAD_PANEL,
                   KVAD_PANEL * sizeof *row);
        KVAD_TRY(advance(b, linear->n));
    }
    for (size_t p = 0; p < n_panels; p++)
        put_panel(linear, p, panels + p * linear->k * KVAD_PANEL);
    return KVAD_OK;
}

static enum kvad_status fill_linear(struct builder *b, struct kvad_linear_weights *linear,
                                    enum kvad_parameter weight, enum kvad_parameter bias,
                                    uint32_t layer) {
    KVAD_TRY(b->source->transposed[weight] ? fill_panels_transposed(b, linear, weight, layer)
                                           : fill_panels(b, linear, weight, layer));
    if (!linear->bias) return KVAD_OK;
    for (size_t i = linear->n; i < kvad_panel_count(linear->n) * KVAD_PANEL; i++)
        linear->bias[i] = 0;
    return fill_rows(b, bias, layer, linear->bias);
}

static enum kvad_status fill_norm(struct builder *b, struct kvad_norm_weights *norm,
                                  enum kvad_parameter weight, enum kvad_parameter bias,
                                  uint32_t layer) {
    KVAD_TRY(fill_rows(b, weight, layer, norm->weight));
    return norm->bias ? fill_rows(b, bias, layer, norm->bias) : KVAD_OK;
}

static enum kvad_status fill_layer(struct builder *b, uint32_t l) {
    struct kvad_layer_weights *layer = &b->model->layers[l];
    KVAD_TRY(
        fill_norm(b, &layer->norm1, KVAD_PARAMETER_NORM1_WEIGHT, KVAD_PARAMETER_NORM1_BIAS, l));
    KVAD_TRY(fill_linear(b, &layer->qkv, KVAD_PARAMETER_QKV_WEIGHT, KVAD_PARAMETER_QKV_BIAS, l));
    KVAD_TRY(fill_linear(b, &layer->out, KVAD_PARAMETER_OUT_WEIGHT, KVAD_PARAMETER_OUT_BIAS, l));
    KVAD_TRY(
        fill_norm(b, &layer->norm2, KVAD_PARAMETER_NORM2_WEIGHT, KVAD_PARAMETER_NORM2_BIAS, l));
    KVAD_TRY(fill_linear(b, &layer->up, KVAD_PARAMETER_UP_WEIGHT, KVAD_PARAMETER_UP_BIAS, l));
    return fill_linear(b, &layer->down, KVAD_PARAMETER_DOWN_WEIGHT, KVAD_PARAMETER_DOWN_BIAS, l);
}

static enum kvad_status fill(struct builder *b) {
    struct kvad_model *model = b->model;
    if (model->embedding) KVAD_TRY(fill_rows(b, KVAD_PARAMETER_EMBEDDING, 0, model->embedding));
    KVAD_TRY(fill_rows(b, KVAD_PARAMETER_POSITIONS, 0, model->positions));
    for (uint32_t l = 0; l < model->description.n_layers; l++)
        KVAD_TRY(fill_layer(b, l));
    KVAD_TRY(fill_norm(b, &model->final_norm, KVAD_PARAMETER_FINAL_NORM_WEIGHT,
                       KVAD_PARAMETER_FINAL_NORM_BIAS, 0));
    return fill_linear(b, &model->head,
                       model->embedding ? KVAD_PARAMETER_HEAD_WEIGHT : KVAD_PARAMETER_EMBEDDING,
                       KVAD_PARAMETER_HEAD_BIAS, 0);
}

/* ---- building */

static enum kvad_status fill_with_scratch(struct builder *b) {
    static const enum kvad_parameter packed[] = {
        KVAD_PARAMETER_EMBEDDING, KVAD_PARAMETER_QKV_WEIGHT,  KVAD_PARAMETER_OUT_WEIGHT,
        KVAD_PARAMETER_UP_WEIGHT, KVAD_PARAMETER_DOWN_WEIGHT, KVAD_PARAMETER_HEAD_WEIGHT};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t rows, columns;
        kvad_parameter_shape(&b->model->description, packed[i], &rows, &columns);
        size_t need = b->source->transposed[packed[i]]
                          ? kvad_round_up(rows, KVAD_PANEL) * (columns + 1)
                          : 2 * KVAD_PANEL * columns;
        if (need > b->n_scratch) b->n_scratch = need;
    }
    b->scratch = kvad_alloc_zero(&b->model->heap, b->n_scratch, sizeof *b->scratch);
    if (!b->scratch)
        return kvad_fail_memory(b->err, "rows of weights", b->n_scratch * sizeof *b->scratch);
    enum kvad_status status = fill(b);
    kvad_free(&b->model->heap, b->scratch, b->n_scratch * sizeof *b->scratch);
    return status;
}

enum kvad_status kvad_model_build(const struct kvad_description *description,
                                  const struct kvad_model_source *source,
                                  const struct kvad_model_options *options, struct kvad_model **out,
                                  struct kvad_error *err) {
    KVAD_TRY(kvad_description_check(description, "model", err));
    if (options && (unsigned)options->weights > KVAD_WEIGHTS_AUTO)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "weights is %d: unknown type",
                         (int)options->weights);
    struct kvad_heap outer;
    kvad_heap_init(&outer, options ? &options->allocator : NULL);
    struct kvad_model *model = kvad_alloc_zero(&outer, 1, sizeof *model);
    if (!model) return kvad_fail_memory(err, "a model", sizeof *model);
    kvad_heap_init(&model->heap, &outer.hook);
    atomic_init(&model->n_references, 1);
    model->description = *description;
    model->n_tokens = description->n_vocab;
    if (options) model->log = options->log;
    if (options && options->weights != KVAD_WEIGHTS_AUTO) model->weights = options->weights;

    enum kvad_status status = kvad_model_allocate(model, source->present, err);
    if (status == KVAD_OK) {
        struct builder b = {.model = model, .source = source, .err = err};
        if (options) b.progress = options->progress;
        b.total = model->n_parameters * sizeof(float);
        status = fill_with_scratch(&b);
    }
    if (status != KVAD_OK) {
        kvad_model_release(&model);
        return status;
    }
    *out = model;
    return KVAD_OK;
}

/* ---- from arrays */

struct arrays {
    const struct kvad_description *description;
    const float *const (*parameters)[KVAD_PARAMETER_COUNT];
};

static enum kvad_status read_array_row(void *user, enum kvad_parameter parameter, uint32_t layer,
                                       size_t row, float *out, struct kvad_error *err) {
    const struct arrays *arrays = user;
    size_t n_rows, n_columns;
    kvad_parameter_shape(arrays->description, parameter, &n_rows, &n_columns);
    size_t set = kvad_parameter_is_per_layer(parameter) ? 1 + (size_t)layer : 0;
    const float *values = arrays->parameters[set][parameter];
    if (!values)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%s of layer %u is missing",
                         kvad_parameter_name(parameter), layer);
    memcpy(out, values + row * n_columns, n_columns * sizeof *out);
    return KVAD_OK;
}

enum kvad_status kvad_model_build_arrays(const struct kvad_description *description,
                                         const float *const (*arrays)[KVAD_PARAMETER_COUNT],
                                         const struct kvad_model_options *options,
                                         struct kvad_model **out, struct kvad_error *err) {
    struct arrays user = {description, arrays};
    struct kvad_model_source source = {.read_row = read_array_row, .user = &user};
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++)
        source.present[p] = arrays[kvad_parameter_is_per_layer(p) ? 1 : 0][p] != NULL;
    return kvad_model_build(description, &source, options, out, err);
}
