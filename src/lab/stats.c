#include "lab/stats.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t n, double q) {
    double place = q * (double)(n - 1);
    size_t below = (size_t)place;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

struct kvad_stats kvad_stats_of(double *values, size_t n) {
    if (n == 0) return (struct kvad_stats){0};
    qsort(values, n, sizeof *values, compare);
    return (struct kvad_stats){.median = quantile(values, n, 0.5),
                               .low = quantile(values, n, 0.25),
                               .high = quantile(values, n, 0.75),
                               .min = values[0],
                               .max = values[n - 1],
                               .n = n};
}

double kvad_stats_spread(const struct kvad_stats *stats) {
    return stats->median > 0 ? 50 * (stats->high - stats->low) / stats->median : 0;
}
