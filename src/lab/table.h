/* Tables declared once and written twice: in the page for people, as CSV for programs. The rows are
 * where a path of the report's JSON leads. */
#ifndef KVAD_LAB_TABLE_H
#define KVAD_LAB_TABLE_H

#include <jansson.h>

#include "lab/figures.h"
#include "lab/html.h"

enum kvad_cell {
    KVAD_CELL_TEXT,
    KVAD_CELL_NAME,    /* of an option, policy or check: in the font of code */
    KVAD_CELL_VERDICT, /* "pass", "fail", "skip"; true is pass, false fail */
    KVAD_CELL_FIGURE,  /* a number, as `figure` says */
    KVAD_CELL_UNIT, /* a number, as the row's member "unit" says: "bytes", "ms", "ratio", "percent",
                          "error", "count" */
    KVAD_CELL_VALUE /* any scalar, as it is */
};

struct kvad_column {
    const char *key;  /* path in the row: "ms" or "stats.median"; "@" is the name of a row that is a
                         member of an object, "." the row itself */
    const char *head; /* for people, with the unit */
    enum kvad_cell cell;
    enum kvad_figure figure;
};

struct kvad_table {
    const char *id; /* of the element, and the CSV file's name without ".csv" */
    const char *caption;
    const char *path; /* of an array or an object in the report */
    const struct kvad_column *columns;
    size_t n_columns;
    bool is_folded; /* long ones: closed until the reader opens it */
};

/** What a path of names with points between them leads to ("latency.decode"), borrowed; NULL where
 * it leads nowhere. Names of arrays' elements are their indices. */
const json_t *kvad_table_get(const json_t *root, const char *path);
/** The same as a number; NaN where there is none. */
double kvad_table_number(const json_t *root, const char *path);
/** The same as a text, borrowed; `otherwise` where there is none. */
const char *kvad_table_string(const json_t *root, const char *path, const char *otherwise);

/** How numbers of a unit ("bytes", "ms", "ratio", "percent", "error", "count") are shown. */
enum kvad_figure kvad_table_figure(const char *unit);

/** Rows that the table has in this report. */
size_t kvad_table_rows(const struct kvad_table *table, const json_t *report);

/** Append the table as HTML in a container that scrolls by itself; nothing when it has no rows. A
 * column whose cells are all absent is left out. */
void kvad_table_add_html(struct kvad_html *html, const struct kvad_table *table,
                         const json_t *report);

/** Append the table as CSV (RFC 4180, but lines end with \n): a line of the columns' keys, numbers
 * in full, null and absent cells empty. A text that a spreadsheet would compute (it begins with
 * = + - @ or a tab) gets a ' before it. */
void kvad_table_add_csv(struct kvad_html *text, const struct kvad_table *table,
                        const json_t *report);

#endif
