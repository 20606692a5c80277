/* kvad lab: the whole experiment in one go, as a page, JSON and CSV. */
#include "cli/lab.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/streams.h"
#include "lab/machine_json.h"
#include "lab/report.h"
#include "lab/store.h"

static const struct cli_option lab_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .offset = CLI_AT(output),
     .value = "DIR",
     .no_variable = true,
     .known_as = "dir folder out",
     .help = "folder of the report: report.html, report.json, csv/"},
    CLI_QUICK_OPTION("a first look: fewer contexts, shorter samples"),
    CLI_FULL_OPTION("check correctness with long texts and all lengths: minutes on a large model"),
    {.name = "fresh",
     .kind = CLI_FLAG,
     .offset = CLI_AT(fresh),
     .no_variable = true,
     .known_as = "no-resume force again",
     .help = "measure again what an earlier run in DIR has finished"},
    CLI_SEED_OPTION("1", "other texts and lengths for the checks"),
    {.name = "from",
     .kind = CLI_FILE,
     .offset = CLI_AT(from),
     .value = "FILE",
     .no_variable = true,
     .known_as = "render input",
     .help = "make the page and the tables again from a report.json; measures nothing"},
    {.name = "compare",
     .kind = CLI_FLAG,
     .offset = CLI_AT(compare),
     .no_variable = true,
     .known_as = "diff against",
     .help = "compare two reports A and B, folders or report.json; measures nothing"},
    CLI_JSON_OPTION("the report, or the comparison, on standard output too"),
};
static const struct cli_group lab_group = {"Lab", lab_options, CLI_COUNT_OF(lab_options)};

static const struct cli_group *const groups[] = {&lab_group, &cli_model_group, &cli_machine_group,
                                                 &cli_messages_group, NULL};

bool cli_lab_progress(struct cli_lab *lab, const char *what, double done) {
    char percent[16] = "";
    if (done >= 0) snprintf(percent, sizeof percent, " %3.0f %%", 100 * done);
    return cli_progress_show(&lab->progress, "[%zu/%zu] %s: %s%s", lab->index, lab->n_parts,
                             lab->part, what, percent);
}

/* ---- what the report says beside its parts */

static json_t *text_json(const char *text) {
    return cli_json_string(text, strlen(text));
}

static json_t *model_json(const struct cli_lab *lab) {
    const struct kvad_model_info *info = &lab->session.info;
    char fingerprint[KVAD_STORE_FINGERPRINT];
    kvad_store_fingerprint(lab->session.model, fingerprint);
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I}", "name",
                     text_json(lab->name), "fingerprint", fingerprint, "family", info->family,
                     "n_parameters", (json_int_t)info->n_parameters, "n_layers",
                     (json_int_t)info->n_layers, "n_heads", (json_int_t)info->n_heads, "n_kv_heads",
                     (json_int_t)info->n_kv_heads, "d_model", (json_int_t)info->d_model, "d_ff",
                     (json_int_t)info->d_ff, "n_vocab", (json_int_t)info->n_vocab, "n_ctx",
                     (json_int_t)info->n_ctx, "weights", kvad_weight_type_name(info->weights),
                     "weight_bytes", (json_int_t)info->weight_bytes);
}

static json_t *options_json(const struct cli_settings *s) {
    const char *cpu = cli_cpu_name(s->cpu);
    return json_pack("{s:b, s:b, s:I, s:I, s:s}", "quick", (int)s->quick, "full", (int)s->full,
                     "seed", (json_int_t)s->seed, "threads", (json_int_t)s->n_threads, "cpu",
                     cpu ? cpu : "auto");
}

static json_t *machine_json(void) {
    struct kvad_machine machine;
    kvad_machine_read(&machine);
    return kvad_machine_json(&machine);
}

/* Everything but the parts; NULL when memory is out. */
static json_t *begin_report(const struct cli_lab *lab) {
    char now[32], program[KVAD_STORE_FINGERPRINT];
    time_t seconds = time(NULL);
    struct tm utc;
    kvad_store_program(program);
    gmtime_r(&seconds, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:{}}", "kind", KVAD_REPORT_KIND,
                     "schema", KVAD_REPORT_SCHEMA, "version", kvad_version(), "program", program,
                     "created", now, "model", model_json(lab), "machine", machine_json(), "options",
                     options_json(lab->settings), "parts");
}

/* ---- measuring */

