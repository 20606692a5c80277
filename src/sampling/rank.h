/* Sorting tokens by a 64-bit key. */
#ifndef KVAD_SAMPLING_RANK_H
#define KVAD_SAMPLING_RANK_H

#include <stddef.h>
#include <stdint.h>

#include "base/math.h"

struct kvad_ranked {
    uint64_t key;
    uint32_t id;
};

/** A key that ascends as the score descends; equal scores (0 and -0 too) have equal keys. Not for
 * NaN. */
static inline uint64_t kvad_key_from_score(double score) {
    uint64_t bits = kvad_bits_from_double(score + 0.0); /* -0 + 0 is +0 */
    uint64_t sign = UINT64_C(1) << 63;
    return bits & sign ? bits : ~(bits | sign);
}

/** The score of a key, exactly. */
static inline double kvad_score_from_key(uint64_t key) {
    uint64_t sign = UINT64_C(1) << 63;
    return kvad_double_from_bits(key & sign ? key : ~(key | sign));
}

/** Sort by ascending key; equal keys keep their order. `spare` [n] is scratch. At most six linear
 * passes; digits in which all keys agree are skipped. */
void kvad_rank_sort(struct kvad_ranked *items, size_t n, struct kvad_ranked *spare);

#endif
