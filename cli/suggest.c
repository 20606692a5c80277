#include "cli/suggest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LONGEST = 40 }; /* no name is longer; longer words are not compared */

static char folded(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c + ('a' - 'A'));
    return c == '_' ? '-' : c;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            bool is_swap = i > 1 && j > 1 && x == folded(b[j - 2]) && y == folded(a[i - 2]);
            if (is_swap) row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

void cli_suggestion_start(struct cli_suggestion *suggestion, const char *wanted, size_t size) {
    *suggestion = (struct cli_suggestion){wanted, size, NULL, SIZE_MAX};
}

void cli_suggestion_offer(struct cli_suggestion *suggestion, const char *candidate, size_t size,
                          const char *name) {
    if (suggestion->wanted_size > LONGEST || size > LONGEST) return;
    size_t edits = distance(suggestion->wanted, suggestion->wanted_size, candidate, size);
    /* More than a third of the letters wrong is another word. */
    if (edits > 1 + size / 3 || edits >= least(size, suggestion->best_distance)) return;
    suggestion->best = name;
    suggestion->best_distance = edits;
}

const char *cli_suggestion_best(const struct cli_suggestion *suggestion) {
    return suggestion->best;
}
