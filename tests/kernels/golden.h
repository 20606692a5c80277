/* XXH64 of the outputs of the operations on fixed inputs: the same on every CPU, compiler, level.
 * After an intended change of a definition, `kvad-check --print-golden` prints the new table. */
#ifndef KVAD_TESTS_KERNELS_GOLDEN_H
#define KVAD_TESTS_KERNELS_GOLDEN_H

#include "check.h"

/** Hash of the hash so far and n values, n <= 3072; all NaNs are one. */
void golden_hash(uint64_t *hash, const float *values, size_t n);

typedef void golden_fn(struct check *c, const struct kvad_kernels *kernels, uint64_t *hash,
                       enum check_pattern pattern);
golden_fn golden_linear_bf16, golden_linear_f16, golden_linear_q8, golden_linear_q4,
    golden_attention_typed;

#define GOLDEN_DIGESTS(X)                                                                          \
    X(linear_f32, 0x0a7e5a9e03a0adb3)                                                              \
    X(linear_bf16, 0xd94d26a5423fa427)                                                             \
    X(linear_f16, 0xe4caff4468206501)                                                              \
    X(linear_q8, 0x5a15bb06398d8960)                                                               \
    X(linear_q4, 0x950003a39421b704)                                                               \
    X(layer_norm, 0x7bc819ec779751c6)                                                              \
    X(add, 0x701db48ffcffe698)                                                                     \
    X(scale, 0x54875754d93eb0ca)                                                                   \
    X(divide, 0x11e2186b0af1e68c)                                                                  \
    X(attention_chunk, 0x4b526c7813aa2083)                                                         \
    X(attention_typed, 0x24a0ca0b3ab0d5d3)                                                         \
    X(attention_merge, 0xff890d0d0c7b305c)                                                         \
    X(exp, 0x437e6b2d7049914d)                                                                     \
    X(gelu_tanh, 0xb194dcf48b090b28)                                                               \
    X(gelu_erf, 0x47c46d365050b2a5)                                                                \
    X(relu, 0xcba4cb58249447e9)                                                                    \
    X(silu, 0x96c5f80eb62b15b8)                                                                    \
    X(tanh, 0x21babe059ac251f6)                                                                    \
    X(sigmoid, 0x6f545cf24279a161)                                                                 \
    X(quick_gelu, 0xf11394f4a777b413)

#endif
