#include "model/build.h"

#include <string.h>

#include "base/error.h"
#include "model/fill.h"

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

/* ---- building */

/* By the caller's workers, or by some that live for this load only. */
static enum kvad_status fill(struct kvad_model *model, const struct kvad_model_source *source,
                             const struct kvad_model_options *options, struct kvad_error *err) {
    struct kvad_threads *threads;
    KVAD_TRY(kvad_model_threads(options, &threads, err));
    struct kvad_progress progress = options ? options->progress : (struct kvad_progress){0};
    enum kvad_status status = kvad_model_fill(model, source, &progress, threads, err);
    kvad_threads_release(&threads);
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
    if (status == KVAD_OK) status = fill(model, source, options, err);
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

static enum kvad_status read_array(void *user, enum kvad_parameter parameter, uint32_t layer,
                                   size_t row, size_t first, size_t n, float *out,
                                   struct kvad_error *err) {
    const struct arrays *arrays = user;
    size_t n_rows, n_columns;
    kvad_parameter_shape(arrays->description, parameter, &n_rows, &n_columns);
    size_t set = kvad_parameter_is_per_layer(parameter) ? 1 + (size_t)layer : 0;
    const float *values = arrays->parameters[set][parameter];
    if (!values)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%s of layer %u is missing",
                         kvad_parameter_name(parameter), layer);
    memcpy(out, values + row * n_columns + first, n * sizeof *out);
    return KVAD_OK;
}

enum kvad_status kvad_model_build_arrays(const struct kvad_description *description,
                                         const float *const (*arrays)[KVAD_PARAMETER_COUNT],
                                         const struct kvad_model_options *options,
                                         struct kvad_model **out, struct kvad_error *err) {
    struct arrays user = {description, arrays};
    struct kvad_model_source source = {.read = read_array, .user = &user};
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++)
        source.present[p] = arrays[kvad_parameter_is_per_layer(p) ? 1 : 0][p] != NULL;
    return kvad_model_build(description, &source, options, out, err);
}
