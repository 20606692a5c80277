/* Engines that the checks walk with, and what a text must give. */
#include "lab/verify_internal.h"

#include <math.h>

#include "engine/poison.h"
#include "sampling/philox.h"

const size_t verify_walk[VERIFY_WALK] = {5, 1, 16, 1, 2, 17, 8};

size_t verify_random(const struct kvad_verify *v, unsigned what, size_t index, size_t n) {
    return (size_t)(kvad_uniform(v->options.seed, what, index) * (double)n);
}

struct kvad_engine_options verify_engine_options(const struct kvad_verify *v,
                                                 enum kvad_cache_policy policy,
                                                 uint32_t n_sequences) {
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.allocator = v->heap.hook;
    options.threads = v->threads;
    options.cache = policy;
    options.n_ctx = (uint32_t)v->n;
    options.n_sequences = n_sequences;
    options.k_type = options.v_type = v->options.kv;
    options.cpu = v->options.cpu;
    options.no_prefix_cache = true;
    return options;
}

uint64_t verify_token_bytes(const struct kvad_verify *v) {
    struct kvad_model_info info;
    kvad_model_get_info(v->model, &info);
    return kvad_kv_bytes_per_token(&info, v->options.kv, v->options.kv);
}

bool verify_engine_open(struct verify_run *run, const struct kvad_engine_options *options,
                        struct kvad_engine **engine) {
    const struct kvad_verify_options *o = &run->v->options;
    struct kvad_error err;
    if (!verify_ok(run, kvad_engine_open(run->v->model, options, engine, &err), &err)) return false;
    if (o->engine_in_use) o->engine_in_use(o->user, *engine);
    return true;
}

void verify_engine_close(struct verify_run *run, struct kvad_engine **engine) {
    const struct kvad_verify_options *o = &run->v->options;
    if (*engine && o->engine_in_use) o->engine_in_use(o->user, NULL);
    if (!run->is_broken) kvad_engine_close(engine);
}

/* ---------------------------------------------------------------- rigs */

bool verify_rig_open(struct verify_run *run, struct verify_rig *rig,
                     const struct kvad_engine_options *options, size_t n) {
    struct kvad_verify *v = run->v;
    *rig = (struct verify_rig){.run = run, .n = n};
    /* Before the engine: what a text must give comes from an engine of its own. */
    for (size_t i = 0; i < n; i++)
        if (!verify_expect(run, i)) return false;
    if (!verify_engine_open(run, options, &rig->engine)) return false;
    for (size_t i = 0; i < n; i++)
        if (!verify_rig_restart(rig, i, &v->texts[i])) return false;
    return true;
}

void verify_rig_close(struct verify_rig *rig) {
    for (size_t i = 0; i < VERIFY_SEQUENCES && !rig->run->is_broken; i++)
        kvad_sequence_destroy(&rig->sequences[i]);
    verify_engine_close(rig->run, &rig->engine);
}

bool verify_rig_restart(struct verify_rig *rig, size_t i, const struct verify_text *text) {
    struct kvad_error err;
    kvad_sequence_destroy(&rig->sequences[i]);
    rig->texts[i] = text;
    return verify_sound(rig->run, rig->engine) &&
           verify_ok(rig->run, kvad_sequence_create(rig->engine, &rig->sequences[i], &err), &err);
}

bool verify_rig_truncate(struct verify_rig *rig, size_t i, size_t length) {
    struct kvad_error err;
    if (!verify_ok(rig->run, kvad_sequence_truncate(rig->sequences[i], length, &err), &err))
        return false;
    size_t now = verify_rig_length(rig, i);
    if (now == length) return verify_sound(rig->run, rig->engine);
    return verify_fail(rig->run, "the sequence has %zu tokens after going back to %zu", now,
                       length);
}

bool verify_rig_append(struct verify_rig *rig, size_t i, const struct verify_text *text, size_t n,
                       float *hidden) {
    struct kvad_eval_item item = {.sequence = rig->sequences[i],
                                  .tokens = text->tokens + verify_rig_length(rig, i),
                                  .n_tokens = n,
                                  .hidden = hidden};
    struct kvad_error err;
    return verify_ok(rig->run, kvad_eval(rig->engine, &item, 1, &err), &err) &&
           verify_sound(rig->run, rig->engine);
}

/* The rows of one item against what its text must give: position by position, and there layer by
 * layer, so that the first difference is the one nearest to its cause. */
static bool compare_rows(struct verify_run *run, const struct verify_text *text, size_t first,
                         const struct kvad_eval_item *item) {
    const struct kvad_verify *v = run->v;
    const struct kvad_description *d = &v->model->description;
    for (size_t r = 0; r < item->n_tokens; r++) {
        struct kvad_verify_difference at = {.position = first + r};
        for (size_t level = 0; level <= d->n_layers; level++) {
            at.layer = (uint32_t)level;
            const float *got = item->hidden + (level * item->n_tokens + r) * d->d_model;
            const float *wanted = text->hidden + (level * v->n + first + r) * d->d_model;
            if (!verify_same(run, at, got, wanted, d->d_model)) return false;
        }
        at.place = KVAD_VERIFY_LOGITS;
        if (!verify_same(run, at, item->logits + r * d->n_vocab,
                         text->logits + (first + r) * d->n_vocab, d->n_vocab))
            return false;
    }
    return true;
}

