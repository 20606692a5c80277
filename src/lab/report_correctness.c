/* The section on correctness. */
#include "lab/report_charts.h"

void kvad_page_add_point(const json_t *row, const char *x, const char *y,
                         struct kvad_page_series *out) {
    const json_t *x_value = kvad_table_get(row, x), *y_value = kvad_table_get(row, y);
    if (!json_is_number(x_value) || !json_is_number(y_value) || out->n == KVAD_PAGE_POINTS) return;
    out->points[out->n++] =
        (struct kvad_point){json_number_value(x_value), json_number_value(y_value)};
}

void kvad_page_points(const json_t *array, const char *x, const char *y,
                      struct kvad_page_series *out) {
    out->n = 0;
    for (size_t i = 0; i < json_array_size(array); i++)
        kvad_page_add_point(json_array_get(array, i), x, y, out);
}

static void add_layers(struct kvad_html *html, const json_t *report) {
    const json_t *layers = kvad_table_get(report, "parts.verify.reference.layers");
    struct kvad_page_series max, rms;
    kvad_page_points(layers, "layer", "max", &max);
    kvad_page_points(layers, "layer", "rms", &rms);
    const struct kvad_series series[] = {{"max", max.points, max.n, false},
                                         {"RMS", rms.points, rms.n, false}};
    kvad_line_chart_add(
        html, &(struct kvad_line_chart){
                  .title = "How far rounding carries: error after each layer",
                  .description = "Largest and root mean square error of the hidden state after "
                                 "each layer against double precision, relative to its size; the "
                                 "same numbers are in the table below",
                  .x = {"layer (0 is the embedding)", false, KVAD_FIGURE_COUNT},
                  .y = {"error relative to the RMS", true, KVAD_FIGURE_ERROR},
                  .series = series,
                  .n_series = 2});
}

void kvad_page_correctness(struct kvad_html *html, const json_t *report) {
    if (!json_is_object(kvad_table_get(report, "parts.verify"))) return;
    kvad_html_raw(html, "<section id=\"correctness\">\n<h2>Correctness</h2>\n");
    kvad_html_raw(html,
                  "<p>A cache may change the time and nothing else. Each check takes two ways "
                  "to the same token and compares the logits, bit for bit, or holds the "
                  "engine against a forward pass of its own in double precision.</p>\n");
    kvad_page_table(html, report, "checks");
    add_layers(html, report);
    kvad_page_table(html, report, "layers");
    kvad_html_raw(html, "</section>\n");
}
