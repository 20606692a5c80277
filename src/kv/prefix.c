#include "kv/prefix.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/faults.h"

enum {
    /* Blocks with one parent that a search for a partial match looks at: keeps it O(1). */
    MAX_COMPARED = 64,
    /* Roots that a search for a text under another salt looks at: keeps it O(1) too. */
    MAX_ROOTS = 64
};

/* ---------------------------------------------------------------- keys */

/* Each field of a key starts with its kind and its size, so that equal bytes of different kinds, or
 * cut at different places, are different keys. */
enum key_tag { TAG_MODEL = 1, TAG_PLAIN, TAG_SALT, TAG_TOKENS };

static uint64_t chain(const struct kvad_prefix *index, uint64_t parent, enum key_tag tag,
                      const void *data, size_t size) {
    uint64_t head[3] = {parent, (uint64_t)tag, size};
    return index->hash(data, size, index->hash(head, sizeof head, 0));
}

static uint64_t xx_hash(const void *data, size_t size, uint64_t seed) {
    return XXH64(data, size, seed);
}

/* What a key says about the block before. */
static uint32_t key_parent(uint32_t parent) {
    return KVAD_FAULT(KEY_WITHOUT_PARENT, parent, KVAD_KV_NO_BLOCK);
}
/* Under which root blocks are kept and looked for. */
static struct kvad_prefix_root *key_root(const struct kvad_prefix *index,
                                         const struct kvad_prefix_root *root) {
    (void)index;
    return (struct kvad_prefix_root *)KVAD_FAULT(KEY_WITHOUT_SALT, (uintptr_t)root,
                                                 (uintptr_t)&index->plain);
}

/* Bytes of a block's token ids that tell it from others: all of them. */
static size_t key_bytes(const struct kvad_prefix *index) {
    size_t bytes = index->block_tokens * sizeof *index->tokens;
    return KVAD_FAULT(KEY_OF_HALF_A_BLOCK, bytes, bytes / 2);
}

static uint64_t block_key(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                          uint32_t parent, const int32_t *tokens) {
    uint64_t before = parent == KVAD_KV_NO_BLOCK ? root->key : index->entries[parent].key;
    return chain(index, before, TAG_TOKENS, tokens, key_bytes(index));
}

static const int32_t *tokens_of(const struct kvad_prefix *index, uint32_t block) {
    return index->tokens + (size_t)block * index->block_tokens;
}

static struct kvad_prefix_bucket *bucket_of(const struct kvad_prefix *index, uint64_t key) {
    return &index->buckets[key & (index->n_buckets - 1)];
}

/* ---------------------------------------------------------------- memory */

static void forget_hook(void *owner, uint32_t block) {
    kvad_prefix_forget(owner, block);
}

enum kvad_status kvad_prefix_init(struct kvad_prefix *index, struct kvad_kv_pool *pool,
                                  const struct kvad_kv_shape *shape, const void *model,
                                  size_t model_size, struct kvad_heap *heap,
                                  struct kvad_error *err) {
    *index = (struct kvad_prefix){.heap = heap,
                                  .pool = pool,
                                  .block_tokens = shape->block_tokens,
                                  .hash = xx_hash,
                                  .taker = KVAD_NO_REQUEST};
    size_t n_tokens = 0;
    for (index->n_buckets = 16; index->n_buckets < 2 * pool->n_blocks;)
        index->n_buckets *= 2;
    index->entries = kvad_alloc_zero(heap, pool->n_blocks, sizeof *index->entries);
    index->buckets = kvad_alloc_zero(heap, index->n_buckets, sizeof *index->buckets);
    /* Untouched until blocks are published: pages of unused blocks never become resident. */
    if (kvad_mul_size(pool->n_blocks, shape->block_tokens * sizeof *index->tokens, &n_tokens))
        index->tokens = kvad_alloc(heap, n_tokens);
    if (!index->entries || !index->buckets || !index->tokens) {
        kvad_prefix_deinit(index);
        return kvad_fail_memory(err, "prefix index", n_tokens);
    }
    for (size_t i = 0; i < index->n_buckets; i++)
        index->buckets[i].first = KVAD_KV_NO_BLOCK;
    index->model_key = chain(index, 0, TAG_MODEL, model, model_size);
    index->plain.key = chain(index, index->model_key, TAG_PLAIN, "", 0);
    index->plain.first_child = KVAD_KV_NO_BLOCK;
    index->plain.n_users = 1; /* never goes */
    pool->forget = forget_hook;
    pool->owner = index;
    return KVAD_OK;
}

