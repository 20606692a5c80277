/* How many bytes a KV cache takes, by arithmetic alone: written once more, independently of the
 * cache itself (src/kv), so that each can be held against the other.
 *
 * Letters in all formulas, here and in the printed ones:
 *
 *   L layers   H query heads   K kv heads   d elements of a head's key or value (dk, dv where they
 *   differ)   e bytes of an element   c, r elements of a latent and of its rotated key   W window
 *   in Lw layers   T tokens of a text   B tokens of a block   g(n) = ceil(n / 32)
 *
 * All products are checked: numbers from files are hostile. */
#ifndef KVAD_LAB_MEMORY_FORMULA_H
#define KVAD_LAB_MEMORY_FORMULA_H

#include "kvad/kvad.h"

/* How one row of n elements lies in memory. */
enum kvad_memory_type {
    KVAD_MEMORY_F32,  /* 4 n */
    KVAD_MEMORY_F16,  /* 2 n */
    KVAD_MEMORY_BF16, /* 2 n */
    KVAD_MEMORY_Q8,   /* n + 4: int8 with a float32 scale for the row, as kvad keeps it */
    KVAD_MEMORY_Q4,   /* ceil(n / 2) + 4: the same with int4 */
    KVAD_MEMORY_Q8_0, /* 34 ceil(n / 32): int8 in groups of 32 with an f16 scale (ggml's Q8_0) */
    KVAD_MEMORY_Q4_0, /* 18 ceil(n / 32): int4 in the same groups (ggml's Q4_0) */
    KVAD_MEMORY_TYPES
};

/* What of a model decides the size of its cache. */
struct kvad_memory_shape {
    char name[96];   /* "llama-7b", or the file */
    char source[96]; /* where the numbers are from: a paper, a file */
    uint32_t n_layers, n_heads, n_kv_heads;
    uint32_t k_dim, v_dim; /* elements of one head's key and value */
    /* Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1): a token keeps
     * one latent and one rotated key for all heads of a layer. 0: it does not. */
    uint32_t latent_dim, rope_dim;
    uint32_t n_ctx;                   /* longest text; 0: the file does not say */
    uint32_t window, n_window_layers; /* layers that see the last `window` tokens alone; 0: none */
};

/** Name of a type ("q8_0"); NULL from KVAD_MEMORY_TYPES on. */
const char *kvad_memory_type_name(enum kvad_memory_type type);
/** The same type in the lab's words. */
enum kvad_memory_type kvad_memory_type_of(enum kvad_kv_type type);

/** Bytes of a row of n elements; n < 2^32. */
size_t kvad_memory_row_bytes(enum kvad_memory_type type, uint32_t n);

/** Bytes of one token in one layer: K (row(dk) + row(dv)), or row(c) + row(r) with a latent. False
 * on overflow; then *out is untouched. */
bool kvad_memory_layer_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                             enum kvad_memory_type v_type, size_t *out);
/** Bytes of one token in all layers: L times that. */
bool kvad_memory_token_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                             enum kvad_memory_type v_type, size_t *out);
/** Bytes of a text of `tokens`: layers with a window keep min(T, W) tokens. */
bool kvad_memory_text_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                            enum kvad_memory_type v_type, size_t tokens, size_t *out);

/* What a cache policy holds for a text, in tokens of room. */
struct kvad_memory_room {
    size_t held;     /* by the text: what grows with it */
    size_t reserved; /* from the allocator, whatever the text is */
};
/** grow: ceil(T/B) B, reserved as held. static: the context in whole blocks, both. paged and none:
 * ceil(T/B) B of a pool of n_sequences contexts; `none` until its window is computed again. */
struct kvad_memory_room kvad_memory_room_of(enum kvad_cache_policy policy, uint32_t tokens,
                                            uint32_t n_ctx, uint32_t block_tokens,
                                            uint32_t n_sequences);

/** Name of the index-th model that is known ("gpt2", "llama-7b", ...); NULL after the last. */
const char *kvad_memory_shape_name(unsigned index);
/** A known model; false: there is none of this name. */
bool kvad_memory_shape_find(const char *name, struct kvad_memory_shape *out);
/** The shape that a model's own description says. */
void kvad_memory_shape_of(const struct kvad_model_info *info, const char *name,
                          struct kvad_memory_shape *out);

/** A known name, a Hugging Face config.json (GPT-2's and Llama's keys, nested text_config), a
 * folder that holds one, or any model that kvad_model_inspect() can read. Every error names the
 * file, the field, its value and its range. */
enum kvad_status kvad_memory_shape_open(const char *path, struct kvad_memory_shape *out,
                                        struct kvad_error *err);
/** The text of a config.json. `name` is the file, for errors. */
enum kvad_status kvad_memory_shape_read(const char *text, size_t size, const char *name,
                                        struct kvad_memory_shape *out, struct kvad_error *err);

#endif
