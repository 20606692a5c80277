/* The stream gives whole characters and the same ones however the bytes are cut. The first byte of
 * the input chooses the cuts. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static void assert_whole(const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        uint32_t code_point;
        at += kvad_utf8_decode(text + at, size - at, &code_point);
        if (code_point > 0x10ffff) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    unsigned cut = data[0];
    const char *text = (const char *)data + 1;
    size_t n_whole, n_cut = 0, at = 0;
    char *whole = malloc(KVAD_UTF8_STREAM_ROOM(size)), *parts = malloc(KVAD_UTF8_STREAM_ROOM(size));
    struct kvad_utf8_stream stream = {0};
    if (!whole || !parts) abort();
    size--;
    n_whole = kvad_utf8_stream_push(&stream, text, size, whole);
    if (stream.n_held != kvad_utf8_incomplete_tail(text, size)) abort();
    n_whole += kvad_utf8_stream_flush(&stream, whole + n_whole);
    assert_whole(whole, n_whole);
    while (at < size) {
        size_t n = 1 + (cut = cut * 5 + 1) % 7;
        if (n > size - at) n = size - at;
        n_cut += kvad_utf8_stream_push(&stream, text + at, n, parts + n_cut);
        assert_whole(parts, n_cut);
        at += n;
    }
    n_cut += kvad_utf8_stream_flush(&stream, parts + n_cut);
    if (n_cut != n_whole || memcmp(parts, whole, n_whole) != 0) abort();
    free(whole);
    free(parts);
    return 0;
}
