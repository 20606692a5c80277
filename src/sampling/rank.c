#include "sampling/rank.h"

#include <string.h>

/* Least significant digit first: every pass is stable, so the whole is. */
enum { DIGIT_BITS = 11, N_DIGIT_VALUES = 1 << DIGIT_BITS };

static void sort_by_digit(const struct kvad_ranked *from, size_t n, int shift,
                          struct kvad_ranked *to) {
    size_t starts[N_DIGIT_VALUES] = {0};
    for (size_t i = 0; i < n; ++i)
        ++starts[from[i].key >> shift & (N_DIGIT_VALUES - 1)];
    size_t start = 0;
    for (size_t value = 0; value < N_DIGIT_VALUES; ++value) {
        size_t count = starts[value];
        starts[value] = start;
        start += count;
    }
    for (size_t i = 0; i < n; ++i)
        to[starts[from[i].key >> shift & (N_DIGIT_VALUES - 1)]++] = from[i];
}

void kvad_rank_sort(struct kvad_ranked *items, size_t n, struct kvad_ranked *spare) {
    uint64_t differing = 0;
    for (size_t i = 1; i < n; ++i)
        differing |= items[i].key ^ items[0].key;
    struct kvad_ranked *from = items, *to = spare;
    for (int shift = 0; shift < 64; shift += DIGIT_BITS) {
        if ((differing >> shift & (N_DIGIT_VALUES - 1)) == 0) continue;
        sort_by_digit(from, n, shift, to);
        struct kvad_ranked *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, n * sizeof *items);
}
