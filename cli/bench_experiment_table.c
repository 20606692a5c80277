/* kvad bench --experiment for people. Every table has a line that says what it is about. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/groups.h"
#include "cli/streams.h"

/* A number in `width` columns with three or four digits. */
static void print_number(double value, int width) {
    if (!isfinite(value)) {
        printf(" %*s", width, "-");
        return;
    }
    int decimals = value < 0.1 ? 4 : value < 1 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
    printf(" %*.*f", width, decimals, value);
}

static void print_curve(const struct kvad_experiment_result *result) {
    puts("\nOne more token: milliseconds, and how many times less the cache makes it (none : "
         "paged)");
    printf("%7s %9s %9s %9s %9s %9s %9s %9s\n", "context", "none", "grow", "static", "paged",
           "faster", "flop", "bytes");
    for (size_t i = 0; i < result->n_points; i++) {
        const struct kvad_experiment_point *p = &result->points[i];
        printf("%7u", p->context);
        print_number(p->cases[KVAD_CACHE_NONE]->ms.median, 9);
        print_number(p->cases[KVAD_CACHE_GROW]->ms.median, 9);
        print_number(p->cases[KVAD_CACHE_STATIC]->ms.median, 9);
        print_number(p->cases[KVAD_CACHE_PAGED]->ms.median, 9);
        print_number(p->time_ratio, 9);
        print_number(p->flop_ratio, 9);
        print_number(p->byte_ratio, 9);
        putchar('\n');
    }
    if (result->n_left_out)
        printf("(%zu contexts left out to keep to %.0f s: --budget)\n", result->n_left_out,
               result->budget_seconds);
}

static void print_work(const char *what, uint32_t tokens, const struct kvad_bench_case *c) {
    double seconds = c->ms.median * 1e-3;
    printf("%-8s %7u", what, tokens);
    print_number(c->flops * 1e-9, 9);
    print_number(c->bytes * 1e-6, 9);
    print_number(c->flops / c->bytes, 9);
    print_number(c->flops / seconds * 1e-9, 9);
    print_number(c->bytes / seconds * 1e-9, 9);
    printf(" %7.0f %% of %s\n", c->percent_of_ceiling, c->is_compute_bound ? "FMA" : "read");
}

/* Rows at the shortest, a middle and the longest context. */
static void print_works(const struct kvad_experiment_result *result) {
    const struct kvad_bench_model *m = &result->curve.models[0];
    size_t rows[] = {0, result->n_points / 2, result->n_points - 1};
    printf(
        "\nWork by formula beside what was measured; here %.0f operations fit the time of a byte\n",
        m->fma_rate.median / m->read_rate.median);
    printf("%-8s %7s %9s %9s %9s %9s %9s\n", "step", "context", "GFLOP", "MB", "FLOP/B", "GFLOP/s",
           "GB/s");
    for (size_t i = 0; i < CLI_COUNT_OF(rows); i++) {
        const struct kvad_experiment_point *p = &result->points[rows[i]];
        if (i > 0 && rows[i] == rows[i - 1]) continue;
        print_work("none", p->context, p->cases[KVAD_CACHE_NONE]);
        print_work("cached", p->context, p->cases[KVAD_CACHE_PAGED]);
    }
    for (size_t i = 0; i < result->curve.n_cases; i++)
        if (result->curve.cases[i].kind == KVAD_BENCH_PREFILL)
            print_work("prefill", result->curve.cases[i].n_tokens, &result->curve.cases[i]);
    const struct kvad_experiment_point *last = &result->points[result->n_points - 1];
    printf(
        "Without a cache, %.2f %% of a step's operations at %u were done before and thrown away,\n"
        "%.2f %% of the text's below.\n",
        last->thrown_away_percent, last->context, result->total_thrown_away_percent);
    cli_bench_print_counters(&result->curve, last->cases[KVAD_CACHE_NONE], "none");
    cli_bench_print_counters(&result->curve, last->cases[KVAD_CACHE_PAGED], "cached");
    if (!result->curve.has_counters)
        puts("Instructions and cache misses of these steps: NOT AVAILABLE, see above.");
}

