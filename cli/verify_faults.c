#include "cli/verify_faults.h"

#include "cli/streams.h"

#ifndef KVAD_FAULTS

int cli_verify_faults(const struct cli_settings *settings) {
    (void)settings;
    cli_say("this program was built without the seeded faults; `make verify-faults` builds one "
            "that has them (cmake -DKVAD_FAULTS=ON) and runs it");
    return CLI_EXIT_UNSUPPORTED;
}

#else

#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/session.h"
#include "lab/fault_matrix.h"

/* The article's fault, and the test that most caches are shipped with. */
static const char first_fault[] = "reversed-append", classic[] = "classic";

struct trying {
    const struct cli_settings *settings;
    struct cli_progress progress;
};

static bool report(void *user, size_t n_done, size_t n_rows) {
    struct trying *trying = user;
    return cli_progress_show(&trying->progress, "[%zu/%zu] faults", n_done, n_rows);
}

/* ---------------------------------------------------------------- for people */

static const char signs[KVAD_TRIAL_COUNT] = {
    [KVAD_TRIAL_SKIPPED] = ' ', [KVAD_TRIAL_UNREACHED] = '.', [KVAD_TRIAL_MISSED] = '-',
    [KVAD_TRIAL_CAUGHT] = 'x',  [KVAD_TRIAL_CRASHED] = '!',   [KVAD_TRIAL_TIMED_OUT] = 'T',
};

enum { NAME_WIDTH = 27 };

/* Names of the checks from top to bottom, so that a column is two characters wide. */
static void print_head(const struct kvad_matrix *matrix) {
    size_t height = 0;
    for (size_t c = 0; c < matrix->n_checks; c++) {
        size_t size = strlen(matrix->checks[c]->name);
        height = size > height ? size : height;
    }
    for (size_t line = 0; line < height; line++) {
        char text[2 * KVAD_VERIFY_CHECKS + 1];
        size_t end = 0;
        for (size_t c = 0; c < matrix->n_checks; c++) {
            size_t size = strlen(matrix->checks[c]->name), above = height - size;
            text[2 * c] = ' ';
            text[2 * c + 1] = line >= above ? matrix->checks[c]->name[line - above] : ' ';
            if (text[2 * c + 1] != ' ') end = 2 * c + 2;
        }
        printf("%*s%.*s\n", NAME_WIDTH, "", (int)end, text);
    }
}

static void print_rows(const struct kvad_matrix *matrix) {
    const char *area = "";
    for (size_t i = 0; i < matrix->n_rows; i++) {
        const struct kvad_matrix_row *row = &matrix->rows[i];
        if (strcmp(area, row->area) != 0) printf("%s\n", row->area);
        area = row->area;
        printf("  %-*s", NAME_WIDTH - 2, row->name);
        for (size_t c = 0; c < matrix->n_checks; c++)
            printf(" %c", signs[row->trials[c]]);
        printf("  %2u%s\n", row->n_caught, kvad_matrix_row_is_good(row) ? "" : "  <- too few");
    }
}

/* Names of the faults whose trial in a column is `trial`, in lines of at most 100 characters. */
static void print_names(const struct kvad_matrix *matrix, size_t column, enum kvad_trial trial) {
    size_t width = 0;
    for (size_t i = 0; i < matrix->n_rows; i++) {
        const struct kvad_matrix_row *row = &matrix->rows[i];
        if (row->trials[column] != trial) continue;
        size_t size = strlen(row->name) + 1;
        if (width > 0 && width + size > 100) {
            putchar('\n');
            width = 0;
        }
        printf(" %s", row->name);
        width += size;
    }
    putchar('\n');
}

static size_t count(const struct kvad_matrix *matrix, size_t column, enum kvad_trial trial) {
    size_t n = 0;
    for (size_t i = 0; i < matrix->n_rows; i++)
        n += matrix->rows[i].trials[column] == trial;
    return n;
}

static void print_classic(const struct kvad_matrix *matrix) {
    size_t column = kvad_matrix_column(matrix, classic);
    if (column == matrix->n_checks) return;
    size_t n_caught = count(matrix, column, KVAD_TRIAL_CAUGHT);
    size_t n_missed = count(matrix, column, KVAD_TRIAL_MISSED);
    printf("\nThe classic test alone (%s)\ncatches %zu of %zu faults. It comes to the place of %zu "
           "others and passes:\n",
           matrix->checks[column]->compares, n_caught, matrix->n_rows, n_missed);
    print_names(matrix, column, KVAD_TRIAL_MISSED);
}

