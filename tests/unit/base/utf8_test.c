/* Strict decoding and the stream of whole characters. */
#include "test.h"

#include "base/utf8.h"

static uint32_t random_state = 12345;
static uint32_t next_random(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static uint32_t decode_all_of(const char *text, size_t size, size_t *used) {
    uint32_t code_point;
    *used = kvad_utf8_decode(text, size, &code_point);
    return code_point;
}

/* Plain arithmetic, apart from the code under test. */
static size_t encode_plainly(char *out, uint32_t c) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

static void test_every_code_point_decodes_and_every_beginning_of_it_is_incomplete(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char text[4];
        size_t n = encode_plainly(text, c), used;
        if (c >= 0xd800 && c <= 0xdfff) {
            assert_int_equal(decode_all_of(text, n, &used), KVAD_UTF8_INVALID);
            assert_int_equal(used, 1);
            continue;
        }
        assert_int_equal(decode_all_of(text, n, &used), c);
        assert_int_equal(used, n);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(decode_all_of(text, cut, &used), KVAD_UTF8_INCOMPLETE);
            assert_int_equal(used, cut);
            assert_int_equal(kvad_utf8_incomplete_tail(text, cut), cut);
        }
        assert_int_equal(kvad_utf8_incomplete_tail(text, n), 0);
    }
}

/* Unicode 15, chapter 3.9, table 3-8 and its like: the length of the first maximal subpart. */
static void test_bad_bytes_are_cut_into_maximal_subparts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t size, used;
    } cases[] = {
        {"\x80", 1, 1},
        {"\xc0\xaf", 2, 1},
        {"\xc1\xbf", 2, 1},
        {"\xe0\x80\xaf", 3, 1},
        {"\xe0\x9f\xbf", 3, 1},
        {"\xed\xa0\x80", 3, 1},
        {"\xf0\x80\x80", 3, 1},
        {"\xf0\x8f\xbf", 3, 1},
        {"\xf4\x90\x80\x80", 4, 1},
        {"\xf5\x80", 2, 1},
        {"\xff", 1, 1},
        {"\xe1\x80\xe2", 3, 2},
        {"\xf0\x91\x92\x41", 4, 3},
        {"\xf1\xbf\x41", 3, 2},
        {"\xe2\x82\x41", 3, 2},
        {"\xc2\x41", 2, 1},
        {"\xe6\xad\xe6", 3, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t used;
        assert_int_equal(decode_all_of(cases[i].text, cases[i].size, &used), KVAD_UTF8_INVALID);
        assert_int_equal(used, cases[i].used);
    }
}

/* bugs.md TOK-18: nothing is read past the end, which ASan holds. */
static void test_all_strings_of_two_bytes_and_cut_ones_decode_inside_their_memory(void **state) {
    (void)state;
    for (unsigned v = 0; v < 0x10000; v++) {
        char *text = malloc(2);
        text[0] = (char)(v >> 8);
        text[1] = (char)v;
        for (size_t at = 0, used; at < 2; at += used) {
            decode_all_of(text + at, 2 - at, &used);
            assert_in_range(used, 1, 2 - at);
        }
        assert_in_range(kvad_utf8_incomplete_tail(text, 2), 0, 2);
        free(text);
    }
}

