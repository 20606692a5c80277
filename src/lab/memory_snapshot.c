/* pthread_getattr_np() is a GNU extension that musl has too. */
#define _GNU_SOURCE
#include "lab/memory_snapshot.h"

#include <pthread.h>

#include "base/error.h"
#include "base/threads.h"

enum { FIRST_PIECES = 512, TRIES = 3 };

enum kvad_status memory_view_open(struct memory_view *view, struct memory_ledger *ledger,
                                  struct kvad_heap *heap, struct kvad_error *err) {
    *view = (struct memory_view){.ledger = ledger, .heap = heap, .capacity = FIRST_PIECES};
    view->pieces = kvad_alloc_zero(heap, view->capacity, sizeof *view->pieces);
    if (!view->pieces)
        return kvad_fail_memory(err, "a snapshot", view->capacity * sizeof *view->pieces);
    KVAD_TRY(memory_resident_open(&view->resident, heap, &view->no_resident_why, err));
    memory_view_find_stacks(view, NULL);
    return KVAD_OK;
}

void memory_view_close(struct memory_view *view) {
    if (!view->heap) return;
    memory_resident_close(&view->resident);
    kvad_free(view->heap, view->pieces, view->capacity * sizeof *view->pieces);
    *view = (struct memory_view){0};
}

/* ---------------------------------------------------------------- stacks */

/* Each thread says who it is; asking where its stack is allocates, so that one thread asks for all:
 * the C library would give every other one a heap of its own. */
static void note_thread(void *ctx, unsigned index, unsigned count) {
    (void)count;
    pthread_t *threads = ctx;
    if (index < MEMORY_STACKS) threads[index] = pthread_self();
}

static struct memory_piece stack_of(pthread_t thread) {
    pthread_attr_t attributes;
    void *start = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(thread, &attributes) == 0) {
        pthread_attr_getstack(&attributes, &start, &bytes);
        pthread_attr_destroy(&attributes);
    }
    return (struct memory_piece){
        .start = (uintptr_t)start, .bytes = bytes, .allocated = bytes, .owner = KVAD_MEMORY_STACKS};
}

void memory_view_find_stacks(struct memory_view *view, struct kvad_threads *threads) {
    pthread_t ids[MEMORY_STACKS];
    view->n_stacks = threads ? kvad_min_size(kvad_threads_count(threads), MEMORY_STACKS) : 1;
    if (threads)
        kvad_threads_run(threads, note_thread, ids);
    else
        note_thread(ids, 0, 1);
    for (size_t i = 0; i < view->n_stacks; i++)
        view->stacks[i] = stack_of(ids[i]);
}

/* ---------------------------------------------------------------- owners */

struct claiming {
    struct memory_view *view;
    struct kvad_memory_snapshot *out;
};

/* Somebody says that a piece is his. Counted as he says it: what he says and the ledger does not
 * know is a residual later. */
static void claim(void *user, enum kvad_memory_owner owner, const void *memory, size_t bytes) {
    const struct claiming *c = user;
    struct memory_view *view = c->view;
    if (owner == KVAD_MEMORY_WEIGHTS_FILE) {
        view->pieces[view->n_pieces++] =
            (struct memory_piece){(uintptr_t)memory, bytes, bytes, owner, true};
        return;
    }
    if (owner != KVAD_MEMORY_CACHE) c->out->others += bytes ? bytes : 1; /* as the heap asks */
    for (size_t i = 0; i < view->n_pieces; i++) {
        if (view->pieces[i].start != (uintptr_t)memory) continue;
        view->pieces[i].owner = owner;
        view->pieces[i].is_claimed = true;
    }
}

/* All live pieces, with room for those that are not from the allocator. */
static enum kvad_status list_pieces(struct memory_view *view, struct kvad_error *err) {
    size_t n, extra = MEMORY_STACKS + 1;
    while ((n = memory_ledger_copy(view->ledger, view->pieces, view->capacity)) + extra >
           view->capacity) {
        size_t capacity = 2 * (n + extra), old = view->capacity * sizeof *view->pieces;
        struct memory_piece *pieces =
            kvad_resize(view->heap, view->pieces, old, capacity * sizeof *pieces);
        if (!pieces) return kvad_fail_memory(err, "a snapshot", capacity * sizeof *pieces);
        view->pieces = pieces;
        view->capacity = capacity;
    }
    view->n_pieces = n;
    return KVAD_OK;
}

static void name_pieces(struct memory_view *view, struct kvad_memory_snapshot *out) {
    struct claiming claiming = {view, out};
    if (view->model) kvad_model_visit_memory(view->model, claim, &claiming);
    if (view->engine) kvad_engine_visit_memory(view->engine, claim, &claiming);
    /* What the model does not claim of its account is its tokenizer's, if it has one. */
    bool has_tokenizer = view->model && view->model->tokenizer;
    for (size_t i = 0; i < view->n_pieces; i++) {
        struct memory_piece *p = &view->pieces[i];
        if (p->owner == KVAD_MEMORY_TOKENIZER && !has_tokenizer) p->owner = KVAD_MEMORY_OWNERS;
        if (p->owner != KVAD_MEMORY_WEIGHTS_FILE) out->requested += p->bytes;
        if (!p->is_claimed && p->owner != KVAD_MEMORY_OWNERS) out->others += p->bytes;
    }
}

static void count_pieces(const struct memory_view *view, struct kvad_memory_snapshot *out) {
    for (size_t i = 0; i < view->n_pieces; i++) {
        const struct memory_piece *p = &view->pieces[i];
        if (p->owner == KVAD_MEMORY_OWNERS) {
            out->unowned += p->bytes;
            continue;
        }
        if (p->owner != KVAD_MEMORY_WEIGHTS_FILE) out->owners[p->owner].requested += p->bytes;
        out->owners[p->owner].allocated += p->allocated;
    }
}

/* ---------------------------------------------------------------- looking */

static uint64_t distance(int64_t a) {
    return (uint64_t)(a < 0 ? -a : a);
}

/* The kernel may merge pages into huge ones between two of its files: then another look helps. */
static enum kvad_status look(struct memory_view *view, struct kvad_memory_snapshot *out,
                             struct kvad_error *err) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t owners[KVAD_MEMORY_OWNERS + 1] = {0}, resident = 0, sum = 0;
        KVAD_TRY(memory_resident_read(&view->resident, view->pieces, view->n_pieces, owners,
                                      &resident, err));
        for (int o = 0; o < KVAD_MEMORY_OWNERS; o++)
            sum += owners[o];
        int64_t unexplained = (int64_t)(resident - sum);
        if (i > 0 && distance(unexplained) >= distance(out->unexplained)) continue;
        out->unexplained = unexplained;
        out->resident = resident;
        for (int o = 0; o < KVAD_MEMORY_OWNERS; o++)
            out->owners[o].resident = owners[o];
        if (distance(unexplained) * 100 < resident) break;
    }
    return KVAD_OK;
}

enum kvad_status memory_view_take(struct memory_view *view, struct kvad_memory_snapshot *out,
                                  struct kvad_error *err) {
    *out = (struct kvad_memory_snapshot){0};
    KVAD_TRY(list_pieces(view, err));
    name_pieces(view, out);
    count_pieces(view, out);
    if (view->no_resident_why) return KVAD_OK;
    for (size_t i = 0; i < view->n_stacks; i++) {
        view->pieces[view->n_pieces++] = view->stacks[i];
        out->owners[KVAD_MEMORY_STACKS].allocated += view->stacks[i].bytes;
    }
    memory_pieces_sort(view->pieces, view->n_pieces);
    return look(view, out, err);
}
