#include "base/error.h"
#include "engine/engine.h"

static enum kvad_kv_source source_of(enum kvad_cache_policy cache) {
    switch (cache) {
    case KVAD_CACHE_STATIC: return KVAD_KV_STATIC;
    case KVAD_CACHE_GROW: return KVAD_KV_GROW;
    case KVAD_CACHE_PAGED:
    case KVAD_CACHE_NONE: break;
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
