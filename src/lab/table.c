#include "lab/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 4096, MAX_NAME = 128 };

/* One name of a path. */
static const json_t *member(const json_t *value, const char *name, size_t size) {
    char key[MAX_NAME];
    if (size >= sizeof key) return NULL;
    memcpy(key, name, size);
    key[size] = 0;
    if (!json_is_array(value)) return json_object_get(value, key);
    char *end;
    unsigned long index = strtoul(key, &end, 10);
    return *end || !size ? NULL : json_array_get(value, index);
}

const json_t *kvad_table_get(const json_t *root, const char *path) {
    if (strcmp(path, ".") == 0) return root;
    while (root && *path) {
        size_t size = strcspn(path, ".");
        root = member(root, path, size);
        path += size + (path[size] == '.');
    }
    return root;
}

double kvad_table_number(const json_t *root, const char *path) {
    const json_t *value = kvad_table_get(root, path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *kvad_table_string(const json_t *root, const char *path, const char *otherwise) {
    const json_t *value = kvad_table_get(root, path);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

/* Goes over the elements of an array or an object. */
struct rows {
    json_t *all;
    void *member; /* of an object */
    size_t index;
    const char *name; /* of a member; NULL */
    const json_t *row;
};

static struct rows rows_of(const struct kvad_table *table, const json_t *report) {
    /* jansson's iterator wants a json_t, which it does not change. */
    return (struct rows){.all = (json_t *)(uintptr_t)kvad_table_get(report, table->path)};
}

static bool next_row(struct rows *rows) {
    if (rows->index >= MAX_ROWS) return false;
    if (json_is_array(rows->all)) {
        rows->row = json_array_get(rows->all, rows->index);
    } else if (json_is_object(rows->all)) {
        rows->member = rows->index ? json_object_iter_next(rows->all, rows->member)
                                   : json_object_iter(rows->all);
        rows->name = rows->member ? json_object_iter_key(rows->member) : NULL;
        rows->row = rows->member ? json_object_iter_value(rows->member) : NULL;
    }
    rows->index++;
    return rows->row != NULL;
}

size_t kvad_table_rows(const struct kvad_table *table, const json_t *report) {
    struct rows rows = rows_of(table, report);
    size_t n = 0;
    while (next_row(&rows))
        n++;
    return n;
}

static bool is_name(const struct kvad_column *column) {
    return strcmp(column->key, "@") == 0;
}

/* A scalar other than null and the empty text, or NULL. */
static const json_t *cell_of(const struct rows *rows, const struct kvad_column *column) {
    const json_t *value = kvad_table_get(rows->row, column->key);
    bool is_empty = json_is_string(value) && !*json_string_value(value);
    return is_empty || json_is_null(value) || json_is_array(value) || json_is_object(value) ? NULL
                                                                                            : value;
}

static bool is_used(const struct kvad_table *table, const json_t *report,
                    const struct kvad_column *column) {
    struct rows rows = rows_of(table, report);
    while (next_row(&rows))
        if (is_name(column) ? rows.name != NULL : cell_of(&rows, column) != NULL) return true;
    return false;
}

/* Sentences get room on a narrow page, where the table scrolls. */
enum { LONG_TEXT = 24 };

static void add_text(struct kvad_html *html, const struct kvad_column *column, const char *text) {
    if (column->cell == KVAD_CELL_NAME)
        kvad_html_add(html, "<td><code>%s</code></td>", text);
    else if (strlen(text) >= LONG_TEXT)
        kvad_html_add(html, "<td class=\"long\">%s</td>", text);
    else
        kvad_html_add(html, "<td>%s</td>", text);
}

static void add_verdict(struct kvad_html *html, const json_t *value) {
    const char *word = json_is_string(value) ? json_string_value(value)
                       : json_is_true(value) ? "pass"
                                             : "fail";
    const char *mark = strcmp(word, "pass") == 0 ? "✓" : strcmp(word, "fail") == 0 ? "✗" : "–";
    const char *class = strcmp(word, "pass") == 0   ? "pass"
                        : strcmp(word, "fail") == 0 ? "fail"
                                                    : "skip";
    kvad_html_add(html, "<td class=\"%s\"><span aria-hidden=\"true\">%s</span> %s</td>", class,
                  mark, word);
}

static bool is_number(const struct kvad_column *column) {
    return column->cell == KVAD_CELL_FIGURE || column->cell == KVAD_CELL_UNIT;
}

enum kvad_figure kvad_table_figure(const char *unit) {
    static const struct {
        const char *unit;
        enum kvad_figure figure;
    } units[] = {{"bytes", KVAD_FIGURE_BYTES}, {"ms", KVAD_FIGURE_MS},
                 {"ratio", KVAD_FIGURE_RATIO}, {"percent", KVAD_FIGURE_PERCENT},
                 {"error", KVAD_FIGURE_ERROR}, {"count", KVAD_FIGURE_COUNT}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].unit, unit) == 0) return units[i].figure;
    return KVAD_FIGURE_NUMBER;
}

static enum kvad_figure figure_of(const struct rows *rows, const struct kvad_column *column) {
    if (column->cell == KVAD_CELL_FIGURE) return column->figure;
    return kvad_table_figure(kvad_table_string(rows->row, "unit", ""));
}

static void add_cell(struct kvad_html *html, const struct rows *rows,
                     const struct kvad_column *column) {
    char text[KVAD_FIGURE_SIZE];
    const json_t *value = is_name(column) ? NULL : cell_of(rows, column);
    if (is_name(column)) {
        add_text(html, column, rows->name ? rows->name : "–");
    } else if (!value) {
        kvad_html_raw(html, is_number(column) ? "<td class=\"n\">–</td>" : "<td>–</td>");
    } else if (column->cell == KVAD_CELL_VERDICT) {
        add_verdict(html, value);
    } else if (json_is_string(value)) {
        add_text(html, column, json_string_value(value));
    } else if (json_is_boolean(value)) {
        add_text(html, column, json_is_true(value) ? "yes" : "no");
    } else if (is_number(column)) {
        kvad_html_add(html, "<td class=\"n\">%s</td>",
                      kvad_figure(figure_of(rows, column), json_number_value(value), text));
    } else {
        kvad_figure_exact(json_number_value(value), text);
        kvad_html_add(html, "<td class=\"n\">%s</td>", text);
    }
}

static void add_heads(struct kvad_html *html, const struct kvad_table *table, const bool *used) {
    kvad_html_raw(html, "<thead><tr>");
    for (size_t c = 0; c < table->n_columns; c++)
        if (used[c])
            kvad_html_add(html, "<th scope=\"col\" class=\"%s\">%s</th>",
                          is_number(&table->columns[c]) ? "n" : "t", table->columns[c].head);
    kvad_html_raw(html, "</tr></thead>\n<tbody>\n");
}

void kvad_table_add_html(struct kvad_html *html, const struct kvad_table *table,
                         const json_t *report) {
    enum { MAX_COLUMNS = 32 };
    bool used[MAX_COLUMNS] = {false};
    size_t n_rows = kvad_table_rows(table, report);
    if (!n_rows || table->n_columns > MAX_COLUMNS) return;
    for (size_t c = 0; c < table->n_columns; c++)
        used[c] = is_used(table, report, &table->columns[c]);
    if (table->is_folded)
        kvad_html_add(html, "<details><summary>%s (%zu row%s)</summary>\n", table->caption, n_rows,
                      n_rows == 1 ? "" : "s");
    else
        kvad_html_add(html, "<h3>%s</h3>\n", table->caption);
    kvad_html_add(html,
                  "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                  "<table id=\"%s\">\n",
                  table->caption, table->id);
    add_heads(html, table, used);
    struct rows rows = rows_of(table, report);
    while (next_row(&rows)) {
        kvad_html_raw(html, "<tr>");
        for (size_t c = 0; c < table->n_columns; c++)
            if (used[c]) add_cell(html, &rows, &table->columns[c]);
        kvad_html_raw(html, "</tr>\n");
    }
    kvad_html_raw(html, "</tbody></table></div>\n");
    if (table->is_folded) kvad_html_raw(html, "</details>\n");
}

static void add_csv_text(struct kvad_html *out, const char *text) {
    bool is_formula = strchr("=+-@\t", *text) && *text;
    if (!is_formula && !text[strcspn(text, ",\"\r\n")]) {
        kvad_html_raw(out, text);
        return;
    }
    kvad_html_raw(out, is_formula ? "\"'" : "\"");
    for (const char *quote; (quote = strchr(text, '"')); text = quote + 1) {
        kvad_html_bytes(out, text, (size_t)(quote - text));
        kvad_html_raw(out, "\"\"");
    }
    kvad_html_raw(out, text);
    kvad_html_raw(out, "\"");
}

static void add_csv_cell(struct kvad_html *out, const struct rows *rows,
                         const struct kvad_column *column) {
    char text[KVAD_FIGURE_SIZE];
    const json_t *value = is_name(column) ? NULL : cell_of(rows, column);
    if (is_name(column)) {
        add_csv_text(out, rows->name ? rows->name : "");
    } else if (json_is_string(value)) {
        add_csv_text(out, json_string_value(value));
    } else if (json_is_boolean(value)) {
        kvad_html_raw(out, json_is_true(value) ? "true" : "false");
    } else if (json_is_integer(value)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        kvad_html_raw(out, text);
    } else if (value) {
        kvad_figure_exact(json_number_value(value), text);
        kvad_html_raw(out, text);
    }
}

void kvad_table_add_csv(struct kvad_html *text, const struct kvad_table *table,
                        const json_t *report) {
    for (size_t c = 0; c < table->n_columns; c++) {
        if (c) kvad_html_raw(text, ",");
        add_csv_text(text, is_name(&table->columns[c])               ? "name"
                           : strcmp(table->columns[c].key, ".") == 0 ? "value"
                                                                     : table->columns[c].key);
    }
    kvad_html_raw(text, "\n");
    struct rows rows = rows_of(table, report);
    while (next_row(&rows)) {
        for (size_t c = 0; c < table->n_columns; c++) {
            if (c) kvad_html_raw(text, ",");
            add_csv_cell(text, &rows, &table->columns[c]);
        }
        kvad_html_raw(text, "\n");
    }
}
