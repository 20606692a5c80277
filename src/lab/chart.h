/* Charts as inline SVG: lines over two axes, and stacked bars.
 *
 * Each chart is a <figure> with two drawings of the same data, one for wide pages and one for
 * phones; the page's style shows the one that fits, so that letters keep their size. Colours come
 * from the page's style (classes c0..c7), so that a chart follows the light or dark scheme; series
 * differ in marker and parts in number too, for those who do not see the colours or print in
 * grey. All names may be any text. */
#ifndef KVAD_LAB_CHART_H
#define KVAD_LAB_CHART_H

#include "lab/figures.h"
#include "lab/html.h"

enum { KVAD_CHART_COLOURS = 8 };

struct kvad_point {
    double x, y;
};

struct kvad_series {
    const char *name;                /* stands at its last point: keep it short */
    const struct kvad_point *points; /* [n], ascending x; points that an axis cannot show are left
                                        out (not finite, or below 0 on a logarithmic axis) */
    size_t n;
    bool is_computed; /* from a formula: dashed, without markers */
};

struct kvad_axis {
    const char *name; /* with its unit */
    bool is_log;
    enum kvad_figure figure; /* how values are written */
};

struct kvad_line_chart {
    const char *title, *description; /* the description is read to those who do not see it */
    struct kvad_axis x, y;
    const struct kvad_series *series; /* [n_series], at most KVAD_CHART_COLOURS */
    size_t n_series;
};

/** Append the figure; nothing when no series has a point. */
void kvad_line_chart_add(struct kvad_html *html, const struct kvad_line_chart *chart);

struct kvad_bar {
    const char *name;
    const double *values; /* [n_parts] of the chart, >= 0; others count as 0 */
};

struct kvad_bar_chart {
    const char *title, *description;
    const char *const *parts; /* names [n_parts], at most KVAD_CHART_COLOURS */
    size_t n_parts;
    const struct kvad_bar *bars; /* [n_bars] */
    size_t n_bars;
    enum kvad_figure figure; /* of values and totals */
    bool is_share;           /* each bar is as long as the page; otherwise they share a scale */
};

/** Append the figure with its legend, which tells the values of a single bar; nothing when all
 * values are 0. */
void kvad_bar_chart_add(struct kvad_html *html, const struct kvad_bar_chart *chart);

#endif
