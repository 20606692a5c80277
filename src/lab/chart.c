#include "lab/chart.h"

#include <math.h>
#include <string.h>

#include "lab/chart_internal.h"
#include "lab/scale.h"

enum { MAX_POINTS = 4096, LABEL_HEIGHT = 15 };

static bool can_show(const struct kvad_axis *axis, double value) {
    return isfinite(value) && (!axis->is_log || value > 0);
}

static bool is_shown(const struct kvad_line_chart *chart, struct kvad_point point) {
    return can_show(&chart->x, point.x) && can_show(&chart->y, point.y);
}

/* One drawing. */
struct plot {
    const struct kvad_line_chart *chart;
    struct kvad_html *html;
    int width, height;
    struct kvad_scale x, y;
    size_t max_x_ticks;
};

static size_t points_of(const struct kvad_series *series) {
    return series->n < MAX_POINTS ? series->n : MAX_POINTS;
}

/* The ends of the data; false when there is none. */
static bool survey(const struct kvad_line_chart *chart, struct kvad_point *low,
                   struct kvad_point *high) {
    bool found = false;
    for (size_t s = 0; s < chart->n_series; s++)
        for (size_t i = 0; i < points_of(&chart->series[s]); i++) {
            struct kvad_point p = chart->series[s].points[i];
            if (!is_shown(chart, p)) continue;
            if (!found) *low = *high = p;
            low->x = fmin(low->x, p.x);
            low->y = fmin(low->y, p.y);
            high->x = fmax(high->x, p.x);
            high->y = fmax(high->y, p.y);
            found = true;
        }
    /* Lengths of things begin at 0. */
    if (found && !chart->y.is_log && low->y > 0) low->y = 0;
    if (found && !chart->x.is_log && low->x > 0) low->x = 0;
    return found;
}

static size_t longest_name(const struct kvad_line_chart *chart) {
    size_t longest = 0;
    for (size_t s = 0; s < chart->n_series; s++) {
        size_t n = kvad_chart_letters(chart->series[s].name);
        if (n > longest) longest = n;
    }
    return longest;
}

static void draw_grid(const struct plot *plot) {
    double ticks[KVAD_SCALE_TICKS];
    char text[KVAD_FIGURE_SIZE];
    size_t n = kvad_scale_ticks(&plot->y, 7, ticks);
    for (size_t i = 0; i < n; i++) {
        double y = kvad_scale_at(&plot->y, ticks[i]);
        kvad_html_add(plot->html,
                      "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>"
                      "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                      plot->x.from, y, plot->x.to, plot->x.from - 7, y + 4,
                      kvad_figure_short(plot->chart->y.figure, ticks[i], text));
    }
    n = kvad_scale_ticks(&plot->x, plot->max_x_ticks, ticks);
    for (size_t i = 0; i < n; i++) {
        double x = kvad_scale_at(&plot->x, ticks[i]);
        kvad_html_add(plot->html,
                      "<path class=\"axis\" d=\"M%.1f %.1fv5\"/><text class=\"tick\" x=\"%.1f\" "
                      "y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                      x, plot->y.from, x, plot->y.from + 18,
                      kvad_figure_short(plot->chart->x.figure, ticks[i], text));
    }
    kvad_html_add(plot->html, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n", plot->x.from,
                  plot->y.from, plot->x.to);
}

static void draw_axis_names(const struct plot *plot) {
    const struct kvad_line_chart *chart = plot->chart;
    const char *y_log = chart->y.is_log ? " (log scale)" : "";
    const char *x_log = chart->x.is_log ? " (log scale)" : "";
    kvad_html_add(plot->html,
                  "<text class=\"name\" x=\"0\" y=\"13\">%s%s</text>"
                  "<text class=\"name\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s%s</text>\n",
                  chart->y.name, y_log, (plot->x.from + plot->x.to) / 2, plot->height - 4,
                  chart->x.name, x_log);
}

/* A shape of the series' own at (x, y). */
static void draw_marker(struct kvad_html *html, size_t series, double x, double y) {
    static const char *const shapes[KVAD_CHART_COLOURS] = {
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",    /* disc */
        "m-3.5-3.5h7v7h-7z",                     /* square */
        "m0-4.6l4.6 8h-9.2z",                    /* triangle */
        "m0-5l5 5l-5 5l-5-5z",                   /* diamond */
        "m0 4.6l4.6-8h-9.2z",                    /* triangle upside down */
        "m-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z", /* plus */
        "m-5-2h10v4h-10z",                       /* lying bar */
        "m-2-5h4v10h-4z",                        /* standing bar */
    };
    kvad_html_add(html, "<path class=\"mark c%zu\" d=\"M%.1f %.1f", series, x, y);
    kvad_html_raw(html, shapes[series]);
    kvad_html_raw(html, "\"/>");
}

