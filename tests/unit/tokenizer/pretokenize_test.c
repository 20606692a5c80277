/* The cuts of GPT-2's regular expression. */
#include "test.h"

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pretokenize.h"

/* `wanted` is the text with '|' at every cut. */
static void assert_cuts(const char *wanted) {
    char text[256], got[512];
    size_t size = 0, n = 0;
    for (const char *c = wanted; *c; c++)
        if (*c != '|') text[size++] = *c;
    for (size_t at = 0, length; at < size; at += length) {
        length = kvad_pretokenize(text + at, size - at);
        assert_in_range(length, 1, size - at);
        if (at) got[n++] = '|';
        memcpy(got + n, text + at, length);
        n += length;
    }
    got[n] = 0;
    assert_string_equal(got, wanted);
}

/* bugs.md TOK-1 */
static void test_only_a_space_joins_the_next_word_and_a_run_gives_back_its_last_one(void **state) {
    (void)state;
    assert_cuts("a|\n|\n|b");
    assert_cuts("a| b");
    assert_cuts("a| | b");
    assert_cuts("a|  | b");
    assert_cuts("a|\t|b");
    assert_cuts("a|\t| b");
    assert_cuts("a| |\t|b");
    assert_cuts(" \t\n| a");
    assert_cuts("a| \n| b");
    assert_cuts("x|  ");
    assert_cuts("x| ");
    assert_cuts("x| \n ");
    assert_cuts(" |\xc2\xa0|x");
    assert_cuts("a|\r|\n|b");
    assert_cuts("a|\r\n");
}

/* bugs.md TOK-1 TOK-2 */
static void test_the_seven_contractions_are_lower_case_and_take_no_more_letters(void **state) {
    (void)state;
    static const char *const tails[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < 7; i++) {
        char text[64];
        snprintf(text, sizeof text, "'%s", tails[i]);
        assert_cuts(text);
        snprintf(text, sizeof text, "we|'%s", tails[i]);
        assert_cuts(text);
        snprintf(text, sizeof text, "we|'%s|x", tails[i]);
        assert_cuts(text);
        snprintf(text, sizeof text, "we| '|%s", tails[i]);
        assert_cuts(text);
        snprintf(text, sizeof text, "9|'%s| 9", tails[i]);
        assert_cuts(text);
    }
    assert_cuts("'|S");
    assert_cuts("'|LL");
    assert_cuts("'s|up");
    assert_cuts("I|'ll|x");
    assert_cuts("don|''|t");
    assert_cuts("don|'t|'");
    assert_cuts("'|r");
    assert_cuts("'|l");
    assert_cuts("'|la");
    assert_cuts("'");
    assert_cuts("x|'\xe2\x80\x99|s");
}

/* bugs.md TOK-22: one sample of each category between letters, digits and spaces */
static void test_each_unicode_category_is_in_its_class(void **state) {
    (void)state;
    static const struct {
        const char *category, *text;
        enum kvad_char_class class;
    } samples[] = {
        {"Lu", "\xc3\x89", KVAD_CHAR_LETTER},     {"Ll", "\xc3\xa9", KVAD_CHAR_LETTER},
        {"Lt", "\xc7\x85", KVAD_CHAR_LETTER},     {"Lm", "\xca\xb0", KVAD_CHAR_LETTER},
        {"Lo", "\xe6\x97\xa5", KVAD_CHAR_LETTER}, {"Nd", "\xd9\xa1", KVAD_CHAR_NUMBER},
        {"Nl", "\xe2\x85\xa0", KVAD_CHAR_NUMBER}, {"No", "\xc2\xbd", KVAD_CHAR_NUMBER},
        {"Mn", "\xcc\x81", KVAD_CHAR_OTHER},      {"Mc", "\xe0\xa4\x83", KVAD_CHAR_OTHER},
        {"Me", "\xe2\x83\x9d", KVAD_CHAR_OTHER},  {"Cf", "\xe2\x80\x8d", KVAD_CHAR_OTHER},
        {"Zs", "\xc2\xa0", KVAD_CHAR_SPACE},      {"Zs", "\xe3\x80\x80", KVAD_CHAR_SPACE},
        {"Zl", "\xe2\x80\xa8", KVAD_CHAR_SPACE},  {"Zp", "\xe2\x80\xa9", KVAD_CHAR_SPACE},
        {"So", "\xe2\x98\x83", KVAD_CHAR_OTHER},  {"Sc", "\xe2\x82\xac", KVAD_CHAR_OTHER},
        {"Cc", "\xc2\x84", KVAD_CHAR_OTHER},      {"Cn", "\xcd\xb8", KVAD_CHAR_OTHER},
        {"Co", "\xee\x80\x80", KVAD_CHAR_OTHER},  {"So", "\xf0\x9f\x98\x80", KVAD_CHAR_OTHER},
    };
    static const char *const joined[][2] = {
        /* before and after a letter, then between digits, then between spaces */
        [KVAD_CHAR_OTHER] = {"a|%s|a", "1|%s|1"},
        [KVAD_CHAR_LETTER] = {"a%sa", "1|%s|1"},
        [KVAD_CHAR_NUMBER] = {"a|%s|a", "1%s1"},
        [KVAD_CHAR_SPACE] = {"a|%s|a", "1|%s|1"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        uint32_t code_point;
        char text[64];
        kvad_utf8_decode(samples[i].text, strlen(samples[i].text), &code_point);
        assert_int_equal(kvad_char_class(code_point), samples[i].class);
        for (size_t form = 0; form < 2; form++) {
            /* One place takes the sample; the '%s' is the only conversion of both forms. */
            const char *pattern = joined[samples[i].class][form], *mark = strchr(pattern, '%');
            snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - pattern), pattern, samples[i].text,
                     mark + 2);
            assert_cuts(text);
        }
        snprintf(text, sizeof text, "a| %s| a", samples[i].text);
        assert_cuts(text);
    }
}

