#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "lab/memory_snapshot.h"
#include "sampling/philox.h"

struct measuring {
    const struct kvad_memory_options *options;
    struct kvad_memory_result *result;
    struct memory_ledger ledger;
    struct memory_account of_model, of_engine, of_threads, of_sampler, of_logits, of_lab;
    struct kvad_heap lab;
    struct memory_view view;
    struct kvad_model *model;
    int32_t *tokens;              /* [n_ctx] that every text is made of */
    struct kvad_memory_run *runs; /* [n_runs] the result, while it is the lab's */
    size_t n_runs, n_done, n_steps;
};

/* What one run needs besides the model. */
struct rig {
    struct measuring *m;
    struct kvad_memory_run *run;
    struct kvad_threads *threads;
    struct kvad_engine *engine;
    struct kvad_sampler *sampler;
    struct kvad_sequence *sequence;
    struct kvad_heap of_logits;
    float *logits; /* [n_vocab] */
};

/* ---------------------------------------------------------------- opening */

/* Give what was freed back to the system, so that runs begin alike. */
static void trim(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

static enum kvad_status open_sampler(struct rig *rig, struct kvad_error *err) {
    struct kvad_sampler_options greedy;
    kvad_sampler_options_init(&greedy);
    greedy.temperature = 0;
    greedy.n_tokens = rig->m->result->model.n_tokens;
    struct kvad_allocator allocator = memory_account_allocator(&rig->m->of_sampler);
    return kvad_sampler_create(&greedy, rig->m->result->model.n_vocab, &allocator, &rig->sampler,
                               err);
}

static enum kvad_status open_engine(struct rig *rig, struct kvad_error *err) {
    const struct kvad_memory_result *result = rig->m->result;
    struct kvad_allocator allocator = memory_account_allocator(&rig->m->of_threads);
    KVAD_TRY(kvad_threads_create(rig->m->options->n_threads, &allocator, &rig->threads, err));
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.allocator = memory_account_allocator(&rig->m->of_engine);
    options.threads = rig->threads;
    options.cache = rig->run->policy;
    options.k_type = options.v_type = rig->run->kv;
    options.n_ctx = result->n_ctx;
    options.block_tokens = result->block_tokens;
    options.cpu = rig->m->options->cpu;
    KVAD_TRY(kvad_engine_open(rig->m->model, &options, &rig->engine, err));
    return kvad_sequence_create(rig->engine, &rig->sequence, err);
}

static void use_engine(struct measuring *m, struct kvad_engine *engine) {
    m->view.engine = engine;
    if (m->options->engine_in_use) m->options->engine_in_use(m->options->user, engine);
}

static enum kvad_status rig_open(struct rig *rig, struct kvad_error *err) {
    struct kvad_memory_result *result = rig->m->result;
    size_t bytes = result->model.n_vocab * sizeof *rig->logits;
    struct kvad_allocator allocator = memory_account_allocator(&rig->m->of_logits);
    kvad_heap_init(&rig->of_logits, &allocator);
    KVAD_TRY(open_engine(rig, err));
    use_engine(rig->m, rig->engine);
    KVAD_TRY(open_sampler(rig, err));
    rig->logits = kvad_alloc(&rig->of_logits, bytes);
    if (!rig->logits) return kvad_fail_memory(err, "logits", bytes);
    memory_view_find_stacks(&rig->m->view, rig->threads);
    struct kvad_engine_info info;
    kvad_engine_get_info(rig->engine, &info);
    snprintf(result->cpu, sizeof result->cpu, "%s", info.cpu);
    result->n_threads = info.n_threads;
    return KVAD_OK;
}

static void rig_close(struct rig *rig) {
    kvad_free(&rig->of_logits, rig->logits, rig->m->result->model.n_vocab * sizeof *rig->logits);
    kvad_sequence_destroy(&rig->sequence);
    kvad_sampler_destroy(&rig->sampler);
    use_engine(rig->m, NULL);
    kvad_engine_close(&rig->engine);
    memory_view_find_stacks(&rig->m->view, NULL);
    kvad_threads_release(&rig->threads);
}

/* ---------------------------------------------------------------- steps */

/* Append tokens up to `length`; the last one with its logits, from which a token is drawn. */
static enum kvad_status feed(struct rig *rig, size_t length, bool is_one_step,
                             struct kvad_error *err) {
    size_t from = kvad_sequence_length(rig->sequence);
    struct kvad_eval_item item = {.sequence = rig->sequence, .tokens = rig->m->tokens + from};
    if (!is_one_step && length - from > 1) {
        item.n_tokens = length - from - 1;
        KVAD_TRY(kvad_eval(rig->engine, &item, 1, err));
        item.tokens = rig->m->tokens + length - 1;
        from = length - 1;
    }
    item.n_tokens = length - from;
    item.n_rows = 1;
    item.logits = rig->logits;
    KVAD_TRY(kvad_eval(rig->engine, &item, 1, err));
    int32_t token;
    return kvad_sampler_draw(rig->sampler, rig->logits, NULL, 0, NULL, 0, 0, &token, err);
}

static enum kvad_status ask(struct measuring *m, const struct kvad_memory_run *run,
                            const char *pass, uint32_t tokens, struct kvad_error *err) {
    char what[96];
    snprintf(what, sizeof what, "%s %s, %s, %u tokens", kvad_cache_policy_name(run->policy),
             kvad_kv_type_name(run->kv), pass, tokens);
    double done = (double)m->n_done++ / (double)m->n_steps;
    if (m->options->report && !m->options->report(m->options->user, what, done))
        return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
    return KVAD_OK;
}

static void compare(const struct rig *rig, struct kvad_memory_checkpoint *c) {
    const struct kvad_memory_run *run = rig->run;
    uint32_t block = rig->m->result->block_tokens;
    struct kvad_memory_room room =
        kvad_memory_room_of(run->policy, c->tokens, rig->m->result->n_ctx, block, 1);
    struct kvad_engine_info info;
    kvad_engine_get_info(rig->engine, &info);
    c->rows = c->tokens * run->token_bytes;
    c->remainder = (block - c->tokens % block) % block * run->token_bytes;
    c->formula = room.held * run->token_bytes;
    c->held = info.kv_bytes;
    c->residual = (int64_t)(c->held - c->formula);
    c->reserved_formula = room.reserved * run->token_bytes;
    c->reserved = c->memory.requested - c->memory.others;
    c->reserved_residual = (int64_t)(c->reserved - c->reserved_formula);
    c->peak -= c->memory.others;
}

/* Checkpoint i of n: spread evenly over the context, the last at its end, each a token less early
 * than the one before, because lengths on the edge of a block would never show its remainder. */
static uint32_t checkpoint_tokens(uint32_t n_ctx, uint32_t n, uint32_t i) {
    uint32_t even = (uint32_t)((uint64_t)n_ctx * (i + 1) / n);
    return n_ctx / n >= n ? even - (n - 1 - i) : even;
}

static enum kvad_status pass(struct rig *rig, const char *name,
                             struct kvad_memory_checkpoint *checkpoints, struct kvad_error *err) {
    bool keeps_nothing = rig->run->policy == KVAD_CACHE_NONE;
    uint32_t n = rig->run->n_checkpoints;
    KVAD_TRY(kvad_sequence_truncate(rig->sequence, 0, err));
    for (uint32_t i = 0; i < n; i++) {
        struct kvad_memory_checkpoint *c = &checkpoints[i];
        c->tokens = checkpoint_tokens(rig->m->result->n_ctx, n, i);
        KVAD_TRY(ask(rig->m, rig->run, name, c->tokens, err));
        if (keeps_nothing) KVAD_TRY(kvad_sequence_truncate(rig->sequence, 0, err));
        (void)memory_ledger_take_peak(&rig->m->ledger);
        KVAD_TRY(feed(rig, c->tokens, keeps_nothing, err));
        c->peak = memory_ledger_take_peak(&rig->m->ledger);
        KVAD_TRY(memory_view_take(&rig->m->view, &c->memory, err));
        compare(rig, c);
    }
    return KVAD_OK;
}

/* ---------------------------------------------------------------- runs */

static enum kvad_status fill_run(struct measuring *m, struct kvad_memory_run *run,
                                 struct kvad_error *err) {
    struct kvad_memory_shape shape;
    kvad_memory_shape_of(&m->result->model, "", &shape);
    enum kvad_memory_type type = kvad_memory_type_of(run->kv);
    size_t token_bytes;
    if (!kvad_memory_token_bytes(&shape, type, type, &token_bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "the bytes of a token do not fit 64 bits");
    run->token_bytes = token_bytes;
    run->n_checkpoints = (unsigned)kvad_min_size(m->result->n_ctx, KVAD_MEMORY_CHECKPOINTS);
    trim();
    KVAD_TRY(memory_view_take(&m->view, &run->before, err)); /* its own pages, once */
    KVAD_TRY(memory_view_take(&m->view, &run->before, err));
    struct rig rig = {.m = m, .run = run};
    enum kvad_status status = rig_open(&rig, err);
    if (status == KVAD_OK) status = pass(&rig, "naive", run->naive, err);
    if (status == KVAD_OK) status = pass(&rig, "warmed", run->warmed, err);
    rig_close(&rig);
    KVAD_TRY(status);
    return memory_view_take(&m->view, &run->after, err);
}

static enum kvad_status make_tokens(struct measuring *m, struct kvad_error *err) {
    size_t n = m->result->n_ctx;
    m->tokens = kvad_alloc_zero(&m->lab, n, sizeof *m->tokens);
    if (!m->tokens) return kvad_fail_memory(err, "a text", n * sizeof *m->tokens);
    for (size_t t = 0; t < n; t++)
        m->tokens[t] = (int32_t)(kvad_uniform(1, 0, t) * m->result->model.n_tokens);
    return KVAD_OK;
}

static enum kvad_status open_model(struct measuring *m, struct kvad_error *err) {
    struct kvad_memory_result *result = m->result;
    struct kvad_allocator allocator = memory_account_allocator(&m->of_model);
    KVAD_TRY(m->options->open_model(m->options->user, &allocator, &m->model, err));
    kvad_model_get_info(m->model, &result->model);
    m->view.model = m->model;
    result->n_ctx = m->options->n_ctx ? m->options->n_ctx : result->model.n_ctx;
    result->block_tokens = m->options->block_tokens ? m->options->block_tokens : 16;
    if (result->n_ctx <= result->model.n_ctx) return make_tokens(m, err);
    return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                     "a context of %u is longer than the model's, which is %u", result->n_ctx,
                     result->model.n_ctx);
}

static enum kvad_status run_all(struct measuring *m, struct kvad_error *err) {
    const struct kvad_memory_options *o = m->options;
    m->n_runs = o->policies.n * o->kv.n;
    m->n_steps = m->n_runs * 2 * kvad_min_size(m->result->n_ctx, KVAD_MEMORY_CHECKPOINTS);
    m->runs = kvad_alloc_zero(&m->lab, m->n_runs, sizeof *m->runs);
    if (!m->runs) return kvad_fail_memory(err, "a result", m->n_runs * sizeof *m->runs);
    for (size_t i = 0; i < m->n_runs; i++) {
        struct kvad_memory_run *run = &m->runs[i];
        run->kv = (enum kvad_kv_type)o->kv.items[i / o->policies.n];
        run->policy = (enum kvad_cache_policy)o->policies.items[i % o->policies.n];
        KVAD_TRY(fill_run(m, run, err));
    }
    return KVAD_OK;
}

/* Out of the ledger, which ends here, into the result. */
static enum kvad_status keep_runs(struct measuring *m, struct kvad_error *err) {
    struct kvad_memory_result *result = m->result;
    size_t bytes = m->n_runs * sizeof *m->runs;
    result->runs = kvad_alloc(&result->heap, bytes);
    if (!result->runs) return kvad_fail_memory(err, "a result", bytes);
    memcpy(result->runs, m->runs, bytes);
    result->n_runs = m->n_runs;
    return KVAD_OK;
}

static enum kvad_status measure(struct measuring *m, struct kvad_error *err) {
    m->of_model = (struct memory_account){&m->ledger, KVAD_MEMORY_TOKENIZER};
    m->of_engine = (struct memory_account){&m->ledger, KVAD_MEMORY_OWNERS};
    m->of_threads = (struct memory_account){&m->ledger, KVAD_MEMORY_THREADS};
    m->of_sampler = (struct memory_account){&m->ledger, KVAD_MEMORY_SAMPLER};
    m->of_logits = (struct memory_account){&m->ledger, KVAD_MEMORY_LOGITS};
    m->of_lab = (struct memory_account){&m->ledger, KVAD_MEMORY_LAB};
    struct kvad_allocator allocator = memory_account_allocator(&m->of_lab);
    kvad_heap_init(&m->lab, &allocator);
    KVAD_TRY(memory_view_open(&m->view, &m->ledger, &m->lab, err));
    m->result->page_bytes = m->view.resident.page_bytes;
    m->result->no_resident_why = m->view.no_resident_why;
    KVAD_TRY(open_model(m, err));
    KVAD_TRY(run_all(m, err));
    return keep_runs(m, err);
}

enum kvad_status kvad_memory_measure(const struct kvad_memory_options *options,
                                     struct kvad_memory_result *result, struct kvad_error *err) {
    *result = (struct kvad_memory_result){0};
    kvad_heap_init(&result->heap, NULL);
    if (options->policies.n == 0 || options->kv.n == 0)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "no cache policy or no type of cache to measure");
    struct measuring m = {.options = options, .result = result};
    enum kvad_status status = memory_ledger_init(&m.ledger, err);
    if (status == KVAD_OK) status = measure(&m, err);
    kvad_free(&m.lab, m.runs, m.n_runs * sizeof *m.runs);
    kvad_free(&m.lab, m.tokens, result->n_ctx * sizeof *m.tokens);
    kvad_model_release(&m.model);
    memory_view_close(&m.view);
    memory_ledger_deinit(&m.ledger);
    return status;
}

void kvad_memory_result_deinit(struct kvad_memory_result *result) {
    if (result->runs) kvad_free(&result->heap, result->runs, result->n_runs * sizeof *result->runs);
    *result = (struct kvad_memory_result){0};
}