/* The line and its markers; the last point that is shown into *end. False for none. */
static bool draw_series(const struct plot *plot, size_t index, struct kvad_point *end) {
    const struct kvad_series *series = &plot->chart->series[index];
    bool found = false;
    for (size_t i = 0; i < points_of(series); i++) {
        if (!is_shown(plot->chart, series->points[i])) continue;
        *end = (struct kvad_point){kvad_scale_at(&plot->x, series->points[i].x),
                                   kvad_scale_at(&plot->y, series->points[i].y)};
        if (found)
            kvad_html_add(plot->html, "L%.1f %.1f", end->x, end->y);
        else
            kvad_html_add(plot->html, "<path class=\"line%s c%zu\" d=\"M%.1f %.1f",
                          series->is_computed ? " computed" : "", index, end->x, end->y);
        found = true;
    }
    if (!found) return false;
    kvad_html_raw(plot->html, "\"/>");
    for (size_t i = 0; i < points_of(series) && !series->is_computed; i++)
        if (is_shown(plot->chart, series->points[i]))
            draw_marker(plot->html, index, kvad_scale_at(&plot->x, series->points[i].x),
                        kvad_scale_at(&plot->y, series->points[i].y));
    kvad_html_raw(plot->html, "\n");
    return true;
}

struct label {
    size_t series;
    struct kvad_point end;
    double y;
};

/* Sorted from top to bottom, then moved apart: down as far as needed, back up from the floor. */
static void place_labels(struct label *labels, size_t n, double floor_y) {
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && labels[j].y < labels[j - 1].y; j--) {
            struct label held = labels[j];
            labels[j] = labels[j - 1];
            labels[j - 1] = held;
        }
    for (size_t i = 1; i < n; i++)
        labels[i].y = fmax(labels[i].y, labels[i - 1].y + LABEL_HEIGHT);
    for (size_t i = n; i > 0; i--) {
        double limit = i == n ? floor_y : labels[i].y - LABEL_HEIGHT;
        labels[i - 1].y = fmin(labels[i - 1].y, limit);
    }
}

static void draw_labels(const struct plot *plot, struct label *labels, size_t n) {
    place_labels(labels, n, plot->y.from);
    double x = plot->x.to + 12;
    for (size_t i = 0; i < n; i++) {
        kvad_html_add(plot->html,
                      "<path class=\"lead c%zu\" d=\"M%.1f %.1fL%.1f %.1f\"/>"
                      "<text class=\"label c%zu\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                      labels[i].series, labels[i].end.x + 5, labels[i].end.y, x - 2, labels[i].y,
                      labels[i].series, x, labels[i].y + 4,
                      plot->chart->series[labels[i].series].name);
    }
}

static void draw(struct plot *plot) {
    struct label labels[KVAD_CHART_COLOURS];
    size_t n_labels = 0;
    kvad_chart_open(plot->html, plot->width, plot->height, plot->chart->description);
    draw_axis_names(plot);
    draw_grid(plot);
    for (size_t s = 0; s < plot->chart->n_series; s++) {
        struct label *label = &labels[n_labels];
        if (!draw_series(plot, s, &label->end)) continue;
        label->series = s;
        label->y = label->end.y;
        n_labels++;
    }
    draw_labels(plot, labels, n_labels);
    kvad_html_raw(plot->html, "</svg>\n");
}

/* Room for the longest tick of the y axis. */
static double tick_room(const struct kvad_line_chart *chart, const struct kvad_scale *scale) {
    double ticks[KVAD_SCALE_TICKS];
    char text[KVAD_FIGURE_SIZE];
    size_t longest = 0, n = kvad_scale_ticks(scale, 7, ticks);
    for (size_t i = 0; i < n; i++) {
        size_t letters = kvad_chart_letters(kvad_figure_short(chart->y.figure, ticks[i], text));
        if (letters > longest) longest = letters;
    }
    return 10 + (double)longest * KVAD_CHART_LETTER;
}

void kvad_line_chart_add(struct kvad_html *html, const struct kvad_line_chart *given) {
    struct kvad_line_chart chart = *given;
    struct kvad_point low, high;
    if (chart.n_series > KVAD_CHART_COLOURS) chart.n_series = KVAD_CHART_COLOURS;
    if (!survey(&chart, &low, &high)) return;
    kvad_html_add(html, "<figure>\n<figcaption>%s</figcaption>\n", chart.title);
    for (int is_narrow = 0; is_narrow < 2; is_narrow++) {
        struct plot plot = {.chart = &chart,
                            .html = html,
                            .width = is_narrow ? KVAD_CHART_NARROW : KVAD_CHART_WIDE,
                            .height = is_narrow ? 260 : 330,
                            .max_x_ticks = is_narrow ? 5 : 9};
        double names = 16 + (double)longest_name(&chart) * KVAD_CHART_LETTER;
        double right = fmin(names, plot.width * 0.3);
        struct kvad_scale_options y = {chart.y.is_log, chart.y.figure == KVAD_FIGURE_BYTES, true};
        struct kvad_scale_options x = {chart.x.is_log, chart.x.figure == KVAD_FIGURE_BYTES, false};
        plot.y = kvad_scale_make(low.y, high.y, y, plot.height - 46, 28);
        plot.x = kvad_scale_make(low.x, high.x, x, tick_room(&chart, &plot.y), plot.width - right);
        draw(&plot);
    }
    kvad_html_raw(html, "</figure>\n");
}
