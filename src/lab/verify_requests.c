/* Checks of requests: what the scheduler does with blocks must not show in any answer. */
#include "lab/verify_internal.h"

/* ---------------------------------------------------------------- running them */

bool verify_answer_reserve(struct verify_run *run, struct verify_answer *answer, size_t n) {
    struct kvad_verify *v = run->v;
    size_t n_vocab = v->model->description.n_vocab;
    answer->n = n;
    answer->ids = kvad_alloc_zero(&v->heap, n, sizeof *answer->ids);
    answer->logits = kvad_alloc_zero(&v->heap, n * n_vocab, sizeof *answer->logits);
    return (answer->ids && answer->logits) || verify_no_memory(run, n * n_vocab * sizeof(float));
}

void verify_answers_free(struct verify_run *run, struct verify_answer *answers, size_t n) {
    struct kvad_verify *v = run->v;
    size_t n_vocab = v->model->description.n_vocab;
    for (size_t i = 0; i < n; i++) {
        struct verify_answer *a = &answers[i];
        kvad_free(&v->heap, a->ids, a->n * sizeof *a->ids);
        kvad_free(&v->heap, a->logits, a->n * n_vocab * sizeof *a->logits);
        *a = (struct verify_answer){0};
    }
}

void verify_job_logits(void *user, size_t output_index, const float *logits, size_t n_vocab) {
    struct verify_job *job = user;
    struct verify_answer *answer = job->answer;
    if (job->is_wrong) return;
    if (output_index != job->n_rows || output_index >= answer->n) {
        job->is_wrong = true;
        verify_fail(job->run, "a request of %zu tokens gives logits %zu after %zu rows", answer->n,
                    output_index, job->n_rows);
        return;
    }
    job->n_rows++;
    float *row = answer->logits + output_index * n_vocab;
    if (!answer->is_known) {
        memcpy(row, logits, n_vocab * sizeof *row);
        return;
    }
    struct kvad_verify_difference at = {.position = job->n_prompt + output_index - 1,
                                        .place = KVAD_VERIFY_LOGITS};
    job->is_wrong = !verify_same(job->run, at, logits, row, n_vocab);
}

static bool take_token(struct verify_job *job, int32_t token) {
    struct verify_answer *answer = job->answer;
    size_t i = job->n_got++;
    if (i >= answer->n)
        return verify_fail(job->run, "a request for %zu tokens gives more", answer->n);
    if (!answer->is_known) answer->ids[i] = token;
    job->run->result->n_compared++;
    if (answer->ids[i] == token) return true;
    job->run->result->difference = (struct kvad_verify_difference){.is_known = true,
                                                                   .position = job->n_prompt + i,
                                                                   .place = KVAD_VERIFY_TOKEN,
                                                                   .got = token,
                                                                   .wanted = answer->ids[i]};
    return verify_fail(job->run, "%s", "");
}

bool verify_job_end(struct verify_job *job, enum kvad_finish finish) {
    struct kvad_error err = {.text = "no reason is given"};
    job->is_done = true;
    if (finish == KVAD_FINISH_ERROR) {
        enum kvad_status status = kvad_request_error(job->request, &err);
        return verify_ok(job->run, status == KVAD_OK ? KVAD_ERR_ARGUMENT : status, &err);
    }
    if (job->n_got != job->answer->n)
        return verify_fail(job->run, "a request ends after %zu of %zu tokens", job->n_got,
                           job->answer->n);
    if (job->n_rows == job->answer->n) return true;
    return verify_fail(job->run, "a request gives %zu rows of logits with %zu tokens", job->n_rows,
                       job->answer->n);
}

static bool poll(struct verify_job *job) {
    struct kvad_event event;
    while (!job->is_done && kvad_request_poll(job->request, &event)) {
        if (job->is_wrong) return false;
        if (event.token >= 0 && !take_token(job, event.token)) return false;
        if (event.finish != KVAD_FINISH_NONE && !verify_job_end(job, event.finish)) return false;
    }
    return !job->is_wrong;
}

