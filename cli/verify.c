/* kvad verify: whether the cache of this program is right with this model on this machine. */
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "cli/verify_faults.h"
#include "cli/verify_table.h"

#define CHOICE(id, name, compares) {#name, KVAD_VERIFY_CHECK_##id},
static const struct cli_choice checks[] = {KVAD_VERIFY_CHECK_LIST(CHOICE){0}};

static const struct cli_option verify_options[] = {
    CLI_QUICK_OPTION("short texts, some of the many lengths; the default"),
    CLI_FULL_OPTION("long texts, all lengths: minutes on a large model"),
    {.name = "checks",
     .kind = CLI_CHOICES,
     .offset = CLI_AT(checks),
     .value = "LIST",
     .choices = checks,
     .known_as = "check only tests",
     .help = "run these alone (all of them)"},
    {.name = "faults",
     .kind = CLI_FLAG,
     .offset = CLI_AT(faults),
     .no_variable = true,
     .help = "test the checks: which of them catch which seeded faults; needs no model, but a "
             "program built for it (make verify-faults)"},
    CLI_SEED_OPTION("1", "other texts and lengths"),
    CLI_KV_OPTION(
        "how keys and values lie in the cache; each type is compared with itself bit for bit"),
};
static const struct cli_group verify_group = {"Verify", verify_options,
                                              CLI_COUNT_OF(verify_options)};

static const struct cli_group *const groups[] = {&verify_group, &cli_model_group,
                                                 &cli_machine_group, &cli_output_group, NULL};

struct verifying {
    const struct cli_settings *settings;
    struct cli_progress progress;
    size_t n, n_done;                                      /* checks */
    struct kvad_verify_result results[KVAD_VERIFY_CHECKS]; /* [n_done] */
};

static bool report(void *user, const struct kvad_verify_check *check, const char *what) {
    struct verifying *verifying = user;
    return cli_progress_show(&verifying->progress, "[%zu/%zu] %s: %s", verifying->n_done + 1,
                             verifying->n, check->name, what);
}

static bool is_wanted(const struct cli_settings *settings, unsigned index) {
    const struct cli_numbers *list = &settings->checks;
    bool is_listed = !list->is_given;
    for (size_t i = 0; i < list->n; i++)
        is_listed |= list->items[i] == index;
    return is_listed;
}

static int run_checks(struct verifying *verifying, struct kvad_verify *verify) {
    struct kvad_error err = {0};
    enum kvad_status status = KVAD_OK;
    const struct kvad_verify_check *check;
    for (unsigned i = 0; (check = kvad_verify_check(i)) && status == KVAD_OK; i++) {
        if (!is_wanted(verifying->settings, i)) continue;
        status = kvad_verify_run(verify, check, &verifying->results[verifying->n_done], &err);
        if (status == KVAD_OK) verifying->n_done++;
    }
    cli_progress_clear(&verifying->progress);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_fail(&err);
}

static int print(const struct verifying *verifying, const struct kvad_verify *verify,
                 const struct cli_session *session) {
    const char *name = verifying->settings->arguments.items[0];
    if (verifying->settings->json)
        return cli_json_print(
            kvad_verify_json(verify, name, verifying->results, verifying->n_done));
    cli_verify_print_table(verify, name, &session->info, verifying->results, verifying->n_done);
    return cli_flush_output();
}

static int verify_model(struct verifying *verifying, struct cli_session *session) {
    const struct cli_settings *s = verifying->settings;
    struct kvad_verify_options options = {.level = s->full ? KVAD_VERIFY_FULL : KVAD_VERIFY_QUICK,
                                          .seed = s->seed,
                                          .kv = (enum kvad_kv_type)s->kv,
                                          .n_threads = (unsigned)s->n_threads,
                                          .cpu = cli_cpu_name(s->cpu),
                                          .report = report,
                                          .engine_in_use = cli_engine_in_use,
                                          .user = verifying};
    struct kvad_verify *verify = NULL;
    struct kvad_error err = {0};
    if (kvad_verify_open(session->model, &options, &verify, &err) != KVAD_OK) return cli_fail(&err);
    for (unsigned i = 0; kvad_verify_check(i); i++)
        verifying->n += is_wanted(s, i);
    int status = run_checks(verifying, verify);
    if (status == CLI_EXIT_OK) status = print(verifying, verify, session);
    for (size_t i = 0; i < verifying->n_done; i++) {
        if (status == CLI_EXIT_OK && verifying->results[i].verdict == KVAD_VERDICT_FAIL)
            status = CLI_EXIT_FAILURE;
        kvad_verify_result_deinit(&verifying->results[i]);
    }
    kvad_verify_close(&verify);
    return status;
}

/* Refuses what contradicts itself, and what --faults would ignore. */
static int check_mode(const struct cli_settings *s) {
    const struct cli_stray strays[] = {
        {s->faults, "full checks seed kv tokenizer activation weights n-head no-map cpu", "",
         " and --faults exclude each other: it runs all quick checks on a model of its own; leave "
         "MODEL and its options out"}};
    char quick[CLI_VARIABLE_SIZE], full[CLI_VARIABLE_SIZE];
    if (s->faults && s->arguments.n)
        return cli_usage_error(&cli_verify, "--faults runs all quick checks on a model of its own: "
                                            "leave MODEL out");
    if (!s->faults && s->quick && s->full)
        return cli_usage_error(&cli_verify, "%s and %s exclude each other",
                               cli_option_shown(s, "quick", quick),
                               cli_option_shown(s, "full", full));
    return cli_refuse_strays(s, strays, CLI_COUNT_OF(strays));
}

static int run(const struct cli_settings *settings) {
    struct verifying verifying = {.settings = settings, .progress = cli_progress_of(settings)};
    struct cli_session session;
    int status = check_mode(settings);
    if (status != CLI_EXIT_OK) return status;
    if (settings->faults) return cli_verify_faults(settings);
    if (!settings->arguments.n)
        return cli_usage_error(&cli_verify, "MODEL is missing: kvad verify MODEL");
    cli_catch_interrupt();
    status = cli_session_load(&session, settings);
    if (status == CLI_EXIT_OK) status = verify_model(&verifying, &session);
    cli_session_deinit(&session);
    return status;
}

static const struct cli_example examples[] = {
    {"kvad verify models/shakespeare-char", "in a few seconds"},
    {"kvad verify out/ckpt.pt --full", "everything, on a model of your own"},
    {"kvad verify gpt2 --weights q8 --kv f16 --json", "other types, for a script"},
    {"kvad verify gpt2 --checks rollback,prefix --seed 7", "two of the checks on other texts"},
    {"kvad verify --faults", "which checks catch which faults, after make verify-faults"},
    {0},
};

const struct cli_command cli_verify = {
    .name = "verify",
    .summary = "is the cache right? checks on a model of yours, on this machine",
    .synopsis = "MODEL|--faults [options]",
    .description =
        "Computes the same tokens in many ways and compares hidden states of all layers, logits "
        "and drawn tokens bit for bit: with the cache and without, in chunks, in batches, with "
        "every policy, block size, number of threads and kernel level, after going back, from "
        "shared beginnings, after losing memory to others, with all unused memory full of NaN. "
        "Then it holds them against a forward pass in double precision of its own that shares no "
        "code with the engine, within a stated bound.\n\nThe exit code is 1 if a check fails; "
        "the table then says where the paths first part. docs/verify.md says what each check "
        "compares.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
