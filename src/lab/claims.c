#include "lab/claims.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define SAY(text, ...) snprintf(text, sizeof text, __VA_ARGS__)

static uint32_t first_context(const struct kvad_claim_facts *facts) {
    return facts->cached.contexts[0];
}

static uint32_t last_context(const struct kvad_claim_facts *facts) {
    return facts->cached.contexts[facts->cached.n - 1];
}

/* How many times faster the cached step is. */
static double ratio_at(const struct kvad_claim_facts *facts, double context) {
    return kvad_curve_at(&facts->naive, context) / kvad_curve_at(&facts->cached, context);
}

/* First context at which the cached step is so many times faster; false: nowhere. */
static bool find_ratio(const struct kvad_claim_facts *facts, double wanted, uint32_t *context) {
    for (uint32_t c = first_context(facts); c <= last_context(facts); c++) {
        if (ratio_at(facts, c) < wanted) continue;
        *context = c;
        return true;
    }
    return false;
}

/* "1000 times fewer operations make a step 6 times faster": what it says is that time does not
 * follow the operations; 6 is given half as much again, both ways. */
static void judge_flops(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    c->id = "flops";
    c->claim = "1000 times fewer operations make a step 6 times faster";
    c->figure = ratio_at(facts, last_context(facts));
    SAY(c->ours, "%.0f times fewer operations, %.1f times fewer bytes: %.1f times faster",
        facts->flop_ratio, facts->byte_ratio, c->figure);
    uint32_t context;
    bool follows = c->figure >= facts->flop_ratio / 2;
    if (follows) {
        c->verdict = KVAD_CLAIM_REFUTED;
    } else if (facts->flop_ratio >= 500 && c->figure >= 4 && c->figure <= 9) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (find_ratio(facts, 6, &context)) {
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "the context is about %u tokens: there it is 6 times", context);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

/* Number of tokens after which the whole text was so many times faster; 0: from the first on, or
 * never. */
static uint32_t find_total(const struct kvad_claim_facts *facts, double wanted) {
    double naive = 0, cached = 0;
    for (uint32_t i = 0; i < facts->n_tokens; i++) {
        uint32_t context = facts->n_prompt - 1 + i;
        naive += kvad_curve_at(&facts->naive, context);
        cached += kvad_curve_at(&facts->cached, context);
        if (naive >= wanted * cached) return i > 0 ? i + 1 : 0;
    }
    return 0;
}

/* 14.66 s / 5.03 s = 2.91; a fifth of it both ways counts as the same. */
static void judge_total(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    const double theirs = 14.66 / 5.03;
    c->id = "total";
    c->claim = "1016 tokens take 5.03 s with a cache and 14.66 s without: 2.9 times";
    c->figure = facts->naive_seconds / facts->cached_seconds;
    SAY(c->ours, "%u tokens take %.3g s and %.3g s: %.1f times", facts->n_tokens,
        facts->cached_seconds, facts->naive_seconds, c->figure);
    uint32_t n = c->figure > theirs ? find_total(facts, theirs) : 0;
    if (c->figure >= 0.8 * theirs && c->figure <= 1.2 * theirs) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (n > 1 && n >= facts->n_tokens / 100) { /* fewer are no text */
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "the text ends after about %u tokens", n);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

/* Longest measured context up to which no step took a tenth more than the first. */
static uint32_t flat_until(const struct kvad_claim_facts *facts) {
    uint32_t context = first_context(facts);
    for (size_t i = 0; i < facts->cached.n; i++) {
        if (facts->cached.ms[i] > 1.1 * facts->cached.ms[0]) break;
        context = facts->cached.contexts[i];
    }
    return context;
}

static void judge_flat(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    uint32_t first = first_context(facts), last = last_context(facts), until = flat_until(facts);
    c->id = "flat";
    c->claim = "with a cache the time of a token is nearly the same at every context";
    c->figure = facts->cached.ms[facts->cached.n - 1] / facts->cached.ms[0];
    SAY(c->ours, "context %u takes %.2f times as long as context %u", last, c->figure, first);
    if (until == last) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (until > first && until >= last / 16) {
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "the text is no longer than %u tokens (within a tenth)", until);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

/* Half of the gap would be "the gap"; below a tenth it is something else. */
static void judge_overhead(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    c->id = "overhead";
    c->claim = "what is missing between fewer operations and less time is CPU and launch overhead";
    c->figure = facts->gap_ms > 0 ? 100 * facts->overhead_ms / facts->gap_ms : 0;
    SAY(c->ours, "overhead and waiting are %.1f %% of the missing %.3g ms", c->figure,
        facts->gap_ms);
    c->verdict = c->figure >= 50   ? KVAD_CLAIM_CONFIRMED
                 : c->figure <= 10 ? KVAD_CLAIM_REFUTED
                                   : KVAD_CLAIM_ONLY_WHEN;
    if (c->verdict == KVAD_CLAIM_ONLY_WHEN)
        SAY(c->when, "weights and cache are read in little time, as they are here");
}

/* Largest share of attention over all contexts of one side. */
static size_t largest(const double *percent, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (percent[i] > percent[best]) best = i;
    return best;
}

static void judge_attention(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    size_t n = facts->cached.n;
    const double *naive = facts->naive_attention_percent, *cached = facts->cached_attention_percent;
    size_t a = largest(naive, n), b = largest(cached, n);
    bool is_naive = naive[a] > cached[b];
    c->id = "attention";
    c->claim = "attention takes over 80 % of the time";
    c->figure = is_naive ? naive[a] : cached[b];
    SAY(c->ours,
        "at most %.0f %% (without a cache %.0f %%); by operations 80 %% from %.0f tokens on",
        c->figure, naive[a], 8 * facts->linear_flops_per_row / facts->attention_flops_per_pair);
    if (naive[n - 1] > 80 && cached[n - 1] > 80) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (c->figure > 80) {
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "%s a cache, at context %u", is_naive ? "without" : "with",
            facts->cached.contexts[is_naive ? a : b]);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

/* Step n costs a n + b n^2 / 2 operations, hence N tokens a N^2 / 2 + b N^3 / 6; with x = b N / 3a
 * twice the tokens cost (1 + x) / (1/4 + x/8) times as much: that is 2^2.75 where x is 4.285. */
static double cubic_from(const struct kvad_claim_facts *facts) {
    return 3 * 4.285 * facts->linear_flops_per_row / facts->attention_flops_per_pair;
}

static void judge_cubic(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    size_t n = (size_t)facts->n_prompt + facts->n_tokens;
    double whole = kvad_curve_seconds(&facts->naive, 0, n);
    double half = kvad_curve_seconds(&facts->naive, 0, n / 2);
    double from = cubic_from(facts);
    c->id = "cubic";
    c->claim = "generating N tokens without a cache is O(N^3)";
    c->figure = log2(whole / half);
    SAY(c->ours, "twice the tokens take %.1f times as long, N^%.2f; N^2.75 from %.0f tokens on",
        whole / half, c->figure, from);
    if (c->figure >= 2.75) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (from <= facts->n_ctx) {
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "the text is longer than %.0f tokens", from);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

static void judge_hundred(const struct kvad_claim_facts *facts, struct kvad_claim *c) {
    uint32_t context, last = last_context(facts);
    double total = facts->naive_seconds / facts->cached_seconds;
    c->id = "hundred";
    c->claim = "a cache makes generation 100 times faster";
    c->figure = total;
    SAY(c->ours, "a step at context %u %.0f times, the whole text %.1f times", last,
        ratio_at(facts, last), total);
    if (total >= 100) {
        c->verdict = KVAD_CLAIM_CONFIRMED;
    } else if (find_ratio(facts, 100, &context)) {
        c->verdict = KVAD_CLAIM_ONLY_WHEN;
        SAY(c->when, "only the step counts, from context %u on", context);
    } else {
        c->verdict = KVAD_CLAIM_REFUTED;
    }
}

void kvad_claims_judge(const struct kvad_claim_facts *facts,
                       struct kvad_claim claims[KVAD_CLAIMS]) {
    static void (*const judges[KVAD_CLAIMS])(const struct kvad_claim_facts *,
                                             struct kvad_claim *) = {
        judge_flops,     judge_total, judge_flat,   judge_overhead,
        judge_attention, judge_cubic, judge_hundred};
    for (size_t i = 0; i < KVAD_CLAIMS; i++) {
        claims[i] = (struct kvad_claim){0};
        judges[i](facts, &claims[i]);
    }
}

const char *kvad_claim_verdict_name(enum kvad_claim_verdict verdict) {
    static const char *const names[] = {"confirmed", "true only when", "refuted"};
    return names[verdict];
}
