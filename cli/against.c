#include "cli/against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/groups.h"
#include "cli/json.h"

int cli_against_open(struct cli_against *against, const struct cli_settings *settings, size_t n,
                     size_t chunk) {
    struct kvad_error err = {0};
    *against = (struct cli_against){.settings = *settings};
    against->settings.weights = settings->against;
    against->settings.kv = KVAD_KV_F32;
    against->settings.k_type = against->settings.v_type = -1;
    against->settings.cache = KVAD_CACHE_PAGED;
    int status = cli_session_load(&against->session, &against->settings);
    if (status == 0) status = cli_session_open_engine(&against->session, 1, n);
    if (status != 0) return status;
    if (kvad_sequence_create(against->session.engine, &against->sequence, &err) != KVAD_OK)
        return cli_fail(&err);
    against->logits = malloc(chunk * against->session.info.n_vocab * sizeof *against->logits);
    return against->logits ? 0 : cli_fail_memory("the logits of the reference");
}

/* Largest logit, its first place, and log of the sum of exp(logit - largest). */
struct row {
    const float *logits;
    size_t top;
    double max, log_sum;
};

static struct row read_row(const float *logits, size_t n) {
    struct row row = {.logits = logits};
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[row.top]) row.top = i;
    row.max = logits[row.top];
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(logits[i] - row.max);
    row.log_sum = log(sum);
    return row;
}

static double log_probability(const struct row *row, size_t id) {
    return row->logits[id] - row->max - row->log_sum;
}

static void compare(struct cli_against *a, const struct row *reference, const struct row *row,
                    size_t n) {
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        double p = log_probability(reference, i);
        double difference = (double)row->logits[i] - (double)reference->logits[i];
        kl += exp(p) * (p - log_probability(row, i));
        a->logit_square_sum += difference * difference;
        if (fabs(difference) > a->logit_max) a->logit_max = fabs(difference);
    }
    a->kl_sum += kl;
    if (kl > a->kl_max) a->kl_max = kl;
    a->n_same_top += reference->top == row->top;
    a->n_rows++;
}

int cli_against_rows(struct cli_against *against, const int32_t *ids, size_t n, size_t first,
                     size_t n_rows, const float *logits) {
    size_t n_vocab = against->session.info.n_vocab;
    struct kvad_error err = {0};
    struct kvad_eval_item item = {.sequence = against->sequence,
                                  .tokens = ids + first,
                                  .n_tokens = n_rows,
                                  .n_rows = n_rows,
                                  .logits = against->logits};
    if (kvad_eval(against->session.engine, &item, 1, &err) != KVAD_OK) return cli_fail(&err);
    for (size_t r = 0; r < n_rows; r++) {
        struct row reference = read_row(against->logits + r * n_vocab, n_vocab);
        struct row row = read_row(logits + r * n_vocab, n_vocab);
        compare(against, &reference, &row, n_vocab);
        if (first + r + 1 >= n) continue;
        against->logprob_sum += log_probability(&reference, (size_t)ids[first + r + 1]);
        against->n_logprobs++;
    }
    return 0;
}

static double mean(double sum, size_t n) {
    return n ? sum / (double)n : NAN;
}

static double rms(const struct cli_against *a) {
    return sqrt(mean(a->logit_square_sum, a->n_rows * a->session.info.n_vocab));
}

static double perplexity(const struct cli_against *a) {
    return exp(-mean(a->logprob_sum, a->n_logprobs));
}

json_t *cli_against_json(const struct cli_against *a) {
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "weights",
                     kvad_weight_type_name((enum kvad_weight_type)a->settings.weights), "rows",
                     (json_int_t)a->n_rows, "top1_agreement",
                     cli_json_number(mean((double)a->n_same_top, a->n_rows)), "kl_mean",
                     cli_json_number(mean(a->kl_sum, a->n_rows)), "kl_max",
                     cli_json_number(a->kl_max), "logit_max_error", cli_json_number(a->logit_max),
                     "logit_rms_error", cli_json_number(rms(a)), "perplexity",
                     cli_json_number(perplexity(a)));
}

void cli_against_print(const struct cli_against *a) {
    printf("against %s: perplexity %.4f there; same likeliest token in %zu of %zu rows; "
           "KL divergence %.3g nats (largest %.3g); logit error RMS %.3g, largest %.3g\n",
           kvad_weight_type_name((enum kvad_weight_type)a->settings.weights), perplexity(a),
           a->n_same_top, a->n_rows, mean(a->kl_sum, a->n_rows), a->kl_max, rms(a), a->logit_max);
}

void cli_against_close(struct cli_against *against) {
    kvad_sequence_destroy(&against->sequence);
    cli_session_deinit(&against->session);
    free(against->logits);
    against->logits = NULL;
}
