/* The section on latency: the curve, why it is not steeper, where a step's time goes. */
#include <math.h>
#include <stdio.h>

#include "lab/report_charts.h"

static const char points_path[] = "parts.latency.points";

static void add_curve(struct kvad_html *html, const json_t *report) {
    static const char *const policies[] = {"none", "grow", "static", "paged"};
    const json_t *points = kvad_table_get(report, points_path);
    struct kvad_page_series data[4];
    struct kvad_series series[4];
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "ms.%s", policies[i]);
        kvad_page_points(points, "context", path, &data[i]);
        series[i] = (struct kvad_series){policies[i], data[i].points, data[i].n, false};
    }
    kvad_line_chart_add(
        html, &(struct kvad_line_chart){
                  .title = "Time of one more token",
                  .description = "Milliseconds per token over the tokens before it, for each cache "
                                 "policy; the same numbers are in the table below",
                  .x = {"tokens before it", true, KVAD_FIGURE_COUNT},
                  .y = {"ms per token", true, KVAD_FIGURE_NUMBER},
                  .series = series,
                  .n_series = 4});
}

static void add_ratios(struct kvad_html *html, const json_t *report) {
    const json_t *points = kvad_table_get(report, points_path);
    static const char *const paths[3] = {"flop_ratio", "byte_ratio", "time_ratio"};
    static const char *const names[3] = {"operations", "bytes", "time"};
    struct kvad_page_series data[3];
    struct kvad_series series[3];
    for (size_t i = 0; i < 3; i++) {
        kvad_page_points(points, "context", paths[i], &data[i]);
        series[i] = (struct kvad_series){names[i], data[i].points, data[i].n, i < 2};
    }
    kvad_line_chart_add(html,
                        &(struct kvad_line_chart){
                            .title = "Why not more: a step without a cache, in steps with one",
                            .description =
                                "Ratio of the naive step to the cached step over the tokens before "
                                "it: of operations and bytes by formula, of time as measured",
                            .x = {"tokens before it", true, KVAD_FIGURE_COUNT},
                            .y = {"naive / cached", true, KVAD_FIGURE_RATIO},
                            .series = series,
                            .n_series = 3});
}

static void add_gap(struct kvad_html *html, const json_t *report) {
    static const char *const names[] = {"weights",  "cache",           "arithmetic",
                                        "sampling", "synchronisation", "other"};
    double values[6];
    for (size_t i = 0; i < 6; i++) {
        char path[64];
        snprintf(path, sizeof path, "parts.latency.gap.shares_ms.%s", names[i]);
        values[i] = kvad_table_number(report, path);
    }
    char name[128], context[KVAD_FIGURE_SIZE];
    snprintf(name, sizeof name, "one token after %s",
             kvad_figure(KVAD_FIGURE_COUNT, kvad_table_number(report, "parts.latency.gap.context"),
                         context));
    const struct kvad_bar bar = {name, values};
    kvad_bar_chart_add(
        html, &(struct kvad_bar_chart){
                  .title = "Where the time of a cached step goes",
                  .description = "Wall time of one cached step by parts; the same numbers stand "
                                 "below the bar",
                  .parts = names,
                  .n_parts = 6,
                  .bars = &bar,
                  .n_bars = 1,
                  .figure = KVAD_FIGURE_MS,
                  .is_share = true});
}

static void add_gap_words(struct kvad_html *html, const json_t *report) {
    if (!isfinite(kvad_table_number(report, "summary.latency.ideal_ms"))) return;
    kvad_page_words(
        html, report,
        "<p>At the rate of a step without a cache, the operations of this step would take "
        "{latency.ideal_ms ms}; it takes {latency.step_ms ms}. Weights and cache are what reading "
        "them takes beyond that; {latency.named_percent percent} of the step is in named parts: "
        "synchronisation (threads waiting for each other) and other are not among them.</p>\n");
}

void kvad_page_latency(struct kvad_html *html, const json_t *report) {
    if (!json_is_object(kvad_table_get(report, "parts.latency"))) return;
    kvad_html_raw(html, "<section id=\"latency\">\n<h2>Latency</h2>\n");
    const char *why = kvad_table_string(report, "parts.latency.void", NULL);
    if (why) {
        kvad_html_add(html, "<p class=\"warn\">The run is void, its numbers mean nothing: %s</p>\n",
                      why);
    } else {
        kvad_html_raw(html, "<p>Greedy decoding of one text. Without a cache each token sends the "
                            "whole text through the model again and throws away all but the last "
                            "row.</p>\n");
        add_curve(html, report);
        kvad_page_table(html, report, "curve");
        kvad_page_table(html, report, "totals");
        add_ratios(html, report);
        kvad_page_table(html, report, "work");
        kvad_page_table(html, report, "prefill");
        add_gap(html, report);
        add_gap_words(html, report);
        kvad_page_table(html, report, "gap");
        kvad_page_table(html, report, "controls");
        kvad_page_table(html, report, "claims");
    }
    kvad_html_raw(html, "</section>\n");
}
