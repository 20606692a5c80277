/* Lane sums on vectors: 16 lanes, element i in lane i mod 16, folded 8, 4, 2, 1. */
#ifndef KVAD_KERNELS_BODY_LANES_H
#define KVAD_KERNELS_BODY_LANES_H

enum { VECS_PER_LANES = KVAD_LANES / VEC_WIDTH };

/* The lanes are vectors side by side: lane j is element j % VEC_WIDTH of v[j / VEC_WIDTH]. */
struct lane_sum {
    vec v[VECS_PER_LANES];
};

static inline struct lane_sum lane_sum_zero(void) {
    struct lane_sum sum;
    for (int i = 0; i < VECS_PER_LANES; i++)
        sum.v[i] = vec_zero();
    return sum;
}

static inline float lane_sum_fold(const struct lane_sum *sum) {
    float lanes[KVAD_LANES];
    for (int i = 0; i < VECS_PER_LANES; i++)
        vec_store(lanes + i * VEC_WIDTH, sum->v[i]);
    for (int half = KVAD_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Elements of vector number i of 16 lanes when n are left: 0 to VEC_WIDTH. */
static inline size_t lane_part(size_t n, int i) {
    size_t before = (size_t)i * VEC_WIDTH;
    return n <= before ? 0 : kvad_min_size(n - before, VEC_WIDTH);
}

#endif
