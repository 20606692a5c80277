/* Keys and values of one head into and out of a block, in the block's types. */
#ifndef KVAD_KV_ROWS_H
#define KVAD_KV_ROWS_H

#include "kernels/kernels.h"
#include "kv/shape.h"

/** Write n tokens from `t` on of a block, which lie in one tile of 16: k[head_dim] and v[head_dim]
 * of each, `stride` floats after those of the token before, rounded to the block's types
 * (docs/numerics.md, KV types): f16 and bf16 to nearest even; Q8 with scale s = max|x| / 127,
 * q = round(x / s) to nearest even. Different tokens or heads may be written at the same time. */
void kvad_kv_write_rows(const struct kvad_kernels *kernels, const struct kvad_kv_shape *shape,
                        unsigned char *block, size_t layer, size_t head, size_t t, size_t n,
                        const float *k, const float *v, size_t stride);
/** Read one token back as floats: exactly what the block holds. */
void kvad_kv_read_row(const struct kvad_kv_shape *shape, const unsigned char *block, size_t layer,
                      size_t head, size_t t, float *k, float *v);

#endif
