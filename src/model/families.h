/* The families of GPT files that the loader knows: one table of tensor names each. */
#ifndef KVAD_MODEL_FAMILIES_H
#define KVAD_MODEL_FAMILIES_H

#include "formats/checkpoint.h"
#include "model/build.h"

/* Which part of a parameter a tensor is. */
enum kvad_tensor_part {
    KVAD_TENSOR_WHOLE,
    KVAD_TENSOR_Q, /* rows of the merged qkv: of all heads, or of one where the name has '#' */
    KVAD_TENSOR_K,
    KVAD_TENSOR_V,
    KVAD_TENSOR_MASK /* no parameter: a causal mask or its constant, ignored */
};

enum kvad_presence {
    KVAD_PRESENCE_REQUIRED,
    KVAD_PRESENCE_OPTIONAL,   /* decided by layer 0, the same in all layers */
    KVAD_PRESENCE_BIAS_SWITCH /* all of these or none: nanoGPT's `bias` */
};

struct kvad_family_name {
    const char *pattern; /* names.h */
    enum kvad_parameter parameter;
    enum kvad_tensor_part part;
    enum kvad_presence presence;
};

/* How the file cuts the merged qkv matrix. */
enum kvad_qkv_cut { KVAD_QKV_MERGED, KVAD_QKV_SPLIT /* q, k, v */, KVAD_QKV_PER_HEAD };

struct kvad_family {
    const char *name;
    const char *marker;              /* pattern of a tensor that every file of it has */
    enum kvad_activation activation; /* where the file does not say */
    enum kvad_qkv_cut cut;
    bool conv1d;  /* linear weights are stored [in][out] */
    bool may_tie; /* a file without a head (or without an embedding) shares the other one */
    const struct kvad_family_name *names;
    size_t n_names;
};

enum kvad_family_id {
    KVAD_FAMILY_GPT2, /* Hugging Face */
    KVAD_FAMILY_NANOGPT,
    KVAD_FAMILY_MINGPT,
    KVAD_FAMILY_BLOCKS,
    KVAD_FAMILY_MINGPT_2020,
    KVAD_FAMILY_LECTURE,
    KVAD_FAMILY_ARTICLE,
    KVAD_FAMILY_BOOK,
    KVAD_FAMILY_COUNT
};
extern const struct kvad_family kvad_families[KVAD_FAMILY_COUNT];

/** The family of a checkpoint: by its configuration, the names of its tensors, and for the three
 * that share GPT-2's names by the shape of c_attn (never square) and the head.
 * KVAD_ERR_UNSUPPORTED names what was found. */
enum kvad_status kvad_family_find(const struct kvad_checkpoint *checkpoint, struct kvad_heap *heap,
                                  const struct kvad_family **out, struct kvad_error *err);

/** Why a tensor that no table knows is refused: the text for a known foreign part (cross attention,
 * classifier heads), or NULL. `name` is without prefix. */
const char *kvad_family_foreign_part(const char *name);

/** Whether two matrices hold the same float32 bits in the same shape (a tied head saved twice).
 * KVAD_ERR_NO_MEMORY, or what reading a row says. */
enum kvad_status kvad_tensors_equal(const struct kvad_tensor *a, const struct kvad_tensor *b,
                                    struct kvad_heap *heap, bool *equal, struct kvad_error *err);

#endif
