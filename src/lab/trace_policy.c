/* A trace on one policy: submit what has arrived, step, look where the bytes are. */
#include <string.h>

#include "base/error.h"
#include "lab/trace_internal.h"

enum { MAX_IN_FLIGHT = 64, REPORT_EVERY = 16 };

/* One policy's run. */
struct replay {
    struct trace_run *run;
    struct kvad_trace_policy *out;
    const struct kvad_trace *trace;
    struct kvad_engine *engine;
    struct trace_client *clients; /* [n_clients] that have not finished */
    size_t n_clients, n_submitted;
    uint64_t clock; /* in steps; arrivals are on it */
    size_t n_firsts;
    double speeds, squares; /* sums over ended requests: tokens per step from the first token on */
    /* Sums over steps: [0] of those at which requests waited, [1] of the others. */
    size_t n_steps[2];
    double bytes[2][KVAD_TRACE_PLACES], held[2];
};

/* ---- where the bytes are */

static void add_static(struct kvad_trace_step *step, const struct kvad_kv_sequence *kv,
                       const struct kvad_trace_item *item, uint64_t token_bytes) {
    uint64_t area = kvad_kv_sequence_bytes(kv);
    uint64_t all = (uint64_t)item->n_prompt + item->n_output - 1; /* the last one is never fed */
    step->held += area;
    step->bytes[KVAD_TRACE_LIVE] += kv->length * token_bytes;
    step->bytes[KVAD_TRACE_LATER] += (all - kv->length) * token_bytes;
    step->bytes[KVAD_TRACE_NEVER] += area - all * token_bytes;
}

static void add_blocks(struct kvad_trace_step *step, const struct kvad_kv_sequence *kv,
                       uint64_t token_bytes, uint64_t *largest) {
    uint64_t held = kvad_kv_sequence_bytes(kv), live = kv->length * token_bytes;
    step->held += held;
    step->bytes[KVAD_TRACE_LIVE] += live;
    step->bytes[KVAD_TRACE_REMAINDER] += held - live;
    if (kv->source == KVAD_KV_GROW && held > *largest) *largest = held;
}

static struct kvad_trace_step look(const struct replay *p, size_t n_finished) {
    const struct kvad_engine *e = p->engine;
    uint64_t largest = 0, token_bytes = p->run->result->token_bytes;
    struct kvad_trace_step step = {.policy = e->cache,
                                   .budget = p->run->result->budget,
                                   .n_in_flight = e->n_running + n_finished,
                                   .n_waiting = e->queue.n + e->n_parked};
    for (size_t i = 0; i < e->n_running; i++) {
        const struct kvad_request *r = e->running[i];
        if (e->cache == KVAD_CACHE_STATIC)
            add_static(&step, &r->sequence->kv, r->user, token_bytes);
        else
            add_blocks(&step, &r->sequence->kv, token_bytes, &largest);
    }
    uint64_t left = step.budget - step.held;
    step.bytes[KVAD_TRACE_COPIES] = largest < left ? largest : left;
    step.bytes[KVAD_TRACE_FREE] = left - step.bytes[KVAD_TRACE_COPIES];
    return step;
}

static void add_up(struct replay *p, const struct kvad_trace_step *step) {
    int kind = step->n_waiting == 0;
    p->n_steps[kind]++;
    p->held[kind] += (double)step->held;
    for (size_t i = 0; i < KVAD_TRACE_PLACES; i++)
        p->bytes[kind][i] += (double)step->bytes[i];
    p->out->mean_in_flight += (double)step->n_in_flight;
    p->out->mean_waiting += (double)step->n_waiting;
    if (step->n_in_flight > p->out->max_in_flight) p->out->max_in_flight = step->n_in_flight;
}

/* ---- coming and going */

static enum kvad_status submit_next(struct replay *p, struct kvad_error *err) {
    size_t index = p->n_submitted++;
    struct kvad_trace_item *item = &p->trace->items[index];
    trace_fill_prompt(p->run, index, p->run->prompt, item->n_prompt);
    struct kvad_request_options options =
        trace_request_options(p->run->prompt, item->n_prompt, item->n_output);
    options.no_prefix_cache = true; /* the prompts have nothing in common */
    options.user = item;
    struct trace_client *client = &p->clients[p->n_clients];
    *client = (struct trace_client){
        .index = index, .arrived_ns = kvad_clock_ns(), .arrived = p->out->n_steps};
    enum kvad_status status = kvad_request_submit(p->engine, &options, &client->request, err);
    if (status == KVAD_OK) p->n_clients++;
    if (status != KVAD_ERR_NO_BLOCKS) return status;
    p->out->n_refused++;
    return KVAD_OK;
}

static void note_first(struct replay *p, struct trace_client *client) {
    client->first = p->out->n_steps;
    size_t wait = client->first - client->arrived;
    if (wait > p->out->longest_wait) p->out->longest_wait = wait;
    p->out->first_token_ms += (double)(kvad_clock_ns() - client->arrived_ns) * 1e-6;
    p->n_firsts++;
}

static void note_end(struct replay *p, const struct trace_client *client) {
    if (client->n_tokens == 0) return;
    size_t steps = p->out->n_steps - client->first + 1;
    double speed = (double)client->n_tokens / (double)steps;
    p->speeds += speed;
    p->squares += speed * speed;
}

