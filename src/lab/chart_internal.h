/* What both kinds of charts share. */
#ifndef KVAD_LAB_CHART_INTERNAL_H
#define KVAD_LAB_CHART_INTERNAL_H

#include "lab/html.h"

/* Widths of the two drawings in CSS pixels: a page of 360 leaves 328. */
enum { KVAD_CHART_WIDE = 720, KVAD_CHART_NARROW = 328 };

/* About what a letter of 12 pixels takes, in the wider of the usual fonts. */
#define KVAD_CHART_LETTER 7.2

/** Characters of a text. */
size_t kvad_chart_letters(const char *text);

/** The opening tag of a drawing; the class of its width makes the page's style show one of two. */
void kvad_chart_open(struct kvad_html *html, int width, int height, const char *description);

#endif
