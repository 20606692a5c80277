/* Medians and their spread. */
#ifndef KVAD_LAB_STATS_H
#define KVAD_LAB_STATS_H

#include <stddef.h>

/* Of n numbers; all 0 for none. Quartiles are interpolated between neighbours (Hyndman and Fan,
 * 1996, type 7). */
struct kvad_stats {
    double median, low, high; /* the middle one and the quartiles */
    double min, max;
    size_t n;
};

/** Of values[n], which are sorted by the call. */
struct kvad_stats kvad_stats_of(double *values, size_t n);

/** Half the distance of the quartiles as a percentage of the median: what "+-" says in tables. */
double kvad_stats_spread(const struct kvad_stats *stats);

#endif
