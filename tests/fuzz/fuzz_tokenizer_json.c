/* Tokenizer files of every kind: what opens must encode and decode without loss.
 *
 * The input is up to four files with a NUL byte between them: the main one, merges.txt,
 * added_tokens.json, tokenizer_config.json. One that begins with 0x80 is a meta.pkl alone. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

static const char text[] =
    "I'LL we'll  \t\n 1st 2\xc2\xb2 na\xc3\xafve <|endoftext|> \xff\xe6\xad the there aaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* Ids decode to the text they came from. */
static void check(const struct kvad_tokenizer *t, unsigned flags) {
    static int32_t ids[sizeof text];
    size_t n, at = 0, size = sizeof text - 1;
    if (kvad_tokenizer_encode(t, text, size, flags, ids, sizeof text, &n, NULL) != KVAD_OK) return;
    if (t->add_prefix_space) return; /* adds spaces on purpose */
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t length;
        if (kvad_tokenizer_piece(t, ids[i], &bytes, &length, NULL) != KVAD_OK) abort();
        if (length > size - at || memcmp(text + at, bytes, length) != 0) abort();
        at += length;
    }
    if (at != size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kvad_tokenizer_files files = {0};
    struct kvad_tokenizer_file *parts[] = {&files.main, &files.merges, &files.added, &files.config};
    struct kvad_tokenizer *t = NULL;
    struct kvad_error err;
    const uint8_t *at = data, *end = data + size;
    for (size_t i = 0; i < 4 && at; i++) {
        const uint8_t *nul = size && data[0] == 0x80 ? NULL : memchr(at, 0, (size_t)(end - at));
        *parts[i] = (struct kvad_tokenizer_file){"file", at, (size_t)((nul ? nul : end) - at)};
        at = nul ? nul + 1 : NULL;
    }
    if (kvad_tokenizer_open_memory(&files, NULL, &t, &err) != KVAD_OK) {
        if (strlen(err.text) == 0 || t) abort();
        return 0;
    }
    for (uint32_t id = 0; id < kvad_tokenizer_size(t); id++) {
        const char *bytes;
        size_t length;
        if (kvad_tokenizer_piece(t, (int32_t)id, &bytes, &length, &err) != KVAD_OK) abort();
        if (length > kvad_tokenizer_longest(t)) abort();
    }
    check(t, 0);
    check(t, KVAD_ENCODE_SPECIAL);
    kvad_tokenizer_release(&t);
    return 0;
}
