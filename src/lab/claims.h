/* What two articles on KV caches say about time, beside what a run on this machine gave.
 *
 * Every verdict is a function of numbers that were measured or counted in the same run: nothing
 * here knows a machine. docs/latency.md has the limits between the verdicts. */
#ifndef KVAD_LAB_CLAIMS_H
#define KVAD_LAB_CLAIMS_H

#include "lab/curve.h"

/* What the verdicts are made of. */
struct kvad_claim_facts {
    struct kvad_curve naive, cached; /* at the same contexts */
    /* [n] share of a step's time in attention proper: scores, softmax, weighted sums, new rows */
    const double *naive_attention_percent, *cached_attention_percent;
    double flop_ratio, byte_ratio; /* naive to cached, at the longest context */
    uint32_t n_prompt, n_tokens;   /* of the text that the totals are about */
    double naive_seconds, cached_seconds;
    double gap_ms; /* cached step at the longest context, less what its operations would take at
                           the naive step's rate */
    double overhead_ms;              /* of that: outside weights, cache, arithmetic and sampling */
    uint32_t n_ctx;                  /* longest text that the model allows */
    double linear_flops_per_row;     /* of the layers */
    double attention_flops_per_pair; /* for each token that a row sees */
};

enum kvad_claim_verdict { KVAD_CLAIM_CONFIRMED, KVAD_CLAIM_ONLY_WHEN, KVAD_CLAIM_REFUTED };

struct kvad_claim {
    const char *id;    /* "flops", "total", "flat", "overhead", "attention", "cubic", "hundred" */
    const char *claim; /* what the article says */
    enum kvad_claim_verdict verdict;
    double figure;  /* ours: what the claim's own figure is compared with */
    char ours[160]; /* what this run gave */
    char when[160]; /* when it is true; empty unless ONLY_WHEN */
};
enum { KVAD_CLAIMS = 7 };

/** Judge all claims, in the order of docs/latency.md. */
void kvad_claims_judge(const struct kvad_claim_facts *facts, struct kvad_claim claims[KVAD_CLAIMS]);

/** "confirmed", "true only when", "refuted". */
const char *kvad_claim_verdict_name(enum kvad_claim_verdict verdict);

#endif
