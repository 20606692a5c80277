/* What a type of weights or cache costs in accuracy: the same text through the same model in
 * another type, row against row. */
#ifndef KVAD_CLI_AGAINST_H
#define KVAD_CLI_AGAINST_H

#include <jansson.h>

#include "cli/session.h"
#include "lab/accuracy.h"

struct cli_against {
    struct cli_settings settings; /* of the reference: weights as --against says, cache in f32 */
    struct cli_session session;
    struct kvad_sequence *sequence;
    float *logits; /* [chunk][n_vocab] of the reference */
    struct kvad_accuracy accuracy;
    double logprob_sum; /* of the text's tokens, by the reference */
    size_t n_logprobs;
};

/** Load the reference for texts of `n` tokens in steps of at most `chunk`. Returns an exit code;
 * cli_against_close() follows in any case. */
int cli_against_open(struct cli_against *against, const struct cli_settings *settings, size_t n,
                     size_t chunk);
/** Compare `logits` [n_rows][n_vocab] of the tokens ids[first, first + n_rows) with the
 * reference's; rows come in order. `n` is the length of the whole text. */
int cli_against_rows(struct cli_against *against, const int32_t *ids, size_t n, size_t first,
                     size_t n_rows, const float *logits);
/** The result as an object of numbers, and as lines on stdout. */
json_t *cli_against_json(const struct cli_against *against);
void cli_against_print(const struct cli_against *against);
void cli_against_close(struct cli_against *against);

#endif