static void test_incomplete_tail_is_only_what_more_bytes_could_finish(void **state) {
    (void)state;
    assert_int_equal(kvad_utf8_incomplete_tail("", 0), 0);
    assert_int_equal(kvad_utf8_incomplete_tail("abc", 3), 0);
    assert_int_equal(kvad_utf8_incomplete_tail("a\xf0\x9f\x98", 4), 3);
    assert_int_equal(kvad_utf8_incomplete_tail("a\xf0\x9f\x98\x80", 5), 0);
    assert_int_equal(kvad_utf8_incomplete_tail("\xe2\x82\xac\xe2\x82", 5), 2);
    assert_int_equal(kvad_utf8_incomplete_tail("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(kvad_utf8_incomplete_tail("\xed\xa0", 2), 0);
    assert_int_equal(kvad_utf8_incomplete_tail("\xf4\x90", 2), 0);
}

struct text {
    char bytes[4096];
    size_t size;
};

static void push(struct kvad_utf8_stream *stream, const char *bytes, size_t size,
                 struct text *out) {
    char *exact = malloc(KVAD_UTF8_STREAM_ROOM(size));
    size_t n = kvad_utf8_stream_push(stream, bytes, size, exact);
    assert_true(n <= KVAD_UTF8_STREAM_ROOM(size));
    memcpy(out->bytes + out->size, exact, n);
    out->size += n;
    free(exact);
}

static void flush(struct kvad_utf8_stream *stream, struct text *out) {
    out->size += kvad_utf8_stream_flush(stream, out->bytes + out->size);
}

static void assert_text(const struct text *text, const char *wanted) {
    assert_int_equal(text->size, strlen(wanted));
    assert_memory_equal(text->bytes, wanted, text->size);
}

/* bugs.md STOP-1 */
static void test_an_emoji_split_over_tokens_comes_out_whole(void **state) {
    (void)state;
    struct kvad_utf8_stream stream = {0};
    struct text out = {.size = 0};
    push(&stream, "\xf0\x9f", 2, &out);
    assert_text(&out, "");
    push(&stream, "\x98\x80", 2, &out);
    assert_text(&out, "\xf0\x9f\x98\x80");
    flush(&stream, &out);
    assert_text(&out, "\xf0\x9f\x98\x80");
    const char *each = "\xe2\x82\xac";
    for (size_t i = 0; i < 3; i++)
        push(&stream, each + i, 1, &out);
    assert_text(&out, "\xf0\x9f\x98\x80\xe2\x82\xac");
}

/* bugs.md STOP-2 */
static void
test_held_bytes_become_one_replacement_when_the_next_token_proves_them_wrong(void **state) {
    (void)state;
    struct kvad_utf8_stream stream = {0};
    struct text out = {.size = 0};
    push(&stream, "\xf0\x9f", 2, &out);
    push(&stream, "", 0, &out);
    assert_text(&out, "");
    push(&stream, " x", 2, &out);
    assert_text(&out, "\xef\xbf\xbd x");
    push(&stream, "\x98\x80", 2, &out);
    assert_text(&out, "\xef\xbf\xbd x\xef\xbf\xbd\xef\xbf\xbd");
    flush(&stream, &out);
    assert_text(&out, "\xef\xbf\xbd x\xef\xbf\xbd\xef\xbf\xbd");
}

/* bugs.md STOP-3 */
static void test_a_tail_cut_at_the_end_is_one_replacement_and_only_once(void **state) {
    (void)state;
    struct kvad_utf8_stream stream = {0};
    struct text out = {.size = 0};
    push(&stream, "ok\xf0\x9f\x98", 5, &out);
    assert_text(&out, "ok");
    flush(&stream, &out);
    flush(&stream, &out);
    assert_text(&out, "ok\xef\xbf\xbd");
}

static size_t random_bytes(char *bytes, size_t max) {
    static const char *const bits[] = {"a",        "\xf0\x9f\x98\x80", "\xf0\x9f\x98", "\xf0\x9f",
                                       "\xf0",     "\xe2\x82\xac",     "\xe2\x82",     "\x80",
                                       "\xc3\xa9", "\xed\xa0\x80",     "\xf4\x90",     "\xff"};
    size_t n = 0;
    while (n + 4 < max && next_random() % 16) {
        const char *bit = bits[next_random() % (sizeof bits / sizeof bits[0])];
        memcpy(bytes + n, bit, strlen(bit));
        n += strlen(bit);
    }
    return n;
}

/* bugs.md STOP-1 STOP-2 STOP-3 */
static void test_the_stream_does_not_depend_on_how_bytes_are_cut(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char bytes[128];
        size_t size = random_bytes(bytes, sizeof bytes);
        struct kvad_utf8_stream stream = {0};
        struct text whole = {.size = 0}, cut = {.size = 0};
        push(&stream, bytes, size, &whole);
        flush(&stream, &whole);
        for (size_t at = 0, n; at < size; at += n) {
            n = 1 + next_random() % 5;
            if (n > size - at) n = size - at;
            push(&stream, bytes + at, n, &cut);
            uint32_t code_point;
            for (size_t i = 0; i < cut.size;) { /* always whole characters */
                i += kvad_utf8_decode(cut.bytes + i, cut.size - i, &code_point);
                assert_true(code_point <= 0x10ffff);
            }
        }
        flush(&stream, &cut);
        assert_int_equal(cut.size, whole.size);
        if (whole.size) assert_memory_equal(cut.bytes, whole.bytes, whole.size);
    }
}

static void test_a_byte_order_mark_is_one_only_when_whole(void **state) {
    (void)state;
    assert_int_equal(kvad_utf8_mark("\xef\xbb\xbf{", 4), 3);
    assert_int_equal(kvad_utf8_mark("\xef\xbb\xbf", 3), 3);
    assert_int_equal(kvad_utf8_mark("\xef\xbb\xbf", 2), 0);
    assert_int_equal(kvad_utf8_mark("\xef\xbb\xbe", 3), 0);
    assert_int_equal(kvad_utf8_mark(NULL, 0), 0);
}

static void test_what_acts_on_a_line_is_a_control_and_letters_are_none(void **state) {
    (void)state;
    static const uint32_t controls[] = {0,      '\n',   0x1b,   0x1f,   0x7f,   0x80,
                                        0x9b,   0x9f,   0x61c,  0x200e, 0x200f, 0x2028,
                                        0x2029, 0x202a, 0x202e, 0x2066, 0x2069};
    static const uint32_t others[] = {' ',    '~',     0xa0,   0x61b,   0x61d,  0x200d,
                                      0x2010, 0x2027,  0x202f, 0x2065,  0x206a, 0x5d0,
                                      0x627,  0x1f600, 0xfffd, 0x10ffff};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        assert_true(kvad_utf8_is_control(controls[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(kvad_utf8_is_control(others[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_acts_on_a_line_is_a_control_and_letters_are_none),
        cmocka_unit_test(test_a_byte_order_mark_is_one_only_when_whole),
        cmocka_unit_test(test_every_code_point_decodes_and_every_beginning_of_it_is_incomplete),
        cmocka_unit_test(test_bad_bytes_are_cut_into_maximal_subparts),
        cmocka_unit_test(test_all_strings_of_two_bytes_and_cut_ones_decode_inside_their_memory),
        cmocka_unit_test(test_incomplete_tail_is_only_what_more_bytes_could_finish),
        cmocka_unit_test(test_an_emoji_split_over_tokens_comes_out_whole),
        cmocka_unit_test(
            test_held_bytes_become_one_replacement_when_the_next_token_proves_them_wrong),
        cmocka_unit_test(test_a_tail_cut_at_the_end_is_one_replacement_and_only_once),
        cmocka_unit_test(test_the_stream_does_not_depend_on_how_bytes_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
