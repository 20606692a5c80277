/* From values to places on a chart's axis, and the round values that are written there. */
#ifndef KVAD_LAB_SCALE_H
#define KVAD_LAB_SCALE_H

#include <stdbool.h>
#include <stddef.h>

struct kvad_scale {
    double low, high; /* values at the ends; low < high; both above 0 on a logarithmic scale */
    double from, to;  /* places of the ends */
    bool is_log;
    double unit; /* ticks of a linear scale are round in it: 1, or a power of 1024 for bytes */
};

/** A scale for values between low and high. `widen` makes the ends round values (on a logarithmic
 * scale 1, 2 or 5 times a power of ten), `is_bytes` makes round be so in KiB, MiB ... Values that
 * are not finite, or that a logarithm does not have, give the scale 0..1 or 1..10; equal ones get
 * some room. */
struct kvad_scale_options {
    bool is_log, is_bytes, widen;
};
struct kvad_scale kvad_scale_make(double low, double high, struct kvad_scale_options options,
                                  double from, double to);

/** Place of a value; outside the ends it is the nearer end. */
double kvad_scale_at(const struct kvad_scale *scale, double value);

/** At most `max` round values from low to high, ascending; returns how many (at least 2 when max
 * is at least 5). */
enum { KVAD_SCALE_TICKS = 16 };
size_t kvad_scale_ticks(const struct kvad_scale *scale, size_t max, double ticks[KVAD_SCALE_TICKS]);

#endif
