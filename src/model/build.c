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

/* ---- laying the arrays out in one area */

struct area {
    unsigned char *base; /* NULL: only measure */
    size_t used;
    bool overflow;
};

/* Room for n floats at a cache line, or NULL while measuring. */
static float *carve(struct area *area, size_t n_floats) {
    size_t bytes, end;
    if (!kvad_mul_size(n_floats, sizeof(float), &bytes) || bytes > SIZE_MAX - KVAD_ALIGNMENT ||
        !kvad_add_size(area->used, kvad_round_up(bytes, KVAD_ALIGNMENT), &end)) {
        area->overflow = true;
        return NULL;
    }
    float *at = area->base ? (float *)(void *)(area->base + area->used) : NULL;
    area->used = end;
    return at;
}

static size_t panel_count(size_t n) {
    return (n + KVAD_PANEL - 1) / KVAD_PANEL;
}

struct layout {
    const struct kvad_description *description;
    const bool *present;
    struct area area;
};

static void place_norm(struct layout *l, struct kvad_norm_weights *norm, enum kvad_parameter bias) {
    norm->weight = carve(&l->area, l->description->d_model);
    if (l->present[bias]) norm->bias = carve(&l->area, l->description->d_model);
}

static void place_linear(struct layout *l, struct kvad_linear_weights *linear,
                         enum kvad_parameter weight, enum kvad_parameter bias) {
    kvad_parameter_shape(l->description, weight, &linear->n, &linear->k);
    size_t padded = panel_count(linear->n) * KVAD_PANEL, n_floats;
    if (!kvad_mul_size(padded, linear->k, &n_floats)) l->area.overflow = true;
    linear->panels = l->area.overflow ? NULL : carve(&l->area, n_floats);
    if (l->present[bias]) linear->bias = carve(&l->area, padded);
}

static void place_layer(struct layout *l, struct kvad_layer_weights *layer) {
    place_norm(l, &layer->norm1, KVAD_PARAMETER_NORM1_BIAS);
    place_linear(l, &layer->qkv, KVAD_PARAMETER_QKV_WEIGHT, KVAD_PARAMETER_QKV_BIAS);
    place_linear(l, &layer->out, KVAD_PARAMETER_OUT_WEIGHT, KVAD_PARAMETER_OUT_BIAS);
    place_norm(l, &layer->norm2, KVAD_PARAMETER_NORM2_BIAS);
    place_linear(l, &layer->up, KVAD_PARAMETER_UP_WEIGHT, KVAD_PARAMETER_UP_BIAS);
    place_linear(l, &layer->down, KVAD_PARAMETER_DOWN_WEIGHT, KVAD_PARAMETER_DOWN_BIAS);
}

/* Everything that is not in a layer. */
static void place_ends(struct layout *l, struct kvad_model *model) {
    const struct kvad_description *d = l->description;
    size_t n_floats;
    if (!d->head_tied) {
        if (!kvad_mul_size(d->n_vocab, d->d_model, &n_floats)) l->area.overflow = true;
        model->embedding = l->area.overflow ? NULL : carve(&l->area, n_floats);
    }
    if (!kvad_mul_size(d->n_ctx, d->d_model, &n_floats)) l->area.overflow = true;
    model->positions = l->area.overflow ? NULL : carve(&l->area, n_floats);
    place_norm(l, &model->final_norm, KVAD_PARAMETER_FINAL_NORM_BIAS);
    place_linear(l, &model->head, KVAD_PARAMETER_HEAD_WEIGHT, KVAD_PARAMETER_HEAD_BIAS);
}

static bool is_bias(enum kvad_parameter p) {
    return p == KVAD_PARAMETER_NORM1_BIAS || p == KVAD_PARAMETER_QKV_BIAS ||
           p == KVAD_PARAMETER_OUT_BIAS || p == KVAD_PARAMETER_NORM2_BIAS ||
           p == KVAD_PARAMETER_UP_BIAS || p == KVAD_PARAMETER_DOWN_BIAS ||
           p == KVAD_PARAMETER_FINAL_NORM_BIAS || p == KVAD_PARAMETER_HEAD_BIAS;
}

static bool exists(const struct kvad_description *d, const bool *present, enum kvad_parameter p) {
    if (p == KVAD_PARAMETER_HEAD_WEIGHT) return !d->head_tied;
    return !is_bias(p) || present[p];
}

static uint64_t element_count(const struct kvad_description *d, const bool *present) {
    uint64_t total = 0;
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
        size_t rows, columns;
        if (!exists(d, present, p)) continue;
        kvad_parameter_shape(d, p, &rows, &columns);
        total += (uint64_t)rows * columns * (kvad_parameter_is_per_layer(p) ? d->n_layers : 1);
    }
    return total;
}

