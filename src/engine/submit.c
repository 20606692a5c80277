/* kvad_request_submit(): check everything that can be checked, reserve all that the request will
 * need. */
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "engine/budget.h"
#include "engine/request.h"
#include "tokenizer/tokenizer.h"

void kvad_request_options_init_sized(struct kvad_request_options *options, size_t size) {
    struct kvad_request_options ours = {.max_tokens = SIZE_MAX};
    kvad_growing_give_options(options, size, &ours, sizeof ours);
}

static enum kvad_status read_options(const struct kvad_request_options *given,
                                     struct kvad_request_options *options, struct kvad_error *err) {
    kvad_request_options_init(options);
    if (!given)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "request options are NULL: call kvad_request_options_init() first");
    return kvad_growing_take_options(options, sizeof *options, given, "request", err);
}

static enum kvad_status check_prompt(const struct kvad_engine *e,
                                     const struct kvad_request_options *o, struct kvad_error *err) {
    if (o->n_prompt == 0 || !o->prompt)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "the prompt is empty: give at least one token (nanoGPT starts from a "
                         "newline, GPT-2 from <|endoftext|>)");
    uint32_t n_vocab = e->model->description.n_vocab;
    for (size_t i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || (uint32_t)o->prompt[i] >= n_vocab)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "prompt token %zu is id %ld, outside the vocabulary of %u", i,
                             (long)o->prompt[i], n_vocab);
    if ((unsigned)o->on_overflow > KVAD_OVERFLOW_ERROR)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "on_overflow is %d: unknown", (int)o->on_overflow);
    if (o->n_prompt > e->n_ctx && o->on_overflow != KVAD_OVERFLOW_RECOMPUTE)
        return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                         "the prompt has %zu tokens, the context %u: shorten it or let it slide "
                         "(on_overflow recompute)",
                         o->n_prompt, e->n_ctx);
    return KVAD_OK;
}

/* Blocks that the request holds at its longest; a request that can never fit is refused now. */
static enum kvad_status count_blocks(struct kvad_request *r, struct kvad_error *err) {
    const struct kvad_engine *e = r->engine;
    size_t longest = e->n_ctx;
    /* The last token of the output is never fed. */
    if (r->n_prompt <= longest && r->max_tokens <= longest - r->n_prompt)
        longest = r->n_prompt + r->max_tokens - (r->max_tokens > 0);
    r->n_blocks = kvad_kv_blocks_for(&e->shape, longest);
    KVAD_TRY(kvad_budget_check_request(r, longest, err));
    if (e->pool.heap && r->n_blocks > e->pool.n_blocks)
        return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                         "%zu tokens need %zu KV blocks, the pool has %zu: ask for fewer tokens "
                         "or give the pool more memory",
                         longest, r->n_blocks, e->pool.n_blocks);
    return KVAD_OK;
}

