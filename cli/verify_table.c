#include "cli/verify_table.h"

#include <stdio.h>

static void print_count(uint64_t n) {
    if (n >= 10000000)
        printf("%8.0f M", (double)n * 1e-6);
    else
        printf("%10llu", (unsigned long long)n);
}

static void print_check(const struct kvad_verify_result *r) {
    printf("%-11s %-5s ", r->check->name, kvad_verdict_name(r->verdict));
    print_count(r->n_compared);
    printf(" %8.2f  %s\n", r->seconds, r->check->compares);
    char text[700];
    kvad_verify_describe(r, text, sizeof text);
    if (r->verdict != KVAD_VERDICT_PASS)
        printf("%12s%s\n", "", text);
    else if (text[0])
        printf("%39s(%s)\n", "", text);
}

static void print_error(const char *what, const struct kvad_verify_error *e) {
    printf("%-24s %9.2e %9.2e\n", what, e->rms, e->max);
}

/* Errors by layer, of the check that measured them. */
static void print_layers(const struct kvad_verify_result *r) {
    printf("\nagainst float64, relative to the RMS of all tokens\n%-24s %9s %9s\n", "", "RMS",
           "largest");
    for (size_t i = 0; i < r->n_layers; i++) {
        char what[64] = "embedding";
        if (i > 0) snprintf(what, sizeof what, "layer %zu", i);
        if (i > 0 && i + 1 == r->n_layers) snprintf(what, sizeof what, "layer %zu, final norm", i);
        print_error(what, &r->layers[i]);
    }
    print_error("logits", &r->logits);
    print_error("at most", &r->bound);
}

void cli_verify_print_table(const struct kvad_verify *verify, const char *name,
                            const struct kvad_model_info *info,
                            const struct kvad_verify_result *results, size_t n) {
    struct kvad_verify_setup setup;
    kvad_verify_get_setup(verify, &setup);
    char parameters[32];
    if (info->n_parameters < 1000000)
        snprintf(parameters, sizeof parameters, "%llu", (unsigned long long)info->n_parameters);
    else
        snprintf(parameters, sizeof parameters, "%.1f M", (double)info->n_parameters * 1e-6);
    printf("%s: %s, %s parameters, weights %s, cache %s; %s, %u thread%s; texts of %zu tokens, "
           "seed %llu\n\n%-11s %-5s %10s %8s  %s\n",
           name, info->family, parameters, kvad_weight_type_name(info->weights),
           kvad_kv_type_name(setup.kv), setup.cpu, setup.n_threads, setup.n_threads == 1 ? "" : "s",
           setup.n_tokens, (unsigned long long)setup.seed, "check", "", "compared", "seconds",
           "what with what");
    size_t counts[3] = {0};
    const struct kvad_verify_result *reference = NULL;
    for (size_t i = 0; i < n; i++) {
        print_check(&results[i]);
        counts[results[i].verdict]++;
        if (results[i].layers && results[i].verdict == KVAD_VERDICT_PASS) reference = &results[i];
    }
    if (reference) print_layers(reference);
    printf("\n%zu passed, %zu failed, %zu not applicable\n", counts[KVAD_VERDICT_PASS],
           counts[KVAD_VERDICT_FAIL], counts[KVAD_VERDICT_SKIP]);
}
