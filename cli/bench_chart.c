/* A chart of milliseconds per token over contexts: a column of letters for each context, one letter
 * for each policy, on a logarithmic scale; the floor is what reading the bytes takes at least. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/groups.h"

enum { ROWS = 10, MAX_CONTEXTS = 12, COLUMN = 9 /* characters for one context */ };

struct chart {
    const struct kvad_bench_result *result;
    enum kvad_weight_type weights;
    enum kvad_kv_type kv;
    uint32_t contexts[MAX_CONTEXTS];
    size_t n_contexts;
    double low, high; /* milliseconds at the bottom and the top, logarithms */
    char cells[ROWS][MAX_CONTEXTS * COLUMN];
};

static bool is_shown(const struct chart *chart, const struct kvad_bench_case *c) {
    return c->kind == KVAD_BENCH_DECODE && c->weights == chart->weights && c->kv == chart->kv;
}

/* Milliseconds that the bytes take at the rate of reading. */
static double floor_ms(const struct kvad_bench_case *c) {
    return 1e3 * c->bytes / c->read_rate;
}

/* Once for each context: of the policy that was measured last. Without a cache the bytes are few
 * and say nothing. */
static bool has_floor(const struct chart *chart, size_t i) {
    const struct kvad_bench_case *c = &chart->result->cases[i];
    bool is_last =
        i + 1 == chart->result->n_cases || c[1].kind != c->kind || c[1].context != c->context;
    return is_last && c->policy != KVAD_CACHE_NONE;
}

static void widen(struct chart *chart, double ms) {
    double value = log(ms);
    if (value < chart->low) chart->low = value;
    if (value > chart->high) chart->high = value;
}

/* Which contexts there are, and the range of the times. False: nothing to draw. */
static bool survey(struct chart *chart) {
    chart->low = HUGE_VAL;
    chart->high = -HUGE_VAL;
    for (size_t i = 0; i < chart->result->n_cases; i++) {
        const struct kvad_bench_case *c = &chart->result->cases[i];
        if (!is_shown(chart, c)) continue;
        size_t n = chart->n_contexts;
        bool is_new = n == 0 || chart->contexts[n - 1] != c->context;
        if (is_new && n == MAX_CONTEXTS) break;
        if (is_new) chart->contexts[chart->n_contexts++] = c->context;
        widen(chart, c->ms.median);
        if (has_floor(chart, i)) widen(chart, floor_ms(c));
    }
    if (chart->n_contexts == 0) return false;
    /* Some room, so that equal times do not divide by zero. */
    chart->low -= 0.05;
    chart->high += 0.05;
    return true;
}

static void put(struct chart *chart, uint32_t context, size_t place, double ms, char letter) {
    size_t column = 0;
    while (column < chart->n_contexts && chart->contexts[column] != context)
        column++;
    if (column == chart->n_contexts) return; /* beyond what the chart has room for */
    double share = (log(ms) - chart->low) / (chart->high - chart->low);
    long row = lround((1 - share) * (ROWS - 1));
    row = row < 0 ? 0 : row >= ROWS ? ROWS - 1 : row;
    char *cell = &chart->cells[row][column * COLUMN + place];
    if (*cell == ' ') *cell = letter;
}

/* Every policy has a place of its own in a column, so that none hides another. */
static void draw(struct chart *chart) {
    static const size_t places[] = {[KVAD_CACHE_NONE] = 2,
                                    [KVAD_CACHE_GROW] = 3,
                                    [KVAD_CACHE_STATIC] = 4,
                                    [KVAD_CACHE_PAGED] = 5};
    memset(chart->cells, ' ', sizeof chart->cells);
    for (size_t i = 0; i < chart->result->n_cases; i++) {
        const struct kvad_bench_case *c = &chart->result->cases[i];
        if (!is_shown(chart, c)) continue;
        put(chart, c->context, places[c->policy], c->ms.median,
            kvad_cache_policy_name(c->policy)[0]);
        if (has_floor(chart, i)) put(chart, c->context, 6, floor_ms(c), '-');
    }
}

static bool writes_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < CLI_COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

static void print_chart(const struct chart *chart) {
    bool is_utf8 = writes_utf8();
    int width = (int)(chart->n_contexts * COLUMN);
    for (size_t row = 0; row < ROWS; row++) {
        double share = 1 - (double)row / (ROWS - 1);
        double ms = exp(chart->low + share * (chart->high - chart->low));
        if (row % 3 == 0)
            printf("%9.*f ", ms < 1 ? 3 : ms < 100 ? 1 : 0, ms);
        else
            printf("%10s", "");
        printf("%s%.*s\n", is_utf8 ? "│" : "|", width, chart->cells[row]);
    }
    printf("%10s%s", "", is_utf8 ? "└" : "+");
    for (int i = 0; i < width; i++)
        fputs(is_utf8 ? "─" : "-", stdout);
    printf("\n%11s", "");
    for (size_t i = 0; i < chart->n_contexts; i++)
        printf("%6u   ", chart->contexts[i]);
    printf("\n%11sn none, g grow, s static, p paged, - what reading the bytes takes\n", "");
}

void cli_bench_print_chart(const struct kvad_bench_result *result, enum kvad_weight_type weights,
                           enum kvad_kv_type kv) {
    struct chart chart = {.result = result, .weights = weights, .kv = kv};
    if (!survey(&chart)) return;
    draw(&chart);
    printf("\nms per token over context, %s (logarithmic)\n", kvad_weight_type_name(weights));
    print_chart(&chart);
}
