/* The report of a run: one JSON document with everything, and what is made from it alone: a page
 * and tables as CSV. docs/lab.md names the members of the document. */
#ifndef KVAD_LAB_REPORT_H
#define KVAD_LAB_REPORT_H

#include "lab/html.h"
#include "lab/table.h"

/* What "kind" says in the two documents, and the "schema" that this code writes and reads. */
#define KVAD_REPORT_KIND  "kvad lab report"
#define KVAD_COMPARE_KIND "kvad lab comparison"
enum { KVAD_REPORT_SCHEMA = 1 };

/** Whether a document, which may come from anywhere, is a report that this code can show: kind,
 * schema, and the types of what stands at its top. KVAD_ERR_FORMAT says what is wrong; `name` is
 * the file. What lies deeper may be missing or of any type: it is shown as absent. */
enum kvad_status kvad_report_check(const json_t *report, const char *name, struct kvad_error *err);

/** Put the main figures into report.summary, from its parts alone; an older summary is replaced.
 * docs/lab.md says what each one is. KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_report_summarise(json_t *report, struct kvad_error *err);

/** Append the page, from a report with its summary. */
void kvad_report_page(struct kvad_html *html, const json_t *report);

/** The index-th table of a report; NULL after the last. */
const struct kvad_table *kvad_report_table(unsigned index);

/** Compare two reports with their summaries: {kind, schema, a, b, figures: [{name, unit, a, b,
 * ratio}], changes: [{what, a, b}]}. The caller owns the result; NULL when memory is out. */
json_t *kvad_report_compare(const json_t *a, const json_t *b);
/** Append the page of a comparison. */
void kvad_compare_page(struct kvad_html *html, const json_t *comparison);
/** Its tables, as above. */
const struct kvad_table *kvad_compare_table(unsigned index);

#endif
