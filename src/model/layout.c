/* Where each array of a model lies in its one area. */
#include "base/error.h"
#include "model/build.h"

struct area {
    unsigned char *base; /* NULL: only measure */
    size_t used;
    bool overflow;
};

/* Room for n elements at a cache line, or NULL while measuring. */
static void *carve(struct area *area, size_t n, size_t element_bytes) {
    size_t bytes, end;
    if (area->overflow || !kvad_mul_size(n, element_bytes, &bytes) ||
        bytes > SIZE_MAX - KVAD_ALIGNMENT ||
        !kvad_add_size(area->used, kvad_round_up(bytes, KVAD_ALIGNMENT), &end)) {
        area->overflow = true;
        return NULL;
    }
    void *at = area->base ? area->base + area->used : NULL;
    area->used = end;
    return at;
}

static float *carve_floats(struct area *area, size_t n_rows, size_t n_columns) {
    size_t n;
    if (!kvad_mul_size(n_rows, n_columns, &n)) area->overflow = true;
    return carve(area, n_rows * n_columns, sizeof(float));
}

struct layout {
    const struct kvad_description *description;
    const bool *present;
    enum kvad_weight_type type;
    struct area area;
};

static void place_norm(struct layout *l, struct kvad_norm_weights *norm, enum kvad_parameter bias) {
    norm->weight = carve_floats(&l->area, 1, l->description->d_model);
    norm->bias = l->present[bias] ? carve_floats(&l->area, 1, l->description->d_model) : NULL;
}

static void place_linear(struct layout *l, struct kvad_linear_weights *linear,
                         enum kvad_parameter weight, enum kvad_parameter bias) {
    kvad_parameter_shape(l->description, weight, &linear->n, &linear->k);
    size_t n_panels = kvad_panel_count(linear->n);
    linear->type = l->type;
    linear->panel_bytes = kvad_panel_bytes(l->type, linear->k);
    linear->panels = carve(&l->area, n_panels, linear->panel_bytes);
    linear->bias = l->present[bias] ? carve_floats(&l->area, n_panels, KVAD_PANEL) : NULL;
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
    model->embedding = d->head_tied ? NULL : carve_floats(&l->area, d->n_vocab, d->d_model);
    model->positions = carve_floats(&l->area, d->n_ctx, d->d_model);
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
    struct layout l = {description, present, model->weights, {NULL, 0, false}};
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

enum kvad_status kvad_model_place(struct kvad_model *model,
                                  const bool present[KVAD_PARAMETER_COUNT],
                                  struct kvad_error *err) {
    size_t n_layers = model->description.n_layers;
    model->layers = kvad_alloc_zero(&model->heap, n_layers, sizeof *model->layers);
    if (!model->layers)
        return kvad_fail_memory(err, "the list of layers", n_layers * sizeof *model->layers);
    struct layout l = {&model->description, present, model->weights, {model->area, 0, false}};
    for (size_t i = 0; i < n_layers; i++)
        place_layer(&l, &model->layers[i]);
    place_ends(&l, model);
    return KVAD_OK;
}

enum kvad_status kvad_model_allocate(struct kvad_model *model,
                                     const bool present[KVAD_PARAMETER_COUNT],
                                     struct kvad_error *err) {
    KVAD_TRY(kvad_model_measure(&model->description, present, model, err));
    model->area = kvad_alloc(&model->heap, model->area_bytes);
    if (!model->area) return kvad_fail_memory(err, "weights", model->area_bytes);
    return kvad_model_place(model, present, err);
}
