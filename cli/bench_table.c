/* kvad bench for people: what was measured, tables, the chart, where the time goes. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/groups.h"
#include "cli/streams.h"

static void print_head(const struct kvad_bench_result *result, const char *name) {
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

static void print_ceilings(const struct kvad_bench_result *result) {
    puts("\nCeilings of the machine, measured between the samples");
    puts("weights     bytes   read GB/s        FMA GFLOP/s      int8 GOP/s       load");
    for (size_t i = 0; i < result->n_models; i++) {
        const struct kvad_bench_model *m = &result->models[i];
        char size[CLI_SIZE_TEXT];
        cli_format_size(m->weight_bytes, size);
        printf("%-6s %10s  %8.2f +-%2.0f %%  %8.1f +-%2.0f %%  ", cli_weights_name((int)m->weights),
               size, m->read_rate.median * 1e-9, kvad_stats_spread(&m->read_rate),
               m->fma_rate.median * 1e-9, kvad_stats_spread(&m->fma_rate));
        if (m->dot_rate.median > 0)
            printf("%8.1f +-%2.0f %%", m->dot_rate.median * 1e-9, kvad_stats_spread(&m->dot_rate));
        else
            printf("%8s       ", "-");
        printf("  %.0f ms\n", m->load_ms);
    }
}

/* The columns that all tables end with. */
static void print_shares(const struct kvad_bench_case *c) {
    double seconds = c->ms.median * 1e-3;
    printf("  %8.2f %8.1f  %5.1f %%  %5.1f %%  %s\n", c->bytes / seconds * 1e-9,
           c->flops / seconds * 1e-9, c->percent_of_read.median, c->percent_of_compute.median,
           c->is_compute_bound ? "compute" : "read");
}

#define SHARES_HEAD "      GB/s  GFLOP/s  of read  of FMA  bound"

/* "of FMA" is of integer products where weights are quantised. */
static void print_types(const struct kvad_bench_case *c) {
    printf("%-5s %-5s %-7s", cli_weights_name((int)c->weights), cli_kv_name((int)c->kv),
           cli_cache_name((int)c->policy));
}

static bool has_kind(const struct kvad_bench_result *result, enum kvad_bench_kind kind) {
    for (size_t i = 0; i < result->n_cases; i++)
        if (result->cases[i].kind == kind) return true;
    return false;
}

static void print_decode(const struct kvad_bench_result *result) {
    puts("\nDecode, one token");
    puts("wts   kv    cache    context  ms/token" SHARES_HEAD);
    for (size_t i = 0; i < result->n_cases; i++) {
        const struct kvad_bench_case *c = &result->cases[i];
        if (c->kind != KVAD_BENCH_DECODE) continue;
        print_types(c);
        printf(" %7u  %8.3f +-%2.0f %%", c->context, c->ms.median, kvad_stats_spread(&c->ms));
        print_shares(c);
    }
}

static void print_prefill(const struct kvad_bench_result *result) {
    if (!has_kind(result, KVAD_BENCH_PREFILL)) return;
    puts("\nPrefill, until the first token");
    puts("wts   kv    cache     tokens        ms      tokens/s" SHARES_HEAD);
    for (size_t i = 0; i < result->n_cases; i++) {
        const struct kvad_bench_case *c = &result->cases[i];
        if (c->kind != KVAD_BENCH_PREFILL) continue;
        print_types(c);
        printf(" %7u  %8.2f +-%2.0f %% %8.1f", c->n_tokens, c->ms.median, kvad_stats_spread(&c->ms),
               1e3 * c->n_tokens / c->ms.median);
        print_shares(c);
    }
}

static void print_batch(const struct kvad_bench_result *result) {
    if (!has_kind(result, KVAD_BENCH_BATCH)) return;
    printf("\nBatches, one token for each sequence\n");
    puts("wts   kv    cache   sequences   ms/step     tokens/s" SHARES_HEAD);
    for (size_t i = 0; i < result->n_cases; i++) {
        const struct kvad_bench_case *c = &result->cases[i];
        if (c->kind != KVAD_BENCH_BATCH) continue;
        print_types(c);
        printf(" %7u  %8.3f +-%2.0f %% %8.1f", c->n_sequences, c->ms.median,
               kvad_stats_spread(&c->ms), 1e3 * c->n_sequences / c->ms.median);
        print_shares(c);
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
        const struct kvad_bench_case *c = cases[i];
        const uint32_t numbers[] = {c->context, c->n_tokens, c->n_sequences};
        char head[32];
        snprintf(head, sizeof head, "%s %u", kinds[c->kind], numbers[c->kind]);
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

/* Events of the step that the table of parts shows first. */
static void print_counters(const struct kvad_bench_result *result) {
    const struct kvad_bench_case *c = last_case(result, KVAD_BENCH_DECODE);
    if (!result->has_counters || !c) return;
    printf("\nEvents of decode at %u:", c->context);
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        if (c->counters[i] >= 0) printf(" %s %.4g", kvad_counter_name(i), c->counters[i]);
    putchar('\n');
}

int cli_bench_print_tables(const struct kvad_bench_result *result, const char *name) {
    print_head(result, name);
    print_ceilings(result);
    print_decode(result);
    cli_bench_print_chart(result, result->cases[0].weights, result->cases[0].kv);
    print_prefill(result);
    print_batch(result);
    print_parts(result);
    print_counters(result);
    return cli_flush_output();
}
