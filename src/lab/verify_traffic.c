/* Requests that come at once and again, in a pool that is too small for them. */
#include "lab/verify_internal.h"

enum {
    JOBS = 12,
    SIDE_BY_SIDE = 3, /* sequences */
    CONTEXT = 4 * KVAD_KV_TILE,
    BUDGET = 20 /* rows of a step: prompts are read in parts */
};

/* A prompt: the beginning of a text. */
static const struct prompt {
    size_t text, n;
    const char *salt;
    bool is_sampled;
} prompts[JOBS] = {
    {0, 60, NULL, false}, {5, 60, NULL, false},  {1, 40, NULL, true},  {0, 32, NULL, false},
    {2, 45, NULL, false}, {0, 60, "one", false}, {3, 13, NULL, true},  {0, 32, NULL, false},
    {4, 50, NULL, false}, {1, 60, NULL, false},  {0, 17, NULL, false}, {5, 33, "two", true},
};

struct traffic {
    struct verify_run *run;
    struct verify_answer answers[JOBS];
    struct verify_job jobs[JOBS];
    size_t n, n_ctx; /* jobs; longest window: what goes beyond it slides */
};

static bool make_jobs(struct traffic *t) {
    struct kvad_verify *v = t->run->v;
    bool is_short = v->is_large && v->options.level == KVAD_VERIFY_QUICK;
    t->n = is_short ? 6 : JOBS;
    t->n_ctx = kvad_min_size(v->n, CONTEXT);
    /* Alone and uncached, every token is a whole window: a model of some size gets fewer. */
    bool is_quick = v->options.level == KVAD_VERIFY_QUICK;
    size_t n_new = is_short ? 6 : is_quick && v->model->n_parameters > 1u << 20 ? 8 : 24;
    for (size_t i = 0; i < t->n; i++) {
        t->jobs[i] = (struct verify_job){.prompt = v->texts[prompts[i].text].tokens,
                                         .n_prompt = kvad_min_size(prompts[i].n, t->n_ctx),
                                         .answer = &t->answers[i],
                                         .salt = prompts[i].salt,
                                         .is_sampled = prompts[i].is_sampled};
        if (!verify_answer_reserve(t->run, &t->answers[i], n_new)) return false;
    }
    return true;
}

/* What each request gives alone, when every token computes its whole window. */
static bool run_alone(struct traffic *t) {
    struct kvad_engine_options options = verify_engine_options(t->run->v, KVAD_CACHE_NONE, 1);
    options.n_ctx = (uint32_t)t->n_ctx;
    struct kvad_engine *engine = NULL;
    bool ok = verify_engine_open(t->run, &options, &engine);
    for (size_t i = 0; ok && i < t->n; i++)
        ok = verify_case(t->run, "request %zu alone", i + 1) &&
             verify_jobs_run(t->run, engine, &t->jobs[i], 1);
    verify_engine_close(t->run, &engine);
    return ok;
}

/* A salt that no other request has: nothing can be cached under it. */
static bool salts_are_kept_apart(struct traffic *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->jobs[i].salt && t->jobs[i].n_cached > 0)
            return verify_fail(t->run, "the first prompt of a salt finds %zu cached tokens",
                               t->jobs[i].n_cached);
    return true;
}

/* All at once, from request `first` on. */
static bool run_round(struct traffic *t, struct kvad_engine *engine, size_t first) {
    struct verify_job jobs[JOBS];
    for (size_t i = 0; i < t->n; i++)
        jobs[i] = t->jobs[(first + i) % t->n];
    bool ok = verify_jobs_run(t->run, engine, jobs, t->n);
    for (size_t i = 0; i < t->n; i++)
        t->jobs[(first + i) % t->n] = jobs[i];
    return ok;
}

static bool run_together(struct traffic *t, struct kvad_engine *engine) {
    struct kvad_cache_stats stats;
    if (!verify_case(t->run, "%zu requests at once", t->n) || !run_round(t, engine, 0) ||
        !salts_are_kept_apart(t) || !verify_case(t->run, "all of them again") ||
        !run_round(t, engine, 1))
        return false;
    kvad_cache_get_stats(engine, &stats);
    if (stats.live_bytes + stats.shared_bytes > 0)
        return verify_fail(t->run, "blocks are held after the last request ended");
    if (stats.n_preemptions == 0 || stats.n_hit_tokens == 0)
        return verify_fail(t->run,
                           "%llu preemptions and %llu cached tokens: the check proves "
                           "nothing",
                           (unsigned long long)stats.n_preemptions,
                           (unsigned long long)stats.n_hit_tokens);
    verify_note(t->run, "%llu preemptions, %llu cached tokens",
                (unsigned long long)stats.n_preemptions, (unsigned long long)stats.n_hit_tokens);
    return true;
}

bool verify_traffic(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    /* Below, requests neither share blocks nor press on each other. */
    if (v->n < 3 * KVAD_KV_TILE)
        return verify_skip(run, "the context of the model is %zu tokens, three blocks are %d", v->n,
                           3 * KVAD_KV_TILE);
    struct traffic t = {.run = run};
    bool ok = make_jobs(&t) && run_alone(&t);
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_PAGED, SIDE_BY_SIDE);
    options.n_ctx = (uint32_t)t.n_ctx;
    options.n_batch_tokens = BUDGET;
    options.no_prefix_cache = false;
    /* One request at its longest and two blocks. */
    options.kv_bytes = (t.n_ctx + 2 * KVAD_KV_TILE) * verify_token_bytes(v);
    struct kvad_engine *engine = NULL;
    ok = ok && verify_engine_open(run, &options, &engine) && run_together(&t, engine);
    verify_engine_close(run, &engine);
    verify_answers_free(run, t.answers, JOBS);
    return ok;
}
