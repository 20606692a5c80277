/* The section on memory: the cache over the text's length, owners of the process's memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report_charts.h"

enum { MAX_POLICIES = 4, MAX_OWNERS = 24 };

/* The checkpoints of one policy in the first type of cache. */
struct run {
    const char *policy;
    struct kvad_page_series live; /* bytes held over tokens */
    const json_t *last;           /* the longest text */
};

static size_t read_runs(const json_t *points, struct run runs[MAX_POLICIES]) {
    const char *kv = kvad_table_string(json_array_get(points, 0), "kv", "");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        const char *policy = kvad_table_string(point, "policy", "?");
        if (strcmp(kvad_table_string(point, "kv", ""), kv) != 0) continue;
        size_t r = 0;
        while (r < n && strcmp(runs[r].policy, policy) != 0)
            r++;
        if (r == MAX_POLICIES) continue;
        if (r == n) runs[n++] = (struct run){.policy = policy};
        runs[r].last = point;
        kvad_page_add_point(point, "tokens", "requested", &runs[r].live);
    }
    return n;
}

static void add_cache(struct kvad_html *html, const json_t *points, const struct run *runs,
                      size_t n) {
    struct kvad_page_series rows = {.n = 0};
    struct kvad_series series[MAX_POLICIES + 1];
    for (size_t i = 0; i < n; i++)
        series[i] =
            (struct kvad_series){runs[i].policy, runs[i].live.points, runs[i].live.n, false};
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        if (n && strcmp(kvad_table_string(point, "policy", "?"), runs[0].policy) == 0)
            kvad_page_add_point(point, "tokens", "rows", &rows);
    }
    series[n] = (struct kvad_series){"T × token", rows.points, rows.n, true};
    kvad_line_chart_add(
        html, &(struct kvad_line_chart){
                  .title = "Bytes that a text holds in the cache",
                  .description = "Bytes held over the text's length for each policy, and tokens "
                                 "times the bytes of a token; the same numbers are in the table "
                                 "of checkpoints",
                  .x = {"tokens of the text", false, KVAD_FIGURE_COUNT},
                  .y = {"bytes held", false, KVAD_FIGURE_BYTES},
                  .series = series,
                  .n_series = n + 1});
}

struct owner {
    char name[48];
    double bytes[MAX_POLICIES], sum;
};

/* "step_buffers" is "step buffers" for people. */
static void copy_name(char out[48], const char *name) {
    snprintf(out, 48, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = ' ';
}

/* Owners of the last checkpoint of each policy, the largest first. */
static size_t read_owners(const struct run *runs, size_t n_runs, struct owner *owners) {
    size_t n = 0;
    for (size_t r = 0; r < n_runs; r++) {
        json_t *all = (json_t *)(uintptr_t)kvad_table_get(runs[r].last, "process.owners");
        for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
            double bytes = kvad_table_number(json_object_iter_value(i), "resident");
            char name[48];
            copy_name(name, json_object_iter_key(i));
            size_t o = 0;
            while (o < n && strcmp(owners[o].name, name) != 0)
                o++;
            if (o == MAX_OWNERS || !isfinite(bytes)) continue;
            if (o == n) {
                owners[n] = (struct owner){.sum = 0};
                memcpy(owners[n++].name, name, sizeof name);
            }
            owners[o].bytes[r] = bytes;
            owners[o].sum += bytes;
        }
    }
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && owners[j].sum > owners[j - 1].sum; j--) {
            struct owner held = owners[j];
            owners[j] = owners[j - 1];
            owners[j - 1] = held;
        }
    return n;
}

static void add_owners(struct kvad_html *html, const struct run *runs, size_t n_runs) {
    struct owner owners[MAX_OWNERS];
    const char *names[KVAD_CHART_COLOURS];
    double values[MAX_POLICIES][KVAD_CHART_COLOURS] = {{0}};
    struct kvad_bar bars[MAX_POLICIES];
    size_t n = read_owners(runs, n_runs, owners), n_parts = 0;
    for (size_t o = 0; o < n && owners[o].sum > 0; o++) {
        /* The small ones together are the last part. */
        bool is_rest = n > KVAD_CHART_COLOURS && o >= KVAD_CHART_COLOURS - 1;
        size_t part = is_rest ? KVAD_CHART_COLOURS - 1 : o;
        names[part] = is_rest ? "all others" : owners[o].name;
        n_parts = part + 1;
        for (size_t r = 0; r < n_runs; r++)
            values[r][part] += owners[o].bytes[r];
    }
    for (size_t r = 0; r < n_runs; r++)
        bars[r] = (struct kvad_bar){runs[r].policy, values[r]};
    kvad_bar_chart_add(html, &(struct kvad_bar_chart){
                                 .title = "Where the bytes of the process are, with a full context",
                                 .description = "Resident bytes by owner for each policy; those of "
                                                "the paged one are in the table of owners",
                                 .parts = names,
                                 .n_parts = n_parts,
                                 .bars = bars,
                                 .n_bars = n_runs,
                                 .figure = KVAD_FIGURE_BYTES,
                                 .is_share = false});
}

void kvad_page_memory(struct kvad_html *html, const json_t *report) {
    if (!json_is_object(kvad_table_get(report, "parts.memory"))) return;
    const json_t *points = kvad_table_get(report, "parts.memory.measured.checkpoints");
    struct run runs[MAX_POLICIES];
    size_t n = read_runs(points, runs);
    kvad_html_raw(html, "<section id=\"memory\">\n<h2>Memory</h2>\n");
    kvad_html_raw(html, "<p>The cache by its formula, as it was asked for from the allocator, and "
                        "as it lies in memory, at checkpoints over the context.</p>\n");
    add_cache(html, points, runs, n);
    kvad_page_table(html, report, "checkpoints");
    add_owners(html, runs, n);
    kvad_page_table(html, report, "owners");
    kvad_page_table(html, report, "naive");
    kvad_page_table(html, report, "offset");
    kvad_page_table(html, report, "roads");
    if (json_is_array(kvad_table_get(report, "parts.memory.roads.roads")))
        kvad_html_raw(html,
                      "<p>L layers (Lw with a window W), K kv heads, d elements of a head's key "
                      "or value, e bytes of an element, c and r elements of a latent and its "
                      "key, T tokens of a text, B of a block, g(n) = ceil(n/32). Windows and "
                      "paging count rows.</p>\n");
    kvad_html_raw(html, "</section>\n");
}