/* Take what a client's request gave; true: it has ended. */
static bool take(struct replay *p, struct trace_client *client, enum kvad_status *status,
                 struct kvad_error *err) {
    struct kvad_event event;
    while (kvad_request_poll(client->request, &event)) {
        if (event.token >= 0) {
            if (client->n_tokens == 0) note_first(p, client);
            trace_check_token(p->run, kvad_cache_policy_name(p->out->policy), client->index,
                              client->n_tokens++, event.token);
            p->out->n_output_tokens++;
        }
        if (event.finish == KVAD_FINISH_ERROR) *status = kvad_request_error(client->request, err);
        if (event.finish != KVAD_FINISH_NONE) return true;
    }
    return false;
}

static enum kvad_status take_all(struct replay *p, size_t *n_finished, struct kvad_error *err) {
    enum kvad_status status = KVAD_OK;
    size_t n = 0;
    for (size_t i = 0; i < p->n_clients; i++) {
        struct trace_client client = p->clients[i];
        if (!take(p, &client, &status, err)) {
            p->clients[n++] = client;
            continue;
        }
        note_end(p, &client);
        kvad_request_destroy(&client.request);
    }
    *n_finished = p->n_clients - n;
    p->n_clients = n;
    return status;
}

static enum kvad_status take_step(struct replay *p, struct kvad_error *err) {
    size_t n_finished;
    uint64_t start = kvad_clock_ns();
    KVAD_TRY(kvad_engine_step(p->engine, NULL, err));
    p->out->seconds += (double)(kvad_clock_ns() - start) * 1e-9;
    p->out->n_steps++;
    p->clock++;
    KVAD_TRY(take_all(p, &n_finished, err));
    struct kvad_trace_step step = look(p, n_finished);
    add_up(p, &step);
    if (p->run->options->on_step) p->run->options->on_step(p->run->options->user, &step);
    if (p->out->n_steps % REPORT_EVERY) return KVAD_OK;
    double done = (double)p->out->n_output_tokens / (double)p->run->result->n_output_tokens;
    return trace_report(p->run, kvad_cache_policy_name(p->out->policy), done, err);
}

static enum kvad_status replay_all(struct replay *p, struct kvad_error *err) {
    const struct kvad_trace *trace = p->trace;
    while (p->n_submitted < trace->n || p->n_clients > 0) {
        if (p->n_clients == 0 && trace->items[p->n_submitted].arrival > p->clock)
            p->clock = trace->items[p->n_submitted].arrival; /* nothing happens until then */
        while (p->n_submitted < trace->n && trace->items[p->n_submitted].arrival <= p->clock)
            KVAD_TRY(submit_next(p, err));
        if (p->n_clients > 0) KVAD_TRY(take_step(p, err));
        if (p->run->result->is_void) break;
    }
    return KVAD_OK;
}

static void summarise(struct replay *p) {
    struct kvad_trace_policy *out = p->out;
    struct kvad_cache_stats stats;
    kvad_cache_get_stats(p->engine, &stats);
    int kind = p->n_steps[0] == 0;
    double steps = p->n_steps[kind] ? (double)p->n_steps[kind] : 1;
    double all_steps = out->n_steps ? (double)out->n_steps : 1;
    for (size_t i = 0; i < KVAD_TRACE_PLACES; i++)
        out->percent[i] = 100 * p->bytes[kind][i] / steps / (double)p->run->result->budget;
    if (p->held[kind] > 0)
        out->waste_percent = 100 - 100 * p->bytes[kind][KVAD_TRACE_LIVE] / p->held[kind];
    out->mean_in_flight /= all_steps;
    out->mean_waiting /= all_steps;
    if (p->n_firsts > 0) {
        out->first_token_ms /= (double)p->n_firsts;
        /* Jain, Chiu, Hawe 1984: (sum x)^2 / (n sum x^2). */
        out->fairness = p->speeds * p->speeds / ((double)p->n_firsts * p->squares);
    }
    out->n_preemptions = (size_t)stats.n_preemptions;
    out->n_recomputed_tokens = stats.n_recomputed_tokens;
    out->copied_bytes = p->engine->moves.n_bytes;
    out->copies = p->engine->moves.n_moves;
    out->twice_peak = p->engine->moves.twice_peak;
}

enum kvad_status trace_run_policy(struct trace_run *run, enum kvad_cache_policy policy,
                                  struct kvad_trace_policy *out, struct kvad_error *err) {
    const struct kvad_trace *trace = run->options->trace;
    struct replay p = {.run = run, .out = out, .trace = trace};
    uint32_t n_sequences = (uint32_t)kvad_min_size(trace->n, MAX_IN_FLIGHT);
    struct kvad_engine_options options = trace_engine_options(run, policy, n_sequences);
    options.kv_bytes = run->result->budget;
    options.no_prefix_cache = true;
    *out = (struct kvad_trace_policy){.policy = policy};
    KVAD_TRY(trace_report(run, kvad_cache_policy_name(policy), 0, err));
    p.clients = kvad_alloc_zero(&run->heap, trace->n, sizeof *p.clients);
    if (!p.clients) return kvad_fail_memory(err, "trace", trace->n * sizeof *p.clients);
    enum kvad_status status = kvad_engine_open(run->options->model, &options, &p.engine, err);
    if (status == KVAD_OK) {
        trace_engine_in_use(run, p.engine);
        status = replay_all(&p, err);
        if (status == KVAD_OK) summarise(&p);
        trace_engine_in_use(run, NULL);
    }
    for (size_t i = 0; i < p.n_clients; i++)
        kvad_request_destroy(&p.clients[i].request);
    kvad_engine_close(&p.engine);
    kvad_free(&run->heap, p.clients, trace->n * sizeof *p.clients);
    return status;
}
