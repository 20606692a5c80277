/* The process at one moment: every live piece of memory with its owner. */
#ifndef KVAD_LAB_MEMORY_SNAPSHOT_H
#define KVAD_LAB_MEMORY_SNAPSHOT_H

#include "lab/memory.h"
#include "lab/memory_ledger.h"
#include "lab/memory_resident.h"

enum { MEMORY_STACKS = 128 }; /* threads whose stacks are told apart */

struct memory_view {
    struct memory_ledger *ledger;
    struct kvad_heap *heap; /* the lab's, in the ledger */
    struct memory_resident resident;
    const char *no_resident_why;
    struct memory_piece *pieces; /* [capacity] */
    size_t n_pieces, capacity;
    struct memory_piece stacks[MEMORY_STACKS];
    size_t n_stacks;
    /* What is alive; NULL: nothing of the kind. */
    const struct kvad_model *model;
    const struct kvad_engine *engine;
};

/** Reserve what looking needs. KVAD_ERR_NO_MEMORY; memory_view_close() follows in any case. */
enum kvad_status memory_view_open(struct memory_view *view, struct memory_ledger *ledger,
                                  struct kvad_heap *heap, struct kvad_error *err);
void memory_view_close(struct memory_view *view);

/** Ask every thread of the pool where its stack is; NULL: there is none but the caller's. */
void memory_view_find_stacks(struct memory_view *view, struct kvad_threads *threads);

/** Look. KVAD_ERR_IO, KVAD_ERR_NO_MEMORY. */
enum kvad_status memory_view_take(struct memory_view *view, struct kvad_memory_snapshot *out,
                                  struct kvad_error *err);

#endif
