/* Requests that wait to run: a heap by priority, then by arrival. Waiting costs a step nothing,
 * however many wait.
 *
 * Not thread-safe: owned by the engine. */
#ifndef KVAD_ENGINE_QUEUE_H
#define KVAD_ENGINE_QUEUE_H

#include "base/alloc.h"

struct kvad_request_queue {
    struct kvad_request **items; /* [n] each before its children 2i + 1 and 2i + 2 */
    size_t n, capacity;
};

/** Make room for `n` requests in all; KVAD_ERR_NO_MEMORY. Nothing else allocates. */
enum kvad_status kvad_queue_reserve(struct kvad_request_queue *queue, size_t n,
                                    struct kvad_heap *heap, struct kvad_error *err);
void kvad_queue_deinit(struct kvad_request_queue *queue, struct kvad_heap *heap);

/** Whether `a` runs before `b`: what ends at once, then the higher priority, then the older. */
bool kvad_request_is_before(const struct kvad_request *a, const struct kvad_request *b);

/** O(log n); there is room. */
void kvad_queue_push(struct kvad_request_queue *queue, struct kvad_request *request);
/** Take out a request that is in the queue. O(log n). */
void kvad_queue_remove(struct kvad_request_queue *queue, struct kvad_request *request);
/** The one that runs next, or NULL. */
static inline struct kvad_request *kvad_queue_first(const struct kvad_request_queue *queue) {
    return queue->n > 0 ? queue->items[0] : NULL;
}

#endif
