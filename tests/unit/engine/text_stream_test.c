#include "engine/text_stream.h"

#include "random.h"
#include "test.h"

enum { MAX_PIECE = 64, MAX_TEXT = 4096 };

static struct kvad_heap heap;

static struct kvad_text_stream open_stream(const char *const *stops, size_t n_stops) {
    struct kvad_text_stream stream;
    struct kvad_error err;
    kvad_heap_init(&heap, NULL);
    assert_ok(kvad_text_stream_init(&stream, stops, n_stops, MAX_PIECE, &heap, &err), &err);
    return stream;
}

static void close_stream(struct kvad_text_stream *stream) {
    kvad_text_stream_deinit(stream);
    assert_int_equal(heap.bytes, 0);
}

/* One call's output must be this. */
static void assert_push(struct kvad_text_stream *stream, const char *bytes, const char *wanted) {
    const char *text;
    size_t size;
    kvad_text_stream_push(stream, bytes, strlen(bytes), &text, &size);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(text, wanted, size);
}

static void assert_finish(struct kvad_text_stream *stream, const char *wanted) {
    const char *text;
    size_t size;
    kvad_text_stream_finish(stream, &text, &size);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(text, wanted, size);
}

#define STOPS(...)                                                                                 \
    ((const char *const[]){__VA_ARGS__}),                                                          \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* ---------------------------------------------------------------- UTF-8 */

/* bugs.md STOP-1 */
static void test_emoji_split_over_tokens_comes_out_whole(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(NULL, 0);
    assert_push(&stream, "a\xf0\x9f", "a");
    assert_push(&stream, "\x98\x80z", "\xf0\x9f\x98\x80z");
    assert_finish(&stream, "");
    close_stream(&stream);
}

/* bugs.md STOP-2 */
static void test_wrong_bytes_become_one_mark_per_maximal_part(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(NULL, 0);
    assert_push(&stream, "\xf0\x9f", "");
    assert_push(&stream, "", ""); /* any next token: an empty one too */
    assert_push(&stream, " x", "\xef\xbf\xbd x");
    assert_push(&stream, "\x98\x80", "\xef\xbf\xbd\xef\xbf\xbd");
    assert_finish(&stream, "");
    close_stream(&stream);
}

/* bugs.md STOP-3 */
static void test_beginning_of_a_character_at_the_end_is_one_mark(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(STOPS("stop"));
    assert_push(&stream, "st\xf0\x9f", "");
    assert_finish(&stream, "st\xef\xbf\xbd");
    assert_finish(&stream, ""); /* once */
    close_stream(&stream);
}

/* ---------------------------------------------------------------- stop strings */

/* bugs.md STOP-4 */
static void test_no_part_of_a_stop_string_is_streamed(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(STOPS("DEFGHIJ"));
    assert_push(&stream, "ABC", "ABC");
    for (const char *byte = "DEFGHI"; *byte; ++byte)
        assert_push(&stream, (const char[]){*byte, 0}, "");
    assert_false(stream.stopped);
    assert_push(&stream, "J and more", "");
    assert_true(stream.stopped);
    assert_push(&stream, "ignored", "");
    assert_finish(&stream, "");
    close_stream(&stream);
}

/* bugs.md STOP-5 */
static void test_stop_string_fires_for_every_split_into_tokens(void **state) {
    (void)state;
    static const char text[] = "alpha beta gamma delta";
    size_t size = sizeof text - 1;
    for (size_t first = 0; first <= size; ++first) {
        for (size_t second = first; second <= size; ++second) {
            struct kvad_text_stream stream = open_stream(STOPS("beta gamma"));
            const size_t ends[] = {first, second, size};
            char got[64];
            size_t n = 0, at = 0;
            for (int i = 0; i < 3; ++i) {
                const char *out;
                size_t out_size;
                kvad_text_stream_push(&stream, text + at, ends[i] - at, &out, &out_size);
                memcpy(got + n, out, out_size);
                n += out_size;
                at = ends[i];
            }
            assert_true(stream.stopped);
            assert_int_equal(n, strlen("alpha "));
            assert_memory_equal(got, "alpha ", n);
            close_stream(&stream);
        }
    }
}

/* bugs.md STOP-6 */
static void test_only_what_may_become_a_stop_is_held(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(STOPS("zzzz", "\n\nUser:"));
    assert_push(&stream, "ab", "ab");
    assert_push(&stream, "cz", "c");
    assert_push(&stream, "zz", "");
    assert_push(&stream, "y\n", "zzzy");
    assert_push(&stream, "\n", "");
    assert_push(&stream, "\n", "\n"); /* three line ends: the first can no longer begin it */
    assert_push(&stream, "Use", "");
    assert_push(&stream, "!", "\n\nUse!");
    assert_push(&stream, "zz", "");
    assert_finish(&stream, "zz");
    close_stream(&stream);
}

