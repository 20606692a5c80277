/* Points and bars from JSON. */
#ifndef KVAD_LAB_REPORT_CHARTS_H
#define KVAD_LAB_REPORT_CHARTS_H

#include "lab/chart.h"
#include "lab/report_internal.h"

enum { KVAD_PAGE_POINTS = 256 };

/* The data of one series. */
struct kvad_page_series {
    struct kvad_point points[KVAD_PAGE_POINTS];
    size_t n;
};

/** Append the point of an object: x and y are paths in it. What is no number is left out. */
void kvad_page_add_point(const json_t *row, const char *x, const char *y,
                         struct kvad_page_series *out);
/** The points of an array of such objects. */
void kvad_page_points(const json_t *array, const char *x, const char *y,
                      struct kvad_page_series *out);

#endif
