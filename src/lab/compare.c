/* Two reports beside each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report_charts.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static int set_value(json_t *object, const char *name, double value) {
    return json_object_set_new(object, name, isfinite(value) ? json_real(value) : json_null());
}

/* Appends a row, whose members may have failed to be made: then memory was out. */
static int append(json_t *array, json_t *row, int failed) {
    if (!failed) return json_array_append_new(array, row);
    json_decref(row);
    return -1;
}

/* ---- main figures */

static const struct {
    const char *name, *path, *unit;
} figures[] = {
    {"checks that pass", "summary.correct.passed", "count"},
    {"checks that fail", "summary.correct.failed", "count"},
    {"largest error of the logits", "summary.correct.max_error", "error"},
    {"whole text without a cache", "summary.latency.naive_ms", "ms"},
    {"whole text with the paged cache", "summary.latency.cached_ms", "ms"},
    {"times faster by the cache", "summary.latency.times_faster", "ratio"},
    {"operations saved in the last step", "summary.latency.flop_ratio", "ratio"},
    {"bytes saved in the last step", "summary.latency.byte_ratio", "ratio"},
    {"step's time in named parts", "summary.latency.named_percent", "percent"},
    {"cache per token", "summary.memory.token_bytes", "bytes"},
    {"cache of the longest text", "summary.memory.cache_bytes", "bytes"},
    {"checkpoints where the formula is exact", "summary.memory.n_exact", "count"},
    {"resident memory with an owner", "summary.memory.explained_percent", "percent"},
};

static json_t *compare_figures(const json_t *a, const json_t *b) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < COUNT_OF(figures) && !failed; i++) {
        double x = kvad_table_number(a, figures[i].path), y = kvad_table_number(b, figures[i].path);
        if (!isfinite(x) && !isfinite(y)) continue;
        json_t *row = json_pack("{s:s, s:s, s:s}", "name", figures[i].name, "path", figures[i].path,
                                "unit", figures[i].unit);
        int missing = !row || set_value(row, "a", x) || set_value(row, "b", y) ||
                      set_value(row, "ratio", y / x);
        failed |= append(array, row, missing);
    }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

/* ---- what differs in machine, version, model and options */

enum { MAX_CHANGES = 200, PATH_BYTES = 160 };

static json_t *text_of(const json_t *value) {
    if (!value) return json_null();
    if (json_is_string(value)) return json_string(json_string_value(value));
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_t *string = text ? json_string(text) : NULL;
    free(text);
    return string;
}

static int add_change(json_t *changes, const char *what, const json_t *a, const json_t *b) {
    if (json_equal(a, b) || json_array_size(changes) >= MAX_CHANGES) return 0;
    json_t *row =
        json_pack("{s:o, s:o, s:o}", "what", json_string(what), "a", text_of(a), "b", text_of(b));
    return append(changes, row, !row);
}

/* The members of two objects, where either may be absent. */
static int compare_members(json_t *changes, const char *prefix, const json_t *a, const json_t *b) {
    int failed = 0;
    for (int side = 0; side < 2; side++) {
        json_t *all = (json_t *)(uintptr_t)(side ? b : a);
        for (void *i = json_object_iter(all); i && !failed; i = json_object_iter_next(all, i)) {
            const char *key = json_object_iter_key(i);
            char what[PATH_BYTES];
            /* Those that both have were compared on the first side. */
            if (side && json_object_get(a, key)) continue;
            snprintf(what, sizeof what, "%s %s", prefix, key);
            failed |= add_change(changes, what, json_object_get(a, key), json_object_get(b, key));
        }
    }
    return failed;
}