enum kvad_status kvad_model_measure(const struct kvad_description *description,
                                    const bool present[KVAD_PARAMETER_COUNT],
                                    struct kvad_model *model, struct kvad_error *err) {
    struct layout l = {description, present, {NULL, 0, false}};
    struct kvad_layer_weights layer;
    struct kvad_model ends;
    size_t layer_bytes, total;
    place_layer(&l, &layer);
    bool fits = !l.area.overflow && kvad_mul_size(l.area.used, description->n_layers, &layer_bytes);
    l.area = (struct area){NULL, 0, false};
    place_ends(&l, &ends);
    if (!fits || l.area.overflow || !kvad_add_size(layer_bytes, l.area.used, &total))
        return kvad_fail(err, KVAD_ERR_FORMAT, "the weights are too large for this machine");
    model->area_bytes = total;
    model->n_parameters = element_count(description, present);
    model->has_bias = present[KVAD_PARAMETER_QKV_BIAS] || present[KVAD_PARAMETER_OUT_BIAS] ||
                      present[KVAD_PARAMETER_UP_BIAS] || present[KVAD_PARAMETER_DOWN_BIAS] ||
                      present[KVAD_PARAMETER_HEAD_BIAS];
    return KVAD_OK;
}

/* ---- filling them */

struct builder {
    struct kvad_model *model;
    const struct kvad_model_source *source;
    struct kvad_progress progress;
    uint64_t done, total; /* bytes of float32 */
    uint64_t next_report;
    float *scratch; /* [n_scratch]: 16 rows, or one input of a transposed matrix */
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

/* Rows are outputs: 16 of them make a panel. */
static enum kvad_status fill_panels(struct builder *b, struct kvad_linear_weights *linear,
                                    enum kvad_parameter parameter, uint32_t layer) {
    size_t k = linear->k;
    for (size_t first = 0; first < linear->n; first += KVAD_PANEL) {
        size_t n = kvad_min_size(KVAD_PANEL, linear->n - first);
        for (size_t i = 0; i < n; i++)
            KVAD_TRY(read_row(b, parameter, layer, first + i, b->scratch + i * k));
        kvad_pack_panels_f32(linear->panels + first * k, b->scratch, n, k, k, 1, 0, 1);
        KVAD_TRY(advance(b, n * k));
    }
    return KVAD_OK;
}

/* Rows are inputs: each gives one line of 16 outputs to every panel. */
static enum kvad_status fill_panels_transposed(struct builder *b,
                                               struct kvad_linear_weights *linear,
                                               enum kvad_parameter parameter, uint32_t layer) {
    size_t n_padded = panel_count(linear->n) * KVAD_PANEL;
    for (size_t i = linear->n; i < n_padded; i++)
        b->scratch[i] = 0;
    for (size_t row = 0; row < linear->k; row++) {
        KVAD_TRY(read_row(b, parameter, layer, row, b->scratch));
        for (size_t first = 0; first < n_padded; first += KVAD_PANEL)
            memcpy(linear->panels + first * linear->k + row * KVAD_PANEL, b->scratch + first,
                   KVAD_PANEL * sizeof(float));
        KVAD_TRY(advance(b, linear->n));
    }
    return KVAD_OK;
}

static enum kvad_status fill_linear(struct builder *b, struct kvad_linear_weights *linear,
                                    enum kvad_parameter weight, enum kvad_parameter bias,
                                    uint32_t layer) {
    KVAD_TRY(b->source->transposed[weight] ? fill_panels_transposed(b, linear, weight, layer)
                                           : fill_panels(b, linear, weight, layer));
    if (!linear->bias) return KVAD_OK;
    for (size_t i = linear->n; i < panel_count(linear->n) * KVAD_PANEL; i++)
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

static enum kvad_status allocate(struct kvad_model *model, const bool *present,
                                 struct kvad_error *err) {
    KVAD_TRY(kvad_model_measure(&model->description, present, model, err));
    size_t bytes = model->area_bytes;
    model->area = kvad_alloc(&model->heap, bytes);
    if (!model->area) return kvad_fail_memory(err, "weights", bytes);
    model->layers =
        kvad_alloc_zero(&model->heap, model->description.n_layers, sizeof *model->layers);
    if (!model->layers)
        return kvad_fail_memory(err, "the list of layers",
                                model->description.n_layers * sizeof *model->layers);
    struct layout l = {&model->description, present, {model->area, 0, false}};
    for (uint32_t i = 0; i < model->description.n_layers; i++)
        place_layer(&l, &model->layers[i]);
    place_ends(&l, model);
    return KVAD_OK;
}

static enum kvad_status fill_with_scratch(struct builder *b) {
    const struct kvad_description *d = &b->model->description;
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
        size_t rows, columns;
        kvad_parameter_shape(d, p, &rows, &columns);
        size_t need =
            b->source->transposed[p] ? kvad_round_up(rows, KVAD_PANEL) : KVAD_PANEL * columns;
        if (rows > 1 && need > b->n_scratch) b->n_scratch = need;
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
    struct kvad_heap outer;
    kvad_heap_init(&outer, options ? &options->allocator : NULL);
    struct kvad_model *model = kvad_alloc_zero(&outer, 1, sizeof *model);
    if (!model) return kvad_fail_memory(err, "a model", sizeof *model);
    kvad_heap_init(&model->heap, &outer.hook);
    atomic_init(&model->n_references, 1);
    model->description = *description;
    model->n_tokens = description->n_vocab;
    if (options) model->log = options->log;

    enum kvad_status status = allocate(model, source->present, err);
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
