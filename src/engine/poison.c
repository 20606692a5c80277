#include "engine/poison.h"

#include "base/bytes.h"
#include "engine/engine.h"

/* ---------------------------------------------------------------- the cache */

/* Element `i` of K tiles or V rows that begin at `base`. Of Q8 the scale counts: any int8 is
 * finite. */
static void put(enum kvad_kv_type type, unsigned char *base, size_t i, float value) {
    uint16_t half;
    switch (type) {
    case KVAD_KV_F16:
        half = kvad_f16_from_float(value);
        memcpy(base + i * sizeof half, &half, sizeof half);
        return;
    case KVAD_KV_BF16:
        half = kvad_bf16_from_float(value);
        memcpy(base + i * sizeof half, &half, sizeof half);
        return;
    case KVAD_KV_Q8: base[i] = 0x7f; return;
    case KVAD_KV_F32:
    case KVAD_KV_TYPE_COUNT: break;
    }
    memcpy(base + i * sizeof value, &value, sizeof value);
}

static void put_scale(const struct kvad_kv_shape *shape, enum kvad_kv_type type,
                      unsigned char *base, size_t t, float value) {
    if (type != KVAD_KV_Q8) return;
    memcpy(base + kvad_kv_scales_offset(shape) + t * sizeof value, &value, sizeof value);
}

/* Token `t` (in [0, B)) of one block, in all layers and heads. */
static void poison_token(const struct kvad_kv_shape *shape, unsigned char *block, size_t t,
                         enum kvad_poison target, float value) {
    for (size_t layer = 0; layer < shape->n_layers; layer++)
        for (size_t head = 0; head < shape->n_kv_heads; head++) {
            unsigned char *k = block + kvad_kv_k_offset(shape, layer, head);
            unsigned char *v = block + kvad_kv_v_offset(shape, layer, head);
            for (size_t d = 0; d < shape->head_dim; d++) {
                if (target & KVAD_POISON_K)
                    put(shape->k_type, k, kvad_kv_k_index(shape, t, d), value);
                if (target & KVAD_POISON_V) put(shape->v_type, v, t * shape->head_dim + d, value);
            }
            if (target & KVAD_POISON_K) put_scale(shape, shape->k_type, k, t, value);
            if (target & KVAD_POISON_V) put_scale(shape, shape->v_type, v, t, value);
        }
}

static void poison_block(const struct kvad_kv_shape *shape, unsigned char *block,
                         enum kvad_poison target, float value) {
    for (size_t t = 0; t < shape->block_tokens; t++)
        poison_token(shape, block, t, target, value);
}

static void poison_sequence(const struct kvad_kv_sequence *s, enum kvad_poison target,
                            float value) {
    const struct kvad_kv_shape *shape = s->shape;
    for (size_t t = s->n_ready; t < s->n_blocks * shape->block_tokens; t++) {
        size_t i = t / shape->block_tokens;
        if (s->source == KVAD_KV_PAGED && !kvad_kv_pool_may_write(s->pool, s->table[i])) continue;
        poison_token(shape, kvad_kv_sequence_block(s, t), t % shape->block_tokens, target, value);
    }
    if (s->source == KVAD_KV_PAGED) return;
    for (size_t i = s->n_blocks; i < s->n_area_blocks; i++)
        poison_block(shape, s->base + (size_t)s->table[i] * shape->block_bytes, target, value);
}

void kvad_engine_poison_cache(struct kvad_engine *engine, enum kvad_poison target, float value) {
    for (const struct kvad_sequence *s = engine->sequences; s; s = s->next)
        poison_sequence(&s->kv, target, value);
    for (size_t i = 0; i < engine->pool.n_free; i++)
        poison_block(&engine->shape, kvad_kv_pool_block(&engine->pool, engine->pool.free_ids[i]),
                     target, value);
}

/* ---------------------------------------------------------------- the step */

void kvad_engine_poison_step(struct kvad_engine *engine, float value) {
    kvad_forward_fill(engine->forward, value);
    size_t n_logits = engine->n_sequences * (size_t)engine->model->description.n_vocab;
    for (size_t i = 0; i < n_logits; i++)
        engine->step_logits[i] = value;
}
