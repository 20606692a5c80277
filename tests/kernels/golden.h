/* XXH64 of each operation's outputs on fixed inputs: the same on every CPU, compiler and level.
 * After an intended change of a definition, `kvad-check --print-golden` gives the new table. */
#ifndef KVAD_TESTS_KERNELS_GOLDEN_H
#define KVAD_TESTS_KERNELS_GOLDEN_H

#define GOLDEN_DIGESTS(X)                                                                          \
    X(linear_f32, 0xecc4d6eb1512e69d)                                                              \
    X(layer_norm, 0x534060fcdab31ef3)                                                              \
    X(add, 0xb18cd65bbe34b23d)                                                                     \
    X(scale, 0x3f3a12ed4728d3a8)                                                                   \
    X(divide, 0xc95dbfcd1432d1a6)                                                                  \
    X(attention_chunk, 0xe35558e79bee22bc)                                                         \
    X(attention_merge, 0xa5a9cf3c60c4c75c)                                                         \
    X(exp, 0x2b94258c1d73cd97)                                                                     \
    X(gelu_tanh, 0x4fc55951f90c1b06)                                                               \
    X(gelu_erf, 0x059194f5734c90af)                                                                \
    X(relu, 0x2118650333f3a722)                                                                    \
    X(silu, 0xeba93a283ab61d47)                                                                    \
    X(tanh, 0xfb77e0563ce3f629)                                                                    \
    X(sigmoid, 0x1c84cf437f8f6310)                                                                 \
    X(quick_gelu, 0x4a0c92dfb32c22c5)

#endif