void kvad_prefix_deinit(struct kvad_prefix *index) {
    if (!index->heap) return;
    if (index->tokens) kvad_prefix_clear(index);
    size_t n = index->pool->n_blocks;
    index->pool->forget = NULL;
    kvad_free(index->heap, index->entries, n * sizeof *index->entries);
    kvad_free(index->heap, index->buckets, index->n_buckets * sizeof *index->buckets);
    kvad_free(index->heap, index->tokens, n * index->block_tokens * sizeof *index->tokens);
    *index = (struct kvad_prefix){0};
}

size_t kvad_prefix_table_bytes(const struct kvad_prefix *index) {
    if (!index->heap) return 0;
    size_t per_block = sizeof *index->entries + index->block_tokens * sizeof *index->tokens;
    size_t bytes = index->pool->n_blocks * per_block + index->n_buckets * sizeof *index->buckets;
    for (const struct kvad_prefix_root *root = index->plain.next; root; root = root->next)
        bytes += sizeof *root + root->salt_size;
    return bytes;
}

/* ---------------------------------------------------------------- roots */

static bool has_salt(const struct kvad_prefix_root *root, const void *salt, size_t size) {
    return root->salt_size == size && (size == 0 || memcmp(root->salt, salt, size) == 0);
}

enum kvad_status kvad_prefix_root_acquire(struct kvad_prefix *index, const void *salt,
                                          size_t salt_size, struct kvad_prefix_root **out,
                                          struct kvad_error *err) {
    struct kvad_prefix_root *root = &index->plain;
    if (salt)
        for (root = root->next; root && !has_salt(root, salt, salt_size);)
            root = root->next;
    if (!root) {
        root = kvad_alloc_zero(index->heap, 1, sizeof *root);
        unsigned char *copy = kvad_alloc(index->heap, salt_size);
        if (!root || !copy) {
            kvad_free(index->heap, root, sizeof *root);
            kvad_free(index->heap, copy, salt_size);
            return kvad_fail_memory(err, "salt of a request", salt_size);
        }
        if (salt_size) memcpy(copy, salt, salt_size);
        *root = (struct kvad_prefix_root){.salt = copy,
                                          .salt_size = salt_size,
                                          .is_salted = true,
                                          .first_child = KVAD_KV_NO_BLOCK,
                                          .next = index->plain.next};
        root->key = chain(index, index->model_key, TAG_SALT, salt, salt_size);
        index->plain.next = root;
    }
    root->n_users++;
    *out = root;
    return KVAD_OK;
}

static void remove_unused_root(struct kvad_prefix *index, struct kvad_prefix_root *root) {
    if (root->n_users > 0 || root->n_blocks > 0) return;
    struct kvad_prefix_root *before = &index->plain;
    while (before->next != root)
        before = before->next;
    before->next = root->next;
    kvad_free(index->heap, root->salt, root->salt_size);
    kvad_free(index->heap, root, sizeof *root);
}

void kvad_prefix_root_release(struct kvad_prefix *index, struct kvad_prefix_root *root) {
    assert(root->n_users > 0);
    root->n_users--;
    remove_unused_root(index, root);
}

/* ---------------------------------------------------------------- looking */

static uint32_t look_up(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                        uint32_t parent, const int32_t *tokens, uint64_t key) {
    size_t bytes = key_bytes(index);
    uint32_t block = bucket_of(index, key)->first;
    for (; block != KVAD_KV_NO_BLOCK; block = index->entries[block].next_in_bucket) {
        const struct kvad_prefix_entry *e = &index->entries[block];
        if (e->key == key && e->root == root && e->parent == parent &&
            memcmp(tokens_of(index, block), tokens, bytes) == 0)
            break;
    }
    return block;
}

static uint32_t first_child(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                            uint32_t parent) {
    return parent == KVAD_KV_NO_BLOCK ? root->first_child : index->entries[parent].first_child;
}

/* Of the blocks that follow `parent`, the one that begins most like tokens[n]; *n_equal of them. */
static uint32_t most_alike(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                           uint32_t parent, const int32_t *tokens, size_t n, size_t *n_equal) {
    uint32_t best = KVAD_KV_NO_BLOCK, block = first_child(index, root, parent);
    *n_equal = 0;
    for (size_t i = 0; n > 0 && i < MAX_COMPARED && block != KVAD_KV_NO_BLOCK; i++) {
        const int32_t *others = tokens_of(index, block);
        size_t equal = 0;
        while (equal < n && others[equal] == tokens[equal])
            equal++;
        if (equal > *n_equal) {
            *n_equal = equal;
            best = block;
        }
        block = index->entries[block].next_sibling;
    }
    return best;
}

