#include "lab/chart.h"

#include <math.h>

#include "test.h"

static struct kvad_heap heap;

static const char *text_of(struct kvad_html *html) {
    static char copy[65536];
    assert_false(html->failed);
    assert_in_range(html->size, 0, sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", html->bytes ? html->bytes : "");
    kvad_html_deinit(html);
    return copy;
}

static const char *lines(const struct kvad_line_chart *chart) {
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    kvad_line_chart_add(&html, chart);
    return text_of(&html);
}

static const char *bars(const struct kvad_bar_chart *chart) {
    struct kvad_html html;
    kvad_html_init(&html, &heap);
    kvad_bar_chart_add(&html, chart);
    return text_of(&html);
}

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static const struct kvad_axis log_axis = {"tokens", true, KVAD_FIGURE_COUNT};
static const struct kvad_axis linear_axis = {"ms", false, KVAD_FIGURE_NUMBER};

static void test_every_point_has_its_marker_and_every_series_its_name(void **state) {
    (void)state;
    const struct kvad_point a[] = {{1, 1}, {10, 2}, {100, 3}}, b[] = {{1, 2}, {100, 2}};
    const struct kvad_series series[] = {{"naive", a, 3, false}, {"floor", b, 2, true}};
    const char *svg = lines(&(struct kvad_line_chart){"T", "D", log_axis, linear_axis, series, 2});
    assert_int_equal(count(svg, "<svg"), 2); /* wide and narrow */
    assert_int_equal(count(svg, "class=\"mark c0\""), 2 * 3);
    assert_int_equal(count(svg, "class=\"mark c1\""), 0);
    assert_int_equal(count(svg, "line computed c1"), 2);
    assert_int_equal(count(svg, ">naive</text>"), 2);
    assert_int_equal(count(svg, ">tokens (log scale)</text>"), 2);
}

static void test_points_that_an_axis_cannot_show_are_left_out(void **state) {
    (void)state;
    const struct kvad_point points[] = {{0, 1}, {-5, 1}, {NAN, 1}, {1, INFINITY}, {2, 5}, {4, 6}};
    const struct kvad_series series = {"s", points, 6, false};
    const char *svg = lines(&(struct kvad_line_chart){"T", "D", log_axis, linear_axis, &series, 1});
    assert_int_equal(count(svg, "class=\"mark"), 2 * 2);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
}

static void test_nothing_to_show_gives_no_figure(void **state) {
    (void)state;
    const struct kvad_point none = {NAN, NAN};
    const struct kvad_series series[] = {{"s", &none, 1, false}, {"t", NULL, 0, false}};
    assert_string_equal(
        lines(&(struct kvad_line_chart){"T", "D", log_axis, linear_axis, series, 2}), "");
    const double zeros[] = {0, NAN};
    const char *const parts[] = {"a", "b"};
    const struct kvad_bar bar = {"x", zeros};
    assert_string_equal(
        bars(&(struct kvad_bar_chart){"T", "D", parts, 2, &bar, 1, KVAD_FIGURE_MS, false}), "");
}

static void test_names_in_charts_are_escaped(void **state) {
    (void)state;
    const struct kvad_point point = {1, 1};
    const struct kvad_series series = {"</text><script>", &point, 1, false};
    const char *svg =
        lines(&(struct kvad_line_chart){"<i>", "\"><b>", log_axis, linear_axis, &series, 1});
    assert_null(strstr(svg, "<script>"));
    assert_null(strstr(svg, "<i>"));
    assert_null(strstr(svg, "<b>"));
    const double value = 1;
    const char *const parts[] = {"<script>"};
    const struct kvad_bar bar = {"<script>", &value};
    svg = bars(&(struct kvad_bar_chart){"T", "D", parts, 1, &bar, 1, KVAD_FIGURE_MS, false});
    assert_null(strstr(svg, "<script>"));
}

static void test_labels_of_equal_ends_do_not_cover_each_other(void **state) {
    (void)state;
    const struct kvad_point points[] = {{1, 5}, {10, 5}};
    const struct kvad_series series[] = {
        {"one", points, 2, false}, {"two", points, 2, false}, {"three", points, 2, false}};
    const char *svg = lines(&(struct kvad_line_chart){"T", "D", log_axis, linear_axis, series, 3});
    double y[3];
    for (int i = 0; i < 3; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "class=\"label c%d\" x=\"", i);
        const char *at = strstr(svg, tag);
        assert_non_null(at);
        y[i] = strtod(strstr(at, " y=\"") + 4, NULL);
        assert_true(y[i] > 0 && y[i] < 330);
        for (int j = 0; j < i; j++)
            assert_true(fabs(y[i] - y[j]) >= 14.9);
    }
}

static void test_bars_share_one_scale_or_are_whole(void **state) {
    (void)state;
    const double small[] = {1, 1}, large[] = {6, 2};
    const char *const parts[] = {"a", "b"};
    const struct kvad_bar two[] = {{"small", small}, {"large", large}};
    struct kvad_bar_chart chart = {"T", "D", parts, 2, two, 2, KVAD_FIGURE_MS, false};
    /* 720 wide: 6 of 8 are 540, 1 of 8 is 90, less the gap of 1.5. */
    const char *svg = bars(&chart);
    assert_non_null(strstr(svg, "width=\"538.5\""));
    assert_int_equal(count(svg, "width=\"88.5\""), 2);
    chart.is_share = true;
    svg = bars(&chart);
    assert_int_equal(count(svg, "width=\"358.5\""), 2);
    assert_non_null(strstr(svg, "small: 2\u00a0ms"));
    assert_null(strstr(svg, "<b>"));
    chart.n_bars = 1;
    assert_non_null(strstr(bars(&chart), "a <b>1\u00a0ms</b>"));
}

int main(void) {
    kvad_heap_init(&heap, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_point_has_its_marker_and_every_series_its_name),
        cmocka_unit_test(test_points_that_an_axis_cannot_show_are_left_out),
        cmocka_unit_test(test_nothing_to_show_gives_no_figure),
        cmocka_unit_test(test_names_in_charts_are_escaped),
        cmocka_unit_test(test_labels_of_equal_ends_do_not_cover_each_other),
        cmocka_unit_test(test_bars_share_one_scale_or_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