static void test_white_space_is_exactly_the_25_code_points(void **state) {
    (void)state;
    static const uint32_t spaces[] = {0x09,   0x0a,   0x0b,   0x0c,   0x0d,   0x20,   0x85,
                                      0xa0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                      0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028,
                                      0x2029, 0x202f, 0x205f, 0x3000};
    size_t n = 0;
    for (uint32_t c = 0; c <= 0x10ffff; c++)
        if (kvad_char_class(c) == KVAD_CHAR_SPACE) {
            assert_true(n < 25);
            assert_int_equal(c, spaces[n]);
            n++;
        }
    assert_int_equal(n, 25);
    assert_int_equal(kvad_char_class(KVAD_UTF8_INVALID), KVAD_CHAR_OTHER);
    assert_int_equal(kvad_char_class(KVAD_UTF8_INCOMPLETE), KVAD_CHAR_OTHER);
}

/* bugs.md TOK-18 */
static void test_bad_bytes_are_symbols(void **state) {
    (void)state;
    assert_cuts("a|\xff\xfe|a");
    assert_cuts("a| \xe6\xad|a");
    assert_cuts("1|\xed\xa0\x80!|1");
    assert_cuts("\xe6\xad");
    assert_cuts("a| \xf0\x9f\x98");
}

static void test_the_byte_alphabet_holds_each_byte_once(void **state) {
    (void)state;
    bool seen[256] = {false};
    size_t n = 0;
    for (uint32_t c = 1; c < 0x200; c++) {
        char text[2], byte;
        size_t size = 1, n_bytes;
        text[0] = (char)c;
        if (c >= 0x80) {
            text[0] = (char)(0xc0 | c >> 6);
            text[1] = (char)(0x80 | (c & 0x3f));
            size = 2;
        }
        if (!kvad_alphabet_to_bytes(text, size, &byte, &n_bytes)) continue;
        assert_int_equal(n_bytes, 1);
        assert_false(seen[(unsigned char)byte]);
        seen[(unsigned char)byte] = true;
        n++;
    }
    assert_int_equal(n, 256);
    char bytes[8];
    size_t size;
    assert_true(kvad_alphabet_to_bytes("\xc4\xa0the\xc4\x8a", 7, bytes, &size));
    assert_int_equal(size, 5);
    assert_memory_equal(bytes, " the\n", 5);
    assert_false(kvad_alphabet_to_bytes("a b", 3, bytes, &size));
    assert_false(kvad_alphabet_to_bytes("\xe6\x97\xa5", 3, bytes, &size));
    assert_false(kvad_alphabet_to_bytes("\xc4", 1, bytes, &size));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_space_joins_the_next_word_and_a_run_gives_back_its_last_one),
        cmocka_unit_test(test_the_seven_contractions_are_lower_case_and_take_no_more_letters),
        cmocka_unit_test(test_each_unicode_category_is_in_its_class),
        cmocka_unit_test(test_white_space_is_exactly_the_25_code_points),
        cmocka_unit_test(test_bad_bytes_are_symbols),
        cmocka_unit_test(test_the_byte_alphabet_holds_each_byte_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