static bool submit(struct verify_run *run, struct kvad_engine *engine, struct verify_job *job) {
    struct kvad_sampler_options sampler;
    kvad_sampler_options_init(&sampler);
    sampler.temperature = job->is_sampled ? 1 : 0;
    sampler.seed = run->v->options.seed;
    struct kvad_request_options options;
    kvad_request_options_init(&options);
    options.prompt = job->prompt;
    options.n_prompt = job->n_prompt;
    options.max_tokens = job->answer->n;
    options.on_overflow = KVAD_OVERFLOW_RECOMPUTE;
    options.ignore_eos = true;
    options.sampler = &sampler;
    options.on_logits = verify_job_logits;
    options.user = job;
    options.cache_salt = job->salt;
    job->run = run;
    job->n_got = job->n_rows = 0;
    job->is_done = job->is_wrong = false;
    struct kvad_error err;
    return verify_ok(run, kvad_request_submit(engine, &options, &job->request, &err), &err);
}

/* Every step gives some request a token or reads a part of a prompt, again at most after each
 * preemption: an engine that needs many more never ends. */
static size_t most_steps(const struct verify_job *jobs, size_t n) {
    size_t n_tokens = 0;
    for (size_t i = 0; i < n; i++)
        n_tokens += jobs[i].n_prompt + jobs[i].answer->n;
    return 100 + 8 * n * n_tokens;
}

static bool run_all(struct verify_run *run, struct kvad_engine *engine, struct verify_job *jobs,
                    size_t n) {
    size_t n_left = n, limit = most_steps(jobs, n);
    for (size_t step = 0; n_left > 0; step++) {
        if (step == limit) return verify_fail(run, "requests do not end in %zu steps", limit);
        size_t n_active;
        struct kvad_error err;
        if (!verify_ok(run, kvad_engine_step(engine, &n_active, &err), &err) ||
            !verify_sound(run, engine))
            return false;
        n_left = 0;
        for (size_t i = 0; i < n; i++) {
            if (!poll(&jobs[i])) return false;
            n_left += !jobs[i].is_done;
        }
    }
    return true;
}

bool verify_jobs_run(struct verify_run *run, struct kvad_engine *engine, struct verify_job *jobs,
                     size_t n) {
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        jobs[i].request = NULL;
    for (size_t i = 0; i < n && ok; i++)
        ok = submit(run, engine, &jobs[i]);
    ok = ok && run_all(run, engine, jobs, n);
    for (size_t i = 0; i < n; i++) {
        if (!jobs[i].request) continue;
        struct kvad_request_info info;
        kvad_request_get_info(jobs[i].request, &info);
        jobs[i].n_cached = info.n_cached_tokens;
        jobs[i].n_preemptions = info.n_preemptions;
        if (!run->is_broken) kvad_request_destroy(&jobs[i].request);
        if (ok) jobs[i].answer->is_known = true;
    }
    return ok;
}

/* ---------------------------------------------------------------- greedy */

enum { SLID = 8 };

bool verify_greedy(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    static const enum kvad_cache_policy policies[] = {KVAD_CACHE_NONE, KVAD_CACHE_PAGED,
                                                      KVAD_CACHE_STATIC, KVAD_CACHE_GROW};
    bool is_short = v->is_large && v->options.level == KVAD_VERIFY_QUICK;
    size_t n_ctx = v->model->description.n_ctx, n_new = is_short ? 24 : 208;
    struct verify_answer answer = {0};
    struct verify_job job = {
        .prompt = v->texts[0].tokens, .n_prompt = kvad_min_size(v->n, 16), .answer = &answer};
    bool ok = verify_answer_reserve(run, &answer, n_new);
    for (size_t i = 0; ok && i < sizeof policies / sizeof *policies; i++) {
        struct kvad_engine_options options = verify_engine_options(v, policies[i], 1);
        /* The last tokens find the context full, and slide. */
        options.n_ctx = (uint32_t)kvad_min_size(n_ctx, job.n_prompt + n_new - SLID);
        struct kvad_engine *engine = NULL;
        ok = verify_case(run, "%zu tokens, %s", n_new, kvad_cache_policy_name(policies[i])) &&
             verify_engine_open(run, &options, &engine) && verify_jobs_run(run, engine, &job, 1);
        verify_engine_close(run, &engine);
    }
    verify_answers_free(run, &answer, 1);
    if (ok) verify_note(run, "%zu tokens", n_new);
    return ok;
}
