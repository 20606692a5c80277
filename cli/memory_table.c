/* kvad memory for people: tables of at most 100 columns, and of 80 on a narrow terminal. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/memory_report.h"
#include "cli/options.h"
#include "cli/streams.h"

enum { WIDE = 100 };

static bool is_wide(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_col >= WIDE;
}

static void print_size(uint64_t bytes, int width) {
    char text[CLI_SIZE_TEXT];
    cli_format_size(bytes, text);
    printf("%*s", width, text);
}

/* ---------------------------------------------------------------- computed */

static void print_shape(const struct kvad_memory_shape *s) {
    printf("%s (%s)\n%u layers, ", s->name, s->source, s->n_layers);
    if (s->latent_dim)
        printf("%u heads that share a latent of %u and a key of %u", s->n_heads, s->latent_dim,
               s->rope_dim);
    else
        printf("%u heads of %u on %u kv heads", s->n_heads, s->k_dim, s->n_kv_heads);
    if (s->n_ctx) printf(", context %u", s->n_ctx);
    if (s->window) printf(", window of %u in %u layers", s->window, s->n_window_layers);
    putchar('\n');
}

static void print_road(const struct kvad_memory_road *road, bool wide) {
    printf("%c%-28s", road->is_own ? '*' : ' ', road->name);
    if (wide) printf("%-22s", road->formula);
    printf("%-20s", road->numbers);
    if (road->token_bytes)
        print_size(road->token_bytes, 10);
    else
        printf("%10s", "");
    print_size(road->bytes, 10);
    printf(road->times < 100 ? "%7.2f\n" : "%7.0f\n", road->times);
}

int cli_memory_print_answer(const struct kvad_memory_answer *answer) {
    const struct kvad_memory_question *q = &answer->question;
    bool wide = is_wide();
    print_shape(&q->shape);
    printf("\nA token in %s: ", kvad_memory_type_name(q->type));
    print_size(answer->token_bytes, 0);
    printf(" (%llu bytes)\n%u text%s of %u tokens: ", (unsigned long long)answer->token_bytes,
           q->n_texts, q->n_texts == 1 ? "" : "s", q->n_tokens);
    print_size(answer->bytes, 0);
    printf(" (%llu bytes)\n", (unsigned long long)answer->bytes);
    if (q->shape.n_ctx && q->n_tokens > q->shape.n_ctx)
        printf("That is longer than the model's context of %u.\n", q->shape.n_ctx);
    printf("\n %-28s", "Roads to fewer bytes");
    if (wide) printf("%-22s", "formula");
    printf("%-20s%10s%10s%7s\n", "in numbers", "a token", "all texts", "times");
    for (unsigned i = 0; i < answer->n_roads; i++)
        print_road(&answer->roads[i], wide);
    puts("\n* what the model does as asked for. L layers (Lw with a window W), K kv heads,\n"
         "d elements of a head's key or value, e bytes of an element, c and r elements of\n"
         "a latent and its key, T tokens of a text, B of a block, g(n) = ceil(n/32).\n"
         "Windows and paging count rows. docs/memory.md has the sources.");
    return cli_flush_output();
}

/* ---------------------------------------------------------------- measured */

static void print_verdict(const struct kvad_memory_result *r) {
    size_t n = 0, n_exact = 0;
    for (size_t i = 0; i < r->n_runs; i++)
        for (unsigned j = 0; j < r->runs[i].n_checkpoints; j++) {
            const struct kvad_memory_checkpoint *c = &r->runs[i].warmed[j];
            n++;
            n_exact += !c->residual && !c->reserved_residual && !c->memory.unowned;
        }
    printf("requested - formula = 0 at %zu of %zu checkpoints, live and reserved\n", n_exact, n);
    if (r->no_resident_why)
        printf("resident memory: NOT RUN, %s\n", r->no_resident_why);
    else
        printf("resident memory: %.3f %% of it explained by owner, at the worst checkpoint\n",
               kvad_memory_result_explained(r));
}

