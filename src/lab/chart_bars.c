#include <math.h>
#include <stdio.h>

#include "lab/chart.h"
#include "lab/chart_internal.h"

enum { BAR_HEIGHT = 26, ROW_HEIGHT = 60, MAX_BARS = 64 };

size_t kvad_chart_letters(const char *text) {
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

void kvad_chart_open(struct kvad_html *html, int width, int height, const char *description) {
    kvad_html_add(html,
                  "<svg class=\"%s\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                  "role=\"img\" aria-label=\"%s\">\n",
                  width == KVAD_CHART_WIDE ? "wide" : "narrow", width, height, width, height,
                  description);
}

static double value_of(const struct kvad_bar *bar, size_t part) {
    double value = bar->values[part];
    return isfinite(value) && value > 0 ? value : 0;
}

static double total_of(const struct kvad_bar_chart *chart, size_t bar) {
    double total = 0;
    for (size_t p = 0; p < chart->n_parts; p++)
        total += value_of(&chart->bars[bar], p);
    return total;
}

/* What a part is called inside its segment: the name, or its number, or nothing, as room is. */
static void draw_inside(struct kvad_html *html, const char *name, size_t part, double x, double y,
                        double width) {
    char number[24];
    snprintf(number, sizeof number, "%zu", part + 1);
    double room = width - 10;
    if ((double)kvad_chart_letters(name) * KVAD_CHART_LETTER > room) name = number;
    if ((double)kvad_chart_letters(name) * KVAD_CHART_LETTER > width - 4) return;
    kvad_html_add(html,
                  "<text class=\"inside i%zu\" x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"middle\">%s</text>\n",
                  part, x + width / 2, y + BAR_HEIGHT / 2.0 + 4, name);
}

static void draw_bar(struct kvad_html *html, const struct kvad_bar_chart *chart, size_t index,
                     double per_unit) {
    const struct kvad_bar *bar = &chart->bars[index];
    double x = 0, y = (double)index * ROW_HEIGHT + 22;
    char text[KVAD_FIGURE_SIZE];
    kvad_html_add(html, "<text class=\"name\" x=\"0\" y=\"%.1f\">%s: %s</text>\n", y - 7, bar->name,
                  kvad_figure(chart->figure, total_of(chart, index), text));
    for (size_t p = 0; p < chart->n_parts; p++) {
        double width = value_of(bar, p) * per_unit;
        if (width < 0.05) continue;
        /* A gap of the page's colour keeps neighbours apart; thin parts keep something to see. */
        double shown = width > 3 ? width - 1.5 : width;
        kvad_html_add(html,
                      "<rect class=\"part c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"%d\"/>",
                      p, x, y, shown, BAR_HEIGHT);
        draw_inside(html, chart->parts[p], p, x, y, shown);
        x += width;
    }
    kvad_html_raw(html, "\n");
}

static void add_legend(struct kvad_html *html, const struct kvad_bar_chart *chart) {
    kvad_html_raw(html, "<ul class=\"legend\">\n");
    for (size_t p = 0; p < chart->n_parts; p++) {
        kvad_html_add(html,
                      "<li><svg class=\"key\" width=\"20\" height=\"16\" viewBox=\"0 0 20 16\" "
                      "aria-hidden=\"true\"><rect class=\"part c%zu\" width=\"20\" "
                      "height=\"16\"/><text class=\"inside i%zu\" x=\"10\" y=\"12\" "
                      "text-anchor=\"middle\">%zu</text></svg> %s",
                      p, p, p + 1, chart->parts[p]);
        if (chart->n_bars == 1) {
            char text[KVAD_FIGURE_SIZE];
            kvad_html_add(html, " <b>%s</b>",
                          kvad_figure(chart->figure, value_of(&chart->bars[0], p), text));
        }
        kvad_html_raw(html, "</li>\n");
    }
    kvad_html_raw(html, "</ul>\n");
}

void kvad_bar_chart_add(struct kvad_html *html, const struct kvad_bar_chart *given) {
    struct kvad_bar_chart chart = *given;
    double largest = 0;
    if (chart.n_parts > KVAD_CHART_COLOURS) chart.n_parts = KVAD_CHART_COLOURS;
    if (chart.n_bars > MAX_BARS) chart.n_bars = MAX_BARS;
    for (size_t b = 0; b < chart.n_bars; b++)
        largest = fmax(largest, total_of(&chart, b));
    if (!(largest > 0) || !isfinite(largest)) return;
    kvad_html_add(html, "<figure>\n<figcaption>%s</figcaption>\n", chart.title);
    for (int is_narrow = 0; is_narrow < 2; is_narrow++) {
        int width = is_narrow ? KVAD_CHART_NARROW : KVAD_CHART_WIDE;
        kvad_chart_open(html, width, (int)chart.n_bars * ROW_HEIGHT - 4, chart.description);
        for (size_t b = 0; b < chart.n_bars; b++) {
            double longest = chart.is_share ? total_of(&chart, b) : largest;
            draw_bar(html, &chart, b, longest > 0 ? width / longest : 0);
        }
        kvad_html_raw(html, "</svg>\n");
    }
    add_legend(html, &chart);
    kvad_html_raw(html, "</figure>\n");
}
