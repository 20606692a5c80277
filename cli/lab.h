/* kvad lab: a run over the three parts, and what it leaves in its folder. */
#ifndef KVAD_CLI_LAB_H
#define KVAD_CLI_LAB_H

#include <jansson.h>

#include "cli/session.h"

struct cli_lab {
    const struct cli_settings *settings;
    const char *name;   /* MODEL as the user wrote it */
    const char *folder; /* that receives the report */
    struct cli_session session;
    const char *part; /* that runs now */
    size_t index, n_parts;
    struct cli_progress progress;
};

/* A part of the report. */
struct cli_lab_part {
    const char *name; /* in report.parts */
    /* Measure. *out is the part's JSON, owned by the caller. Returns an exit code. */
    int (*run)(struct cli_lab *lab, json_t **out);
};
extern const struct cli_lab_part cli_lab_parts[]; /* ended by a NULL name */

/** A line of progress, "[1/3] verify: what 40 %", on a terminal alone; without the per cent where
 * `done` is below 0. False once Ctrl-C came. */
bool cli_lab_progress(struct cli_lab *lab, const char *what, double done);

/** Write report.json, csv/ and report.html from a report with its summary. Returns an exit code. */
int cli_lab_write(const char *folder, const json_t *report);
/** The same for a comparison: compare.json, compare-*.csv, compare.html. */
int cli_lab_write_comparison(const char *folder, const json_t *comparison);

/** Read a report: a file, or a folder with report.json. Returns an exit code; the caller owns *out,
 * which has its summary. */
int cli_lab_read(const char *path, json_t **out);

/** The main figures for people. */
void cli_lab_print(const json_t *report);
void cli_lab_print_comparison(const json_t *comparison);

/** Says why on stderr, as a failure of the report and not of the model; returns the exit code. */
int cli_lab_fail(const struct kvad_error *err);

#endif