/* bugs.md STOP-8 */
static void test_earliest_end_wins_and_the_cut_is_exact(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(STOPS("abc", "ab"));
    assert_push(&stream, "xxabcd", "xx");
    assert_true(stream.stopped);
    close_stream(&stream);

    stream = open_stream(STOPS("aab"));
    assert_push(&stream, "aaab", "a");
    assert_true(stream.stopped);
    close_stream(&stream);

    stream = open_stream(STOPS("aab"));
    assert_push(&stream, "a", "");
    assert_push(&stream, "a", "");
    assert_push(&stream, "a", "a");
    assert_push(&stream, "b", "");
    assert_true(stream.stopped);
    close_stream(&stream);

    /* Two that end together: the cut is before the longer one, which began first. */
    stream = open_stream(STOPS("bc", "abc"));
    assert_push(&stream, "xab", "x");
    assert_push(&stream, "c", "");
    assert_true(stream.stopped);
    close_stream(&stream);
}

static void test_stop_of_many_bytes_per_character_is_found(void **state) {
    (void)state;
    struct kvad_text_stream stream = open_stream(STOPS("\xc3\xa9\xc3\xa9"));
    assert_push(&stream, "\xc3", "");
    assert_push(&stream, "\xa8\xc3", "\xc3\xa8"); /* the first byte alone holds nothing back */
    assert_push(&stream, "\xa9", "");
    assert_push(&stream, "\xc3\xa9!", "");
    assert_true(stream.stopped);
    close_stream(&stream);
}

/* ---------------------------------------------------------------- against the definition */

struct reference {
    const char *const *stops;
    size_t n_stops;
};

static bool ends_with(const char *text, size_t size, const char *end, size_t end_size) {
    return size >= end_size && memcmp(text + size - end_size, end, end_size) == 0;
}

/* Length of what may be given out of text[0 .. size): all, without the longest end that begins a
 * stop string; *stopped: a stop string ends in it, and the text before that is the result. */
static size_t certain(const struct reference *r, const char *text, size_t size, bool *stopped) {
    size_t held = 0;
    *stopped = false;
    for (size_t end = 1; end <= size; ++end) {
        size_t cut = 0;
        held = 0;
        for (size_t i = 0; i < r->n_stops; ++i) {
            size_t n = strlen(r->stops[i]);
            if (ends_with(text, end, r->stops[i], n) && n > cut) cut = n;
            for (size_t part = 1; part < n; ++part)
                if (ends_with(text, end, r->stops[i], part) && part > held) held = part;
        }
        if (cut > 0) {
            *stopped = true;
            return end - cut;
        }
    }
    return size - held;
}

static void check_one_random_text(struct test_random *random) {
    enum { TEXT = 60, N_STOPS = 3 };
    char text[TEXT], stop_bytes[N_STOPS][8] = {{0}}, got[TEXT];
    const char *stops[N_STOPS];
    for (size_t i = 0; i < N_STOPS; ++i) {
        size_t size = 1 + random_below(random, 6);
        for (size_t j = 0; j < size; ++j)
            stop_bytes[i][j] = "ab"[random_below(random, 2)];
        stops[i] = stop_bytes[i];
    }
    for (size_t i = 0; i < TEXT; ++i)
        text[i] = "abbac"[random_below(random, 5)];
    struct reference reference = {stops, random_below(random, N_STOPS + 1)};
    struct kvad_text_stream stream = open_stream(stops, reference.n_stops);
    size_t at = 0, n_got = 0;
    bool stopped = false;
    while (at < TEXT) {
        size_t size = random_below(random, 5);
        if (size > TEXT - at) size = TEXT - at;
        const char *out;
        size_t out_size;
        kvad_text_stream_push(&stream, text + at, size, &out, &out_size);
        memcpy(got + n_got, out, out_size);
        n_got += out_size;
        at += size;
        assert_int_equal(n_got, certain(&reference, text, at, &stopped));
        assert_int_equal(stream.stopped, stopped);
        if (stopped) break;
    }
    const char *out;
    size_t out_size;
    kvad_text_stream_finish(&stream, &out, &out_size);
    memcpy(got + n_got, out, out_size);
    n_got += out_size;
    if (!stopped) assert_int_equal(n_got, TEXT);
    assert_memory_equal(got, text, n_got);
    close_stream(&stream);
}

static void test_stream_equals_the_definition_for_random_texts(void **state) {
    (void)state;
    struct test_random random = {17};
    for (int i = 0; i < 20000; ++i)
        check_one_random_text(&random);
}

/* ---------------------------------------------------------------- limits, memory */

