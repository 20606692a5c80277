/* Pieces of the report's pages. */
#ifndef KVAD_LAB_REPORT_INTERNAL_H
#define KVAD_LAB_REPORT_INTERNAL_H

#include "lab/report.h"

extern const char kvad_report_style[];

/** From the first byte to the open <main>: title and style. */
void kvad_page_open(struct kvad_html *html, const char *title);
void kvad_page_close(struct kvad_html *html);

/** A figure of the summary in an element that says which and how much: <span data-figure="path"
 * data-value="exact">shown</span>. */
void kvad_page_figure(struct kvad_html *html, const json_t *report, const char *path,
                      enum kvad_figure figure);

/** Markup of our own with figures of the summary: "{latency.step_ms ms}" is kvad_page_figure() of
 * summary.latency.step_ms. Kinds: count, error, bytes, ms, ratio, percent. */
void kvad_page_words(struct kvad_html *html, const json_t *report, const char *words);

/** The table with this id. */
void kvad_page_table(struct kvad_html *html, const json_t *report, const char *id);

/* The page's parts in their order. */
void kvad_page_answers(struct kvad_html *html, const json_t *report);
void kvad_page_correctness(struct kvad_html *html, const json_t *report);
void kvad_page_latency(struct kvad_html *html, const json_t *report);
void kvad_page_memory(struct kvad_html *html, const json_t *report);
void kvad_page_method(struct kvad_html *html, const json_t *report);

#endif