/* Tokens found in a block that begins with n_equal of the n_left tokens that are looked for. */
static size_t found_in_part(size_t n_equal, size_t n_left) {
    (void)n_left;
    return KVAD_FAULT(PARTIAL_HIT_IS_WHOLE, n_equal, n_equal > 0 ? n_left : 0);
}

/* The token with which the text of `block` (KVAD_KV_NO_BLOCK: of some block after `parent`) goes on
 * after n_equal tokens. */
static int32_t next_token(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                          uint32_t parent, uint32_t block, size_t n_equal) {
    if (block == KVAD_KV_NO_BLOCK)
        block = first_child(index, root, parent);
    else if (n_equal == index->block_tokens)
        block = index->entries[block].first_child;
    if (block == KVAD_KV_NO_BLOCK) return -1;
    return tokens_of(index, block)[n_equal % index->block_tokens];
}

struct kvad_prefix_match kvad_prefix_find(const struct kvad_prefix *index,
                                          const struct kvad_prefix_root *root,
                                          const int32_t *tokens, size_t n, uint32_t *table) {
    const struct kvad_prefix_root *under = key_root(index, root);
    struct kvad_prefix_match match = {.miss = KVAD_PREFIX_DIFFERS};
    uint32_t parent = KVAD_KV_NO_BLOCK;
    size_t n_blocks = 0, b = index->block_tokens;
    while (n - n_blocks * b >= b) {
        const int32_t *next = tokens + n_blocks * b;
        uint64_t key = block_key(index, under, key_parent(parent), next);
        uint32_t block = look_up(index, under, key_parent(parent), next, key);
        if (block == KVAD_KV_NO_BLOCK) {
            const struct kvad_prefix_bucket *bucket = bucket_of(index, key);
            if (bucket->evicted_key != key || bucket->evicted_at == 0) break;
            match.miss = KVAD_PREFIX_EVICTED;
            match.evicted_at = bucket->evicted_at;
            match.evicted_for = bucket->evicted_for;
            break;
        }
        table[n_blocks++] = parent = block;
    }
    size_t n_left = kvad_min_size(n - n_blocks * b, b), n_equal;
    uint32_t part = most_alike(index, under, parent, tokens + n_blocks * b, n_left, &n_equal);
    if (part != KVAD_KV_NO_BLOCK) table[n_blocks] = part;
    match.n_tokens = n_blocks * b + found_in_part(n_equal, n_left);
    match.other = next_token(index, under, parent, part, n_equal);
    if (match.n_tokens == n) match.miss = KVAD_PREFIX_WHOLE;
    if (under->n_blocks == 0 && match.miss == KVAD_PREFIX_DIFFERS) match.miss = KVAD_PREFIX_COLD;
    return match;
}