static void print_totals(const struct kvad_experiment_result *result) {
    static const enum kvad_cache_policy order[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW,
                                                   KVAD_CACHE_STATIC, KVAD_CACHE_PAGED};
    double best = result->totals[KVAD_CACHE_PAGED].seconds;
    printf("\nA text: %u tokens after a prompt of %u\n", result->n_tokens, result->n_prompt);
    printf("%-8s %9s %-12s %9s   %s\n", "cache", "seconds", "", "to paged",
           "check: first tokens, seconds, by the curve");
    for (size_t i = 0; i < CLI_COUNT_OF(order); i++) {
        const struct kvad_experiment_total *t = &result->totals[order[i]];
        printf("%-8s", kvad_cache_policy_name(order[i]));
        print_number(t->seconds, 9);
        printf(" %-12s", t->is_measured ? "measured" : "extrapolated");
        print_number(t->seconds / best, 9);
        printf("   %12u", t->n_measured);
        print_number(t->measured_seconds, 8);
        print_number(t->measured_interpolated_seconds, 8);
        printf(" (%+.1f %%)\n", 100 * (t->measured_interpolated_seconds / t->measured_seconds - 1));
    }
}

static void print_gap(const struct kvad_experiment_result *result) {
    static const char *const notes[KVAD_SHARE_COUNT] = {
        "linear layers, beyond the time of their operations",
        "attention and the cache, the same",
        "operations at the naive step's rate; norms, activation",
        "logits to a token",
        "waiting for each other: not named",
        "between the parts: not named"};
    const struct kvad_experiment_gap *gap = &result->gap;
    const struct kvad_experiment_point *p = &result->points[result->n_points - 1];
    printf("\nWhy %.0f times fewer operations are %.1f times less time, at context %u\n"
           "At the naive step's rate the cached step's operations would take %.3g ms; it takes "
           "%.3g ms:\n",
           p->flop_ratio, p->time_ratio, gap->context, gap->ideal_ms, gap->wall_ms);
    for (size_t i = 0; i < KVAD_SHARE_COUNT; i++) {
        printf("%-16s", kvad_experiment_share_name((enum kvad_experiment_share)i));
        print_number(gap->share_ms[i], 9);
        printf(" ms %6.1f %%   %s\n", 100 * gap->share_ms[i] / gap->wall_ms, notes[i]);
    }
    printf("%.1f %% is in named parts. Reading the weights takes %.3g ms at least, the cache %.3g "
           "ms.\n",
           gap->named_percent, gap->weights_floor_ms, gap->cache_floor_ms);
}

static void print_controls(const struct kvad_experiment_result *result) {
    puts("\nControls: what must happen if the parts are right");
    printf("%-34s %9s %9s %-6s  %s\n", "change", "predicted", "measured", "", "verdict");
    for (size_t i = 0; i < KVAD_CONTROLS; i++) {
        const struct kvad_control *c = &result->controls[i];
        printf("%-34s", c->what);
        print_number(c->predicted, 9);
        print_number(c->measured, 9);
        printf(" %-6s  %s", c->unit, kvad_control_verdict_name(c->verdict));
        if (c->verdict == KVAD_CONTROL_NOT_SHOWN)
            printf(": %s\n", c->why);
        else if (c->tolerance_percent > 0)
            printf(" (within %.0f %%)\n", c->tolerance_percent);
        else
            puts(" (at most)");
    }
}

static void print_claims(const struct kvad_experiment_result *result) {
    puts("\nWhat articles say, and this run");
    for (size_t i = 0; i < KVAD_CLAIMS; i++) {
        const struct kvad_claim *c = &result->claims[i];
        printf("%zu. \"%s\"\n   %s", i + 1, c->claim, kvad_claim_verdict_name(c->verdict));
        if (*c->when) printf(" %s", c->when);
        printf("\n   here: %s\n", c->ours);
    }
}

int cli_experiment_print_tables(const struct kvad_experiment_result *result, const char *name) {
    cli_bench_print_head(&result->curve, name);
    const struct kvad_bench_model *m = &result->curve.models[0];
    printf("ceilings: %.1f GB/s read, %.1f GFLOP/s; greedy, one sequence, median of %zu; %.0f s in "
           "all\n",
           m->read_rate.median * 1e-9, m->fma_rate.median * 1e-9, result->curve.cases[0].ms.n,
           result->seconds);
    print_curve(result);
    print_works(result);
    print_totals(result);
    print_gap(result);
    print_controls(result);
    print_claims(result);
    cli_bench_print_warning(&result->curve);
    return cli_flush_output();
}
