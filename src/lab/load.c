#include "lab/load.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

/* Copied between two looks at `stop`. */
static const size_t piece_bytes = (size_t)1 << 20;

struct kvad_load {
    struct kvad_heap *heap;
    unsigned char *area;
    size_t half_bytes;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
};

static void *run(void *context) {
    struct kvad_load *load = context;
    size_t half = load->half_bytes;
    for (size_t at = 0; !atomic_load_explicit(&load->stop, memory_order_relaxed);
         at = (at + piece_bytes) % half)
        memcpy(load->area + half + at, load->area + at, piece_bytes);
    return NULL;
}

enum kvad_status kvad_load_start(struct kvad_heap *heap, size_t bytes, struct kvad_load **out,
                                 struct kvad_error *err) {
    assert(bytes >= 2 * piece_bytes);
    struct kvad_load *load = kvad_alloc_zero(heap, 1, sizeof *load);
    if (!load) return kvad_fail_memory(err, "a load", sizeof *load);
    load->heap = heap;
    atomic_init(&load->stop, false);
    load->half_bytes = bytes / 2 / piece_bytes * piece_bytes;
    load->area = kvad_alloc_zero(heap, 2, load->half_bytes);
    if (!load->area) {
        kvad_load_stop(&load);
        return kvad_fail_memory(err, "a load", bytes);
    }
    int code = pthread_create(&load->thread, NULL, run, load);
    load->has_thread = code == 0;
    if (!load->has_thread) {
        kvad_load_stop(&load);
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "cannot start a thread: %s", strerror(code));
    }
    *out = load;
    return KVAD_OK;
}

void kvad_load_stop(struct kvad_load **load) {
    struct kvad_load *l = *load;
    if (!l) return;
    *load = NULL;
    atomic_store_explicit(&l->stop, true, memory_order_relaxed);
    if (l->has_thread) pthread_join(l->thread, NULL);
    kvad_free(l->heap, l->area, 2 * l->half_bytes);
    kvad_free(l->heap, l, sizeof *l);
}
