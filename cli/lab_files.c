/* The files of a report, and what a terminal shows of it. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/lab.h"
#include "cli/streams.h"
#include "lab/report.h"
#include "lab/store.h"

enum { PATH_BYTES = 4096 };

int cli_lab_fail(const struct kvad_error *err) {
    int status = cli_fail(err);
    /* Files of the report are not the model: its exit codes would mislead. */
    return status == CLI_EXIT_MODEL || status == CLI_EXIT_USAGE ? CLI_EXIT_FAILURE : status;
}

typedef void page_fn(struct kvad_html *html, const json_t *document);
typedef const struct kvad_table *table_fn(unsigned index);

/* Where the two documents lie. */
struct layout {
    const char *json, *page;
    const char *prefix; /* of the names of CSV files */
    page_fn *add_page;
    table_fn *table;
};
static const struct layout report_layout = {"report.json", "report.html", "csv/", kvad_report_page,
                                            kvad_report_table};
static const struct layout comparison_layout = {"compare.json", "compare.html", "csv/compare-",
                                                kvad_compare_page, kvad_compare_table};

static enum kvad_status write_text(const char *folder, const char *name, struct kvad_html *text,
                                   struct kvad_error *err) {
    enum kvad_status status;
    if (text->failed) {
        err->status = status = KVAD_ERR_NO_MEMORY;
        snprintf(err->text, sizeof err->text, "out of memory: writing %s", name);
    } else {
        status = kvad_store_write(folder, name, text->bytes ? text->bytes : "", text->size, err);
    }
    kvad_html_deinit(text);
    return status;
}

static enum kvad_status write_tables(const char *folder, const struct layout *layout,
                                     const json_t *document, struct kvad_heap *heap,
                                     struct kvad_error *err) {
    const struct kvad_table *table;
    for (unsigned i = 0; (table = layout->table(i)); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s.csv", layout->prefix, table->id);
        if (!kvad_table_rows(table, document)) {
            kvad_store_remove(folder, name);
            continue;
        }
        struct kvad_html text;
        kvad_html_init(&text, heap);
        kvad_table_add_csv(&text, table, document);
        enum kvad_status status = write_text(folder, name, &text, err);
        if (status != KVAD_OK) return status;
    }
    return KVAD_OK;
}

/* The page last: it links to the others. */
static int write_document(const char *folder, const struct layout *layout, const json_t *document) {
    char csv[PATH_BYTES];
    struct kvad_error err = {0};
    struct kvad_heap heap;
    struct kvad_html page;
    kvad_heap_init(&heap, NULL);
    snprintf(csv, sizeof csv, "%s/csv", folder);
    enum kvad_status status = kvad_store_make_folder(csv, &err);
    if (status == KVAD_OK) status = kvad_store_write_json(folder, layout->json, document, &err);
    if (status == KVAD_OK) status = write_tables(folder, layout, document, &heap, &err);
    if (status == KVAD_OK) {
        kvad_html_init(&page, &heap);
        layout->add_page(&page, document);
        status = write_text(folder, layout->page, &page, &err);
    }
    return status == KVAD_OK ? CLI_EXIT_OK : cli_lab_fail(&err);
}

int cli_lab_write(const char *folder, const json_t *report) {
    return write_document(folder, &report_layout, report);
}

int cli_lab_write_comparison(const char *folder, const json_t *comparison) {
    return write_document(folder, &comparison_layout, comparison);
}

int cli_lab_read(const char *path, json_t **out) {
    char inside[PATH_BYTES];
    struct stat st;
    struct kvad_error err = {0};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(inside, sizeof inside, "%s/report.json", path);
        path = inside;
    }
    enum kvad_status status = kvad_store_read_json(path, out, &err);
    if (status == KVAD_OK) status = kvad_report_check(*out, path, &err);
    if (status == KVAD_OK) status = kvad_report_summarise(*out, &err);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_lab_fail(&err);
}

/* ---- for people */

static const char *shown(const json_t *document, const char *path, enum kvad_figure figure,
                         char out[KVAD_FIGURE_SIZE]) {
    return kvad_figure(figure, kvad_table_number(document, path), out);
}