/* How the article's fault fares. */
static void print_first(const struct kvad_matrix *matrix) {
    for (size_t i = 0; i < matrix->n_rows; i++) {
        const struct kvad_matrix_row *row = &matrix->rows[i];
        if (strcmp(row->name, first_fault) != 0) continue;
        printf("\n%s (%s): caught by %u checks, missed by", row->name, row->meaning, row->n_caught);
        for (size_t c = 0; c < matrix->n_checks; c++)
            if (row->trials[c] == KVAD_TRIAL_MISSED) printf(" %s", matrix->checks[c]->name);
        puts(row->n_caught == matrix->n_checks ? " none" : "");
    }
}

static size_t count_good(const struct kvad_matrix *matrix) {
    size_t n = 0;
    for (size_t i = 0; i < matrix->n_rows; i++)
        n += kvad_matrix_row_is_good(&matrix->rows[i]);
    return n;
}

static void print_matrix(const struct kvad_matrix *matrix) {
    printf("%zu faults, %zu checks: x caught, - missed, . not reached, ! crashed, T not ended\n\n",
           matrix->n_rows, matrix->n_checks);
    print_head(matrix);
    print_rows(matrix);
    print_first(matrix);
    print_classic(matrix);
    printf("\n%zu of %zu faults are caught by %d checks at least, without a crash; %.0f s\n",
           count_good(matrix), matrix->n_rows, KVAD_MATRIX_ENOUGH, matrix->seconds);
}

/* ---------------------------------------------------------------- JSON */

/* Names of the checks that did so with a fault. */
static json_t *names_json(const struct kvad_matrix *matrix, const struct kvad_matrix_row *row,
                          enum kvad_trial trial) {
    json_t *names = json_array();
    for (size_t c = 0; names && c < matrix->n_checks; c++)
        if (row->trials[c] == trial)
            json_array_append_new(names, json_string(matrix->checks[c]->name));
    return names;
}

static json_t *row_json(const struct kvad_matrix *matrix, const struct kvad_matrix_row *row) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                     row->name, "area", row->area, "meaning", row->meaning, "report", row->report,
                     "kv", kvad_kv_type_name(row->kv), "good", kvad_matrix_row_is_good(row),
                     "reached", (json_int_t)row->reached, "caught_by",
                     names_json(matrix, row, KVAD_TRIAL_CAUGHT), "missed_by",
                     names_json(matrix, row, KVAD_TRIAL_MISSED), "crashed_in",
                     names_json(matrix, row, KVAD_TRIAL_CRASHED), "not_ended_in",
                     names_json(matrix, row, KVAD_TRIAL_TIMED_OUT), "skipped_in",
                     names_json(matrix, row, KVAD_TRIAL_SKIPPED));
}

static int print_json(const struct kvad_matrix *matrix) {
    json_t *checks = json_array(), *faults = json_array();
    for (size_t c = 0; checks && c < matrix->n_checks; c++)
        json_array_append_new(checks, json_pack("{s:s, s:s}", "name", matrix->checks[c]->name,
                                                "compares", matrix->checks[c]->compares));
    for (size_t i = 0; faults && i < matrix->n_rows; i++)
        json_array_append_new(faults, row_json(matrix, &matrix->rows[i]));
    return cli_json_print(json_pack("{s:i, s:s, s:o, s:o, s:I, s:f}", "schema", 1, "version",
                                    kvad_version(), "checks", checks, "faults", faults, "good",
                                    (json_int_t)count_good(matrix), "seconds", matrix->seconds));
}

/* ---------------------------------------------------------------- all of it */

static int print(const struct trying *trying, const struct kvad_matrix *matrix) {
    if (matrix->is_void) {
        cli_say("the matrix is void: %s", matrix->void_why);
        return CLI_EXIT_FAILURE;
    }
    int status = CLI_EXIT_OK;
    if (trying->settings->json)
        status = print_json(matrix);
    else
        print_matrix(matrix);
    if (status == CLI_EXIT_OK) status = cli_flush_output();
    if (status == CLI_EXIT_OK && count_good(matrix) < matrix->n_rows) status = CLI_EXIT_FAILURE;
    return status;
}

int cli_verify_faults(const struct cli_settings *settings) {
    struct trying trying = {settings, cli_progress_of(settings)};
    struct kvad_matrix_options options = {
        .n_jobs = (unsigned)settings->n_threads, .report = report, .user = &trying};
    struct kvad_matrix matrix;
    struct kvad_error err = {0};
    cli_catch_interrupt();
    enum kvad_status result = kvad_matrix_run(&options, &matrix, &err);
    cli_progress_clear(&trying.progress);
    int status = result == KVAD_OK ? print(&trying, &matrix) : cli_fail(&err);
    kvad_matrix_deinit(&matrix);
    return status;
}

#endif
