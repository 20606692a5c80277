/* Bytes from files and users, made fit for an error text. */
#ifndef KVAD_TOKENIZER_QUOTE_H
#define KVAD_TOKENIZER_QUOTE_H

#include <stddef.h>

struct kvad_quote {
    char text[64];
};

/** 'bytes' between quotation marks; control characters and bad bytes as \xNN, long texts cut at a
 * whole character and marked with "...". */
struct kvad_quote kvad_quote(const char *bytes, size_t size);

#endif
