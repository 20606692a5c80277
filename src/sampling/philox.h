/* Random numbers without state: a function of three numbers, so that neither neighbours nor order
 * of arrival nor restarts change a draw. */
#ifndef KVAD_SAMPLING_PHILOX_H
#define KVAD_SAMPLING_PHILOX_H

#include <stdint.h>

struct kvad_philox {
    uint32_t words[4];
};

/** Philox4x32-10: ten rounds of a keyed bijection of 128-bit counters. Source: Salmon, Moraes,
 * Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4; tested against the
 * known answers of its authors. */
static inline struct kvad_philox kvad_philox4x32(struct kvad_philox counter, uint64_t key) {
    uint32_t key_0 = (uint32_t)key, key_1 = (uint32_t)(key >> 32), *c = counter.words;
    for (int round = 0; round < 10; ++round) {
        uint64_t product_0 = (uint64_t)0xd2511f53u * c[0], product_1 = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(product_1 >> 32) ^ c1 ^ key_0;
        c[1] = (uint32_t)product_1;
        c[2] = (uint32_t)(product_0 >> 32) ^ c3 ^ key_1;
        c[3] = (uint32_t)product_0;
        key_0 += 0x9e3779b9u; /* Weyl sequences: golden ratio and sqrt 3 - 1 */
        key_1 += 0xbb67ae85u;
    }
    return counter;
}

/** A multiple of 2^-53 in [0, 1): the upper 53 bits of words 0 (high) and 1 (low) of the counter
 * (output_index, sample_index) under the key `seed`. */
static inline double kvad_uniform(uint64_t seed, uint64_t sample_index, uint64_t output_index) {
    struct kvad_philox counter = {{(uint32_t)output_index, (uint32_t)(output_index >> 32),
                                   (uint32_t)sample_index, (uint32_t)(sample_index >> 32)}};
    struct kvad_philox random = kvad_philox4x32(counter, seed);
    uint64_t bits = (uint64_t)random.words[0] << 32 | random.words[1];
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