static void test_wrong_stop_strings_are_refused_by_name(void **state) {
    (void)state;
    static char too_long[KVAD_MAX_STOP_BYTES + 2];
    memset(too_long, 'x', sizeof too_long - 1);
    const char *many[KVAD_MAX_STOPS + 1];
    for (size_t i = 0; i < KVAD_MAX_STOPS + 1; ++i)
        many[i] = "x";
    kvad_heap_init(&heap, NULL);
    struct kvad_text_stream stream;
    struct kvad_error err;
    assert_fails(kvad_text_stream_init(&stream, STOPS("a", ""), 8, &heap, &err), KVAD_ERR_ARGUMENT,
                 &err, "stop string 1 has 0 bytes");
    assert_fails(kvad_text_stream_init(&stream, STOPS(too_long), 8, &heap, &err), KVAD_ERR_ARGUMENT,
                 &err, "stop string 0 has 4097 bytes");
    assert_fails(kvad_text_stream_init(&stream, STOPS("a", "\xa9"), 8, &heap, &err),
                 KVAD_ERR_ARGUMENT, &err, "stop string 1 is not valid UTF-8");
    assert_fails(kvad_text_stream_init(&stream, many, KVAD_MAX_STOPS + 1, 8, &heap, &err),
                 KVAD_ERR_ARGUMENT, &err, "65");
    assert_int_equal(heap.bytes, 0);
    kvad_text_stream_deinit(&stream); /* also after a failed init */
    too_long[KVAD_MAX_STOP_BYTES] = '\0';
    stream = open_stream(STOPS(too_long));
    close_stream(&stream);
}

static void test_longest_stop_and_longest_piece_fit(void **state) {
    (void)state;
    static char stop[KVAD_MAX_STOP_BYTES + 1], piece[MAX_PIECE + 1];
    memset(stop, 'x', KVAD_MAX_STOP_BYTES);
    memset(piece, 'x', MAX_PIECE);
    struct kvad_text_stream stream = open_stream(STOPS(stop));
    uint64_t n_allocations = heap.n_allocations;
    for (int i = 1; i < KVAD_MAX_STOP_BYTES / MAX_PIECE; ++i)
        assert_push(&stream, piece, "");
    piece[MAX_PIECE - 1] = '\0';
    assert_push(&stream, piece, "");
    const char *text;
    size_t size;
    memset(piece, '\xff', MAX_PIECE); /* 64 marks of three bytes, after 4095 held bytes */
    kvad_text_stream_push(&stream, piece, MAX_PIECE, &text, &size);
    assert_int_equal(size, KVAD_MAX_STOP_BYTES - 1 + 3 * MAX_PIECE);
    assert_true(size <= kvad_text_stream_max_output(&stream));
    assert_int_equal(heap.n_allocations, n_allocations);
    close_stream(&stream);
}

static void *fail_at(void *user, size_t size, size_t alignment) {
    size_t *left = user;
    void *memory = NULL;
    if ((*left)-- == 1) return NULL;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void release(void *user, void *memory, size_t size) {
    (void)user;
    (void)size;
    free(memory);
}

static void test_every_failing_allocation_is_a_clean_error(void **state) {
    (void)state;
    for (size_t k = 1; k < 20; ++k) {
        size_t left = k;
        kvad_heap_init(&heap, &(struct kvad_allocator){fail_at, release, &left});
        struct kvad_text_stream stream;
        struct kvad_error err;
        enum kvad_status status = kvad_text_stream_init(&stream, STOPS("ab", "c"), 8, &heap, &err);
        if (status == KVAD_OK) {
            assert_int_equal(k, 5); /* four allocations */
            close_stream(&stream);
            return;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_int_equal(heap.bytes, 0);
    }
    fail();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emoji_split_over_tokens_comes_out_whole),
        cmocka_unit_test(test_wrong_bytes_become_one_mark_per_maximal_part),
        cmocka_unit_test(test_beginning_of_a_character_at_the_end_is_one_mark),
        cmocka_unit_test(test_no_part_of_a_stop_string_is_streamed),
        cmocka_unit_test(test_stop_string_fires_for_every_split_into_tokens),
        cmocka_unit_test(test_only_what_may_become_a_stop_is_held),
        cmocka_unit_test(test_earliest_end_wins_and_the_cut_is_exact),
        cmocka_unit_test(test_stop_of_many_bytes_per_character_is_found),
        cmocka_unit_test(test_stream_equals_the_definition_for_random_texts),
        cmocka_unit_test(test_wrong_stop_strings_are_refused_by_name),
        cmocka_unit_test(test_longest_stop_and_longest_piece_fit),
        cmocka_unit_test(test_every_failing_allocation_is_a_clean_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
