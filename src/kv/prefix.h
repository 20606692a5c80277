/* The prefix index: which blocks of the pool hold which tokens, so that a text that begins like an
 * earlier one starts with that one's blocks.
 *
 *     root (a salt) --- block [t0..t15] --- block [t16..t31] --- ...
 *                   \-- block [t0'..t15']
 *
 * Keys and values of a token depend on all tokens before it, so a block is found by its root, its
 * parent (the block before it) and its own token ids. A chained hash of tagged fields finds the
 * bucket; the answer is confirmed by comparing root, parent and ids, so that no collision can ever
 * lend one text's rows to another. Only full blocks are indexed. Two equal blocks never are:
 * whoever publishes the second one takes the first instead. So a block's parent is indexed and held
 * as long as the block is, and blocks become idle from the leaves on.
 *
 * Not thread-safe: owned by the engine. Only kvad_prefix_root_acquire() allocates. */
#ifndef KVAD_KV_PREFIX_H
#define KVAD_KV_PREFIX_H

#include "kv/pool.h"

/* Texts that may share blocks: those with the same salt, or without one. */
struct kvad_prefix_root {
    struct kvad_prefix_root *next;
    uint64_t key;
    unsigned char *salt; /* [salt_size] */
    size_t salt_size;
    bool is_salted;
    size_t n_users, n_blocks; /* the root goes when both are 0 */
    uint32_t first_child;
};

struct kvad_prefix_entry {
    struct kvad_prefix_root *root;
    uint64_t key;
    uint32_t parent;         /* KVAD_KV_NO_BLOCK: the text's first block */
    uint32_t next_in_bucket; /* KVAD_KV_NO_BLOCK ends all these lists */
    uint32_t first_child, next_sibling, previous_sibling;
};

/* Where keys with the same lowest bits meet. */
struct kvad_prefix_bucket {
    /* The last of these keys that was evicted, to say why a text was not found. */
    uint64_t evicted_key, evicted_at, evicted_for;
    uint32_t first; /* block, or KVAD_KV_NO_BLOCK */
};

typedef uint64_t kvad_prefix_hash_fn(const void *data, size_t size, uint64_t seed);

struct kvad_prefix {
    struct kvad_heap *heap;
    struct kvad_kv_pool *pool; /* borrowed */
    size_t block_tokens;
    struct kvad_prefix_entry *entries;  /* [n_blocks of the pool] */
    int32_t *tokens;                    /* [n_blocks][block_tokens] */
    struct kvad_prefix_bucket *buckets; /* [n_buckets] */
    size_t n_buckets;                   /* a power of two */
    uint64_t model_key;
    struct kvad_prefix_root plain; /* without a salt; first of the list of roots */
    kvad_prefix_hash_fn *hash;     /* XXH64; tests put a constant here */
    size_t n_entries;
    uint64_t now;   /* the engine's count of steps */
    uint64_t taker; /* number of the request that takes blocks now, or KVAD_NO_REQUEST */
};

/* Why a text was not found as a whole. */
enum kvad_prefix_miss {
    KVAD_PREFIX_WHOLE,   /* it was */
    KVAD_PREFIX_COLD,    /* nothing is cached under its salt */
    KVAD_PREFIX_DIFFERS, /* no cached text goes on like this */
    KVAD_PREFIX_EVICTED  /* its next block was there and had to go */
};

struct kvad_prefix_match {
    size_t n_tokens; /* tokens that are there; the last block may match in part */
    enum kvad_prefix_miss miss;
    uint64_t evicted_at, evicted_for; /* `now` and `taker` of then */
    int32_t other; /* with which the indexed text that is most like it goes on; -1: with none */
};

/** Make an empty index over all blocks of `pool`. `model` names what the rows depend on besides the
 * tokens (model, types); it goes into every key. KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_prefix_init(struct kvad_prefix *index, struct kvad_kv_pool *pool,
                                  const struct kvad_kv_shape *shape, const void *model,
                                  size_t model_size, struct kvad_heap *heap,
                                  struct kvad_error *err);
/** A zeroed index is allowed. All roots must have been given back. */
void kvad_prefix_deinit(struct kvad_prefix *index);
/** Bytes of all that the index holds, salts included. O(salts). */
size_t kvad_prefix_table_bytes(const struct kvad_prefix *index);

/** The root of a salt, with one more user. `salt` NULL: the root without one; an empty salt is a
 * salt. KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_prefix_root_acquire(struct kvad_prefix *index, const void *salt,
                                          size_t salt_size, struct kvad_prefix_root **out,
                                          struct kvad_error *err);
void kvad_prefix_root_release(struct kvad_prefix *index, struct kvad_prefix_root *root);

/** The longest indexed beginning of tokens[n]: its blocks go to table[0..], of which there is one
 * for each started block of match->n_tokens. Takes no references. O(n) in the tokens, whatever the
 * index holds. */
struct kvad_prefix_match kvad_prefix_find(const struct kvad_prefix *index,
                                          const struct kvad_prefix_root *root,
                                          const int32_t *tokens, size_t n, uint32_t *table);

/** Whether a text that begins with the first block of tokens[n] is indexed under another root.
 * Looks at some roots only, so that it takes the same time however many there are. */
bool kvad_prefix_is_elsewhere(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                              const int32_t *tokens, size_t n);

/** Index `block`, held by the caller and full, as the continuation tokens[block_tokens] of `parent`
 * (KVAD_KV_NO_BLOCK: the first), which is indexed and held by the caller too. Returns the block
 * that the index has for these tokens: `block`, or an equal one to take instead. */
uint32_t kvad_prefix_publish(struct kvad_prefix *index, struct kvad_prefix_root *root,
                             uint32_t parent, const int32_t *tokens, uint32_t block);

/** Forget a block and all that continue it. */
void kvad_prefix_forget(struct kvad_prefix *index, uint32_t block);
/** Forget every idle block. */
void kvad_prefix_clear(struct kvad_prefix *index);

/** Whether the index agrees with itself and with the pool. For tests: O(n_blocks^2). */
bool kvad_prefix_is_sound(const struct kvad_prefix *index);

#endif
