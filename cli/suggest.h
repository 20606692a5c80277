/* The name a user most likely meant. */
#ifndef KVAD_CLI_SUGGEST_H
#define KVAD_CLI_SUGGEST_H

#include <stddef.h>

/* Keeps the nearest candidate; start with {.wanted = text, .best_distance = SIZE_MAX}. */
struct cli_suggestion {
    const char *wanted;
    size_t wanted_size;
    const char *best;     /* name to suggest */
    size_t best_distance; /* edits between `wanted` and the candidate that led to it */
};

void cli_suggestion_start(struct cli_suggestion *suggestion, const char *wanted, size_t size);
/** Compare with `candidate` of `size` bytes and remember `name` if it is the nearest so far. '_'
 * and
 * '-', capitals and small letters count as equal. */
void cli_suggestion_offer(struct cli_suggestion *suggestion, const char *candidate, size_t size,
                          const char *name);
/** The remembered name if it is near enough to be meant, else NULL. */
const char *cli_suggestion_best(const struct cli_suggestion *suggestion);

#endif