static enum kvad_status copy_ids(struct kvad_request *r, const struct kvad_request_options *o,
                                 struct kvad_error *err) {
    struct kvad_heap *heap = &r->engine->heap;
    /* An output within the context is reserved whole; a sliding one grows. */
    size_t room = kvad_min_size(o->max_tokens, r->engine->n_ctx), bytes;
    if (!kvad_add_size(o->n_prompt, room, &r->ids_capacity) ||
        !kvad_mul_size(r->ids_capacity, sizeof *r->ids, &bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a prompt of %zu tokens is too long", o->n_prompt);
    r->ids = kvad_alloc(heap, bytes);
    int32_t eos = o->ignore_eos ? -1 : r->engine->model->description.eos;
    size_t n_end_ids = o->n_stop_ids + (eos >= 0);
    r->end_ids = kvad_alloc_zero(heap, n_end_ids, sizeof *r->end_ids);
    if (!r->ids || !r->end_ids) return kvad_fail_memory(err, "ids of a request", bytes);
    r->n_end_ids = n_end_ids;
    memcpy(r->ids, o->prompt, o->n_prompt * sizeof *r->ids);
    if (o->n_stop_ids) memcpy(r->end_ids, o->stop_ids, o->n_stop_ids * sizeof *r->end_ids);
    if (eos >= 0) r->end_ids[o->n_stop_ids] = eos;
    r->n_ids = r->n_prompt = o->n_prompt;
    /* A prompt longer than the context is only here when it may slide: its last part counts. */
    r->window = r->n_ids > r->engine->n_ctx ? r->n_ids - r->engine->n_ctx : 0;
    r->first_window = r->window;
    return KVAD_OK;
}

static enum kvad_status make_sampler(struct kvad_request *r, const struct kvad_request_options *o,
                                     struct kvad_error *err) {
    struct kvad_sampler_options options;
    kvad_sampler_options_init(&options);
    if (o->sampler)
        KVAD_TRY(kvad_growing_take_options(&options, sizeof options, o->sampler, "sampler", err));
    else
        options.temperature = 0; /* greedy */
    uint32_t n_tokens = r->engine->model->n_tokens;
    if (options.n_tokens == 0 || options.n_tokens > n_tokens) options.n_tokens = n_tokens;
    return kvad_sampler_create(&options, r->engine->model->description.n_vocab,
                               &r->engine->heap.hook, &r->sampler, err);
}

static enum kvad_status make_stream(struct kvad_request *r, const struct kvad_request_options *o,
                                    struct kvad_error *err) {
    r->tokenizer = r->engine->model->tokenizer;
    if (!r->tokenizer) {
        if (o->n_stop_strings == 0) return KVAD_OK;
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "stop strings need a tokenizer, and the model came without one");
    }
    KVAD_TRY(kvad_text_stream_init(&r->stream, o->stop_strings, o->n_stop_strings,
                                   kvad_tokenizer_longest(r->tokenizer), &r->engine->heap, err));
    /* Room for a full ring; a slow caller pauses the request earlier if its texts are long. */
    r->polled_capacity = kvad_text_stream_max_output(&r->stream);
    r->text_capacity = r->polled_capacity * 4;
    r->polled = kvad_alloc(&r->engine->heap, r->polled_capacity);
    r->text = kvad_alloc(&r->engine->heap, r->text_capacity);
    if (r->polled && r->text) return KVAD_OK;
    return kvad_fail_memory(err, "text of a request", r->text_capacity);
}

static enum kvad_status share_prefix(struct kvad_request *r, const struct kvad_request_options *o,
                                     struct kvad_error *err) {
    r->miss = KVAD_MISS_OFF;
    if (!r->engine->prefix.heap || o->no_prefix_cache) return KVAD_OK;
    size_t size = o->cache_salt ? strlen(o->cache_salt) : 0;
    return kvad_prefix_root_acquire(&r->engine->prefix, o->cache_salt, size, &r->root, err);
}

static enum kvad_status fill(struct kvad_request *r, const struct kvad_request_options *o,
                             struct kvad_error *err) {
    KVAD_TRY(copy_ids(r, o, err));
    r->max_tokens = o->max_tokens;
    r->min_tokens = o->min_tokens;
    r->on_overflow = o->on_overflow;
    r->logprobs = o->logprobs;
    r->on_logits = o->on_logits;
    r->user = o->user;
    r->priority = o->priority;
    r->ends_at_once = r->max_tokens == 0 ||
                      (r->n_ids >= r->engine->n_ctx && r->on_overflow != KVAD_OVERFLOW_RECOMPUTE);
    KVAD_TRY(count_blocks(r, err));
    KVAD_TRY(share_prefix(r, o, err));
    KVAD_TRY(make_sampler(r, o, err));
    return make_stream(r, o, err);
}

static enum kvad_status add_request(struct kvad_engine *engine,
                                    const struct kvad_request_options *o, struct kvad_request **out,
                                    struct kvad_error *err) {
    struct kvad_request *r = kvad_alloc_zero(&engine->heap, 1, sizeof *r);
    if (!r) return kvad_fail_memory(err, "request", sizeof *r);
    pthread_mutex_init(&r->events_lock, NULL);
    r->engine = engine;
    r->queue_index = SIZE_MAX; /* not queued yet */
    enum kvad_status status = fill(r, o, err);
    /* Room for all that wait and all that may have to wait again. */
    size_t n_alive = engine->queue.n + engine->n_running + engine->n_parked;
    if (status == KVAD_OK)
        status = kvad_queue_reserve(&engine->queue, n_alive + 1, &engine->heap, err);
    if (status != KVAD_OK) {
        kvad_request_free(r);
        return status;
    }
    r->arrival = engine->n_submitted++;
    kvad_queue_push(&engine->queue, r);
    *out = r;
    return KVAD_OK;
}

enum kvad_status kvad_request_submit(struct kvad_engine *engine,
                                     const struct kvad_request_options *options,
                                     struct kvad_request **out, struct kvad_error *err) {
    struct kvad_request_options o;
    KVAD_TRY(read_options(options, &o, err));
    KVAD_TRY(check_prompt(engine, &o, err));
    kvad_engine_take_turn(engine);
    enum kvad_status status = add_request(engine, &o, out, err);
    kvad_engine_end_turn(engine);
    return status;
}
