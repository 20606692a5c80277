#include "tokenizer/added.h"

#include <string.h>

#include "base/error.h"

enum kvad_status kvad_added_init(struct kvad_added *added, struct kvad_heap *heap,
                                 const struct kvad_vocab *vocab, uint32_t capacity,
                                 struct kvad_error *err) {
    *added = (struct kvad_added){.heap = heap, .vocab = vocab, .capacity = capacity};
    added->tokens = kvad_alloc_zero(heap, capacity, sizeof *added->tokens);
    if (!added->tokens)
        return kvad_fail_memory(err, "the added tokens", capacity * sizeof *added->tokens);
    return KVAD_OK;
}

void kvad_added_deinit(struct kvad_added *added) {
    if (!added->heap) return;
    kvad_free(added->heap, added->tokens, added->capacity * sizeof *added->tokens);
    *added = (struct kvad_added){0};
}

void kvad_added_put(struct kvad_added *added, uint32_t id, bool special, bool normalized) {
    added->tokens[added->n++] =
        (struct kvad_added_token){id, KVAD_ADDED_NONE, special, normalized ? 1 : 0};
}

/* Order of byte strings: by unsigned bytes, a beginning before what it begins. */
static int compare_bytes(const char *a, size_t a_size, const char *b, size_t b_size) {
    int order = memcmp(a, b, kvad_min_size(a_size, b_size));
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static const char *text_of(const struct kvad_added *added, uint32_t i, size_t *size) {
    uint32_t id = added->tokens[i].id;
    *size = added->vocab->pieces[id].size;
    return kvad_vocab_bytes(added->vocab, id);
}

/* Whether token i is how text[0..size) begins. */
static bool begins_with(const struct kvad_added *added, uint32_t i, const char *text, size_t size) {
    size_t token_size;
    const char *token = text_of(added, i, &token_size);
    return token_size <= size && memcmp(token, text, token_size) == 0;
}

static int compare_tokens(const struct kvad_added *added, const struct kvad_added_token *a,
                          const struct kvad_added_token *b) {
    if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
    const struct kvad_vocab *vocab = added->vocab;
    return compare_bytes(kvad_vocab_bytes(vocab, a->id), vocab->pieces[a->id].size,
                         kvad_vocab_bytes(vocab, b->id), vocab->pieces[b->id].size);
}

/* Heap sort: qsort() has no context argument in C11. */
static void sift_down(struct kvad_added *added, uint32_t at, uint32_t n) {
    struct kvad_added_token token = added->tokens[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n &&
            compare_tokens(added, &added->tokens[child], &added->tokens[child + 1]) < 0)
            child++;
        if (compare_tokens(added, &added->tokens[child], &token) <= 0) break;
        added->tokens[at] = added->tokens[child];
    }
    added->tokens[at] = token;
}

static void sort_tokens(struct kvad_added *added) {
    for (uint32_t i = added->n / 2; i-- > 0;)
        sift_down(added, i, added->n);
    for (uint32_t n = added->n; n-- > 1;) {
        struct kvad_added_token largest = added->tokens[0];
        added->tokens[0] = added->tokens[n];
        added->tokens[n] = largest;
        sift_down(added, 0, n);
    }
}

void kvad_added_finish(struct kvad_added *added) {
    sort_tokens(added);
    for (uint32_t i = 0; i < added->n; i++) {
        struct kvad_added_token *token = &added->tokens[i];
        size_t size;
        const char *text = text_of(added, i, &size);
        for (unsigned pass = token->pass + 1u; pass <= 2; pass++)
            added->first_of_pass[pass] = i + 1;
        added->begins[token->pass][(unsigned char)text[0]] = true;
        if (!token->special) added->has_plain[token->pass] = true;
        /* In sorted order every beginning of a text is the text before it or an ancestor of that.
         */
        uint32_t parent = i > added->first_of_pass[token->pass] ? i - 1 : KVAD_ADDED_NONE;
        while (parent != KVAD_ADDED_NONE && !begins_with(added, parent, text, size))
            parent = added->tokens[parent].parent;
        token->parent = parent;
    }
}

/* Index of the last token of a pass that is not above `text` in order, or NONE. */
static uint32_t last_not_above(const struct kvad_added *added, unsigned pass, const char *text,
                               size_t size) {
    uint32_t low = added->first_of_pass[pass], high = added->first_of_pass[pass + 1];
    uint32_t first = low;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        size_t token_size;
        const char *token = text_of(added, middle, &token_size);
        if (compare_bytes(token, token_size, text, size) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low > first ? low - 1 : KVAD_ADDED_NONE;
}

const struct kvad_added_token *kvad_added_find(const struct kvad_added *added, const char *text,
                                               size_t size) {
    for (unsigned pass = 0; pass < 2; pass++) {
        uint32_t i = last_not_above(added, pass, text, size);
        if (i == KVAD_ADDED_NONE) continue;
        if (added->vocab->pieces[added->tokens[i].id].size == size &&
            begins_with(added, i, text, size))
            return &added->tokens[i];
    }
    return NULL;
}

const struct kvad_added_token *kvad_added_twice(const struct kvad_added *added) {
    for (uint32_t i = 0; i < added->n; i++) {
        size_t size;
        const char *text = text_of(added, i, &size);
        if (kvad_added_find(added, text, size) != &added->tokens[i]) return &added->tokens[i];
    }
    return NULL;
}

const struct kvad_added_token *kvad_added_match(const struct kvad_added *added, unsigned pass,
                                                bool with_special, const char *text, size_t size,
                                                size_t *begin) {
    if (added->first_of_pass[pass] == added->first_of_pass[pass + 1]) return NULL;
    if (!with_special && !added->has_plain[pass]) return NULL;
    for (size_t at = 0; at < size; at++) {
        if (!added->begins[pass][(unsigned char)text[at]]) continue;
        uint32_t i = last_not_above(added, pass, text + at, size - at);
        /* The tokens that begin text[at..] are all among this one and its ancestors, longest first.
         */
        while (i != KVAD_ADDED_NONE && ((added->tokens[i].special && !with_special) ||
                                        !begins_with(added, i, text + at, size - at)))
            i = added->tokens[i].parent;
        if (i == KVAD_ADDED_NONE) continue;
        *begin = at;
        return &added->tokens[i];
    }
    return NULL;
}
