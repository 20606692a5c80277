/* Checks of requests that share blocks and of requests that lose theirs. */
#include "lab/verify_internal.h"

/* ---------------------------------------------------------------- prefixes */

enum { CUTS = 5, ANSWERS = VERIFY_TEXTS + CUTS };

/* Prompts: all texts, and text 0 cut off at block edges and beside them. */
struct prefixes {
    struct verify_run *run;
    struct verify_answer answers[ANSWERS];
    struct verify_job jobs[ANSWERS];
    struct kvad_engine_options options;
    struct kvad_engine *engine; /* that shares */
    size_t seen[4 * ANSWERS];   /* prompts that the engine has run, since it was opened */
    const char *salts[4 * ANSWERS];
    size_t n_seen;
};

static bool make_prompts(struct prefixes *p) {
    struct kvad_verify *v = p->run->v;
    static const size_t cuts[CUTS] = {5, 16, 17, 32, 33};
    size_t n_new = v->is_large ? 1 : 3, longest = v->n - n_new;
    for (size_t i = 0; i < ANSWERS; i++) {
        struct verify_job *job = &p->jobs[i];
        bool is_cut = i >= VERIFY_TEXTS;
        job->prompt = v->texts[is_cut ? 0 : i].tokens;
        job->n_prompt = is_cut ? kvad_min_size(cuts[i - VERIFY_TEXTS], longest) : longest;
        job->answer = &p->answers[i];
        if (!verify_answer_reserve(p->run, &p->answers[i], n_new)) return false;
    }
    return true;
}

/* What each prompt gives alone, when nothing is shared. */
static bool run_cold(struct prefixes *p) {
    struct kvad_engine_options options = p->options;
    options.no_prefix_cache = true;
    struct kvad_engine *engine = NULL;
    bool ok = verify_case(p->run, "a cold start") && verify_engine_open(p->run, &options, &engine);
    for (size_t i = 0; ok && i < ANSWERS; i++)
        ok = verify_jobs_run(p->run, engine, &p->jobs[i], 1);
    verify_engine_close(p->run, &engine);
    return ok;
}

static bool reopen(struct prefixes *p, uint64_t kv_bytes) {
    verify_engine_close(p->run, &p->engine);
    p->options.kv_bytes = kv_bytes;
    p->n_seen = 0;
    return verify_engine_open(p->run, &p->options, &p->engine);
}