static json_t *compare_changes(const json_t *a, const json_t *b) {
    static const char *const objects[] = {"model", "machine", "engine", "options"};
    json_t *changes = json_array();
    int failed = !changes;
    failed |= add_change(changes, "version", json_object_get(a, "version"),
                         json_object_get(b, "version"));
    failed |= add_change(changes, "program", json_object_get(a, "program"),
                         json_object_get(b, "program"));
    for (size_t i = 0; i < COUNT_OF(objects) && !failed; i++)
        failed |= compare_members(changes, objects[i], json_object_get(a, objects[i]),
                                  json_object_get(b, objects[i]));
    if (!failed) return changes;
    json_decref(changes);
    return NULL;
}

/* ---- the curve and the checks */

static const json_t *with_number(const json_t *array, const char *name, double value) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (kvad_table_number(json_array_get(array, i), name) == value)
            return json_array_get(array, i);
    return NULL;
}

/* Contexts that both have, under every policy. */
static json_t *compare_curves(const json_t *a, const json_t *b) {
    static const char *const policies[] = {"none", "grow", "static", "paged"};
    const json_t *points = kvad_table_get(a, "parts.latency.points");
    json_t *array = json_array();
    int failed = !array;
    for (size_t p = 0; p < COUNT_OF(policies); p++)
        for (size_t i = 0; i < json_array_size(points) && !failed; i++) {
            const json_t *point = json_array_get(points, i);
            double context = kvad_table_number(point, "context");
            const json_t *other =
                with_number(kvad_table_get(b, "parts.latency.points"), "context", context);
            char path[64];
            snprintf(path, sizeof path, "ms.%s", policies[p]);
            double x = kvad_table_number(point, path), y = kvad_table_number(other, path);
            if (!isfinite(x) || !isfinite(y)) continue;
            json_t *row = json_pack("{s:s, s:f, s:f, s:f}", "policy", policies[p], "context",
                                    context, "a_ms", x, "b_ms", y);
            failed |= append(array, row, !row || set_value(row, "ratio", y / x));
        }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *compare_checks(const json_t *a, const json_t *b) {
    const json_t *checks = kvad_table_get(a, "parts.verify.checks");
    const json_t *others = kvad_table_get(b, "parts.verify.checks");
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < json_array_size(checks) && !failed; i++) {
        const json_t *check = json_array_get(checks, i);
        const char *name = kvad_table_string(check, "name", "");
        for (size_t j = 0; j < json_array_size(others) && !failed; j++) {
            const json_t *other = json_array_get(others, j);
            const char *x = kvad_table_string(check, "verdict", "?");
            const char *y = kvad_table_string(other, "verdict", "?");
            if (strcmp(kvad_table_string(other, "name", ""), name) != 0 || strcmp(x, y) == 0)
                continue;
            json_t *row = json_pack("{s:s, s:s, s:s}", "name", name, "a", x, "b", y);
            failed |= append(array, row, !row);
        }
    }
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *side_of(const json_t *report) {
    return json_pack("{s:s, s:s, s:s}", "model", kvad_table_string(report, "model.name", "?"),
                     "created", kvad_table_string(report, "created", "?"), "version",
                     kvad_table_string(report, "version", "?"));
}

json_t *kvad_report_compare(const json_t *a, const json_t *b) {
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", KVAD_COMPARE_KIND,
                     "schema", KVAD_REPORT_SCHEMA, "a", side_of(a), "b", side_of(b), "figures",
                     compare_figures(a, b), "changes", compare_changes(a, b), "curve",
                     compare_curves(a, b), "checks", compare_checks(a, b));
}

/* ---- the page */

static const struct kvad_column figure_columns[] = {
    {"name", "figure", KVAD_CELL_TEXT, 0},
    {"a", "A", KVAD_CELL_UNIT, 0},
    {"b", "B", KVAD_CELL_UNIT, 0},
    {"ratio", "B / A", KVAD_CELL_FIGURE, KVAD_FIGURE_RATIO},
};
static const struct kvad_column change_columns[] = {
    {"what", "what", KVAD_CELL_TEXT, 0},
    {"a", "A", KVAD_CELL_TEXT, 0},
    {"b", "B", KVAD_CELL_TEXT, 0},
};
static const struct kvad_column check_columns[] = {
    {"name", "check", KVAD_CELL_NAME, 0},
    {"a", "A", KVAD_CELL_VERDICT, 0},
    {"b", "B", KVAD_CELL_VERDICT, 0},
};
static const struct kvad_column curve_columns[] = {
    {"policy", "cache", KVAD_CELL_NAME, 0},
    {"context", "tokens before", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"a_ms", "A ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"b_ms", "B ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"ratio", "B / A", KVAD_CELL_FIGURE, KVAD_FIGURE_RATIO},
};

