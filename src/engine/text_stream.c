#include "engine/text_stream.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* A stop string and how far the text so far matches it: Knuth, Morris, Pratt, "Fast pattern
 * matching in strings", 1977. */
struct kvad_stop {
    const char *bytes;       /* [size] */
    const uint16_t *borders; /* [size]: of the first i + 1 bytes, the longest proper prefix that is
                                also their end */
    size_t size;
    size_t matched; /* the longest prefix that the text ends with */
};

/* ---------------------------------------------------------------- one stop string */

/* Bytes matched after one more byte; stop->size is a whole match. */
static size_t next_match(const struct kvad_stop *stop, size_t matched, char byte) {
    while (matched > 0 && stop->bytes[matched] != byte)
        matched = stop->borders[matched - 1];
    return stop->bytes[matched] == byte ? matched + 1 : 0;
}

static void fill_borders(const struct kvad_stop *stop, uint16_t *borders) {
    borders[0] = 0;
    for (size_t i = 1; i < stop->size; ++i)
        borders[i] = (uint16_t)next_match(stop, borders[i - 1], stop->bytes[i]);
}

static bool is_utf8(const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        uint32_t code_point;
        at += kvad_utf8_decode(text + at, size - at, &code_point);
        if (code_point >= KVAD_UTF8_INCOMPLETE) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- init, deinit */

/* Valid UTF-8 matters: such a prefix begins at a character, so the text before it ends at one. */
static enum kvad_status check_stops(const char *const *stops, size_t n_stops, size_t *n_bytes,
                                    struct kvad_error *err) {
    if (n_stops > KVAD_MAX_STOPS)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "stop strings: %zu, wanted at most %d", n_stops,
                         KVAD_MAX_STOPS);
    if (n_stops > 0 && !stops) return kvad_fail(err, KVAD_ERR_ARGUMENT, "stop strings: NULL");
    *n_bytes = 0;
    for (size_t i = 0; i < n_stops; ++i) {
        size_t size = stops[i] ? strlen(stops[i]) : 0;
        if (size == 0 || size > KVAD_MAX_STOP_BYTES)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "stop string %zu has %zu bytes, wanted 1 to %d", i, size,
                             KVAD_MAX_STOP_BYTES);
        if (!is_utf8(stops[i], size))
            return kvad_fail(err, KVAD_ERR_ARGUMENT, "stop string %zu is not valid UTF-8", i);
        *n_bytes += size;
    }
    return KVAD_OK;
}

static size_t copy_stops(struct kvad_text_stream *stream, const char *const *stops) {
    size_t longest = 0, at = 0;
    for (size_t i = 0; i < stream->n_stops; ++i) {
        struct kvad_stop *stop = &stream->stops[i];
        size_t size = strlen(stops[i]);
        memcpy(stream->stop_bytes + at, stops[i], size);
        *stop = (struct kvad_stop){stream->stop_bytes + at, stream->borders + at, size, 0};
        fill_borders(stop, stream->borders + at);
        at += size;
        if (size > longest) longest = size;
    }
    return longest;
}

enum kvad_status kvad_text_stream_init(struct kvad_text_stream *stream, const char *const *stops,
                                       size_t n_stops, size_t max_piece, struct kvad_heap *heap,
                                       struct kvad_error *err) {
    *stream = (struct kvad_text_stream){.heap = heap, .n_stops = n_stops};
    KVAD_TRY(check_stops(stops, n_stops, &stream->stop_bytes_size, err));
    stream->stops = kvad_alloc_zero(heap, n_stops, sizeof *stream->stops);
    stream->stop_bytes = kvad_alloc(heap, stream->stop_bytes_size);
    stream->borders = kvad_alloc_zero(heap, stream->stop_bytes_size, sizeof *stream->borders);
    if (stream->stops && stream->stop_bytes && stream->borders) {
        size_t longest = copy_stops(stream, stops);
        stream->buffer_capacity = longest + KVAD_UTF8_STREAM_ROOM(max_piece);
        stream->buffer = kvad_alloc(heap, stream->buffer_capacity);
    }
    if (stream->buffer) return KVAD_OK;
    kvad_text_stream_deinit(stream);
    return kvad_fail_memory(err, "stop strings", KVAD_UTF8_STREAM_ROOM(max_piece));
}

void kvad_text_stream_deinit(struct kvad_text_stream *stream) {
    struct kvad_heap *heap = stream->heap;
    if (heap) {
        kvad_free(heap, stream->buffer, stream->buffer_capacity);
        kvad_free(heap, stream->borders, stream->stop_bytes_size * sizeof *stream->borders);
        kvad_free(heap, stream->stop_bytes, stream->stop_bytes_size);
        kvad_free(heap, stream->stops, stream->n_stops * sizeof *stream->stops);
    }
    *stream = (struct kvad_text_stream){0};
}

size_t kvad_text_stream_max_output(const struct kvad_text_stream *stream) {
    return stream->buffer_capacity;
}

/* ---------------------------------------------------------------- the stream */

/* Follow all stop strings over the text from `at` on. Where one ends, the text is cut before it.
 * Returns how much of the end may still become one. */
static size_t follow_stops(struct kvad_text_stream *stream, size_t at) {
    size_t n_open = 0;
    for (; at < stream->n_text; ++at) {
        size_t n_ended = 0;
        n_open = 0;
        for (size_t i = 0; i < stream->n_stops; ++i) {
            struct kvad_stop *stop = &stream->stops[i];
            stop->matched = next_match(stop, stop->matched, stream->buffer[at]);
            if (stop->matched == stop->size && stop->size > n_ended) n_ended = stop->size;
            if (stop->matched > n_open) n_open = stop->matched;
        }
        if (n_ended > 0) {
            stream->stopped = true;
            stream->n_text = at + 1 - n_ended;
            return 0;
        }
    }
    return n_open;
}

/* Forget what the last call gave out, so that the held text is at the start. */
static void drop_given(struct kvad_text_stream *stream) {
    stream->n_text -= stream->n_given;
    memmove(stream->buffer, stream->buffer + stream->n_given, stream->n_text);
    stream->n_given = 0;
}

static void give(struct kvad_text_stream *stream, size_t size, const char **text,
                 size_t *text_size) {
    stream->n_given = size;
    *text = stream->buffer;
    *text_size = size;
}

void kvad_text_stream_push(struct kvad_text_stream *stream, const char *bytes, size_t size,
                           const char **text, size_t *text_size) {
    drop_given(stream);
    size_t n_held = stream->n_text, n_open = n_held;
    if (!stream->stopped) {
        assert(n_held + KVAD_UTF8_STREAM_ROOM(size) <= stream->buffer_capacity);
        char *end = stream->buffer + n_held;
        stream->n_text += kvad_utf8_stream_push(&stream->utf8, bytes, size, end);
        if (stream->n_text > n_held) n_open = follow_stops(stream, n_held);
    }
    give(stream, stream->n_text - n_open, text, text_size);
}

void kvad_text_stream_finish(struct kvad_text_stream *stream, const char **text,
                             size_t *text_size) {
    drop_given(stream);
    if (!stream->stopped) {
        size_t n_held = stream->n_text;
        stream->n_text += kvad_utf8_stream_flush(&stream->utf8, stream->buffer + n_held);
        (void)follow_stops(stream, n_held);
    }
    give(stream, stream->n_text, text, text_size);
}
