/* The second step of weights.h: what exists, what is tied, nothing required is missing. */
#include "base/error.h"
#include "model/names.h"
#include "model/weights.h"

/* The usual name of a piece of a parameter, for errors. */
static const struct kvad_family_name *usual_name(const struct kvad_weights *w,
                                                 enum kvad_parameter parameter, size_t piece) {
    size_t per_section = w->n_pieces < 3 ? 1 : w->n_pieces / 3;
    enum kvad_tensor_part part = KVAD_TENSOR_WHOLE;
    if (kvad_weights_pieces(w, parameter) > 1)
        part = (enum kvad_tensor_part)(KVAD_TENSOR_Q + piece / per_section);
    for (size_t i = 0; i < w->family->n_names; i++) {
        const struct kvad_family_name *name = &w->family->names[i];
        if (name->parameter == parameter && name->part == part) return name;
    }
    return NULL;
}

static enum kvad_status missing(const struct kvad_weights *w, enum kvad_parameter parameter,
                                uint32_t layer, size_t piece, struct kvad_error *err) {
    const struct kvad_family_name *name = usual_name(w, parameter, piece);
    char text[128];
    uint32_t head = w->n_named_heads ? (uint32_t)(piece % w->n_named_heads) : 0;
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: tensor %s is missing (%s of a %s model)",
                     w->checkpoint->path,
                     kvad_name_expand(name->pattern, layer, head, text, sizeof text),
                     kvad_parameter_name(parameter), w->family->name);
}

static const struct kvad_tensor *first_of(const struct kvad_weights *w,
                                          enum kvad_parameter parameter, uint32_t layer) {
    for (size_t piece = 0; piece < kvad_weights_pieces(w, parameter); piece++) {
        const struct kvad_tensor *tensor = *kvad_weights_slot(w, parameter, layer, piece);
        if (tensor) return tensor;
    }
    return NULL;
}

/* nanoGPT's `bias` switches all of them together. */
static enum kvad_status find_switch(const struct kvad_weights *w, enum kvad_answer wanted, bool *on,
                                    struct kvad_error *err) {
    const struct kvad_tensor *found = NULL;
    for (size_t i = 0; i < w->family->n_names && !found; i++) {
        const struct kvad_family_name *name = &w->family->names[i];
        if (name->presence == KVAD_PRESENCE_BIAS_SWITCH) found = first_of(w, name->parameter, 0);
    }
    if (found && wanted == KVAD_ANSWER_NO)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensor %s is unexpected: model_args says bias=False", found->file,
                         found->name);
    *on = found != NULL || wanted == KVAD_ANSWER_YES;
    return KVAD_OK;
}

static enum kvad_status decide_presence(struct kvad_weights *w, const struct kvad_config *config,
                                        struct kvad_error *err) {
    bool switched_on = false;
    KVAD_TRY(find_switch(w, config->bias, &switched_on, err));
    for (size_t i = 0; i < w->family->n_names; i++) {
        const struct kvad_family_name *name = &w->family->names[i];
        if (name->part == KVAD_TENSOR_MASK) continue;
        bool *present = &w->source.present[name->parameter];
        switch (name->presence) {
        case KVAD_PRESENCE_REQUIRED: *present = true; break;
        case KVAD_PRESENCE_BIAS_SWITCH: *present = switched_on; break;
        case KVAD_PRESENCE_OPTIONAL: *present = first_of(w, name->parameter, 0) != NULL; break;
        }
    }
    return KVAD_OK;
}

/* The head and the token embedding: one tensor or two. */
static enum kvad_status decide_tie(struct kvad_weights *w, enum kvad_answer wanted,
                                   struct kvad_error *err) {
    const struct kvad_tensor **embedding = kvad_weights_slot(w, KVAD_PARAMETER_EMBEDDING, 0, 0);
    const struct kvad_tensor **head = kvad_weights_slot(w, KVAD_PARAMETER_HEAD_WEIGHT, 0, 0);
    bool should_tie = w->family->may_tie && wanted != KVAD_ANSWER_NO;
    if (*embedding && *head) {
        bool equal = false;
        KVAD_TRY(kvad_tensors_equal(*embedding, *head, w->heap, &equal, err));
        w->description.head_tied = equal; /* the same bits either way, and half the memory */
        w->was_untied = should_tie && !equal;
        return KVAD_OK;
    }
    if (should_tie && *head) *embedding = *head; /* writers keep either name of a shared tensor */
    if (!*embedding) return missing(w, KVAD_PARAMETER_EMBEDDING, 0, 0, err);
    if (!should_tie) return missing(w, KVAD_PARAMETER_HEAD_WEIGHT, 0, 0, err);
    w->description.head_tied = true;
    return KVAD_OK;
}

static enum kvad_status check_all(const struct kvad_weights *w, enum kvad_parameter parameter,
                                  struct kvad_error *err) {
    uint32_t n_layers = kvad_parameter_is_per_layer(parameter) ? w->n_layers : 1;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (size_t piece = 0; piece < kvad_weights_pieces(w, parameter); piece++) {
            const struct kvad_tensor *tensor = *kvad_weights_slot(w, parameter, layer, piece);
            if (w->source.present[parameter] && !tensor)
                return missing(w, parameter, layer, piece, err);
            if (!w->source.present[parameter] && tensor)
                return kvad_fail(err, KVAD_ERR_FORMAT,
                                 "%s: tensor %s is unexpected: layer 0 has no %s", tensor->file,
                                 tensor->name, kvad_parameter_name(parameter));
        }
    return KVAD_OK;
}

/* The configuration's count of layers against the names'. */
static enum kvad_status check_layers(const struct kvad_weights *w, const struct kvad_config *config,
                                     struct kvad_error *err) {
    if (config->n_layers > w->n_layers || w->n_layers == 0)
        return missing(w, KVAD_PARAMETER_NORM1_WEIGHT, w->n_layers, 0, err);
    if (config->n_layers && config->n_layers < w->n_layers) {
        const struct kvad_tensor *extra = NULL;
        for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT && !extra; p++)
            if (kvad_parameter_is_per_layer(p)) extra = first_of(w, p, w->n_layers - 1);
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: tensor %s is unexpected: by %s there are %u layers",
                         w->checkpoint->path, extra->name, config->source, config->n_layers);
    }
    return KVAD_OK;
}

enum kvad_status kvad_weights_complete(struct kvad_weights *w, const struct kvad_config *config,
                                       struct kvad_error *err) {
    KVAD_TRY(check_layers(w, config, err));
    KVAD_TRY(decide_presence(w, config, err));
    KVAD_TRY(decide_tie(w, config->tied, err));
    for (enum kvad_parameter p = 0; p < KVAD_PARAMETER_COUNT; p++)
        if (p != KVAD_PARAMETER_HEAD_WEIGHT) KVAD_TRY(check_all(w, p, err));
    return KVAD_OK;
}