bool kvad_prefix_is_elsewhere(const struct kvad_prefix *index, const struct kvad_prefix_root *root,
                              const int32_t *tokens, size_t n) {
    const struct kvad_prefix_root *other = &index->plain;
    if (n < index->block_tokens) return false;
    for (size_t i = 0; i < MAX_ROOTS && other; i++, other = other->next) {
        uint64_t key = block_key(index, other, KVAD_KV_NO_BLOCK, tokens);
        if (other != root &&
            look_up(index, other, KVAD_KV_NO_BLOCK, tokens, key) != KVAD_KV_NO_BLOCK)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- coming and going */

static uint32_t *first_child_link(struct kvad_prefix *index, struct kvad_prefix_root *root,
                                  uint32_t parent) {
    return parent == KVAD_KV_NO_BLOCK ? &root->first_child : &index->entries[parent].first_child;
}

/* Whether a block that is published is in the index already: it never is. */
static bool is_indexed(const struct kvad_prefix *index, uint32_t block) {
    (void)index;
    (void)block;
    return KVAD_WHILE_FAULTY(false, index->pool->states[block].is_cached);
}

uint32_t kvad_prefix_publish(struct kvad_prefix *index, struct kvad_prefix_root *root,
                             uint32_t parent, const int32_t *tokens, uint32_t block) {
    root = key_root(index, root);
    parent = key_parent(parent);
    uint64_t key = block_key(index, root, parent, tokens);
    uint32_t known = look_up(index, root, parent, tokens, key);
    if (known != KVAD_KV_NO_BLOCK) return known;
    if (is_indexed(index, block)) return block;
    uint32_t *bucket = &bucket_of(index, key)->first;
    uint32_t *siblings = first_child_link(index, root, parent);
    index->entries[block] = (struct kvad_prefix_entry){.root = root,
                                                       .key = key,
                                                       .parent = parent,
                                                       .next_in_bucket = *bucket,
                                                       .first_child = KVAD_KV_NO_BLOCK,
                                                       .next_sibling = *siblings,
                                                       .previous_sibling = KVAD_KV_NO_BLOCK};
    memcpy(index->tokens + (size_t)block * index->block_tokens, tokens,
           index->block_tokens * sizeof *tokens);
    if (*siblings != KVAD_KV_NO_BLOCK) index->entries[*siblings].previous_sibling = block;
    *bucket = *siblings = block;
    root->n_blocks++;
    index->n_entries++;
    kvad_kv_pool_set_cached(index->pool, block, true);
    return block;
}

/* Take one block without children out of all lists. */
static void unlink_leaf(struct kvad_prefix *index, uint32_t block) {
    struct kvad_prefix_entry *e = &index->entries[block];
    struct kvad_prefix_bucket *bucket = bucket_of(index, e->key);
    uint32_t *link = &bucket->first;
    while (*link != block)
        link = &index->entries[*link].next_in_bucket;
    *link = e->next_in_bucket;
    if (e->previous_sibling == KVAD_KV_NO_BLOCK)
        *first_child_link(index, e->root, e->parent) = e->next_sibling;
    else
        index->entries[e->previous_sibling].next_sibling = e->next_sibling;
    if (e->next_sibling != KVAD_KV_NO_BLOCK)
        index->entries[e->next_sibling].previous_sibling = e->previous_sibling;
    bucket->evicted_key = e->key;
    bucket->evicted_at = index->now + 1;
    bucket->evicted_for = index->taker;
    index->n_entries--;
    e->root->n_blocks--;
    remove_unused_root(index, e->root);
    kvad_kv_pool_set_cached(index->pool, block, false);
}

void kvad_prefix_forget(struct kvad_prefix *index, uint32_t block) {
    for (;;) {
        uint32_t leaf = block;
        while (index->entries[leaf].first_child != KVAD_KV_NO_BLOCK)
            leaf = index->entries[leaf].first_child;
        unlink_leaf(index, leaf);
        if (leaf == block) return;
    }
}

void kvad_prefix_clear(struct kvad_prefix *index) {
    while (index->pool->idle_oldest != KVAD_KV_NO_BLOCK)
        kvad_prefix_forget(index, index->pool->idle_oldest);
}

/* ---------------------------------------------------------------- the invariant */

static bool is_in_list(const struct kvad_prefix *index, uint32_t first, bool bucket,
                       uint32_t block) {
    size_t n_found = 0, n = 0;
    for (uint32_t i = first; i != KVAD_KV_NO_BLOCK && n++ <= index->n_entries;) {
        n_found += i == block;
        i = bucket ? index->entries[i].next_in_bucket : index->entries[i].next_sibling;
    }
    return n_found == 1 && n <= index->n_entries;
}

static bool entry_is_sound(const struct kvad_prefix *index, uint32_t block) {
    const struct kvad_prefix_entry *e = &index->entries[block];
    const struct kvad_kv_pool *pool = index->pool;
    uint32_t siblings = e->root->first_child;
    if (e->parent != KVAD_KV_NO_BLOCK) {
        const struct kvad_prefix_entry *parent = &index->entries[e->parent];
        if (!pool->states[e->parent].is_cached || parent->root != e->root) return false;
        if (pool->states[block].references > 0 && pool->states[e->parent].references == 0)
            return false;
        siblings = parent->first_child;
    }
    return e->key == block_key(index, e->root, e->parent, tokens_of(index, block)) &&
           look_up(index, e->root, e->parent, tokens_of(index, block), e->key) == block &&
           is_in_list(index, bucket_of(index, e->key)->first, true, block) &&
           is_in_list(index, siblings, false, block);
}

bool kvad_prefix_is_sound(const struct kvad_prefix *index) {
    size_t n_cached = 0, n_rooted = 0, n_in_buckets = 0;
    for (uint32_t block = 0; block < index->pool->n_blocks; block++) {
        if (!index->pool->states[block].is_cached) continue;
        n_cached++;
        if (!entry_is_sound(index, block)) return false;
    }
    for (const struct kvad_prefix_root *root = &index->plain; root; root = root->next)
        n_rooted += root->n_blocks;
    for (size_t i = 0; i < index->n_buckets; i++)
        for (uint32_t b = index->buckets[i].first;
             b != KVAD_KV_NO_BLOCK && n_in_buckets <= n_cached;
             b = index->entries[b].next_in_bucket)
            n_in_buckets++;
    return n_cached == index->n_entries && n_cached == n_rooted && n_cached == n_in_buckets;
}
