#include "cli/show_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_CELLS = 64 };

static const char legend[] =
    "kvad: a sign is a block, or the busiest of several: . free; o idle, kept for a prompt that "
    "begins like it;\n"
    "kvad: 1 to 9 held by so many texts, + by more. live: blocks with one holder; shared: with "
    "more; "
    "found: prompt\n"
    "kvad: tokens that were in the cache, of all; evicted, copied: blocks so far; preempted: texts "
    "so far\n";

/* At most N_CELLS signs; of a larger pool each is the busiest of its share of blocks. */
static void make_picture(const struct kvad_engine *engine, char picture[N_CELLS + 1]) {
    static const char order[] = ".o123456789+";
    size_t n = kvad_cache_map(engine, NULL, 0);
    char *map = malloc(n + 1);
    picture[0] = '\0';
    if (!map) return;
    (void)kvad_cache_map(engine, map, n + 1);
    size_t n_cells = n < N_CELLS ? n : N_CELLS;
    for (size_t cell = 0; cell < n_cells; cell++) {
        picture[cell] = '.';
        for (size_t i = n * cell / n_cells; i < n * (cell + 1) / n_cells; i++)
            if (strchr(order, map[i]) > strchr(order, picture[cell])) picture[cell] = map[i];
    }
    picture[n_cells] = '\0';
    free(map);
}

void cli_cache_view_draw(struct cli_cache_view *view, const struct kvad_engine *engine) {
    struct kvad_cache_stats s;
    struct kvad_engine_info info;
    char picture[N_CELLS + 1], line[sizeof view->last];
    kvad_cache_get_stats(engine, &s);
    kvad_engine_get_info(engine, &info);
    make_picture(engine, picture);
    uint64_t block = info.kv_bytes_per_token * info.block_tokens;
    snprintf(line, sizeof line,
             "[%s] %zu running %zu waiting | blocks: live %llu shared %llu idle %llu free %llu | "
             "found %llu of %llu | evicted %llu copied %llu preempted %llu",
             picture, s.n_running, s.n_waiting, (unsigned long long)(s.live_bytes / block),
             (unsigned long long)(s.shared_bytes / block),
             (unsigned long long)(s.idle_bytes / block), (unsigned long long)(s.free_bytes / block),
             (unsigned long long)s.n_hit_tokens, (unsigned long long)s.n_prompt_tokens,
             (unsigned long long)s.n_evictions, (unsigned long long)s.n_copies,
             (unsigned long long)s.n_preemptions);
    if (view->is_drawn && strcmp(line, view->last) == 0) return;
    if (!view->is_drawn) fputs(legend, stderr);
    memcpy(view->last, line, sizeof line);
    view->is_drawn = true;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s\033[K", line);
    else
        fprintf(stderr, "%s\n", line);
}

void cli_cache_view_end(struct cli_cache_view *view, const struct kvad_engine *engine) {
    cli_cache_view_draw(view, engine);
    if (isatty(STDERR_FILENO)) fputc('\n', stderr);
}