static void print_correct(const json_t *report) {
    char passed[KVAD_FIGURE_SIZE], failed[KVAD_FIGURE_SIZE], error[KVAD_FIGURE_SIZE];
    const char *verdict = kvad_table_string(report, "summary.correct.verdict", NULL);
    if (!verdict) {
        puts("correct  not measured");
        return;
    }
    printf("correct  %s: %s checks pass, %s fail; largest error of the logits %s\n",
           strcmp(verdict, "pass") == 0 ? "yes" : "no",
           shown(report, "summary.correct.passed", KVAD_FIGURE_COUNT, passed),
           shown(report, "summary.correct.failed", KVAD_FIGURE_COUNT, failed),
           shown(report, "summary.correct.max_error", KVAD_FIGURE_ERROR, error));
    const char *why = kvad_table_string(report, "summary.correct.first_failure", NULL);
    if (!why) return;
    fputs("         ", stdout);
    cli_print_escaped(stdout, why, strlen(why));
    putchar('\n');
}

void cli_lab_print(const json_t *report) {
    char a[KVAD_FIGURE_SIZE], b[KVAD_FIGURE_SIZE], c[KVAD_FIGURE_SIZE], d[KVAD_FIGURE_SIZE];
    print_correct(report);
    printf("faster   %s: %s tokens in %s with the cache, %s without",
           shown(report, "summary.latency.times_faster", KVAD_FIGURE_RATIO, a),
           shown(report, "summary.latency.n_tokens", KVAD_FIGURE_COUNT, b),
           shown(report, "summary.latency.cached_ms", KVAD_FIGURE_MS, c),
           shown(report, "summary.latency.naive_ms", KVAD_FIGURE_MS, d));
    printf("; the last step saves %s of the operations, %s of the bytes\n",
           shown(report, "summary.latency.flop_ratio", KVAD_FIGURE_RATIO, a),
           shown(report, "summary.latency.byte_ratio", KVAD_FIGURE_RATIO, b));
    printf("memory   %s of cache at %s tokens",
           shown(report, "summary.memory.cache_bytes", KVAD_FIGURE_BYTES, a),
           shown(report, "summary.memory.n_tokens", KVAD_FIGURE_COUNT, b));
    printf("; the formula is exact at %s of %s checkpoints\n",
           shown(report, "summary.memory.n_exact", KVAD_FIGURE_COUNT, a),
           shown(report, "summary.memory.n_checkpoints", KVAD_FIGURE_COUNT, b));
}

/* A column of this many letters, at the right; a letter may be several bytes. */
static void print_right(const char *text, size_t width) {
    size_t letters = 0;
    for (const char *c = text; *c; c++)
        letters += ((unsigned char)*c & 0xC0) != 0x80;
    printf("%*s%s", letters < width ? (int)(width - letters) : 0, "", text);
}

void cli_lab_print_comparison(const json_t *comparison) {
    const json_t *figures = kvad_table_get(comparison, "figures");
    const json_t *changes = kvad_table_get(comparison, "changes");
    printf("%-40s%14s%14s%10s\n", "figure", "A", "B", "B / A");
    for (size_t i = 0; i < json_array_size(figures); i++) {
        const json_t *row = json_array_get(figures, i);
        enum kvad_figure unit = kvad_table_figure(kvad_table_string(row, "unit", ""));
        char text[KVAD_FIGURE_SIZE];
        printf("%-40s", kvad_table_string(row, "name", "?"));
        print_right(shown(row, "a", unit, text), 14);
        print_right(shown(row, "b", unit, text), 14);
        print_right(shown(row, "ratio", KVAD_FIGURE_RATIO, text), 10);
        putchar('\n');
    }
    puts(json_array_size(changes) ? "\nwhat else differs"
                                  : "\nmachine, version, model and options are the same");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        static const char *const members[] = {"what", "a", "b"};
        for (size_t m = 0; m < 3; m++) {
            const char *text = kvad_table_string(json_array_get(changes, i), members[m], "-");
            fputs(m == 0 ? "  " : m == 1 ? ": " : " -> ", stdout);
            cli_print_escaped(stdout, text, strlen(text));
        }
        putchar('\n');
    }
}
