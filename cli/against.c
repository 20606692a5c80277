#include "cli/against.h"

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
        const float *reference = against->logits + r * n_vocab;
        kvad_accuracy_add(&against->accuracy, reference, logits + r * n_vocab, n_vocab);
        if (first + r + 1 >= n) continue;
        against->logprob_sum += kvad_accuracy_logprob(reference, n_vocab, ids[first + r + 1]);
        against->n_logprobs++;
    }
    return 0;
}

json_t *cli_against_json(const struct cli_against *a) {
    const struct kvad_accuracy *accuracy = &a->accuracy;
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "weights",
                     kvad_weight_type_name((enum kvad_weight_type)a->settings.weights), "rows",
                     (json_int_t)accuracy->n_rows, "top1_agreement",
                     cli_json_number(kvad_accuracy_top1(accuracy)), "kl_mean",
                     cli_json_number(kvad_accuracy_kl(accuracy)), "kl_max",
                     cli_json_number(accuracy->kl_max), "logit_max_error",
                     cli_json_number(accuracy->logit_max), "logit_rms_error",
                     cli_json_number(kvad_accuracy_rms(accuracy)), "perplexity",
                     cli_json_number(kvad_accuracy_perplexity(a->logprob_sum, a->n_logprobs)));
}

void cli_against_print(const struct cli_against *a) {
    const struct kvad_accuracy *accuracy = &a->accuracy;
    printf("against %s: ", kvad_weight_type_name((enum kvad_weight_type)a->settings.weights));
    if (a->n_logprobs > 0)
        printf("perplexity %.4f there; ", kvad_accuracy_perplexity(a->logprob_sum, a->n_logprobs));
    printf("same likeliest token in %zu of %zu rows; "
           "KL divergence %.3g nats (largest %.3g); logit error RMS %.3g, largest %.3g\n",
           accuracy->n_same_top, accuracy->n_rows, kvad_accuracy_kl(accuracy), accuracy->kl_max,
           kvad_accuracy_rms(accuracy), accuracy->logit_max);
}

void cli_against_close(struct cli_against *against) {
    kvad_sequence_destroy(&against->sequence);
    cli_session_deinit(&against->session);
    free(against->logits);
    against->logits = NULL;
}
