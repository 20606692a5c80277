#include "model/families.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "model/names.h"

/* The first tensor whose name without prefix is of the pattern, or NULL. */
static const struct kvad_tensor *first_match(const struct kvad_checkpoint *checkpoint,
                                             const char *pattern) {
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const struct kvad_tensor *tensor = &checkpoint->tensors[i];
        uint32_t layer, head;
        if (kvad_name_match(pattern, tensor->name + kvad_name_prefix(tensor->name), &layer, &head))
            return tensor;
    }
    return NULL;
}

enum kvad_status kvad_tensors_equal(const struct kvad_tensor *a, const struct kvad_tensor *b,
                                    struct kvad_heap *heap, bool *equal, struct kvad_error *err) {
    *equal = false;
    if (a->n_dims != 2 || b->n_dims != 2 || a->shape[0] != b->shape[0] ||
        a->shape[1] != b->shape[1])
        return KVAD_OK;
    if (a->data == b->data && a->dtype == b->dtype && a->stride[0] == b->stride[0] &&
        a->stride[1] == b->stride[1]) {
        *equal = true; /* one storage, the usual way of torch.save */
        return KVAD_OK;
    }
    size_t n = a->shape[1], bytes;
    if (!kvad_mul_size(n, 2 * sizeof(float), &bytes))
        return kvad_fail_memory(err, "two rows of a tensor", n);
    float *rows = kvad_alloc(heap, bytes);
    if (!rows) return kvad_fail_memory(err, "two rows of a tensor", bytes);
    enum kvad_status status = KVAD_OK;
    bool same = true;
    for (size_t row = 0; row < a->shape[0] && same; row++) {
        status = kvad_tensor_read_row(a, row, rows, err);
        if (status == KVAD_OK) status = kvad_tensor_read_row(b, row, rows + n, err);
        if (status != KVAD_OK) break;
        same = memcmp(rows, rows + n, n * sizeof *rows) == 0;
    }
    kvad_free(heap, rows, bytes);
    *equal = status == KVAD_OK && same;
    return status;
}

/* GPT-2, nanoGPT and minGPT share their names. c_attn is [d][3 d] in Hugging Face's files and
 * [3 d][d] in the others: it is never square, so its shape decides for all matrices. minGPT does
 * not tie its head, nanoGPT always does. */
static enum kvad_status tell_apart(const struct kvad_checkpoint *checkpoint, const char *model_type,
                                   struct kvad_heap *heap, enum kvad_family_id *id,
                                   struct kvad_error *err) {
    if (kvad_pickle_get(checkpoint->root, "model_args")) {
        *id = KVAD_FAMILY_NANOGPT;
        return KVAD_OK;
    }
    const struct kvad_tensor *c_attn = first_match(checkpoint, "h.*.attn.c_attn.weight");
    if (model_type || (c_attn->n_dims == 2 && c_attn->shape[1] / 3 == c_attn->shape[0])) {
        *id = KVAD_FAMILY_GPT2;
        return KVAD_OK;
    }
    const struct kvad_tensor *embedding = first_match(checkpoint, "wte.weight");
    const struct kvad_tensor *head = first_match(checkpoint, "lm_head.weight");
    bool tied = true;
    if (embedding && head) KVAD_TRY(kvad_tensors_equal(embedding, head, heap, &tied, err));
    *id = tied ? KVAD_FAMILY_NANOGPT : KVAD_FAMILY_MINGPT;
    return KVAD_OK;
}

static enum kvad_status unknown_family(const struct kvad_checkpoint *checkpoint,
                                       struct kvad_error *err) {
    if (checkpoint->n_tensors == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: holds no tensors", checkpoint->path);
    return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                     "%s: no known GPT: its tensors are named like %s; known are the names of "
                     "Hugging Face GPT-2, nanoGPT, minGPT, the lecture's, the article's and the "
                     "book's models",
                     checkpoint->path, checkpoint->tensors[checkpoint->n_tensors / 2].name);
}

enum kvad_status kvad_family_find(const struct kvad_checkpoint *checkpoint, struct kvad_heap *heap,
                                  const struct kvad_family **out, struct kvad_error *err) {
    const char *model_type = NULL;
    if (checkpoint->config)
        KVAD_TRY(kvad_json_get_string(checkpoint->config, checkpoint->config_name, "model_type",
                                      &model_type, err));
    if (model_type && strcmp(model_type, "gpt2") != 0)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: model_type \"%.64s\" is not supported; of Hugging Face models kvad "
                         "reads \"gpt2\"",
                         checkpoint->config_name, model_type);
    for (enum kvad_family_id id = 0; id < KVAD_FAMILY_COUNT; id++) {
        if (!first_match(checkpoint, kvad_families[id].marker)) continue;
        if (id == KVAD_FAMILY_GPT2) KVAD_TRY(tell_apart(checkpoint, model_type, heap, &id, err));
        *out = &kvad_families[id];
        return KVAD_OK;
    }
    return unknown_family(checkpoint, err);
}

const char *kvad_family_foreign_part(const char *name) {
    static const struct {
        const char *part, *text;
    } foreign[] = {
        {"crossattention.", "cross attention (an encoder-decoder model) is not supported"},
        {"ln_cross_attn.", "cross attention (an encoder-decoder model) is not supported"},
        {"q_attn.", "cross attention (an encoder-decoder model) is not supported"},
        {"score.", "a classifier head; kvad generates text and needs a language model"},
        {"classifier.", "a classifier head; kvad generates text and needs a language model"},
        {"multiple_choice_head.",
         "a multiple-choice head; kvad generates text and needs a language model"},
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strstr(name, foreign[i].part)) return foreign[i].text;
    return NULL;
}
