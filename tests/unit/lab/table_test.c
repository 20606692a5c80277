#include "lab/table.h"

#include <math.h>

#include "test.h"

static struct kvad_heap heap;

static const struct kvad_column columns[] = {
    {"name", "name", KVAD_CELL_NAME, 0},
    {"verdict", "verdict", KVAD_CELL_VERDICT, 0},
    {"stats.median", "ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"absent", "never there", KVAD_CELL_TEXT, 0},
};
static const struct kvad_table table = {"t", "A <caption>", "part.rows", columns, 4, false};

typedef void writer(struct kvad_html *, const struct kvad_table *, const json_t *);

/* The table over this JSON; valid until the next call. */
static const char *written(writer *write, const struct kvad_table *what, const char *json) {
    static char copy[8192];
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    json_t *report = json_loads(json, 0, NULL);
    assert_non_null(report);
    write(&html, what, report);
    assert_false(html.failed);
    snprintf(copy, sizeof copy, "%s", html.bytes ? html.bytes : "");
    kvad_html_deinit(&html);
    json_decref(report);
    return copy;
}

static void test_paths_lead_through_objects_and_arrays(void **state) {
    (void)state;
    json_t *json = json_loads("{\"a\":{\"b\":[1,{\"c\":2.5,\"s\":\"x\"}]},\"n\":null}", 0, NULL);
    assert_true(kvad_table_number(json, "a.b.0") == 1);
    assert_true(kvad_table_number(json, "a.b.1.c") == 2.5);
    assert_string_equal(kvad_table_string(json, "a.b.1.s", "-"), "x");
    const char *const nowhere[] = {"x",      "a.b.2",   "a.b.", "a.b.-1",
                                   "a.b.1x", "a.b.0.c", "n.x",  "a..b"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        assert_true(isnan(kvad_table_number(json, nowhere[i])));
        assert_string_equal(kvad_table_string(json, nowhere[i], "-"), "-");
    }
    assert_true(isnan(kvad_table_number(NULL, "a")));
    json_decref(json);
}

static void test_csv_quotes_what_needs_it(void **state) {
    (void)state;
    const char *csv =
        written(kvad_table_add_csv, &table,
                "{\"part\":{\"rows\":["
                "{\"name\":\"plain\",\"verdict\":\"pass\",\"stats\":{\"median\":0.1}},"
                "{\"name\":\"a,b\",\"verdict\":true,\"stats\":{\"median\":12}},"
                "{\"name\":\"say \\\"hi\\\"\\nthere\",\"verdict\":null},"
                "{\"name\":\"=1+1\",\"stats\":3}, 7]}}");
    assert_string_equal(csv, "name,verdict,stats.median,absent\n"
                             "plain,pass,0.1,\n"
                             "\"a,b\",true,12,\n"
                             "\"say \"\"hi\"\"\nthere\",,,\n"
                             "\"'=1+1\",,,\n"
                             ",,,\n");
}

static void test_numbers_stand_right_and_unused_columns_are_left_out(void **state) {
    (void)state;
    const char *html = written(kvad_table_add_html, &table,
                               "{\"part\":{\"rows\":[{\"name\":\"<b>\",\"verdict\":\"fail\","
                               "\"stats\":{\"median\":0.5}},{\"name\":\"y\"}]}}");
    assert_non_null(strstr(html, "<h3>A &lt;caption&gt;</h3>"));
    assert_non_null(strstr(html, "<td><code>&lt;b&gt;</code></td>"));
    assert_non_null(strstr(html, "<td class=\"n\">0.500</td>"));
    assert_non_null(strstr(html, "<td class=\"n\">–</td>"));
    assert_non_null(strstr(html, "<td class=\"fail\">"));
    assert_null(strstr(html, "never there"));
}

static void test_members_of_an_object_are_rows_by_name(void **state) {
    (void)state;
    static const struct kvad_column of_object[] = {
        {"@", "part", KVAD_CELL_NAME, 0},
        {".", "ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    };
    static const struct kvad_table parts = {"p", "Parts", "parts", of_object, 2, false};
    assert_string_equal(written(kvad_table_add_csv, &parts, "{\"parts\":{\"a\":1,\"b\":2.5}}"),
                        "name,value\na,1\nb,2.5\n");
}

static void test_a_table_without_rows_is_not_there(void **state) {
    (void)state;
    const char *const empty[] = {"{}", "{\"part\":3}", "{\"part\":{\"rows\":\"x\"}}",
                                 "{\"part\":{\"rows\":[]}}", "{\"part\":{\"rows\":{}}}"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_string_equal(written(kvad_table_add_html, &table, empty[i]), "");
}

int main(void) {
    kvad_heap_init(&heap, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_lead_through_objects_and_arrays),
        cmocka_unit_test(test_csv_quotes_what_needs_it),
        cmocka_unit_test(test_numbers_stand_right_and_unused_columns_are_left_out),
        cmocka_unit_test(test_members_of_an_object_are_rows_by_name),
        cmocka_unit_test(test_a_table_without_rows_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
