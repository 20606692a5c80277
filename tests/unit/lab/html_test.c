#include "lab/html.h"
#include "test.h"

static struct kvad_heap heap;

/* What the writer holds; valid until the next call. */
static const char *text_of(struct kvad_html *html) {
    static char copy[4096];
    assert_false(html->failed);
    snprintf(copy, sizeof copy, "%s", html->bytes ? html->bytes : "");
    kvad_html_deinit(html);
    return copy;
}

static const char *escaped(const char *text) {
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    kvad_html_text(&html, text);
    return text_of(&html);
}

static void test_markup_in_a_name_stays_text(void **state) {
    (void)state;
    assert_string_equal(escaped("<script>alert(\"1\")</script>"),
                        "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;");
    assert_string_equal(escaped("' onload='x"), "&#39; onload=&#39;x");
    assert_string_equal(escaped("&lt;"), "&amp;lt;");
    assert_string_equal(escaped(""), "");
    assert_string_equal(escaped("grüße ✓ 𝄞"), "grüße ✓ 𝄞");
}

static void test_what_is_not_a_character_becomes_the_replacement_character(void **state) {
    (void)state;
    assert_string_equal(escaped("a\xFF<\x80\xE2\x82"), "a\xEF\xBF\xBD&lt;\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_string_equal(escaped("a\x01\x7F\x1B[31m\tb\n"),
                        "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD[31m\tb\n");
    assert_string_equal(escaped("\xC2\x85 \xEF\xBF\xBF"), "\xEF\xBF\xBD \xEF\xBF\xBD");
}

static void test_no_name_turns_the_direction_of_the_page(void **state) {
    (void)state;
    /* Right-to-left override, isolate, mark. */
    assert_string_equal(escaped("\xE2\x80\xAE"
                                "a\xE2\x81\xA7"
                                "b\xE2\x80\x8F"),
                        "\xEF\xBF\xBD"
                        "a\xEF\xBF\xBD"
                        "b\xEF\xBF\xBD");
}

static void test_format_escapes_strings_and_writes_numbers(void **state) {
    (void)state;
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    kvad_html_add(&html, "<b title=\"%s\">%d %u %zu %.2f %g %%</b>", "\"><i>", -7, 8u, (size_t)9,
                  1.005, 2.5);
    assert_string_equal(text_of(&html), "<b title=\"&quot;&gt;&lt;i&gt;\">-7 8 9 1.00 2.5 %</b>");
}

static void test_long_text_arrives_whole(void **state) {
    (void)state;
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    for (int i = 0; i < 10000; i++)
        kvad_html_add(&html, "%d;", i % 10);
    assert_int_equal(html.size, 20000);
    assert_int_equal(strlen(html.bytes), 20000);
    kvad_html_deinit(&html);
    assert_int_equal(heap.bytes, 0);
}

static void *refuse(void *user, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    return NULL;
}
static void release_nothing(void *user, void *memory, size_t size) {
    (void)user, (void)memory, (void)size;
}

static void test_missing_memory_is_remembered(void **state) {
    (void)state;
    struct kvad_allocator hook = {.allocate = refuse, .release = release_nothing};
    struct kvad_heap empty;
    struct kvad_html html;
    kvad_heap_init(&empty, &hook);
    kvad_html_init(&html, &empty);
    kvad_html_add(&html, "<p>%s</p>", "x");
    assert_true(html.failed);
    kvad_html_raw(&html, "more");
    assert_true(html.failed && html.size == 0);
    kvad_html_deinit(&html);
}

int main(void) {
    kvad_heap_init(&heap, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_markup_in_a_name_stays_text),
        cmocka_unit_test(test_what_is_not_a_character_becomes_the_replacement_character),
        cmocka_unit_test(test_no_name_turns_the_direction_of_the_page),
        cmocka_unit_test(test_format_escapes_strings_and_writes_numbers),
        cmocka_unit_test(test_long_text_arrives_whole),
        cmocka_unit_test(test_missing_memory_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
