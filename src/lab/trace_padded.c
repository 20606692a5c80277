/* The padded batch: every prompt is filled up to the longest, and every sequence goes on until the
 * longest output has ended. Against it the ragged one: each computes its own rows and leaves. */
#include "base/error.h"
#include "lab/trace_internal.h"
#include "lab/work.h"

enum { BATCH = 8 };

/* One batch: neighbours in the trace. */
struct batch {
    const struct kvad_trace_item *items; /* [n] */
    size_t first, n;
    size_t n_prompt, n_output; /* the longest */
};

static struct batch batch_at(const struct trace_run *run, size_t first) {
    const struct kvad_trace *trace = run->options->trace;
    struct batch b = {
        .items = trace->items + first, .first = first, .n = kvad_min_size(BATCH, trace->n - first)};
    for (size_t i = 0; i < b.n; i++) {
        if (b.items[i].n_prompt > b.n_prompt) b.n_prompt = b.items[i].n_prompt;
        if (b.items[i].n_output > b.n_output) b.n_output = b.items[i].n_output;
    }
    /* The context ends it. */
    b.n_output = kvad_min_size(b.n_output, run->result->model.n_ctx + 1 - b.n_prompt);
    return b;
}

/* ---- by formula */

static double flops_of(const struct trace_run *run, size_t n_sequences, size_t n_prompt,
                       size_t n_output) {
    struct kvad_work_step step = {.n_sequences = n_sequences,
                                  .n_rows = n_prompt,
                                  .n_logits = 1,
                                  .n_batch_rows = 512,
                                  .kv_bytes_per_token = (size_t)run->result->token_bytes};
    struct kvad_work work = kvad_work_of(run->options->model, &step);
    double flops = work.linear_flops + work.attention_flops;
    step.n_rows = 1;
    for (size_t i = 1; i < n_output; i++) {
        step.position = n_prompt + i - 1;
        work = kvad_work_of(run->options->model, &step);
        flops += work.linear_flops + work.attention_flops;
    }
    return flops;
}

static uint64_t padded_rows(const struct batch *b) {
    return (uint64_t)b->n * (b->n_prompt + b->n_output - 1);
}

static uint64_t ragged_rows(const struct batch *b) {
    uint64_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += (uint64_t)b->items[i].n_prompt + b->items[i].n_output - 1;
    return n;
}

static void count(const struct trace_run *run, const struct batch *b,
                  struct kvad_trace_padded *out) {
    out->padded_rows += padded_rows(b);
    out->ragged_rows += ragged_rows(b);
    out->padded_flops += flops_of(run, b->n, b->n_prompt, b->n_output);
    for (size_t i = 0; i < b->n; i++)
        out->ragged_flops += flops_of(run, 1, b->items[i].n_prompt, b->items[i].n_output);
}

/* ---- for real */

/* A padded batch that runs: all sequences take every step. */
struct padded {
    struct trace_run *run;
    const struct batch *batch;
    struct kvad_engine *engine;
    struct kvad_sampler *sampler;
    struct kvad_sequence *sequences[BATCH];
    struct kvad_eval_item items[BATCH];
    size_t last_rows[BATCH]; /* of a prompt without its padding */
    int32_t next[BATCH];     /* token that each is fed with */
    int32_t *prompts;        /* [n][n_prompt], padded with the token 0 */
    float *logits;           /* [n][n_vocab] */
};

static enum kvad_status draw_all(struct padded *p, struct kvad_error *err) {
    for (size_t i = 0; i < p->batch->n; i++)
        KVAD_TRY(kvad_sampler_draw(p->sampler, p->items[i].logits, NULL, 0, NULL, 0, 0, &p->next[i],
                                   err));
    return KVAD_OK;
}

/* The prompts, then a token each until the longest output has ended. What comes after the first
 * token is not that of the prompts alone, since the padding is seen: a mask would hide it and
 * compute the same rows. */
static enum kvad_status run_batch(struct padded *p, struct kvad_error *err) {
    const struct batch *b = p->batch;
    for (size_t i = 0; i < b->n; i++) {
        p->last_rows[i] = b->items[i].n_prompt - 1;
        p->items[i] = (struct kvad_eval_item){
            .sequence = p->sequences[i],
            .tokens = p->prompts + i * b->n_prompt,
            .n_tokens = b->n_prompt,
            .rows = &p->last_rows[i],
            .n_rows = 1,
            .logits = p->logits + i * p->run->result->model.n_vocab,
        };
    }
    KVAD_TRY(kvad_eval(p->engine, p->items, b->n, err));
    KVAD_TRY(draw_all(p, err));
    for (size_t i = 0; i < b->n; i++) {
        trace_check_token(p->run, "the padded batch", b->first + i, 0, p->next[i]);
        p->items[i].tokens = &p->next[i];
        p->items[i].n_tokens = 1;
        p->items[i].rows = NULL;
    }
    for (size_t step = 1; step < b->n_output; step++) {
        KVAD_TRY(kvad_eval(p->engine, p->items, b->n, err));
        KVAD_TRY(draw_all(p, err));
    }
    return KVAD_OK;
}

