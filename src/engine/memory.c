#include "engine/memory.h"

struct visitor {
    kvad_memory_visit_fn *visit;
    void *user;
};

static void visit_step(void *user, const void *memory, size_t bytes) {
    const struct visitor *v = user;
    v->visit(v->user, KVAD_MEMORY_STEP, memory, bytes);
}

static void visit_pool(const struct kvad_kv_pool *pool, const struct visitor *v) {
    size_t n = pool->n_blocks;
    if (!pool->heap) return;
    v->visit(v->user, KVAD_MEMORY_CACHE, pool->blocks, n * pool->block_bytes);
    v->visit(v->user, KVAD_MEMORY_TABLES, pool->states, n * sizeof *pool->states);
    v->visit(v->user, KVAD_MEMORY_TABLES, pool->free_ids, n * sizeof *pool->free_ids);
}

static void visit_prefix(const struct kvad_prefix *index, const struct visitor *v) {
    if (!index->heap) return;
    size_t n = index->pool->n_blocks;
    v->visit(v->user, KVAD_MEMORY_PREFIX, index->entries, n * sizeof *index->entries);
    v->visit(v->user, KVAD_MEMORY_PREFIX, index->tokens,
             n * index->block_tokens * sizeof *index->tokens);
    v->visit(v->user, KVAD_MEMORY_PREFIX, index->buckets,
             index->n_buckets * sizeof *index->buckets);
}

static void visit_sequence(const struct kvad_sequence *sequence, const struct visitor *v) {
    const struct kvad_kv_sequence *kv = &sequence->kv;
    v->visit(v->user, KVAD_MEMORY_ENGINE, sequence, sizeof *sequence);
    v->visit(v->user, KVAD_MEMORY_TABLES, kv->table, kvad_kv_sequence_table_bytes(kv));
    if (kv->source != KVAD_KV_PAGED && kv->base)
        v->visit(v->user, KVAD_MEMORY_CACHE, kv->base, kvad_kv_sequence_bytes(kv));
}

void kvad_engine_visit_memory(const struct kvad_engine *engine, kvad_memory_visit_fn *visit,
                              void *user) {
    struct visitor v = {visit, user};
    size_t n = engine->n_sequences;
    visit(user, KVAD_MEMORY_ENGINE, engine, sizeof *engine);
    visit(user, KVAD_MEMORY_ENGINE, engine->items, n * sizeof *engine->items);
    visit(user, KVAD_MEMORY_ENGINE, engine->step_items, n * sizeof *engine->step_items);
    visit(user, KVAD_MEMORY_ENGINE, engine->step_owners, n * sizeof *engine->step_owners);
    visit(user, KVAD_MEMORY_ENGINE, engine->running, n * sizeof *engine->running);
    if (engine->queue.items)
        visit(user, KVAD_MEMORY_ENGINE, engine->queue.items,
              engine->queue.capacity * sizeof *engine->queue.items);
    visit(user, KVAD_MEMORY_LOGITS, engine->step_logits,
          n * engine->model->description.n_vocab * sizeof *engine->step_logits);
    if (engine->found)
        visit(user, KVAD_MEMORY_PREFIX, engine->found,
              kvad_kv_blocks_for(&engine->shape, engine->n_ctx) * sizeof *engine->found);
    kvad_forward_visit_memory(engine->forward, visit_step, &v);
    visit_pool(&engine->pool, &v);
    visit_prefix(&engine->prefix, &v);
    for (const struct kvad_sequence *s = engine->sequences; s; s = s->next)
        visit_sequence(s, &v);
}

void kvad_model_visit_memory(const struct kvad_model *model, kvad_memory_visit_fn *visit,
                             void *user) {
    visit(user, KVAD_MEMORY_MODEL, model, sizeof *model);
    visit(user, KVAD_MEMORY_MODEL, model->layers,
          model->description.n_layers * sizeof *model->layers);
    if (model->tokenizer_path)
        visit(user, KVAD_MEMORY_MODEL, model->tokenizer_path, strlen(model->tokenizer_path) + 1);
    if (model->map.data)
        visit(user, KVAD_MEMORY_WEIGHTS_FILE, model->map.data, model->map.size);
    else
        visit(user, KVAD_MEMORY_WEIGHTS, model->area, model->area_bytes);
}