/* All that a part's numbers depend on: what differs between two keys makes it measured again. */
static json_t *key_of(const json_t *report, const char *part) {
    json_t *options = json_copy(json_object_get(report, "options"));
    if (strcmp(part, "verify") != 0) {
        json_object_del(options, "seed");
        json_object_del(options, "full");
    }
    if (strcmp(part, "memory") == 0) json_object_del(options, "quick");
    return json_pack("{s:s, s:O, s:O, s:O, s:O, s:o}", "part", part, "program",
                     json_object_get(report, "program"), "version",
                     json_object_get(report, "version"), "model", json_object_get(report, "model"),
                     "machine", json_object_get(report, "machine"), "options", options);
}

static int run_part(struct cli_lab *lab, const struct cli_lab_part *part, const json_t *key,
                    json_t **out) {
    struct kvad_error err = {0};
    lab->part = part->name;
    *out = lab->settings->fresh ? NULL : kvad_store_kept(lab->folder, part->name, key);
    if (*out) {
        if (!lab->settings->quiet)
            cli_say("%s: finished by an earlier run with the same model, options, program and "
                    "machine; taken from %s (--fresh measures again)",
                    part->name, lab->folder);
        return CLI_EXIT_OK;
    }
    int status = cli_is_interrupted() ? CLI_EXIT_INTERRUPTED : part->run(lab, out);
    cli_progress_clear(&lab->progress);
    if (status != CLI_EXIT_OK) return status;
    if (kvad_store_keep(lab->folder, part->name, key, *out, &err) == KVAD_OK) return CLI_EXIT_OK;
    json_decref(*out);
    *out = NULL;
    return cli_lab_fail(&err);
}

static int run_parts(struct cli_lab *lab, json_t *report) {
    int status = CLI_EXIT_OK;
    while (cli_lab_parts[lab->n_parts].name)
        lab->n_parts++;
    for (size_t i = 0; i < lab->n_parts && status == CLI_EXIT_OK; i++) {
        json_t *result = NULL, *key = key_of(report, cli_lab_parts[i].name);
        lab->index = i + 1;
        status = key ? run_part(lab, &cli_lab_parts[i], key, &result) : cli_fail_memory("a key");
        json_decref(key);
        if (status == CLI_EXIT_OK && json_object_set_new(json_object_get(report, "parts"),
                                                         cli_lab_parts[i].name, result) != 0)
            status = cli_fail_memory("the report");
    }
    return status;
}

/* Kernels and threads that the engines really used, as the checks saw them. */
static int add_engine(json_t *report) {
    json_t *verify = json_object_get(json_object_get(report, "parts"), "verify");
    return json_object_set(report, "engine", json_object_get(verify, "engine"));
}

/* Whether the report says that something is wrong: then the exit code is 1. */
static bool is_good(const json_t *report) {
    const json_t *exact = kvad_table_get(report, "parts.memory.measured.exact");
    const char *correct = kvad_table_string(report, "summary.correct.verdict", "");
    return strcmp(correct, "pass") == 0 && !json_is_false(exact) &&
           !kvad_table_string(report, "parts.latency.void", NULL);
}

static int finish(const struct cli_settings *settings, const char *folder, json_t *report) {
    struct kvad_error err = {0};
    if (kvad_report_summarise(report, &err) != KVAD_OK) return cli_lab_fail(&err);
    int status = cli_lab_write(folder, report);
    if (status != CLI_EXIT_OK) return status;
    if (settings->json) {
        status = cli_json_print(json_incref(report));
    } else if (!settings->quiet) {
        cli_lab_print(report);
        printf("report   %s/report.html\n", folder);
    }
    if (status == CLI_EXIT_OK && !is_good(report)) status = CLI_EXIT_FAILURE;
    return status;
}

static int measure(const struct cli_settings *settings) {
    struct cli_lab lab = {.settings = settings,
                          .name = settings->arguments.items[0],
                          .folder = settings->output,
                          .progress = cli_progress_of(settings)};
    struct kvad_error err = {0};
    json_t *report = NULL;
    if (kvad_store_make_folder(lab.folder, &err) != KVAD_OK) return cli_lab_fail(&err);
    cli_catch_interrupt();
    int status = cli_session_load(&lab.session, settings);
    if (status == CLI_EXIT_OK) {
        report = begin_report(&lab);
        status = report ? run_parts(&lab, report) : cli_fail_memory("the report");
    }
    cli_session_deinit(&lab.session);
    if (status == CLI_EXIT_OK && add_engine(report) != 0) status = cli_fail_memory("the report");
    if (status == CLI_EXIT_OK) status = finish(settings, lab.folder, report);
    if (status == CLI_EXIT_INTERRUPTED && !settings->quiet)
        cli_say("interrupted; what was finished is kept in %s and taken up by the next run",
                lab.folder);
    json_decref(report);
    return status;
}

