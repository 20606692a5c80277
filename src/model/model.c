#include "model/model.h"

#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "formats/locate.h"
#include "model/build.h"

struct range {
    const char *field;
    uint32_t value, max;
};

enum kvad_status kvad_description_check(const struct kvad_description *d, const char *name,
                                        struct kvad_error *err) {
    /* Far above every real model, and low enough that no product below can overflow 64 bits. */
    const struct range ranges[] = {
        {"number of layers", d->n_layers, 1u << 16},     {"number of heads", d->n_heads, 1u << 16},
        {"number of kv heads", d->n_kv_heads, 1u << 16}, {"size of a head", d->head_dim, 1u << 16},
        {"model width", d->d_model, 1u << 20},           {"mlp width", d->d_ff, 1u << 22},
        {"vocabulary size", d->n_vocab, 1u << 27},       {"context length", d->n_ctx, 1u << 27},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < 1 || ranges[i].value > ranges[i].max)
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %s is %u, must be 1 to %u", name,
                             ranges[i].field, ranges[i].value, ranges[i].max);
    if (d->n_heads % d->n_kv_heads != 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %u kv heads do not divide %u heads", name,
                         d->n_kv_heads, d->n_heads);
    if ((uint64_t)d->n_heads * d->head_dim > 1u << 20)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: %u heads of %u are wider than %u", name,
                         d->n_heads, d->head_dim, 1u << 20);
    if (d->norm != KVAD_NORM_LAYER || d->position != KVAD_POSITION_LEARNED)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: unknown kind of norm or position", name);
    if (d->activation <= KVAD_ACTIVATION_AUTO || d->activation >= KVAD_ACTIVATION_COUNT)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: activation is not decided", name);
    if (!(d->norm_eps >= 0 && d->norm_eps <= 1))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: epsilon of the norms is %g, must be 0 to 1",
                         name, (double)d->norm_eps);
    if (d->eos < -1 || d->eos >= (int64_t)d->n_vocab)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: end id %d is outside the vocabulary of %u",
                         name, d->eos, d->n_vocab);
    return KVAD_OK;
}

struct kvad_model *kvad_model_retain(struct kvad_model *model) {
    /* Relaxed: the caller holds a reference already. */
    if (model) atomic_fetch_add_explicit(&model->n_references, 1, memory_order_relaxed);
    return model;
}

void kvad_model_release(struct kvad_model **model) {
    struct kvad_model *m = model ? *model : NULL;
    if (!m) return;
    *model = NULL;
    /* Release pairs with the acquire of whoever drops the last reference: it sees all uses done. */
    if (atomic_fetch_sub_explicit(&m->n_references, 1, memory_order_acq_rel) != 1) return;
    kvad_tokenizer_release(&m->tokenizer);
    kvad_free(&m->heap, m->layers, m->description.n_layers * sizeof *m->layers);
    kvad_path_free(&m->heap, m->tokenizer_path);
    if (m->map.data)
        kvad_file_map_close(&m->map);
    else
        kvad_free(&m->heap, m->area, m->area_bytes);
    struct kvad_heap outer; /* the model lies outside the heap that it holds */
    kvad_heap_init(&outer, &m->heap.hook);
    kvad_free(&outer, m, sizeof *m);
}

struct kvad_tokenizer *kvad_model_tokenizer(const struct kvad_model *model) {
    return model->tokenizer;
}

void kvad_model_get_info_sized(const struct kvad_model *model, struct kvad_model_info *info,
                               size_t size) {
    const struct kvad_description *d = &model->description;
    struct kvad_model_info ours = {
        .n_layers = d->n_layers,
        .n_heads = d->n_heads,
        .n_kv_heads = d->n_kv_heads,
        .head_dim = d->head_dim,
        .d_model = d->d_model,
        .d_ff = d->d_ff,
        .n_vocab = d->n_vocab,
        .n_tokens = model->n_tokens,
        .n_ctx = d->n_ctx,
        .activation = d->activation,
        .norm_eps = d->norm_eps,
        .head_tied = d->head_tied,
        .has_bias = model->has_bias,
        .eos = d->eos,
        .n_parameters = model->n_parameters,
        .weight_bytes = model->area_bytes,
        .weights = model->weights,
        .is_packed = model->is_packed,
        .has_tokenizer = model->tokenizer != NULL,
        .kv_bytes_per_token =
            (uint64_t)d->n_layers * d->n_kv_heads * d->head_dim * 2 * sizeof(float),
    };
    memcpy(ours.family, d->family, sizeof ours.family);
    kvad_growing_give(info, size, &ours, sizeof ours);
}

enum kvad_status kvad_model_threads(const struct kvad_model_options *options,
                                    struct kvad_threads **out, struct kvad_error *err) {
    if (!options) return kvad_threads_create(0, NULL, out, err);
    if (!options->threads)
        return kvad_threads_create(options->n_threads, &options->allocator, out, err);
    *out = kvad_threads_retain(options->threads);
    return KVAD_OK;
}

void kvad_model_options_init_sized(struct kvad_model_options *options, size_t size) {
    struct kvad_model_options ours = {.weights = KVAD_WEIGHTS_AUTO};
    kvad_growing_give_options(options, size, &ours, sizeof ours);
}
