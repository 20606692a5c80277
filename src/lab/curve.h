/* Times over contexts, between the contexts that were measured. */
#ifndef KVAD_LAB_CURVE_H
#define KVAD_LAB_CURVE_H

#include <stddef.h>
#include <stdint.h>

/* A time over contexts, measured at some of them; between them it is taken as a straight line,
 * outside them as the nearest end. */
struct kvad_curve {
    const uint32_t *contexts; /* [n] ascending, at least one */
    const double *ms;         /* [n] milliseconds of the step at that context */
    size_t n;
};

/** Milliseconds at a context. */
double kvad_curve_at(const struct kvad_curve *curve, double context);
/** Seconds of the steps at contexts first, first + 1, ... first + n - 1. */
double kvad_curve_seconds(const struct kvad_curve *curve, size_t first, size_t n);

#endif
