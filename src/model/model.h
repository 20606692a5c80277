/* A model in memory: what it is (description) and its packed weights. The forward pass reads this.
 *
 *   tokens -> embedding + positions -> layers x (norm1, qkv, attention, out, norm2, up, activation,
 *   down) -> final_norm -> head
 *
 * Immutable after the load and shared by engines and threads; only the reference count changes. */
#ifndef KVAD_MODEL_MODEL_H
#define KVAD_MODEL_MODEL_H

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file_map.h"
#include "kernels/kernels.h"

enum kvad_norm_kind { KVAD_NORM_LAYER /* subtract the mean, divide by the deviation */ };
enum kvad_position_kind {
    KVAD_POSITION_LEARNED /* a table of n_ctx rows added to the embedding */
};

/* What a model computes; every field is decided when the load succeeds (activation is never AUTO).
 * kvad_description_check() holds the limits. */
struct kvad_description {
    char family[32]; /* "gpt2", "nanogpt", "mingpt", "lecture", ...: for people */
    uint32_t n_layers;
    uint32_t n_heads;    /* query heads */
    uint32_t n_kv_heads; /* divides n_heads; query head h reads kv head h * n_kv_heads / n_heads */
    uint32_t head_dim;
    uint32_t d_model;
    uint32_t d_ff;
    uint32_t n_vocab; /* rows of the head, length of a logits row; may exceed the tokenizer */
    uint32_t n_ctx;   /* rows of the position table */
    enum kvad_norm_kind norm;
    enum kvad_position_kind position;
    enum kvad_activation activation;
    float norm_eps;
    bool scale_attn;          /* scores are divided by sqrt(head_dim) */
    bool scale_attn_by_layer; /* scores of layer l are also divided by l + 1 */
    bool head_tied;           /* the token embedding is the head's weight */
    int32_t eos;              /* id that ends a text, -1: none */
};

/* y[n] = sum_k x[k] w[n][k] + bias[n]
 * Row n is lane n % 16 of panel n / 16; lanes beyond n are 0. A panel of floats is [k][16]; the
 * other types are described at kvad_linear_quant_args. */
struct kvad_linear_weights {
    enum kvad_weight_type type;
    unsigned char *panels; /* [ceil(n / 16)][panel_bytes] */
    size_t panel_bytes;
    float *bias; /* [16 * ceil(n / 16)], zeros beyond n; NULL: no bias */
    size_t n, k; /* outputs, inputs */
};

struct kvad_norm_weights {
    float *weight; /* [d_model] */
    float *bias;   /* [d_model]; NULL: no bias */
};

struct kvad_layer_weights {
    struct kvad_norm_weights norm1;
    struct kvad_linear_weights qkv; /* n = (n_heads + 2 * n_kv_heads) * head_dim: rows of all q
                                       heads, then all k heads, then all v heads; k = d_model */
    struct kvad_linear_weights out; /* n = d_model, k = n_heads * head_dim */
    struct kvad_norm_weights norm2;
    struct kvad_linear_weights up;   /* n = d_ff, k = d_model */
    struct kvad_linear_weights down; /* n = d_model, k = d_ff */
};

struct kvad_model {
    struct kvad_heap heap; /* of everything below; the caller's allocator */
    atomic_uint n_references;
    struct kvad_log log;
    struct kvad_description description;
    struct kvad_layer_weights *layers; /* [n_layers] */
    struct kvad_norm_weights final_norm;
    struct kvad_linear_weights head;  /* n = n_vocab, k = d_model */
    float *embedding;                 /* [n_vocab][d_model]; NULL when head_tied */
    float *positions;                 /* [n_ctx][d_model] */
    struct kvad_tokenizer *tokenizer; /* one reference; NULL: none found */
    char *tokenizer_path;             /* where it was found; NULL: nowhere, or in the packed file */
    enum kvad_weight_type weights;    /* of the linear layers */
    uint32_t n_tokens;                /* ids in [0, n_tokens) may be sampled; at most n_vocab */
    uint64_t n_parameters;            /* as stored, a tied head counted once */
    void *area; /* all weights, one piece of area_bytes: on the heap or in `map` */
    size_t area_bytes;
    struct kvad_file_map map; /* of a packed file; data NULL: none */
    bool is_packed;           /* from a packed file, mapped or not */
    bool has_bias;            /* some linear layer has one */
};

/** out[d_model] = the embedding of `token` (in [0, n_vocab)), from the packed head when tied. */
static inline void kvad_model_embed(const struct kvad_model *model, size_t token, float *out) {
    size_t d_model = model->description.d_model;
    if (model->embedding) {
        memcpy(out, model->embedding + token * d_model, d_model * sizeof *out);
        return;
    }
    const struct kvad_linear_weights *head = &model->head;
    kvad_panel_row(head->type, head->panels + token / KVAD_PANEL * head->panel_bytes,
                   token % KVAD_PANEL, d_model, out);
}

/** KVAD_OK if every field is inside its limits and they fit together (sizes not 0 and such that no
 * product of two and a float's size overflows, n_kv_heads divides n_heads, activation known);
 * KVAD_ERR_FORMAT names the field and its range. `name` is the file, for errors. */
enum kvad_status kvad_description_check(const struct kvad_description *description,
                                        const char *name, struct kvad_error *err);

#endif
