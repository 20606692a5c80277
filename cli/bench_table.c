/* kvad bench for people: what was measured, tables, the chart, where the time goes. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/groups.h"
#include "cli/streams.h"

void cli_bench_print_head(const struct kvad_bench_result *result, const char *name) {
    const struct kvad_model_info *info = &result->model;
    const struct kvad_machine *machine = &result->machine;
    char memory[CLI_SIZE_TEXT];
    printf("%s: %.1f M parameters, %u layers of %u, context %u\n", name,
           (double)info->n_parameters * 1e-6, info->n_layers, info->d_model, info->n_ctx);
    cli_format_size(machine->memory_bytes, memory);
    printf("%s%s, %u cores, memory %s, huge pages %s", *machine->cpu ? machine->cpu : "unknown CPU",
           machine->is_virtual ? " (virtual)" : "", machine->n_cores, memory,
           *machine->huge_pages ? machine->huge_pages : "unknown");
    for (unsigned i = 0; i < machine->n_caches; i++) {
        char size[CLI_SIZE_TEXT];
        if (strcmp(machine->caches[i].kind, "Instruction") == 0) continue;
        cli_format_size(machine->caches[i].bytes, size);
        printf(", L%u %s", machine->caches[i].level, size);
    }
    printf("\nkvad %s, %u threads, %s kernels\n", kvad_version(), result->n_threads, result->cpu);
    if (!result->has_counters) printf("no hardware counters (%s)\n", result->no_counters_why);
}

/* A rate and its spread, or a dash. */
static void print_rate(const struct kvad_stats *rate) {
    if (rate->median > 0)
        printf(" %10.1f %3.0f", rate->median * 1e-9, kvad_stats_spread(rate));
    else
        printf(" %10s %3s", "-", "");
}

static void print_ceilings(const struct kvad_bench_result *result) {
    printf("\nCeilings of the machine, measured between the samples\n"
           "wts  %11s %10s %9s %10s +-%% %10s +-%% %10s +-%%\n",
           "bytes", "huge pages", "load ms", "read GB/s", "GFLOP/s", "int8 GOP/s");
    for (size_t i = 0; i < result->n_models; i++) {
        const struct kvad_bench_model *m = &result->models[i];
        char size[CLI_SIZE_TEXT], huge[CLI_SIZE_TEXT];
        cli_format_size(m->weight_bytes, size);
        cli_format_size(m->huge_page_bytes, huge);
        printf("%-4s %11s %10s %9.0f", kvad_weight_type_name(m->weights), size, huge, m->load_ms);
        print_rate(&m->read_rate);
        print_rate(&m->fma_rate);
        print_rate(&m->dot_rate);
        putchar('\n');
    }
}

/* What differs between the three tables. */
struct table {
    enum kvad_bench_kind kind;
    const char *title, *size, *time, *rate; /* heads of three columns */
};
static const struct table tables[] = {
    {KVAD_BENCH_DECODE, "Decode, one token", "context", "ms/token", "GB/s"},
    {KVAD_BENCH_PREFILL, "Prefill, until the first token", "tokens", "ms", "tokens/s"},
    {KVAD_BENCH_BATCH, "Batches, one token for each sequence", "sequences", "ms/step", "tokens/s"},
};

static uint32_t size_of(const struct kvad_bench_case *c) {
    if (c->kind == KVAD_BENCH_DECODE) return c->context;
    return c->kind == KVAD_BENCH_PREFILL ? c->n_tokens : c->n_sequences;
}

static double rate_of(const struct kvad_bench_case *c) {
    if (c->kind == KVAD_BENCH_DECODE) return c->bytes / c->ms.median * 1e-6;
    return 1e3 * size_of(c) / c->ms.median;
}

/* 80 columns. "%FMA" is of integer products where weights are quantised. */
static void print_case(const struct kvad_bench_case *c) {
    printf("%-4s %-4s %-6s %9u %9.3f %3.0f %8.1f %8.1f %6.1f %6.1f  %s\n",
           kvad_weight_type_name(c->weights), kvad_kv_type_name(c->kv),
           kvad_cache_policy_name(c->policy), size_of(c), c->ms.median, kvad_stats_spread(&c->ms),
           rate_of(c), c->flops / c->ms.median * 1e-6, c->percent_of_read.median,
           c->percent_of_compute.median, c->is_compute_bound ? "compute" : "read");
}

