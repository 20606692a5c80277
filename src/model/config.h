/* What a file says about its model besides the tensors. */
#ifndef KVAD_MODEL_CONFIG_H
#define KVAD_MODEL_CONFIG_H

#include "model/families.h"

enum kvad_answer { KVAD_ANSWER_UNKNOWN, KVAD_ANSWER_NO, KVAD_ANSWER_YES };

/* 0 or unknown where the file does not say. */
struct kvad_config {
    const char *source; /* what is read, for errors: a path, or "PATH: model_args" */
    uint32_t n_layers, n_heads, d_model, d_ff, n_vocab, n_ctx;
    enum kvad_activation activation; /* AUTO: unknown */
    float norm_eps;
    bool scale_attn, scale_attn_by_layer;
    enum kvad_answer tied, bias;
    int64_t eos; /* -1: unknown or none */
};

/** Read what belongs to the family: config.json for "gpt2" (every key that changes the maths; what
 * kvad cannot compute is refused by name), `model_args` for nanoGPT, the number of heads from
 * config.json or from the checkpoint's own dicts for the others.
 * Hugging Face's defaults stand for keys that config.json lacks. */
enum kvad_status kvad_config_read(const struct kvad_checkpoint *checkpoint,
                                  const struct kvad_family *family, struct kvad_config *out,
                                  struct kvad_error *err);

/** Name of an activation as config.json has it, and back (AUTO: none of this name). */
const char *kvad_activation_config_name(enum kvad_activation activation);
enum kvad_activation kvad_activation_from_config_name(const char *name);

#endif
