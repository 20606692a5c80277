/* What a reader sees first: is it correct, how much faster and why not more, how many bytes and
 * where they are. */
#include <math.h>
#include <string.h>

#include "lab/report_internal.h"

static bool is_number(const json_t *report, const char *path) {
    return isfinite(kvad_table_number(report, path));
}

static void open_answer(struct kvad_html *html, const char *question, const char *class) {
    kvad_html_add(html, "<article class=\"answer %s\">\n<h2>%s</h2>\n<p class=\"big\">", class,
                  question);
}

static void missing(struct kvad_html *html) {
    kvad_html_raw(html, "not measured</p>\n</article>\n");
}

static void add_error(struct kvad_html *html, const json_t *report) {
    if (!is_number(report, "summary.correct.max_error")) return;
    kvad_page_words(
        html, report,
        "<p>Against a second forward pass in double precision, which shares no code with the "
        "engine, the logits are off by {correct.max_error error} of their size at most");
    if (is_number(report, "summary.correct.error_bound"))
        kvad_page_words(html, report, " (allowed: {correct.error_bound error})");
    kvad_html_raw(html, ".</p>\n");
}

static void answer_correct(struct kvad_html *html, const json_t *report) {
    const char *verdict = kvad_table_string(report, "summary.correct.verdict", "");
    bool is_pass = strcmp(verdict, "pass") == 0;
    open_answer(html, "Is it correct?", is_pass ? "pass" : *verdict ? "fail" : "none");
    if (!*verdict) {
        missing(html);
        return;
    }
    if (is_pass) {
        kvad_page_words(html, report,
                        "Yes <small>{correct.passed count} checks pass</small></p>\n"
                        "<p>With the cache, without it, in any chunks and batches: the same bits. "
                        "{correct.compared count} numbers were compared.</p>\n");
    } else {
        kvad_page_words(html, report,
                        "No <small>{correct.passed count} checks pass, {correct.failed count} "
                        "fail</small></p>\n");
        kvad_html_add(html, "<p class=\"fail\">First failure: %s</p>\n",
                      kvad_table_string(report, "summary.correct.first_failure", "unknown"));
    }
    add_error(html, report);
    kvad_html_raw(html, "</article>\n");
}

/* "Of a step, 61 % is weights, ...": the three largest shares. */
static void add_shares(struct kvad_html *html, const json_t *report) {
    static const char *const paths[3] = {"summary.latency.shares.0", "summary.latency.shares.1",
                                         "summary.latency.shares.2"};
    for (int i = 0; i < 3; i++) {
        const json_t *share = kvad_table_get(report, paths[i]);
        char text[KVAD_FIGURE_SIZE];
        if (!isfinite(kvad_table_number(share, "percent"))) break;
        kvad_html_add(html, "%s%s %s", i == 0 ? " The step's time: " : ", ",
                      kvad_table_string(share, "name", "?"),
                      kvad_figure(KVAD_FIGURE_PERCENT, kvad_table_number(share, "percent"), text));
        if (i == 2) kvad_html_raw(html, ".");
    }
}

/* Failed controls: the parts, or the machine, are not what the numbers above take them for. */
static void add_controls(struct kvad_html *html, const json_t *report) {
    if (!(kvad_table_number(report, "summary.latency.controls_failed") > 0)) return;
    kvad_page_words(html, report,
                    "<p class=\"warn\">{latency.controls_failed count} of {latency.n_controls "
                    "count} controls fail: the machine was busy, or the parts are wrong.</p>\n");
}

static void answer_latency(struct kvad_html *html, const json_t *report) {
    open_answer(html, "How much faster, and why not more?", "none");
    if (!is_number(report, "summary.latency.times_faster")) {
        missing(html);
        return;
    }
    kvad_page_words(
        html, report,
        "{latency.times_faster ratio} <small>for {latency.n_tokens count} tokens</small></p>\n"
        "<p>{latency.naive_ms ms} without a cache, {latency.cached_ms ms} with it");
    if (json_is_false(kvad_table_get(report, "summary.latency.naive_is_measured")))
        kvad_html_raw(html, "; the former is extrapolated from the measured curve");
    kvad_html_raw(html, ".</p>\n");
    if (is_number(report, "summary.latency.flop_ratio")) {
        kvad_page_words(html, report,
                        "<p>Not {latency.flop_ratio ratio}, as the operations of the last step "
                        "would have it: with one token at a time all weights are read for that "
                        "token alone, and the bytes fall only {latency.byte_ratio ratio}.");
        add_shares(html, report);
        kvad_html_raw(html, "</p>\n");
        add_controls(html, report);
    }
    kvad_html_raw(html, "</article>\n");
}

static void answer_memory(struct kvad_html *html, const json_t *report) {
    open_answer(html, "How many bytes, and where are they?", "none");
    if (!is_number(report, "summary.memory.token_bytes")) {
        missing(html);
        return;
    }
    kvad_page_words(
        html, report,
        "{memory.cache_bytes bytes} <small>of cache at {memory.n_tokens count} tokens</small></p>\n"
        "<p>{memory.token_bytes bytes} per token. Requested memory equals the formula at "
        "{memory.n_exact count} of {memory.n_checkpoints count} checkpoints.</p>\n");
    if (is_number(report, "summary.memory.explained_percent")) {
        kvad_page_words(html, report,
                        "<p>Of the process's resident memory {memory.explained_percent percent} "
                        "has a named owner");
        for (size_t i = 0; i < 3; i++) {
            const json_t *owner =
                json_array_get(kvad_table_get(report, "summary.memory.owners"), i);
            char text[KVAD_FIGURE_SIZE];
            if (!isfinite(kvad_table_number(owner, "resident"))) break;
            kvad_html_add(
                html, "%s%s %s", i == 0 ? ": " : ", ", kvad_table_string(owner, "name", "?"),
                kvad_figure(KVAD_FIGURE_BYTES, kvad_table_number(owner, "resident"), text));
        }
        kvad_html_raw(html, ".</p>\n");
    }
    kvad_html_raw(html, "</article>\n");
}

void kvad_page_answers(struct kvad_html *html, const json_t *report) {
    kvad_html_raw(html, "<section class=\"answers\" aria-label=\"Summary\">\n");
    answer_correct(html, report);
    answer_latency(html, report);
    answer_memory(html, report);
    kvad_html_raw(html, "</section>\n");
}