static void print_head(const struct kvad_memory_result *r, const char *name) {
    const struct kvad_model_info *m = &r->model;
    printf("%s: %u layers, %u heads of %u", name, m->n_layers, m->n_heads, m->head_dim);
    if (m->n_kv_heads != m->n_heads) printf(" on %u kv heads", m->n_kv_heads);
    printf(", context %u\n%u threads, %s kernels, blocks of %u tokens, pages of %llu bytes\n\n",
           r->n_ctx, r->n_threads, r->cpu, r->block_tokens, (unsigned long long)r->page_bytes);
}

/* The run that does what the article's cache does: tensors that grow. */
static const struct kvad_memory_run *naive_run(const struct kvad_memory_result *r) {
    for (size_t i = 0; i < r->n_runs; i++)
        if (r->runs[i].policy == KVAD_CACHE_GROW) return &r->runs[i];
    return &r->runs[0];
}

static void print_naive(const struct kvad_memory_result *r) {
    const struct kvad_memory_run *run = naive_run(r);
    printf("\nThe naive way: by how much the process grew since before the engine was opened\n"
           "(%s, %s, nothing warm), beside the bytes of a token times the tokens\n",
           kvad_cache_policy_name(run->policy), kvad_kv_type_name(run->kv));
    printf("%7s%12s%12s%12s%12s%12s\n", "tokens", "formula", "requested", "offset", "resident",
           "offset");
    for (unsigned i = 0; i < run->n_checkpoints; i++) {
        const struct kvad_memory_checkpoint *c = &run->naive[i];
        struct kvad_memory_offset offset = kvad_memory_offset_whole(run, c);
        long long rows = (long long)c->rows;
        printf("%7u%12llu%12lld%12lld", c->tokens, (unsigned long long)c->rows,
               rows + (long long)offset.requested, (long long)offset.requested);
        if (r->no_resident_why)
            printf("%12s%12s\n", "-", "-");
        else
            printf("%12lld%12lld\n", rows + (long long)offset.resident, (long long)offset.resident);
    }
}

/* "step buffers" of "step_buffers". */
static const char *label(enum kvad_memory_owner owner, char out[24]) {
    snprintf(out, 24, "%s", kvad_memory_owner_name(owner));
    for (char *c = out; *c; c++)
        if (*c == '_') *c = ' ';
    return out;
}

/* Both sides of an offset; a dash where pages cannot be seen. */
static void print_offset(const struct kvad_memory_result *r, struct kvad_memory_offset offset) {
    printf("%8.1f", (double)offset.requested / 1024);
    if (r->no_resident_why)
        printf("%8s", "-");
    else
        printf("%8.1f", (double)offset.resident / 1024);
}

/* Runs of the first type of cache: one for each policy. */
static size_t count_policies(const struct kvad_memory_result *r) {
    size_t n = 1;
    while (n < r->n_runs && r->runs[n].kv == r->runs[0].kv)
        n++;
    return n;
}

static const struct kvad_memory_checkpoint *last_naive(const struct kvad_memory_run *run) {
    return &run->naive[run->n_checkpoints - 1];
}

static void print_offset_row(const struct kvad_memory_result *r, enum kvad_memory_owner owner,
                             size_t n) {
    char name[24];
    bool is_zero = true;
    struct kvad_memory_offset offsets[KVAD_CACHE_POLICY_COUNT];
    for (size_t i = 0; i < n; i++) {
        offsets[i] = kvad_memory_offset_of(&r->runs[i], last_naive(&r->runs[i]), owner);
        is_zero = is_zero && !offsets[i].requested && !offsets[i].resident;
    }
    if (is_zero) return;
    printf("%-14s", label(owner, name));
    for (size_t i = 0; i < n; i++)
        print_offset(r, offsets[i]);
    putchar('\n');
}