static void print_table(const struct kvad_bench_result *result, const struct table *table) {
    bool has_head = false;
    for (size_t i = 0; i < result->n_cases; i++) {
        if (result->cases[i].kind != table->kind) continue;
        if (!has_head)
            printf("\n%s\nwts  kv   cache  %9s %9s +-%% %8s %8s %6s %6s  bound\n", table->title,
                   table->size, table->time, table->rate, "GFLOP/s", "%read", "%FMA");
        has_head = true;
        print_case(&result->cases[i]);
    }
}

/* The last case of a kind with the first types: decoding at the longest context, the longest
 * prompt, the largest batch. */
static const struct kvad_bench_case *last_case(const struct kvad_bench_result *result,
                                               enum kvad_bench_kind kind) {
    const struct kvad_bench_case *last = NULL, *first = &result->cases[0];
    for (size_t i = 0; i < result->n_cases; i++) {
        const struct kvad_bench_case *c = &result->cases[i];
        if (c->kind == kind && c->weights == first->weights && c->kv == first->kv) last = c;
    }
    return last;
}

static void print_parts(const struct kvad_bench_result *result) {
    const struct kvad_bench_case *cases[3];
    size_t n = 0;
    for (int kind = KVAD_BENCH_DECODE; kind <= KVAD_BENCH_BATCH; kind++) {
        cases[n] = last_case(result, (enum kvad_bench_kind)kind);
        if (cases[n]) n++;
    }
    printf("\nWhere the time of a step goes (ms, all threads' time spread over them)\n%-12s", "");
    for (size_t i = 0; i < n; i++) {
        static const char *const kinds[] = {"decode at", "prefill", "batch of"};
        char head[32];
        snprintf(head, sizeof head, "%s %u", kinds[cases[i]->kind], size_of(cases[i]));
        printf("%20s", head);
    }
    putchar('\n');
    for (size_t part = 0; part < KVAD_BENCH_PARTS; part++) {
        printf("%-12s", cases[0]->parts[part].name);
        for (size_t i = 0; i < n; i++)
            printf("%11.3f %6.1f %%", cases[i]->parts[part].ms,
                   100 * cases[i]->parts[part].ms / cases[i]->parts_wall_ms);
        putchar('\n');
    }
    printf("%-12s", "named parts");
    for (size_t i = 0; i < n; i++)
        printf("%11s %6.1f %%", "", cases[i]->named_percent);
    putchar('\n');
}

void cli_bench_print_counters(const struct kvad_bench_result *result,
                              const struct kvad_bench_case *c, const char *what) {
    if (!result->has_counters || !c) return;
    printf("Events of %s at %u:", what, c->context);
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        if (c->counters[i] >= 0) printf(" %s %.4g", kvad_counter_name(i), c->counters[i]);
    putchar('\n');
}

static void print_legend(void) {
    puts("\nwts, kv: types of weights and cache. Times and rates are medians; +-%: half the "
         "distance of "
         "the\nquartiles, in per cent. %read, %FMA: of the ceilings above, in the same minute; "
         "bound: "
         "the one that\nis nearer. docs/benchmarks.md says more.");
}

void cli_bench_print_warning(const struct kvad_bench_result *result) {
    size_t n_wide = 0;
    for (size_t i = 0; i < result->n_cases; i++)
        n_wide += kvad_stats_spread(&result->cases[i].ms) > 10;
    if (2 * n_wide > result->n_cases)
        puts("\nMost samples spread by more than 10 %: this machine is busy with something else, "
             "and "
             "the\nnumbers above are rough.");
}

int cli_bench_print_tables(const struct kvad_bench_result *result, const char *name) {
    cli_bench_print_head(result, name);
    print_ceilings(result);
    print_table(result, &tables[0]);
    cli_bench_print_chart(result, result->cases[0].weights, result->cases[0].kv);
    print_table(result, &tables[1]);
    print_table(result, &tables[2]);
    print_legend();
    print_parts(result);
    /* Of the step that the table of parts shows first. */
    cli_bench_print_counters(result, last_case(result, KVAD_BENCH_DECODE), "decode");
    cli_bench_print_warning(result);
    return cli_flush_output();
}