static void fill_nan(float *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        values[i] = NAN;
}

/* What the engine forgets to write must not look right by luck. */
static void make_item(const struct verify_rig *rig, size_t i, size_t n,
                      struct kvad_eval_item *item) {
    const struct kvad_verify *v = rig->run->v;
    const struct kvad_description *d = &v->model->description;
    size_t n_levels = (size_t)d->n_layers + 1;
    *item = (struct kvad_eval_item){
        .sequence = rig->sequences[i],
        .tokens = rig->texts[i]->tokens + verify_rig_length(rig, i),
        .n_tokens = n,
        .n_rows = n,
        .logits = v->logits + i * v->n * d->n_vocab,
        .hidden = v->hidden + i * v->n * n_levels * d->d_model,
    };
    fill_nan(item->logits, n * d->n_vocab);
    fill_nan(item->hidden, n_levels * n * d->d_model);
}

bool verify_rig_step(struct verify_rig *rig, const size_t *counts, const size_t *order) {
    struct kvad_eval_item items[VERIFY_SEQUENCES];
    size_t first[VERIFY_SEQUENCES], owners[VERIFY_SEQUENCES], n_items = 0;
    for (size_t j = 0; j < rig->n; j++) {
        size_t i = order ? order[j] : j;
        if (counts[i] == 0) continue;
        first[n_items] = verify_rig_length(rig, i);
        owners[n_items] = i;
        make_item(rig, i, counts[i], &items[n_items++]);
    }
    if (n_items == 0) return true;
    if (rig->poisons) {
        kvad_engine_poison_cache(rig->engine, KVAD_POISON_KV, NAN);
        kvad_engine_poison_step(rig->engine, NAN);
    }
    struct kvad_error err;
    if (!verify_ok(rig->run, kvad_eval(rig->engine, items, n_items, &err), &err) ||
        !verify_sound(rig->run, rig->engine))
        return false;
    for (size_t j = 0; j < n_items; j++) {
        size_t i = owners[j], length = verify_rig_length(rig, i);
        if (length != first[j] + items[j].n_tokens)
            return verify_fail(rig->run, "the sequence has %zu tokens after %zu were added to %zu",
                               length, items[j].n_tokens, first[j]);
        if (!compare_rows(rig->run, rig->texts[i], first[j], &items[j])) return false;
    }
    return true;
}

bool verify_rig_feed(struct verify_rig *rig, size_t i, size_t n) {
    size_t counts[VERIFY_SEQUENCES] = {0};
    counts[i] = n;
    return verify_rig_step(rig, counts, NULL);
}

bool verify_rig_walk(struct verify_rig *rig, const size_t *sizes, size_t n_sizes, size_t length) {
    for (size_t i = 0; verify_rig_length(rig, 0) < length; i++) {
        size_t left = length - verify_rig_length(rig, 0);
        if (!verify_rig_feed(rig, 0, kvad_min_size(sizes[i % n_sizes], left))) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- what is expected */

static bool reserve_text(struct verify_run *run, struct verify_text *text) {
    struct kvad_verify *v = run->v;
    const struct kvad_description *d = &v->model->description;
    size_t n_hidden = ((size_t)d->n_layers + 1) * v->n * d->d_model;
    if (!text->logits)
        text->logits = kvad_alloc_zero(&v->heap, v->n * d->n_vocab, sizeof *text->logits);
    if (!text->hidden) text->hidden = kvad_alloc_zero(&v->heap, n_hidden, sizeof *text->hidden);
    if (text->logits && text->hidden) return true;
    return verify_no_memory(run, v->n * d->n_vocab * sizeof *text->logits);
}

bool verify_expect(struct verify_run *run, size_t index) {
    struct kvad_verify *v = run->v;
    struct verify_text *text = &v->texts[index];
    if (text->is_known) return true;
    if (!reserve_text(run, text)) return false;
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_NONE, 1);
    options.n_batch_tokens = (uint32_t)v->n;
    struct kvad_engine *engine = NULL;
    struct kvad_sequence *sequence = NULL;
    struct kvad_error err;
    bool ok = verify_engine_open(run, &options, &engine) &&
              verify_ok(run, kvad_sequence_create(engine, &sequence, &err), &err);
    struct kvad_eval_item item = {.sequence = sequence,
                                  .tokens = text->tokens,
                                  .n_tokens = v->n,
                                  .n_rows = v->n,
                                  .logits = text->logits,
                                  .hidden = text->hidden};
    ok = ok && verify_ok(run, kvad_eval(engine, &item, 1, &err), &err) && verify_sound(run, engine);
    if (!run->is_broken) kvad_sequence_destroy(&sequence);
    verify_engine_close(run, &engine);
    text->is_known = ok;
    return ok;
}

static bool may_go_on(void *user) {
    const struct verify_run *run = user;
    const struct kvad_verify_options *options = &run->v->options;
    return !options->report ||
           options->report(options->user, run->result->check, run->result->where);
}

bool verify_expect_reference(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    if (v->reference.heap) return true;
    struct kvad_error err;
    enum kvad_status status = kvad_reference_run(v->model, v->texts[0].tokens, v->n_reference,
                                                 &v->heap, may_go_on, run, &v->reference, &err);
    if (status != KVAD_OK) kvad_reference_deinit(&v->reference);
    return verify_ok(run, status, &err);
}
