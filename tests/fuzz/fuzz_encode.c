/* Any bytes through the small BPE: decode(encode(x)) is x, plain text never gives the end id, and
 * a short buffer gets the same beginning. Runs in the source tree. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

static struct kvad_tokenizer *tokenizer(void) {
    static struct kvad_tokenizer *t;
    struct kvad_error err;
    if (!t && kvad_tokenizer_open("tests/data/small-bpe", NULL, &t, &err) != KVAD_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return t;
}

static void check(const struct kvad_tokenizer *t, const char *text, size_t size, unsigned flags) {
    size_t n, n_again, at = 0, room = size / 3;
    int32_t *ids = malloc((size + 1) * sizeof *ids), *few = malloc((room + 1) * sizeof *few);
    if (!ids || !few) abort();
    if (kvad_tokenizer_encode(t, text, size, flags, ids, size, &n, NULL) != KVAD_OK || n > size)
        abort();
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t length;
        if (kvad_tokenizer_piece(t, ids[i], &bytes, &length, NULL) != KVAD_OK) abort();
        if (length > size - at || memcmp(text + at, bytes, length) != 0) abort();
        if (!flags && ids[i] == kvad_tokenizer_eos(t)) abort();
        at += length;
    }
    if (at != size) abort();
    if (kvad_tokenizer_encode(t, text, size, flags, few, room, &n_again, NULL) != KVAD_OK ||
        n_again != n || memcmp(few, ids, (n < room ? n : room) * sizeof *ids) != 0)
        abort();
    free(ids);
    free(few);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check(tokenizer(), (const char *)data, size, 0);
    check(tokenizer(), (const char *)data, size, KVAD_ENCODE_SPECIAL);
    return 0;
}
