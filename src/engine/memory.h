/* What the lab sees of an engine that kvad.h does not show: who owns each piece of its memory. */
#ifndef KVAD_ENGINE_MEMORY_H
#define KVAD_ENGINE_MEMORY_H

#include "engine/engine.h"

/* Owners of a process's memory. The engine and the model name their own; the lab finds the rest. */
enum kvad_memory_owner {
    KVAD_MEMORY_CACHE,        /* blocks of the pool, or the sequences' own areas */
    KVAD_MEMORY_TABLES,       /* of blocks: the pool's and the sequences' */
    KVAD_MEMORY_PREFIX,       /* the index of prefixes */
    KVAD_MEMORY_STEP,         /* buffers of the forward pass, scratch of the workers */
    KVAD_MEMORY_LOGITS,       /* rows of logits: the engine's and the caller's */
    KVAD_MEMORY_ENGINE,       /* the engine, its lists, its sequences */
    KVAD_MEMORY_WEIGHTS,      /* on the heap */
    KVAD_MEMORY_WEIGHTS_FILE, /* mapped from a packed file */
    KVAD_MEMORY_MODEL,        /* the model's tables beside its weights */

    KVAD_MEMORY_TOKENIZER,
    KVAD_MEMORY_SAMPLER,
    KVAD_MEMORY_THREADS,  /* the pool of workers */
    KVAD_MEMORY_LAB,      /* what measuring needs */
    KVAD_MEMORY_STACKS,   /* of all threads */
    KVAD_MEMORY_ROUNDING, /* what is left over in the pages of the above */
    KVAD_MEMORY_MALLOC,   /* the C library's heap: headers, freed and kept, its own users */
    KVAD_MEMORY_PROGRAM,  /* the program and its libraries: code and data */
    KVAD_MEMORY_OWNERS
};

typedef void kvad_memory_visit_fn(void *user, enum kvad_memory_owner owner, const void *memory,
                                  size_t bytes);

/** Call `visit` for each piece of memory that the engine and its sequences hold from the engine's
 * allocator. Its threads, requests, pins and salts are not among them. Not during a step. */
void kvad_engine_visit_memory(const struct kvad_engine *engine, kvad_memory_visit_fn *visit,
                              void *user);
/** The same for a model without its tokenizer; weights in a mapped file are a piece too, though not
 * from the allocator. */
void kvad_model_visit_memory(const struct kvad_model *model, kvad_memory_visit_fn *visit,
                             void *user);

#endif
