/* Where the bytes of a live run are: the cache by its formula, as it was asked for and as it lies
 * in memory, and everything beside it by owner, at checkpoints over the context.
 *
 * Each run (a policy, a type of cache) goes over the context twice:
 *
 *   naive    the way one measures first: nothing is warm, and what the process grew by since before
 *            the engine was opened is compared with T times the bytes of a token. The difference
 *            is the offset, and it is itemised by owner.
 *   warmed   everything has been used once, and the live buffers that are not the cache are
 *            subtracted: what is left is the formula, to the byte, or the residual is not 0.
 *
 * Counts are of the caller's allocator (kvad_allocator), which the lab wraps: they know nothing of
 * what the engine believes. Only what a text holds of a pool is the engine's own count, since no
 * allocator sees it. Formulas are lab/memory_formula.h's. Resident bytes are pages that
 * /proc/self/pagemap says are present, of the ranges that the allocator gave. One thread. */
#ifndef KVAD_LAB_MEMORY_H
#define KVAD_LAB_MEMORY_H

#include "engine/memory.h"
#include "lab/memory_roads.h"

enum { KVAD_MEMORY_CHECKPOINTS = 16 };

struct kvad_memory_list {
    const uint32_t *items; /* [n], borrowed */
    size_t n;
};

struct kvad_memory_options {
    /* Makes the model out of memory of `allocator`; called once. */
    enum kvad_status (*open_model)(void *user, const struct kvad_allocator *allocator,
                                   struct kvad_model **out, struct kvad_error *err);
    void *user;
    struct kvad_memory_list policies; /* enum kvad_cache_policy */
    struct kvad_memory_list kv;       /* enum kvad_kv_type, of keys and values */
    uint32_t n_ctx;                   /* of the engine; 0: the model's */
    uint32_t block_tokens;            /* 0: 16 */
    unsigned n_threads;               /* 0: automatic */
    const char *cpu;                  /* highest kernel level; NULL: the best */
    /* Called before every step with what it is about and the part done, 0 to 1; false cancels
     * (KVAD_ERR_CANCELLED). May be NULL. */
    bool (*report)(void *user, const char *what, double done);
    /* The engine that runs now, for kvad_engine_interrupt(); NULL: none. May be NULL. */
    void (*engine_in_use)(void *user, struct kvad_engine *engine);
};

struct kvad_memory_bytes {
    uint64_t requested; /* counted at the allocator; 0 for owners that do not use it */
    uint64_t allocated; /* what the C library set aside for it; else what is mapped */
    uint64_t resident;  /* in memory now */
};

/* The process at one moment. */
struct kvad_memory_snapshot {
    struct kvad_memory_bytes owners[KVAD_MEMORY_OWNERS];
    uint64_t requested;  /* all that is live at the allocator */
    uint64_t unowned;    /* of it, of nobody known */
    uint64_t others;     /* live buffers that are not the cache, as their owners say */
    uint64_t resident;   /* Rss of the process; 0: not to be had */
    int64_t unexplained; /* of it, in no owner's pages */
};

struct kvad_memory_checkpoint {
    uint32_t tokens;
    uint64_t rows;      /* tokens times the bytes of a token */
    uint64_t remainder; /* of the last block, beyond them */
    /* Live: what the text holds, by kvad_engine_get_info(). */
    uint64_t formula, held;
    int64_t residual; /* held - formula */
    /* Reserved: what the allocator was asked for; counted as all that is live there minus the
     * buffers that are not the cache. */
    uint64_t reserved_formula, reserved;
    int64_t reserved_residual;
    uint64_t peak; /* most that was reserved at once since the checkpoint before: `grow` holds the
                      old and the new area while it copies */
    struct kvad_memory_snapshot memory;
};

struct kvad_memory_run {
    enum kvad_cache_policy policy;
    enum kvad_kv_type kv;
    uint64_t token_bytes;
    unsigned n_checkpoints;             /* fewer than 16 where the context is shorter */
    struct kvad_memory_snapshot before; /* the model is loaded, no engine open */
    struct kvad_memory_checkpoint naive[KVAD_MEMORY_CHECKPOINTS];
    struct kvad_memory_checkpoint warmed[KVAD_MEMORY_CHECKPOINTS];
    struct kvad_memory_snapshot after; /* engine closed */
};

struct kvad_memory_result {
    struct kvad_model_info model;
    char cpu[16];
    unsigned n_threads;
    uint32_t n_ctx, block_tokens;
    uint64_t page_bytes;
    const char *no_resident_why;  /* NULL: resident bytes were measured */
    struct kvad_memory_run *runs; /* [n_runs] types, and for each the policies */
    size_t n_runs;
    struct kvad_heap heap; /* of the runs */
};

/** Measure. KVAD_ERR_ARGUMENT for an empty list, KVAD_ERR_CONTEXT_FULL for a context that the model
 * does not have, KVAD_ERR_CANCELLED, KVAD_ERR_NO_MEMORY, KVAD_ERR_IO (of /proc), and what opening
 * gives. kvad_memory_result_deinit() follows in any case. The process should do nothing else
 * meanwhile. */
enum kvad_status kvad_memory_measure(const struct kvad_memory_options *options,
                                     struct kvad_memory_result *result, struct kvad_error *err);
/** A zeroed result is allowed. */
void kvad_memory_result_deinit(struct kvad_memory_result *result);

/** Whether every residual of the warmed passes is 0 and nothing is of nobody. */
bool kvad_memory_result_is_exact(const struct kvad_memory_result *result);
/** The least part of resident memory that owners explain at a warmed checkpoint, in percent; -1:
 * not measured. */
double kvad_memory_result_explained(const struct kvad_memory_result *result);
double kvad_memory_snapshot_explained(const struct kvad_memory_snapshot *snapshot);

/** The growth of the process since before the engine was opened, less the rows of the text, at a
 * checkpoint of the naive pass: as a whole; what an owner has to do with it; and what nobody has.
 * Owners and nobody add up to the whole. */
struct kvad_memory_offset {
    int64_t requested, resident;
};
struct kvad_memory_offset kvad_memory_offset_whole(const struct kvad_memory_run *run,
                                                   const struct kvad_memory_checkpoint *checkpoint);
struct kvad_memory_offset kvad_memory_offset_of(const struct kvad_memory_run *run,
                                                const struct kvad_memory_checkpoint *checkpoint,
                                                enum kvad_memory_owner owner);
struct kvad_memory_offset
kvad_memory_offset_unexplained(const struct kvad_memory_run *run,
                               const struct kvad_memory_checkpoint *checkpoint);

/** "step_buffers", as in JSON; NULL from KVAD_MEMORY_OWNERS on. */
const char *kvad_memory_owner_name(enum kvad_memory_owner owner);

/** The result as JSON (docs/memory.md); the caller owns it. NULL when memory is out. */
json_t *kvad_memory_result_json(const struct kvad_memory_result *result);

#endif
