#include "kv/shape.h"

#include "base/error.h"

enum kvad_status kvad_kv_shape_init(struct kvad_kv_shape *shape, size_t n_layers, size_t n_kv_heads,
                                    size_t head_dim, size_t block_tokens, struct kvad_error *err) {
    bool divides = block_tokens >= KVAD_KV_TILE && block_tokens <= KVAD_CHUNK &&
                   KVAD_CHUNK % block_tokens == 0 && block_tokens % KVAD_KV_TILE == 0;
    if (!divides)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "block_tokens is %zu, must be 16, 32, 64, 128 or 256", block_tokens);
    struct kvad_kv_shape s = {.n_layers = n_layers,
                              .n_kv_heads = n_kv_heads,
                              .head_dim = head_dim,
                              .block_tokens = block_tokens};
    size_t both, bytes;
    if (!kvad_mul_size(block_tokens, head_dim, &s.head_floats) ||
        !kvad_mul_size(n_kv_heads, 2, &both) ||
        !kvad_mul_size(s.head_floats, both, &s.layer_floats) ||
        !kvad_mul_size(s.layer_floats, n_layers, &s.block_floats) ||
        !kvad_mul_size(s.block_floats, sizeof(float), &bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "KV block of %zu layers is too large", n_layers);
    *shape = s;
    return KVAD_OK;
}
