#include "kv/shape.h"

#include "base/error.h"

/* Far beyond every model; keeps a head's own bytes from overflowing. */
enum { MAX_HEAD_DIM = 1 << 20 };

size_t kvad_kv_row_bytes(enum kvad_kv_type type, size_t head_dim) {
    switch (type) {
    case KVAD_KV_F16:
    case KVAD_KV_BF16: return head_dim * 2;
    case KVAD_KV_Q8: return head_dim + sizeof(float);
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    return head_dim * sizeof(float);
}

enum kvad_status kvad_kv_shape_init(struct kvad_kv_shape *shape, struct kvad_error *err) {
    struct kvad_kv_shape s = *shape;
    bool divides = s.block_tokens >= KVAD_KV_TILE && s.block_tokens <= KVAD_CHUNK &&
                   KVAD_CHUNK % s.block_tokens == 0 && s.block_tokens % KVAD_KV_TILE == 0;
    if (!divides)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "block_tokens is %zu, must be 16, 32, 64, 128 or 256", s.block_tokens);
    if ((unsigned)s.k_type >= KVAD_KV_TYPE_COUNT || (unsigned)s.v_type >= KVAD_KV_TYPE_COUNT)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "KV types %d and %d: unknown", (int)s.k_type,
                         (int)s.v_type);
    /* A head has at most 2^20 elements (kvad_description_check), so its own bytes cannot overflow.
     */
    s.k_head_bytes = s.block_tokens * kvad_kv_row_bytes(s.k_type, s.head_dim);
    size_t v_head_bytes = s.block_tokens * kvad_kv_row_bytes(s.v_type, s.head_dim);
    if (!kvad_add_size(s.k_head_bytes, v_head_bytes, &s.head_bytes) ||
        !kvad_mul_size(s.head_bytes, s.n_kv_heads, &s.layer_bytes) ||
        !kvad_mul_size(s.layer_bytes, s.n_layers, &s.block_bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a KV block of %zu layers is too large",
                         s.n_layers);
    *shape = s;
    return KVAD_OK;
}
