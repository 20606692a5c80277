#include "engine/queue.h"

#include "base/error.h"
#include "engine/request.h"

enum kvad_status kvad_queue_reserve(struct kvad_request_queue *queue, size_t n,
                                    struct kvad_heap *heap, struct kvad_error *err) {
    if (n <= queue->capacity) return KVAD_OK;
    size_t capacity = n < 8 ? 16 : 2 * n, bytes;
    if (!kvad_mul_size(capacity, sizeof *queue->items, &bytes))
        return kvad_fail_memory(err, "queue", n);
    void *items = kvad_resize(heap, queue->items, queue->capacity * sizeof *queue->items, bytes);
    if (!items) return kvad_fail_memory(err, "queue", bytes);
    queue->items = items;
    queue->capacity = capacity;
    return KVAD_OK;
}

void kvad_queue_deinit(struct kvad_request_queue *queue, struct kvad_heap *heap) {
    kvad_free(heap, queue->items, queue->capacity * sizeof *queue->items);
    *queue = (struct kvad_request_queue){0};
}

bool kvad_request_is_before(const struct kvad_request *a, const struct kvad_request *b) {
    if (a->ends_at_once != b->ends_at_once) return a->ends_at_once;
    if (a->priority != b->priority) return a->priority > b->priority;
    return a->arrival < b->arrival;
}

static void put(struct kvad_request_queue *queue, size_t i, struct kvad_request *request) {
    queue->items[i] = request;
    request->queue_index = i;
}

/* Put a request where it belongs, at `i` or above. */
static void sift_up(struct kvad_request_queue *queue, size_t i, struct kvad_request *request) {
    while (i > 0 && kvad_request_is_before(request, queue->items[(i - 1) / 2])) {
        put(queue, i, queue->items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(queue, i, request);
}

/* At `i` or below. */
static void sift_down(struct kvad_request_queue *queue, size_t i, struct kvad_request *request) {
    for (size_t child = 2 * i + 1; child < queue->n; child = 2 * i + 1) {
        if (child + 1 < queue->n &&
            kvad_request_is_before(queue->items[child + 1], queue->items[child]))
            child++;
        if (!kvad_request_is_before(queue->items[child], request)) break;
        put(queue, i, queue->items[child]);
        i = child;
    }
    put(queue, i, request);
}

void kvad_queue_push(struct kvad_request_queue *queue, struct kvad_request *request) {
    sift_up(queue, queue->n++, request);
}

void kvad_queue_remove(struct kvad_request_queue *queue, struct kvad_request *request) {
    size_t i = request->queue_index;
    struct kvad_request *last = queue->items[--queue->n];
    if (last == request) return;
    sift_down(queue, i, last);
    sift_up(queue, last->queue_index, last);
}