static bool same_salt(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static size_t common_tokens(const struct verify_job *a, const struct verify_job *b) {
    size_t n = kvad_min_size(a->n_prompt, b->n_prompt), i = 0;
    while (i < n && a->prompt[i] == b->prompt[i])
        i++;
    return i;
}

/* The most tokens of prompt `i` that can be cached under a salt: what it has in common with prompts
 * that ran before, and with what they gave. */
static size_t most_cached(const struct prefixes *p, size_t i, const char *salt) {
    const struct verify_job *job = &p->jobs[i];
    size_t most = 0;
    for (size_t j = 0; j < p->n_seen; j++) {
        if (!same_salt(p->salts[j], salt)) continue;
        const struct verify_job *other = &p->jobs[p->seen[j]];
        size_t n = common_tokens(job, other);
        if (n == other->n_prompt) n += other->answer->n;
        if (n > most) most = n;
    }
    return kvad_min_size(most, job->n_prompt);
}

/* Run prompt `i`. `must_hit`: it has to find something, or the check proves nothing. */
static bool run_prompt(struct prefixes *p, size_t i, const char *salt, bool must_hit) {
    struct verify_job *job = &p->jobs[i];
    job->salt = salt;
    if (!verify_jobs_run(p->run, p->engine, job, 1)) return false;
    size_t most = most_cached(p, i, salt);
    if (job->n_cached > most)
        return verify_fail(p->run, "a prompt begins in %zu cached tokens, but only %zu can be its",
                           job->n_cached, most);
    if (must_hit && job->n_cached == 0)
        return verify_fail(p->run, "a prompt finds none of its %zu cached tokens", most);
    p->salts[p->n_seen] = salt;
    p->seen[p->n_seen++] = i;
    return true;
}

static bool run_hits(struct prefixes *p) {
    if (!verify_case(p->run, "the same prompt again") || !reopen(p, 0) ||
        !run_prompt(p, 0, NULL, false) || !run_prompt(p, 0, NULL, true))
        return false;
    for (size_t i = 1; i < ANSWERS; i++) {
        const struct verify_job *job = &p->jobs[i];
        size_t most = most_cached(p, i, NULL);
        if (!verify_case(p->run, "a prompt of %zu tokens, %zu of them cached", job->n_prompt,
                         most) ||
            !run_prompt(p, i, NULL, most >= KVAD_KV_TILE && most < job->n_prompt))
            return false;
    }
    return true;
}

static bool run_salts(struct prefixes *p) {
    return verify_case(p->run, "the same prompt under another salt") && reopen(p, 0) &&
           run_prompt(p, 0, "a", false) && run_prompt(p, 0, "b", false) &&
           run_prompt(p, 0, NULL, false) && run_prompt(p, 0, "a", true);
}

/* Prompts that evict each other, and come back. */
static bool run_evictions(struct prefixes *p) {
    struct kvad_verify *v = p->run->v;
    static const size_t prompts[] = {0, 4, 1, 5, 0, 2, 4, 3, 5, 0};
    size_t n_blocks = (v->n + KVAD_KV_TILE - 1) / KVAD_KV_TILE + 1;
    if (!verify_case(p->run, "prompts that evict each other") ||
        !reopen(p, n_blocks * KVAD_KV_TILE * verify_token_bytes(v)))
        return false;
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        if (!run_prompt(p, prompts[i], NULL, false)) return false;
    return true;
}

/* Prompts at once: some wait for what another one computes. */
static bool run_together(struct prefixes *p) {
    struct verify_job jobs[] = {p->jobs[0], p->jobs[0], p->jobs[1], p->jobs[4]};
    for (size_t i = 0; i < 4; i++)
        jobs[i].salt = NULL;
    return verify_case(p->run, "prompts with the same beginning at once") && reopen(p, 0) &&
           verify_jobs_run(p->run, p->engine, jobs, 4);
}

bool verify_prefix(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    /* Whole blocks alone are cached; a prompt has to go on behind one. */
    if (v->n < KVAD_KV_TILE + 4)
        return verify_skip(run, "the context of the model is %zu tokens, a block is %d", v->n,
                           KVAD_KV_TILE);
    struct prefixes p = {.run = run, .options = verify_engine_options(v, KVAD_CACHE_PAGED, 4)};
    p.options.no_prefix_cache = false;
    bool ok = make_prompts(&p) && run_cold(&p) && run_hits(&p) && run_salts(&p) &&
              run_evictions(&p) && run_together(&p);
    verify_engine_close(run, &p.engine);
    verify_answers_free(run, p.answers, ANSWERS);
    return ok;
}

/* ---------------------------------------------------------------- preemption */

enum { JOBS = 3 };

/* All at once in a pool of `n_blocks` (0: enough for all). */
static bool run_jobs(struct verify_run *run, struct verify_job *jobs, size_t n_blocks, bool shares,
                     size_t *n_preemptions) {
    struct kvad_verify *v = run->v;
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_PAGED, JOBS);
    options.no_prefix_cache = !shares;
    options.kv_bytes = n_blocks * KVAD_KV_TILE * verify_token_bytes(v);
    struct kvad_engine *engine = NULL;
    bool ok =
        verify_engine_open(run, &options, &engine) && verify_jobs_run(run, engine, jobs, JOBS);
    verify_engine_close(run, &engine);
    *n_preemptions = 0;
    for (size_t i = 0; i < JOBS; i++)
        *n_preemptions += jobs[i].n_preemptions;
    return ok;
}

static bool run_small(struct verify_run *run, struct verify_job *jobs, size_t n_blocks, bool shares,
                      size_t *total) {
    size_t n_preemptions;
    if (!verify_case(run, "a pool of %zu blocks %s a prefix cache", n_blocks,
                     shares ? "with" : "without") ||
        !run_jobs(run, jobs, n_blocks, shares, &n_preemptions))
        return false;
    *total += n_preemptions;
    if (n_preemptions > 0) return true;
    return verify_fail(run, "no request was preempted: the check proves nothing");
}

bool verify_preemption(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    /* Each request begins in one block and ends in n_blocks (its last token is not fed); the pool
     * holds one of them and one block more. */
    size_t n_total = kvad_min_size(v->n, 6 * KVAD_KV_TILE), n_prompt = KVAD_KV_TILE - 3;
    size_t n_blocks = (n_total - 1 + KVAD_KV_TILE - 1) / KVAD_KV_TILE;
    if (n_blocks < 2)
        return verify_skip(run, "the context of the model is %zu tokens, a block is %d", v->n,
                           KVAD_KV_TILE);
    static const size_t texts[JOBS] = {0, 4, 5};
    struct verify_answer answers[JOBS] = {{0}};
    struct verify_job jobs[JOBS] = {{0}};
    bool ok = true;
    for (size_t i = 0; i < JOBS && ok; i++) {
        jobs[i] = (struct verify_job){.prompt = v->texts[texts[i]].tokens,
                                      .n_prompt = n_prompt,
                                      .answer = &answers[i],
                                      .is_sampled = i > 0};
        ok = verify_answer_reserve(run, &answers[i], n_total - n_prompt);
    }
    size_t n_preemptions = 0, total = 0;
    ok = ok && verify_case(run, "a large pool") && run_jobs(run, jobs, 0, false, &n_preemptions) &&
         run_small(run, jobs, n_blocks + 1, false, &total) &&
         run_small(run, jobs, n_blocks + 1, true, &total);
    verify_answers_free(run, answers, JOBS);
    if (ok) verify_note(run, "%zu preemptions", total);
    return ok;
}
