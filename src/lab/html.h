/* HTML from pieces, escaped by default: a growing text whose format escapes every %s. */
#ifndef KVAD_LAB_HTML_H
#define KVAD_LAB_HTML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/compiler.h"

/* Growing bytes. When memory runs out, `failed` stays true and later additions do nothing, so that
 * only the end must be checked. */
struct kvad_html {
    struct kvad_heap *heap; /* borrowed */
    char *bytes;            /* [size] and a NUL behind them; NULL before the first addition */
    size_t size, capacity;
    bool failed;
};

void kvad_html_init(struct kvad_html *html, struct kvad_heap *heap);
/** A zeroed writer is allowed. */
void kvad_html_deinit(struct kvad_html *html);

/** Append `size` bytes as they are. */
void kvad_html_bytes(struct kvad_html *html, const char *bytes, size_t size);
/** Append a string of our own markup as it is. Never one from a file: that is %s below. */
void kvad_html_raw(struct kvad_html *html, const char *markup);

/** Append text of any origin so that it is that text, in an element and in an attribute with double
 * quotes: & < > " ' become references. What is not UTF-8, control characters (but tab and newline)
 * and characters that turn the direction of what follows become U+FFFD. */
void kvad_html_text(struct kvad_html *html, const char *text);

/** printf for markup: the format is ours, each %s is escaped by kvad_html_text(). Known: %s %d %u
 * %zu %g %f and their flags and precisions (but of %s), and %%. Each of the others is at most 60
 * bytes long. */
void kvad_html_add(struct kvad_html *html, const char *format, ...) KVAD_PRINTF(2, 3);

#endif
