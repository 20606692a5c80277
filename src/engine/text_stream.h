/* From the bytes of tokens to text that may be shown: whole UTF-8 characters, and nothing that a
 * stop string may still cut.
 *
 *   push("ab"), stop "bcd"  -> "a"       "b" may begin a stop and is held
 *   push("cx")              -> "bcx"     it did not
 *   push("bcd!")            -> ""        the stop: cut, and what follows in the same token is
 * dropped
 *
 * The text of all calls together is the text of the whole output, cut before the stop string whose
 * end comes first. Not thread-safe; belongs to one request. */
#ifndef KVAD_ENGINE_TEXT_STREAM_H
#define KVAD_ENGINE_TEXT_STREAM_H

#include "base/alloc.h"
#include "base/utf8.h"

enum { KVAD_MAX_STOPS = 64, KVAD_MAX_STOP_BYTES = 4096 };

struct kvad_text_stream {
    struct kvad_heap *heap;
    struct kvad_utf8_stream utf8;
    char *stops; /* all stop strings, one after the other */
    size_t stops_size;
    size_t n_stops;
    size_t *stop_sizes; /* [n_stops] */
    size_t
        *matched; /* [n_stops] bytes of each that the text ends with: the longest proper prefix */
    char *buffer; /* held text, then new text */
    size_t buffer_capacity;
    size_t n_held; /* bytes at the start of the buffer that were not given out yet */
    bool stopped;
};

/** Copy the stop strings (each 1 to KVAD_MAX_STOP_BYTES bytes, at most KVAD_MAX_STOPS) and reserve
 * room for pushes of at most `max_piece` bytes. KVAD_ERR_ARGUMENT names the stop string,
 * KVAD_ERR_NO_MEMORY. */
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