static enum kvad_status open_padded(struct padded *p, struct kvad_error *err) {
    const struct batch *b = p->batch;
    const struct kvad_model_info *info = &p->run->result->model;
    struct kvad_engine_options options =
        trace_engine_options(p->run, KVAD_CACHE_PAGED, (uint32_t)b->n);
    struct kvad_sampler_options greedy;
    kvad_sampler_options_init(&greedy);
    greedy.temperature = 0;
    greedy.n_tokens = info->n_tokens;
    p->prompts = kvad_alloc_zero(&p->run->heap, b->n * b->n_prompt, sizeof *p->prompts);
    p->logits = kvad_alloc_zero(&p->run->heap, b->n * info->n_vocab, sizeof *p->logits);
    if (!p->prompts || !p->logits)
        return kvad_fail_memory(err, "padded batch", b->n * info->n_vocab * sizeof *p->logits);
    KVAD_TRY(kvad_sampler_create(&greedy, info->n_vocab, NULL, &p->sampler, err));
    KVAD_TRY(kvad_engine_open(p->run->options->model, &options, &p->engine, err));
    for (size_t i = 0; i < b->n; i++) {
        trace_fill_prompt(p->run, b->first + i, p->prompts + i * b->n_prompt, b->items[i].n_prompt);
        KVAD_TRY(kvad_sequence_create(p->engine, &p->sequences[i], err));
    }
    return KVAD_OK;
}

static enum kvad_status time_padded(struct trace_run *run, const struct batch *b,
                                    struct kvad_trace_padded *out, struct kvad_error *err) {
    struct padded p = {.run = run, .batch = b};
    enum kvad_status status = open_padded(&p, err);
    if (status == KVAD_OK) {
        trace_engine_in_use(run, p.engine);
        uint64_t start = kvad_clock_ns();
        status = run_batch(&p, err);
        out->padded_seconds += (double)(kvad_clock_ns() - start) * 1e-9;
        trace_engine_in_use(run, NULL);
    }
    for (size_t i = 0; i < b->n; i++)
        kvad_sequence_destroy(&p.sequences[i]);
    kvad_engine_close(&p.engine);
    kvad_sampler_destroy(&p.sampler);
    kvad_free(&run->heap, p.prompts, b->n * b->n_prompt * sizeof *p.prompts);
    kvad_free(&run->heap, p.logits, b->n * run->result->model.n_vocab * sizeof *p.logits);
    return status;
}

static enum kvad_status run_ragged(struct trace_run *run, struct kvad_engine *engine,
                                   const struct batch *b, struct kvad_request **requests,
                                   struct kvad_error *err) {
    for (size_t i = 0; i < b->n; i++) {
        trace_fill_prompt(run, b->first + i, run->prompt, b->items[i].n_prompt);
        struct kvad_request_options options =
            trace_request_options(run->prompt, b->items[i].n_prompt, b->items[i].n_output);
        KVAD_TRY(kvad_request_submit(engine, &options, &requests[i], err));
    }
    size_t n_active = b->n, n_tokens[BATCH] = {0};
    while (n_active > 0) {
        KVAD_TRY(kvad_engine_step(engine, &n_active, err));
        struct kvad_event event;
        for (size_t i = 0; i < b->n; i++)
            while (kvad_request_poll(requests[i], &event))
                if (event.token >= 0)
                    trace_check_token(run, "the ragged batch", b->first + i, n_tokens[i]++,
                                      event.token);
    }
    return KVAD_OK;
}

static enum kvad_status time_ragged(struct trace_run *run, const struct batch *b,
                                    struct kvad_trace_padded *out, struct kvad_error *err) {
    struct kvad_request *requests[BATCH] = {0};
    struct kvad_engine *engine = NULL;
    struct kvad_engine_options options =
        trace_engine_options(run, KVAD_CACHE_PAGED, (uint32_t)b->n);
    options.no_prefix_cache = true;
    KVAD_TRY(kvad_engine_open(run->options->model, &options, &engine, err));
    trace_engine_in_use(run, engine);
    uint64_t start = kvad_clock_ns();
    enum kvad_status status = run_ragged(run, engine, b, requests, err);
    out->ragged_seconds += (double)(kvad_clock_ns() - start) * 1e-9;
    trace_engine_in_use(run, NULL);
    for (size_t i = 0; i < b->n; i++)
        kvad_request_destroy(&requests[i]);
    kvad_engine_close(&engine);
    return status;
}

enum kvad_status trace_run_padded(struct trace_run *run, struct kvad_error *err) {
    struct kvad_trace_padded *out = &run->result->padded;
    *out = (struct kvad_trace_padded){.n_sequences = BATCH};
    for (size_t first = 0; first < run->options->trace->n; first += BATCH) {
        struct batch b = batch_at(run, first);
        count(run, &b, out);
        if (out->n_measured == run->options->n_batches || run->result->is_void) continue;
        KVAD_TRY(trace_report(run, "padded and ragged batches",
                              (double)out->n_measured / (double)run->options->n_batches, err));
        KVAD_TRY(time_padded(run, &b, out, err));
        KVAD_TRY(time_ragged(run, &b, out, err));
        out->measured_padded += padded_rows(&b);
        out->measured_ragged += ragged_rows(&b);
        out->n_measured++;
    }
    return KVAD_OK;
}
