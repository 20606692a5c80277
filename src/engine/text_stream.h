/* From the bytes of tokens to text that may be shown: whole UTF-8 characters, and nothing that a
 * stop string may still cut.
 *
 *   push("ab"), stop "bcd"  -> "a"       "b" may begin a stop and is held
 *   push("cx")              -> "bcx"     it did not
 *   push("bcd!")            -> ""        the stop: cut, and so is the rest of the token
 *
 * The text of all calls together is the text of the whole output, cut before the stop string whose
 * end comes first (of several that end together, before the longest). Not thread-safe; belongs to
 * one request. */
#ifndef KVAD_ENGINE_TEXT_STREAM_H
#define KVAD_ENGINE_TEXT_STREAM_H

#include "base/alloc.h"
#include "base/utf8.h"

enum { KVAD_MAX_STOPS = 64, KVAD_MAX_STOP_BYTES = 4096 };

struct kvad_text_stream {
    struct kvad_heap *heap;
    struct kvad_utf8_stream utf8;
    struct kvad_stop *stops; /* [n_stops] */
    size_t n_stops;
    char *stop_bytes;  /* [stop_bytes_size] all stop strings, one after the other */
    uint16_t *borders; /* [stop_bytes_size], beside them */
    size_t stop_bytes_size;
    char *buffer; /* text given out by the last call, then text held back */
    size_t buffer_capacity;
    size_t n_given, n_text; /* bytes given out, bytes in all */
    bool stopped;
};

/** Copy the stop strings (each 1 to KVAD_MAX_STOP_BYTES bytes of valid UTF-8, at most
 * KVAD_MAX_STOPS) and reserve room for pushes of at most `max_piece` bytes. KVAD_ERR_ARGUMENT names
 * the stop string, KVAD_ERR_NO_MEMORY. `heap` must outlive the stream. */
enum kvad_status kvad_text_stream_init(struct kvad_text_stream *stream, const char *const *stops,
                                       size_t n_stops, size_t max_piece, struct kvad_heap *heap,
                                       struct kvad_error *err);
/** A zeroed stream is allowed. */
void kvad_text_stream_deinit(struct kvad_text_stream *stream);

/** Add one token's bytes. *text (valid until the next call) is what became certain, perhaps
 * nothing. After a stop string was found stream->stopped is true and further pushes give nothing.
 * Never allocates. */
void kvad_text_stream_push(struct kvad_text_stream *stream, const char *bytes, size_t size,
                           const char **text, size_t *text_size);
/** The end of the output: give out what was held; an incomplete character becomes one U+FFFD. */
void kvad_text_stream_finish(struct kvad_text_stream *stream, const char **text, size_t *text_size);
/** Most bytes that one push or finish can give out. */
size_t kvad_text_stream_max_output(const struct kvad_text_stream *stream);

#endif