/* ---- without measuring */

static int render(const struct cli_settings *settings) {
    struct kvad_error err = {0};
    json_t *report = NULL;
    int status = cli_lab_read(settings->from, &report);
    if (status == CLI_EXIT_OK && kvad_store_make_folder(settings->output, &err) != KVAD_OK)
        status = cli_lab_fail(&err);
    if (status == CLI_EXIT_OK) status = finish(settings, settings->output, report);
    json_decref(report);
    return status;
}

static int compare(const struct cli_settings *settings) {
    json_t *a = NULL, *b = NULL, *comparison = NULL;
    struct kvad_error err = {0};
    int status = cli_lab_read(settings->arguments.items[0], &a);
    if (status == CLI_EXIT_OK) status = cli_lab_read(settings->arguments.items[1], &b);
    if (status == CLI_EXIT_OK && !(comparison = kvad_report_compare(a, b)))
        status = cli_fail_memory("the comparison");
    json_decref(a);
    json_decref(b);
    if (status == CLI_EXIT_OK && settings->output) {
        if (kvad_store_make_folder(settings->output, &err) != KVAD_OK)
            status = cli_lab_fail(&err);
        else
            status = cli_lab_write_comparison(settings->output, comparison);
    }
    if (status == CLI_EXIT_OK && settings->json)
        status = cli_json_print(json_incref(comparison));
    else if (status == CLI_EXIT_OK && !settings->quiet)
        cli_lab_print_comparison(comparison);
    json_decref(comparison);
    return status;
}

/* Refuses what contradicts itself, and what would only count where something is measured. */
static int check_mode(const struct cli_settings *s) {
    const char *of_measuring = "quick full fresh seed tokenizer activation weights n-head no-map "
                               "threads cpu";
    const struct cli_stray strays[] = {
        {s->compare, "from", "--compare and ", " exclude each other"},
        {s->compare, of_measuring, "", " is for measuring: --compare reads two reports"},
        {s->from, of_measuring, "", " is for measuring: --from reads a report"},
    };
    char quick[CLI_VARIABLE_SIZE], full[CLI_VARIABLE_SIZE];
    if (!s->compare && !s->from && s->quick && s->full)
        return cli_usage_error(&cli_lab, "%s and %s exclude each other",
                               cli_option_shown(s, "quick", quick),
                               cli_option_shown(s, "full", full));
    return cli_refuse_strays(s, strays, CLI_COUNT_OF(strays));
}

static int run(const struct cli_settings *settings) {
    size_t n = settings->arguments.n;
    int status = check_mode(settings);
    if (status != CLI_EXIT_OK) return status;
    if (settings->compare)
        return n == 2 ? compare(settings)
                      : cli_usage_error(&cli_lab, "--compare takes two reports: kvad lab "
                                                  "--compare A B");
    if (!settings->output) return cli_usage_error(&cli_lab, "-o DIR is missing");
    if (settings->from)
        return n == 0 ? render(settings)
                      : cli_usage_error(&cli_lab, "--from takes the place of MODEL");
    if (n != 1) return cli_usage_error(&cli_lab, "MODEL is missing: kvad lab MODEL -o DIR");
    return measure(settings);
}

static const struct cli_example examples[] = {
    {"kvad lab models/shakespeare-char -o report --quick", "a first look, in half a minute"},
    {"kvad lab out/ckpt.pt -o report", "a model of your own, with care"},
    {"kvad lab --compare before after", "what changed between two reports"},
    {"kvad lab --from report/report.json -o again", "the page once more, without measuring"},
    {0},
};

const struct cli_command cli_lab = {
    .name = "lab",
    .summary = "is it correct, how much faster, how many bytes: a report",
    .synopsis = "MODEL -o DIR [options]",
    .description =
        "Runs the checks of kvad verify, the latency experiment of kvad bench and the account of "
        "kvad memory on a model, and writes DIR/report.html: one page that needs no network and no "
        "script, with charts, for the screen, the phone and the printer. DIR/report.json holds "
        "everything that was measured, with machine, versions and seeds, and DIR/csv one file for "
        "each table.\n\nA run that was stopped goes on where it was: finished parts are kept in "
        "DIR and taken up while model, options, program and machine are the same; it says so. "
        "Stop other work first: a busy machine measures itself. The exit code is 1 if a check "
        "fails, a run is void, or bytes are not where the formula says.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 0,
    .max_arguments = 2,
    .has_own_output = true,
    .run = run,
};
