/* The parts of a report: the checks, the latency experiment, the account of memory. */
#include <stdio.h>
#include <string.h>

#include "cli/groups.h"
#include "cli/json.h"
#include "cli/lab.h"
#include "lab/experiment.h"
#include "lab/memory.h"
#include "lab/verify.h"

/* ---- correctness */

static bool report_check(void *user, const struct kvad_verify_check *check, const char *what) {
    char text[256];
    snprintf(text, sizeof text, "%s: %s", check->name, what);
    return cli_lab_progress(user, text, -1);
}

static enum kvad_status run_checks(struct kvad_verify *verify, const char *name, json_t **out,
                                   struct kvad_error *err) {
    struct kvad_verify_result results[KVAD_VERIFY_CHECKS] = {0};
    enum kvad_status status = KVAD_OK;
    unsigned n = 0;
    for (; kvad_verify_check(n) && status == KVAD_OK; n++)
        status = kvad_verify_run(verify, kvad_verify_check(n), &results[n], err);
    if (status == KVAD_OK) *out = kvad_verify_json(verify, name, results, n);
    for (unsigned i = 0; i < n; i++)
        kvad_verify_result_deinit(&results[i]);
    return status;
}

static int run_verify(struct cli_lab *lab, json_t **out) {
    const struct cli_settings *s = lab->settings;
    struct kvad_verify_options options = {.level = s->full ? KVAD_VERIFY_FULL : KVAD_VERIFY_QUICK,
                                          .seed = s->seed,
                                          .n_threads = (unsigned)s->n_threads,
                                          .cpu = cli_cpu_name(s->cpu),
                                          .report = report_check,
                                          .engine_in_use = cli_engine_in_use,
                                          .user = lab};
    struct kvad_verify *verify = NULL;
    struct kvad_error err = {0};
    enum kvad_status status = kvad_verify_open(lab->session.model, &options, &verify, &err);
    if (status == KVAD_OK) status = run_checks(verify, lab->name, out, &err);
    kvad_verify_close(&verify);
    if (status != KVAD_OK) return cli_fail(&err);
    return *out ? CLI_EXIT_OK : cli_fail_memory("the checks' results");
}

/* ---- latency */

/* The model that the checks had; the experiment wants it as the file has it, which it is. */
static enum kvad_status share_model(void *user, enum kvad_weight_type weights,
                                    struct kvad_threads *threads, struct kvad_model **out,
                                    struct kvad_error *err) {
    struct cli_lab *lab = user;
    (void)weights, (void)threads, (void)err;
    *out = kvad_model_retain(lab->session.model);
    return KVAD_OK;
}

static bool report_step(void *user, const char *what, double done) {
    return cli_lab_progress(user, what, done);
}

static int run_latency(struct cli_lab *lab, json_t **out) {
    const struct cli_settings *s = lab->settings;
    struct kvad_experiment_options options = {.open_model = share_model,
                                              .user = lab,
                                              .n_threads = (unsigned)s->n_threads,
                                              .cpu = cli_cpu_name(s->cpu),
                                              .quick = s->quick,
                                              .report = report_step,
                                              .engine_in_use = cli_engine_in_use};
    struct kvad_experiment_result result;
    struct kvad_error err = {0};
    enum kvad_status status = kvad_experiment_run(&options, &result, &err);
    if (status == KVAD_OK)
        *out = kvad_experiment_json(&result, cli_json_string(lab->name, strlen(lab->name)));
    kvad_experiment_result_deinit(&result);
    if (status != KVAD_OK) return cli_fail(&err);
    return *out ? CLI_EXIT_OK : cli_fail_memory("the experiment's result");
}

/* ---- memory */

static enum kvad_status open_counted(void *user, const struct kvad_allocator *allocator,
                                     struct kvad_model **out, struct kvad_error *err) {
    const struct cli_lab *lab = user;
    struct kvad_model_options options;
    cli_model_options(lab->settings, NULL, &options);
    options.allocator = *allocator;
    return kvad_model_load(lab->name, &options, out, err);
}

/* What is measured, and beside it what other caches of this model would take. */
static json_t *memory_json(const struct cli_lab *lab, const struct kvad_memory_result *result,
                           struct kvad_error *err) {
    struct kvad_memory_question question = {0};
    struct kvad_memory_answer answer;
    kvad_memory_shape_of(&lab->session.info, lab->name, &question.shape);
    if (kvad_memory_compute(&question, &answer, err) != KVAD_OK) return NULL;
    return json_pack("{s:o, s:o}", "measured", kvad_memory_result_json(result), "roads",
                     kvad_memory_answer_json(&answer));
}

static int run_memory(struct cli_lab *lab, json_t **out) {
    static const uint32_t policies[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                        KVAD_CACHE_PAGED};
    static const uint32_t kv[] = {KVAD_KV_F32};
    struct kvad_memory_options options = {.open_model = open_counted,
                                          .user = lab,
                                          .policies = {policies, CLI_COUNT_OF(policies)},
                                          .kv = {kv, CLI_COUNT_OF(kv)},
                                          .n_threads = (unsigned)lab->settings->n_threads,
                                          .cpu = cli_cpu_name(lab->settings->cpu),
                                          .report = report_step,
                                          .engine_in_use = cli_engine_in_use};
    struct kvad_memory_result result;
    struct kvad_error err = {0};
    /* The model comes again from counted memory: two of them would be one too many to explain. */
    kvad_model_release(&lab->session.model);
    enum kvad_status status = kvad_memory_measure(&options, &result, &err);
    if (status == KVAD_OK) *out = memory_json(lab, &result, &err);
    kvad_memory_result_deinit(&result);
    if (status != KVAD_OK || err.status != KVAD_OK) return cli_fail(&err);
    return *out ? CLI_EXIT_OK : cli_fail_memory("the account of memory");
}

const struct cli_lab_part cli_lab_parts[] = {
    {"verify", run_verify},
    {"latency", run_latency},
    {"memory", run_memory},
    {0},
};
