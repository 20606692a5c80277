#include "base/error.h"
#include "base/faults.h"
#include "engine/budget.h"

static enum kvad_kv_source source_of(enum kvad_cache_policy cache) {
    switch (cache) {
    case KVAD_CACHE_STATIC: return KVAD_KV_STATIC;
    case KVAD_CACHE_GROW: return KVAD_KV_GROW;
    case KVAD_CACHE_PAGED:
    case KVAD_CACHE_NONE:
    case KVAD_CACHE_POLICY_COUNT: break;
    }
    return KVAD_KV_PAGED;
}

enum kvad_status kvad_sequence_create(struct kvad_engine *engine, struct kvad_sequence **out,
                                      struct kvad_error *err) {
    if (engine->n_alive == engine->n_sequences)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "the engine was opened for %u sequences and all are in use: destroy one "
                         "or open with a larger n_sequences",
                         engine->n_sequences);
    KVAD_TRY(kvad_budget_check_sequence(engine, err));
    struct kvad_sequence *s = kvad_alloc_zero(&engine->heap, 1, sizeof *s);
    if (!s) return kvad_fail_memory(err, "sequence", sizeof *s);
    enum kvad_status status =
        kvad_kv_sequence_init(&s->kv, &engine->shape, source_of(engine->cache), &engine->pool,
                              engine->n_ctx, &engine->heap, err);
    if (status != KVAD_OK) {
        kvad_free(&engine->heap, s, sizeof *s);
        return status;
    }
    s->engine = engine;
    s->kv.moves = &engine->moves;
    s->next = engine->sequences;
    if (s->next) s->next->previous = s;
    engine->sequences = s;
    engine->n_alive++;
    kvad_engine_note_peak(engine); /* a static area is held from now on */
    *out = s;
    return KVAD_OK;
}

void kvad_sequence_destroy(struct kvad_sequence **sequence) {
    if (!sequence || !*sequence) return;
    struct kvad_sequence *s = *sequence;
    *sequence = NULL;
    struct kvad_engine *engine = s->engine;
    if (s->previous)
        s->previous->next = s->next;
    else
        engine->sequences = s->next;
    if (s->next) s->next->previous = s->previous;
    engine->n_alive--;
    kvad_kv_sequence_deinit(&s->kv);
    kvad_free(&engine->heap, s, sizeof *s);
}

enum kvad_status kvad_sequence_fork(const struct kvad_sequence *sequence,
                                    struct kvad_sequence **out, struct kvad_error *err) {
    if (sequence->kv.source != KVAD_KV_PAGED || sequence->engine->cache != KVAD_CACHE_PAGED)
        return kvad_fail(
            err, KVAD_ERR_UNSUPPORTED,
            "only sequences of the paged cache can be forked: open the engine with it");
    struct kvad_sequence *fork;
    KVAD_TRY(kvad_sequence_create(sequence->engine, &fork, err));
    kvad_kv_sequence_attach(&fork->kv, sequence->kv.table, sequence->kv.length);
    fork->kv.n_published = sequence->kv.n_published;
    *out = fork;
    return KVAD_OK;
}

static enum kvad_status check_reorder(struct kvad_sequence *const *sequences, const size_t *sources,
                                      size_t n, struct kvad_error *err) {
    struct kvad_engine *e = n > 0 ? sequences[0]->engine : NULL;
    if (n > 0 && e->cache != KVAD_CACHE_PAGED)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "only sequences of the paged cache can be reordered");
    if (n > 0) e->eval_stamp++;
    for (size_t i = 0; i < n; i++) {
        if (sequences[i]->engine != e)
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sequence %zu is of another engine", i);
        if (sequences[i]->eval_stamp == e->eval_stamp)
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sequence %zu is named twice", i);
        sequences[i]->eval_stamp = e->eval_stamp;
        if (sources[i] >= n)
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "sources[%zu] is %zu of %zu sequences", i,
                             sources[i], n);
    }
    return KVAD_OK;
}

/* Which sequence the i-th one becomes. */
static size_t source_index(const size_t *sources, size_t i) {
    return KVAD_FAULT(REORDER_DROPPED, sources[i], i);
}

/* What each sequence becomes is made beside it first, so that failing changes nothing and no source
 * is overwritten before its last reader. */
enum kvad_status kvad_sequence_reorder(struct kvad_sequence *const *sequences,
                                       const size_t *sources, size_t n, struct kvad_error *err) {
    KVAD_TRY(check_reorder(sequences, sources, n, err));
    if (n == 0) return KVAD_OK;
    struct kvad_engine *e = sequences[0]->engine;
    struct kvad_kv_sequence *made = kvad_alloc_zero(&e->heap, n, sizeof *made);
    if (!made) return kvad_fail_memory(err, "reorder", n * sizeof *made);
    enum kvad_status status = KVAD_OK;
    for (size_t i = 0; i < n && status == KVAD_OK; i++) {
        const struct kvad_kv_sequence *source = &sequences[source_index(sources, i)]->kv;
        status = kvad_kv_sequence_init(&made[i], &e->shape, KVAD_KV_PAGED, &e->pool, e->n_ctx,
                                       &e->heap, err);
        if (status != KVAD_OK) break;
        kvad_kv_sequence_attach(&made[i], source->table, source->length);
        made[i].n_published = source->n_published;
    }
    for (size_t i = 0; i < n && status == KVAD_OK; i++) {
        struct kvad_kv_sequence old = sequences[i]->kv;
        sequences[i]->kv = made[i];
        made[i] = old;
    }
    for (size_t i = 0; i < n; i++)
        kvad_kv_sequence_deinit(&made[i]);
    kvad_free(&e->heap, made, n * sizeof *made);
    return status;
}

size_t kvad_sequence_length(const struct kvad_sequence *sequence) {
    return sequence->kv.length;
}

enum kvad_status kvad_sequence_truncate(struct kvad_sequence *sequence, size_t length,
                                        struct kvad_error *err) {
    if (length > sequence->kv.length)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "cannot truncate to %zu: the length is %zu",
                         length, sequence->kv.length);
    kvad_kv_sequence_truncate(&sequence->kv, length);
    return KVAD_OK;
}

enum kvad_status kvad_sequence_read_kv(const struct kvad_sequence *sequence, uint32_t layer,
                                       size_t first, size_t n, float *k, float *v,
                                       struct kvad_error *err) {
    const struct kvad_kv_sequence *kv = &sequence->kv;
    if (layer >= kv->shape->n_layers)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "layer is %u, the model has %zu", layer,
                         kv->shape->n_layers);
    if (first > kv->length || n > kv->length - first)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "tokens [%zu, %zu + %zu): the sequence has %zu",
                         first, first, n, kv->length);
    kvad_kv_sequence_read(kv, layer, first, n, k, v);
    return KVAD_OK;
}