#define TABLE(id, caption, columns, is_folded)                                                     \
    { id, caption, id, columns, COUNT_OF(columns), is_folded }
static const struct kvad_table tables[] = {
    TABLE("checks", "Checks with another verdict", check_columns, false),
    TABLE("figures", "Main figures", figure_columns, false),
    TABLE("changes", "What else differs", change_columns, false),
    TABLE("curve", "Time of one more token", curve_columns, true),
};

const struct kvad_table *kvad_compare_table(unsigned index) {
    return index < COUNT_OF(tables) ? &tables[index] : NULL;
}

static void add_side(struct kvad_html *html, const json_t *comparison, const char *side,
                     const char *letter) {
    const json_t *object = json_object_get(comparison, side);
    kvad_html_add(html, "<p>%s: <bdi>%s</bdi>, kvad %s, %s</p>\n", letter,
                  kvad_table_string(object, "model", "?"),
                  kvad_table_string(object, "version", "?"),
                  kvad_table_string(object, "created", "?"));
}

/* The paged cache, and none, of both. */
static void add_curves(struct kvad_html *html, const json_t *comparison) {
    static const char *const names[4] = {"A none", "B none", "A paged", "B paged"};
    const json_t *curve = kvad_table_get(comparison, "curve");
    struct kvad_page_series data[4] = {{.n = 0}};
    struct kvad_series series[4];
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *row = json_array_get(curve, i);
        const char *policy = kvad_table_string(row, "policy", "");
        bool is_none = strcmp(policy, "none") == 0;
        if (!is_none && strcmp(policy, "paged") != 0) continue;
        kvad_page_add_point(row, "context", "a_ms", &data[is_none ? 0 : 2]);
        kvad_page_add_point(row, "context", "b_ms", &data[is_none ? 1 : 3]);
    }
    for (size_t i = 0; i < 4; i++)
        series[i] = (struct kvad_series){names[i], data[i].points, data[i].n, false};
    kvad_line_chart_add(html, &(struct kvad_line_chart){
                                  .title = "Time of one more token",
                                  .description = "Milliseconds per token over the tokens before it "
                                                 "in both runs; the same numbers are in the table",
                                  .x = {"tokens before it", true, KVAD_FIGURE_COUNT},
                                  .y = {"ms per token", true, KVAD_FIGURE_NUMBER},
                                  .series = series,
                                  .n_series = 4});
}

void kvad_compare_page(struct kvad_html *html, const json_t *comparison) {
    kvad_page_open(html, "kvad lab: two runs");
    kvad_html_raw(html, "<header>\n<h1>Two runs beside each other</h1>\n");
    add_side(html, comparison, "a", "A");
    add_side(html, comparison, "b", "B");
    kvad_html_raw(html, "</header>\n<main>\n<section class=\"whole\">\n");
    if (!json_array_size(kvad_table_get(comparison, "checks")))
        kvad_html_raw(html, "<p>Every check that both ran has the same verdict.</p>\n");
    if (!json_array_size(kvad_table_get(comparison, "changes")))
        kvad_html_raw(html, "<p>Machine, version, model and options are the same: what differs "
                            "below is the noise of measuring.</p>\n");
    for (size_t i = 0; i < 3; i++)
        kvad_table_add_html(html, &tables[i], comparison);
    add_curves(html, comparison);
    kvad_table_add_html(html, &tables[3], comparison);
    kvad_html_raw(html, "</section>\n</main>\n");
    kvad_page_close(html);
}
