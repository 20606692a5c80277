#include "lab/memory_formula.h"

#include <stdio.h>

#include "base/alloc.h"

static const char *const type_names[] = {"f32", "f16", "bf16", "q8", "q4", "q8_0", "q4_0"};

const char *kvad_memory_type_name(enum kvad_memory_type type) {
    return (unsigned)type < KVAD_MEMORY_TYPES ? type_names[type] : NULL;
}

enum kvad_memory_type kvad_memory_type_of(enum kvad_kv_type type) {
    switch (type) {
    case KVAD_KV_F16: return KVAD_MEMORY_F16;
    case KVAD_KV_BF16: return KVAD_MEMORY_BF16;
    case KVAD_KV_Q8: return KVAD_MEMORY_Q8;
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    return KVAD_MEMORY_F32;
}

/* ceil(n / of) */
static size_t pieces(size_t n, size_t of) {
    return n / of + (n % of != 0);
}

size_t kvad_memory_row_bytes(enum kvad_memory_type type, uint32_t n) {
    size_t wide = n;
    switch (type) {
    case KVAD_MEMORY_F16:
    case KVAD_MEMORY_BF16: return 2 * wide;
    case KVAD_MEMORY_Q8: return wide + 4;
    case KVAD_MEMORY_Q4: return pieces(wide, 2) + 4;
    case KVAD_MEMORY_Q8_0: return pieces(wide, 32) * 34;
    case KVAD_MEMORY_Q4_0: return pieces(wide, 32) * 18;
    case KVAD_MEMORY_F32:
    case KVAD_MEMORY_TYPES: break;
    }
    return 4 * wide;
}

bool kvad_memory_layer_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                             enum kvad_memory_type v_type, size_t *out) {
    if (shape->latent_dim) { /* keys and values are both made of the latent: it has one type */
        *out = kvad_memory_row_bytes(k_type, shape->latent_dim) +
               (shape->rope_dim ? kvad_memory_row_bytes(k_type, shape->rope_dim) : 0);
        return true;
    }
    size_t rows =
        kvad_memory_row_bytes(k_type, shape->k_dim) + kvad_memory_row_bytes(v_type, shape->v_dim);
    return kvad_mul_size(shape->n_kv_heads, rows, out);
}

bool kvad_memory_token_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                             enum kvad_memory_type v_type, size_t *out) {
    size_t layer;
    return kvad_memory_layer_bytes(shape, k_type, v_type, &layer) &&
           kvad_mul_size(shape->n_layers, layer, out);
}

bool kvad_memory_text_bytes(const struct kvad_memory_shape *shape, enum kvad_memory_type k_type,
                            enum kvad_memory_type v_type, size_t tokens, size_t *out) {
    size_t layer, whole, windowed, rows;
    size_t seen = shape->window && shape->window < tokens ? shape->window : tokens;
    size_t n_windowed = shape->window ? shape->n_window_layers : 0;
    return kvad_memory_layer_bytes(shape, k_type, v_type, &layer) &&
           kvad_mul_size(shape->n_layers - n_windowed, tokens, &whole) &&
           kvad_mul_size(n_windowed, seen, &windowed) && kvad_add_size(whole, windowed, &rows) &&
           kvad_mul_size(rows, layer, out);
}

struct kvad_memory_room kvad_memory_room_of(enum kvad_cache_policy policy, uint32_t tokens,
                                            uint32_t n_ctx, uint32_t block_tokens,
                                            uint32_t n_sequences) {
    size_t text = pieces(tokens, block_tokens) * block_tokens;
    size_t context = pieces(n_ctx, block_tokens) * block_tokens;
    switch (policy) {
    case KVAD_CACHE_GROW: return (struct kvad_memory_room){text, text};
    case KVAD_CACHE_STATIC: return (struct kvad_memory_room){context, context};
    case KVAD_CACHE_PAGED:
    case KVAD_CACHE_NONE:
    case KVAD_CACHE_POLICY_COUNT: break;
    }
    return (struct kvad_memory_room){text, context * n_sequences};
}

void kvad_memory_shape_of(const struct kvad_model_info *info, const char *name,
                          struct kvad_memory_shape *out) {
    *out = (struct kvad_memory_shape){.n_layers = info->n_layers,
                                      .n_heads = info->n_heads,
                                      .n_kv_heads = info->n_kv_heads,
                                      .k_dim = info->head_dim,
                                      .v_dim = info->head_dim,
                                      .n_ctx = info->n_ctx};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->source, sizeof out->source, "the model file");
}