static void print_offsets(const struct kvad_memory_result *r) {
    size_t n = count_policies(r);
    printf("\nWhat the offset at %u tokens is made of, in KiB (requested, resident)\n%-14s",
           r->n_ctx, "");
    for (size_t i = 0; i < n; i++)
        printf("%16s", kvad_cache_policy_name(r->runs[i].policy));
    putchar('\n');
    for (int o = 0; o < KVAD_MEMORY_OWNERS; o++)
        print_offset_row(r, (enum kvad_memory_owner)o, n);
    printf("%-14s", "unexplained");
    for (size_t i = 0; i < n; i++)
        print_offset(r, kvad_memory_offset_unexplained(&r->runs[i], last_naive(&r->runs[i])));
    printf("\n%-14s", "offset");
    for (size_t i = 0; i < n; i++)
        print_offset(r, kvad_memory_offset_whole(&r->runs[i], last_naive(&r->runs[i])));
    puts("\n(cache: what lies beyond the rows of the text: the last block, what is reserved)");
}

static void print_warmed(const struct kvad_memory_result *r, const struct kvad_memory_run *run) {
    printf("\n%s, %s, %llu bytes a token; warmed up, other live buffers subtracted\n",
           kvad_cache_policy_name(run->policy), kvad_kv_type_name(run->kv),
           (unsigned long long)run->token_bytes);
    printf("%6s%10s%8s%11s%11s%5s%11s%5s%11s\n", "tokens", "rows", "+block", "formula", "requested",
           "diff", "reserved", "diff", "resident");
    for (unsigned i = 0; i < run->n_checkpoints; i++) {
        const struct kvad_memory_checkpoint *c = &run->warmed[i];
        printf("%6u%10llu%8llu%11llu%11llu%5lld%11llu%5lld", c->tokens, (unsigned long long)c->rows,
               (unsigned long long)c->remainder, (unsigned long long)c->formula,
               (unsigned long long)c->held, (long long)c->residual, (unsigned long long)c->reserved,
               (long long)c->reserved_residual);
        if (r->no_resident_why)
            printf("%11s\n", "-");
        else
            printf("%11llu\n", (unsigned long long)c->memory.owners[KVAD_MEMORY_CACHE].resident);
    }
    const struct kvad_memory_checkpoint *last = &run->warmed[run->n_checkpoints - 1];
    if (run->policy == KVAD_CACHE_GROW)
        printf("while it grew, the old and the new area were held at once: %llu bytes\n",
               (unsigned long long)last->peak);
}

/* All of the process at the last checkpoint of the last run. */
static void print_owners(const struct kvad_memory_result *r) {
    const struct kvad_memory_run *run = &r->runs[r->n_runs - 1];
    const struct kvad_memory_checkpoint *c = &run->warmed[run->n_checkpoints - 1];
    const struct kvad_memory_snapshot *s = &c->memory;
    printf("\nWhere the process's memory is (%s, %s, %u tokens)\n%-16s%14s%14s%14s\n",
           kvad_cache_policy_name(run->policy), kvad_kv_type_name(run->kv), c->tokens, "bytes",
           "requested", "allocated", "resident");
    for (int o = 0; o < KVAD_MEMORY_OWNERS; o++) {
        const struct kvad_memory_bytes *b = &s->owners[o];
        char name[24];
        if (!b->requested && !b->allocated && !b->resident) continue;
        printf("%-16s%14llu%14llu", label((enum kvad_memory_owner)o, name),
               (unsigned long long)b->requested, (unsigned long long)b->allocated);
        if (r->no_resident_why)
            printf("%14s\n", "-");
        else
            printf("%14llu\n", (unsigned long long)b->resident);
    }
    if (r->no_resident_why) return;
    printf("%-16s%42lld\n%-16s%42llu\n%.3f %% explained\n", "unexplained",
           (long long)s->unexplained, "process (Rss)", (unsigned long long)s->resident,
           kvad_memory_snapshot_explained(s));
}

int cli_memory_print_result(const struct kvad_memory_result *result, const char *name) {
    print_head(result, name);
    print_verdict(result);
    print_naive(result);
    print_offsets(result);
    for (size_t i = 0; i < result->n_runs; i++)
        print_warmed(result, &result->runs[i]);
    print_owners(result);
    int status = cli_flush_output();
    if (status != CLI_EXIT_OK) return status;
    return kvad_memory_result_is_exact(result) ? CLI_EXIT_OK : CLI_EXIT_FAILURE;
}
