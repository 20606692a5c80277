/* The first step of weights.h: names of tensors into slots. */
#include <string.h>

#include "base/error.h"
#include "model/names.h"
#include "model/weights.h"

struct match {
    const struct kvad_family_name *name;
    uint32_t layer, head;
};

static enum kvad_status refuse_unknown(const struct kvad_weights *w,
                                       const struct kvad_tensor *tensor, const char *name,
                                       struct kvad_error *err) {
    const char *foreign = kvad_family_foreign_part(name);
    if (foreign)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "%s: tensor %s: %s", tensor->file, tensor->name,
                         foreign);
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: tensor %s is unexpected: a %s model has no such parameter", tensor->file,
                     tensor->name, w->family->name);
}

static enum kvad_status find_name(const struct kvad_weights *w, const struct kvad_tensor *tensor,
                                  struct match *out, struct kvad_error *err) {
    const char *name = tensor->name + kvad_name_prefix(tensor->name);
    for (size_t i = 0; i < w->family->n_names; i++) {
        struct match match = {&w->family->names[i], 0, 0};
        if (!kvad_name_match(match.name->pattern, name, &match.layer, &match.head)) continue;
        *out = match;
        return KVAD_OK;
    }
    return refuse_unknown(w, tensor, name, err);
}

/* A causal mask is [..., T, T] below ones, its constant a scalar. A parameter that happens to bear
 * the mask's name must not be dropped. */
static enum kvad_status check_mask(const struct kvad_tensor *tensor, struct kvad_error *err) {
    bool is_mask = tensor->n_elements == 1;
    if (tensor->n_dims >= 2) {
        const size_t *shape = tensor->shape + tensor->n_dims - 2;
        is_mask = shape[0] == shape[1];
        for (uint32_t i = 0; i + 2 < tensor->n_dims; i++)
            is_mask &= tensor->shape[i] == 1;
    }
    if (is_mask) return KVAD_OK;
    char shape[128];
    return kvad_fail(err, KVAD_ERR_FORMAT,
                     "%s: tensor %s: shape %s, but by its name it is a causal mask", tensor->file,
                     tensor->name, kvad_tensor_shape_text(tensor, shape, sizeof shape));
}

/* All names carry the same prefix; the head lies outside "transformer.", so its prefix may be the
 * beginning of the others'. */
static enum kvad_status check_prefix(const struct kvad_tensor *tensor, bool is_head,
                                     const struct kvad_tensor **first, struct kvad_error *err) {
    if (!*first && !is_head) *first = tensor;
    if (!*first) return KVAD_OK;
    size_t length = kvad_name_prefix(tensor->name), common = kvad_name_prefix((*first)->name);
    bool fits = is_head ? length <= common : length == common;
    if (fits && memcmp(tensor->name, (*first)->name, length) == 0) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_FORMAT,
                     "%s: tensors %s and %s have different prefixes: two models in one file?",
                     tensor->file, (*first)->name, tensor->name);
}

/* How many layers and heads the names speak of. */
static enum kvad_status count(struct kvad_weights *w, struct kvad_error *err) {
    const struct kvad_tensor *first = NULL;
    for (size_t i = 0; i < w->checkpoint->n_tensors; i++) {
        const struct kvad_tensor *tensor = &w->checkpoint->tensors[i];
        struct match match;
        KVAD_TRY(find_name(w, tensor, &match, err));
        bool is_head = match.name->parameter == KVAD_PARAMETER_HEAD_WEIGHT ||
                       match.name->parameter == KVAD_PARAMETER_HEAD_BIAS;
        KVAD_TRY(check_prefix(tensor, is_head, &first, err));
        if (match.name->part == KVAD_TENSOR_MASK) {
            KVAD_TRY(check_mask(tensor, err));
            continue;
        }
        if (kvad_parameter_is_per_layer(match.name->parameter) && match.layer >= w->n_layers)
            w->n_layers = match.layer + 1;
        if (w->family->cut == KVAD_QKV_PER_HEAD && match.head >= w->n_named_heads)
            w->n_named_heads = match.head + 1;
    }
    /* Every layer and head has tensors of its own: bounds the table by the size of the file. */
    uint32_t per_layer = w->n_named_heads ? w->n_named_heads : 1;
    if ((uint64_t)w->n_layers * per_layer > w->checkpoint->n_tensors)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensors are missing: the names go up to layer %u, but there are only "
                         "%zu tensors",
                         w->checkpoint->path, w->n_layers - 1, w->checkpoint->n_tensors);
    return KVAD_OK;
}

static enum kvad_status make_slots(struct kvad_weights *w, struct kvad_error *err) {
    w->n_pieces = w->family->cut == KVAD_QKV_MERGED  ? 1
                  : w->family->cut == KVAD_QKV_SPLIT ? 3
                                                     : 3 * (size_t)w->n_named_heads;
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++) {
        size_t *group = kvad_parameter_is_per_layer(p) ? &w->n_layer_slots : &w->n_model_slots;
        w->offset[p] = *group;
        *group += kvad_weights_pieces(w, p);
    }
    w->n_slots = w->n_model_slots + w->n_layers * w->n_layer_slots;
    w->slots = kvad_alloc_zero(w->heap, w->n_slots, sizeof *w->slots);
    if (!w->slots)
        return kvad_fail_memory(err, "a table of tensors", w->n_slots * sizeof *w->slots);
    return KVAD_OK;
}

/* Which piece of qkv a tensor is: rows of all q, then all k, then all v. */
static size_t piece_of(const struct kvad_weights *w, const struct match *match) {
    if (match->name->part == KVAD_TENSOR_WHOLE) return 0;
    size_t section = (size_t)(match->name->part - KVAD_TENSOR_Q);
    return w->family->cut == KVAD_QKV_PER_HEAD ? section * w->n_named_heads + match->head : section;
}

enum kvad_status kvad_weights_bind(struct kvad_weights *w, struct kvad_error *err) {
    KVAD_TRY(count(w, err));
    KVAD_TRY(make_slots(w, err));
    for (size_t i = 0; i < w->checkpoint->n_tensors; i++) {
        const struct kvad_tensor *tensor = &w->checkpoint->tensors[i];
        struct match match;
        KVAD_TRY(find_name(w, tensor, &match, err));
        if (match.name->part == KVAD_TENSOR_MASK) continue;
        const struct kvad_tensor **slot =
            kvad_weights_slot(w, match.name->parameter, match.layer, piece_of(w, &match));
        if (*slot)
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensors %s and %s are the same parameter",
                             tensor->file, (*slot)->name, tensor->name);
        *slot = tensor;
    }
    return KVAD_OK;
}
