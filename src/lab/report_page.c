/* The page of a report: its frame, what was measured and how. */
#include "lab/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report_internal.h"

void kvad_page_open(struct kvad_html *html, const char *title) {
    /* The policy is a promise that the reader's browser keeps: no script, nothing from outside. */
    kvad_html_add(html,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'; img-src data:\">\n"
                  "<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<link rel=\"icon\" href=\"data:,\">\n<title>%s</title>\n<style>\n",
                  title);
    kvad_html_raw(html, kvad_report_style);
    kvad_html_raw(html, "</style>\n</head>\n<body>\n");
}

void kvad_page_close(struct kvad_html *html) {
    kvad_html_raw(html, "</body>\n</html>\n");
}

void kvad_page_figure(struct kvad_html *html, const json_t *report, const char *path,
                      enum kvad_figure figure) {
    char shown[KVAD_FIGURE_SIZE], exact[KVAD_FIGURE_SIZE] = "";
    double value = kvad_table_number(report, path);
    if (isfinite(value)) kvad_figure_exact(value, exact);
    kvad_html_add(html, "<span data-figure=\"%s\" data-value=\"%s\">%s</span>", path, exact,
                  kvad_figure(figure, value, shown));
}

void kvad_page_words(struct kvad_html *html, const json_t *report, const char *words) {
    static const char *const kinds[] = {
        [KVAD_FIGURE_COUNT] = "count", [KVAD_FIGURE_ERROR] = "error",
        [KVAD_FIGURE_BYTES] = "bytes", [KVAD_FIGURE_MS] = "ms",
        [KVAD_FIGURE_RATIO] = "ratio", [KVAD_FIGURE_PERCENT] = "percent"};
    const size_t n_kinds = sizeof kinds / sizeof *kinds;
    for (const char *open; (open = strchr(words, '{'));) {
        char name[48], kind[8], path[64];
        int size = 0;
        size_t figure = 0;
        if (sscanf(open, "{%47[^ ] %7[a-z]}%n", name, kind, &size) != 2 || !size) break;
        while (figure < n_kinds && (!kinds[figure] || strcmp(kinds[figure], kind) != 0))
            figure++;
        if (figure == n_kinds) break;
        kvad_html_bytes(html, words, (size_t)(open - words));
        snprintf(path, sizeof path, "summary.%s", name);
        kvad_page_figure(html, report, path, (enum kvad_figure)figure);
        words = open + size;
    }
    kvad_html_raw(html, words); /* the rest: of a mistake, with its brace, which a test looks for */
}

void kvad_page_table(struct kvad_html *html, const json_t *report, const char *id) {
    for (unsigned i = 0; kvad_report_table(i); i++)
        if (strcmp(kvad_report_table(i)->id, id) == 0)
            kvad_table_add_html(html, kvad_report_table(i), report);
}

static void add_header(struct kvad_html *html, const json_t *report) {
    char cores[KVAD_FIGURE_SIZE], memory[KVAD_FIGURE_SIZE], day[11];
    snprintf(day, sizeof day, "%s", kvad_table_string(report, "created", "no date"));
    kvad_html_add(html, "<header>\n<h1>Lab report on <bdi>%s</bdi></h1>\n",
                  kvad_table_string(report, "model.name", "a model without a name"));
    kvad_html_add(
        html, "<p>%s, %s cores, %s of memory · kvad %s, %s kernels · %s%s</p>\n",
        kvad_table_string(report, "machine.cpu", "unknown CPU"),
        kvad_figure(KVAD_FIGURE_COUNT, kvad_table_number(report, "machine.cores"), cores),
        kvad_figure(KVAD_FIGURE_BYTES, kvad_table_number(report, "machine.memory_bytes"), memory),
        kvad_table_string(report, "version", "?"), kvad_table_string(report, "engine.cpu", "?"),
        day, json_is_true(kvad_table_get(report, "options.quick")) ? " · quick run" : "");
    kvad_html_raw(html, "</header>\n");
}

static void add_navigation(struct kvad_html *html, const json_t *report) {
    static const char *const sections[3][3] = {{"parts.verify", "correctness", "Correctness"},
                                               {"parts.latency", "latency", "Latency"},
                                               {"parts.memory", "memory", "Memory"}};
    kvad_html_raw(html, "<nav aria-label=\"Sections\">");
    for (size_t i = 0; i < 3; i++)
        if (json_is_object(kvad_table_get(report, sections[i][0])))
            kvad_html_add(html, "<a href=\"#%s\">%s</a>", sections[i][1], sections[i][2]);
    kvad_html_raw(html, "<a href=\"#method\">How it was measured</a></nav>\n");
}

/* Links to the files beside the page. */
static void add_files(struct kvad_html *html, const json_t *report) {
    kvad_html_raw(html, "<p>All numbers: <a href=\"report.json\">report.json</a>; as tables:");
    for (unsigned i = 0; kvad_report_table(i); i++) {
        const struct kvad_table *table = kvad_report_table(i);
        if (!kvad_table_rows(table, report)) continue;
        kvad_html_add(html, " <a href=\"csv/%s.csv\">%s</a>", table->id, table->id);
    }
    kvad_html_raw(html, "</p>\n");
}

void kvad_page_method(struct kvad_html *html, const json_t *report) {
    kvad_html_raw(html, "<section id=\"method\">\n<h2>How it was measured</h2>\n");
    kvad_page_table(html, report, "model");
    kvad_page_table(html, report, "machine");
    kvad_page_table(html, report, "options");
    kvad_html_raw(html, "<p class=\"note\">Times are medians of samples taken in turns, so that a "
                        "change of the machine's speed meets all of them. Formulas and their "
                        "sources: docs/benchmarks.md, docs/latency.md and docs/memory.md of "
                        "kvad.</p>\n");
    add_files(html, report);
    kvad_html_raw(html, "</section>\n");
}

void kvad_report_page(struct kvad_html *html, const json_t *report) {
    char title[256];
    snprintf(title, sizeof title, "kvad lab: %s", kvad_table_string(report, "model.name", "?"));
    kvad_page_open(html, title);
    add_header(html, report);
    kvad_html_raw(html, "<main>\n");
    kvad_page_answers(html, report);
    add_navigation(html, report);
    kvad_page_correctness(html, report);
    kvad_page_latency(html, report);
    kvad_page_memory(html, report);
    kvad_page_method(html, report);
    kvad_html_raw(html, "</main>\n");
    kvad_page_close(html);
}
