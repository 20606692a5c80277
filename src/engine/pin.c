#include "engine/pin.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* Take the pin that *link points to out of the list. Its blocks go from the tail on, so that the
 * tail is evicted first. */
static void drop(struct kvad_engine *e, struct kvad_cache_pin **link) {
    struct kvad_cache_pin *pin = *link;
    *link = pin->next;
    for (size_t i = pin->n_blocks; i > 0; i--)
        kvad_kv_pool_release(&e->pool, pin->blocks[i - 1]);
    kvad_free(&e->heap, pin, kvad_cache_pin_bytes(pin));
}

static enum kvad_status make_pin(struct kvad_engine *e, const struct kvad_prefix_root *root,
                                 const int32_t *tokens, size_t n, struct kvad_cache_pin **out,
                                 size_t *n_pinned, struct kvad_error *err) {
    n = kvad_min_size(n, e->n_ctx);
    struct kvad_prefix_match match = kvad_prefix_find(&e->prefix, root, tokens, n, e->found);
    size_t n_blocks = match.n_tokens / e->shape.block_tokens; /* whole ones */
    size_t bytes = sizeof(struct kvad_cache_pin) + n_blocks * sizeof(uint32_t);
    struct kvad_cache_pin *pin = kvad_alloc(&e->heap, bytes);
    if (!pin) return kvad_fail_memory(err, "pin", bytes);
    *pin = (struct kvad_cache_pin){.n_blocks = n_blocks};
    for (size_t i = 0; i < n_blocks; i++) {
        pin->blocks[i] = e->found[i];
        kvad_kv_pool_retain(&e->pool, pin->blocks[i]);
    }
    *n_pinned = n_blocks * e->shape.block_tokens;
    *out = pin;
    return KVAD_OK;
}

static enum kvad_status add_pin(struct kvad_engine *e, const int32_t *tokens, size_t n_tokens,
                                const char *salt, uint64_t ttl_ms, uint64_t *id, size_t *n_pinned,
                                struct kvad_error *err) {
    struct kvad_prefix_root *root;
    struct kvad_cache_pin *pin = NULL, **last = &e->pins;
    KVAD_TRY(kvad_prefix_root_acquire(&e->prefix, salt, salt ? strlen(salt) : 0, &root, err));
    enum kvad_status status = make_pin(e, root, tokens, n_tokens, &pin, n_pinned, err);
    /* The blocks themselves keep their root. */
    kvad_prefix_root_release(&e->prefix, root);
    if (status != KVAD_OK) return status;
    uint64_t now = kvad_clock_ns();
    bool ends = ttl_ms > 0 && ttl_ms < (UINT64_MAX - now) / 1000000;
    pin->expires_ns = ends ? now + ttl_ms * 1000000 : UINT64_MAX;
    *id = pin->id = ++e->n_pins;
    while (*last)
        last = &(*last)->next;
    *last = pin;
    return KVAD_OK;
}

enum kvad_status kvad_cache_pin(struct kvad_engine *engine, const int32_t *tokens, size_t n_tokens,
                                const char *salt, uint64_t ttl_ms, uint64_t *id, size_t *n_pinned,
                                struct kvad_error *err) {
    if (!engine->prefix.heap)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "nothing can be pinned: the engine was opened without a prefix cache");
    kvad_engine_take_turn(engine);
    enum kvad_status status = add_pin(engine, tokens, n_tokens, salt, ttl_ms, id, n_pinned, err);
    kvad_engine_end_turn(engine);
    return status;
}

void kvad_cache_unpin(struct kvad_engine *engine, uint64_t id) {
    kvad_engine_take_turn(engine);
    struct kvad_cache_pin **link = &engine->pins;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (*link) drop(engine, link);
    kvad_engine_end_turn(engine);
}

void kvad_engine_expire_pins(struct kvad_engine *engine) {
    if (!engine->pins) return;
    uint64_t now = kvad_clock_ns();
    for (struct kvad_cache_pin **link = &engine->pins; *link;) {
        if ((*link)->expires_ns <= now)
            drop(engine, link);
        else
            link = &(*link)->next;
    }
}

bool kvad_engine_break_pin(struct kvad_engine *engine) {
    if (!engine->pins) return false;
    kvad_engine_log(engine, KVAD_LOG_WARNING,
                    "pin %llu (%zu blocks) was dropped: a request needs its blocks",
                    (unsigned long long)engine->pins->id, engine->pins->n_blocks);
    drop(engine, &engine->pins);
    return true;
}
