/* A seeded random generator for tests: SplitMix64 (Steele, Lea, Flood 2014). The same numbers on
 * every machine. */
#ifndef KVAD_TEST_RANDOM_H
#define KVAD_TEST_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct test_random {
    uint64_t state;
};

static inline uint64_t random_u64(struct test_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/** A number in [0, n); n > 0. */
static inline size_t random_below(struct test_random *random, size_t n) {
    return (size_t)(random_u64(random) % n);
}

/** A number in (-1, 1). */
static inline double random_unit(struct test_random *random) {
    return (double)(int64_t)random_u64(random) / 9223372036854775808.0;
}

/** Put `n` numbers into another order. */
static inline void random_shuffle(struct test_random *random, uint32_t *values, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t j = random_below(random, i);
        uint32_t kept = values[i - 1];
        values[i - 1] = values[j];
        values[j] = kept;
    }
}

#endif
