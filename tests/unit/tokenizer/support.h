/* What the tokenizer tests share. */
#ifndef KVAD_TESTS_TOKENIZER_SUPPORT_H
#define KVAD_TESTS_TOKENIZER_SUPPORT_H

#include "test.h"

#include "tokenizer/tokenizer.h"

/* A JSON file, vocabulary or text of the repository or the fixtures; stops the test if it cannot be
 * read. The caller frees it. NUL-terminated. */
char *read_file(const char *path, size_t *size);

/* The small BPE of the repository from vocab.json + merges.txt. */
struct kvad_tokenizer *open_small_bpe(const struct kvad_allocator *allocator);

/* Open from texts; `merges` may be NULL. */
enum kvad_status open_texts(const char *json, const char *merges, struct kvad_tokenizer **out,
                            struct kvad_error *err);

/* Ids in memory that the caller frees. */
struct ids {
    int32_t *ids;
    size_t n;
};
struct ids encode(const struct kvad_tokenizer *t, const char *text, size_t size, unsigned flags);
/* All pieces, one after the other; the caller frees them. */
char *decode(const struct kvad_tokenizer *t, struct ids ids, size_t *size);

/* encode() gives these ids; the text and both lists are printed if not. */
void assert_ids(const struct kvad_tokenizer *t, const char *text, size_t size, unsigned flags,
                const int32_t *wanted, size_t n);
/* decode(encode(text)) is text, and no id is out of range. */
void assert_round_trip(const struct kvad_tokenizer *t, const char *text, size_t size);

/* Ids of a JSON array in memory that the caller frees. */
struct ids ids_of_json(const json_t *array);

/* Every trap of the pre-tokenizer in one text, bad bytes too. */
#define NASTY                                                                                      \
    "I'LL we'll don''t  \t\n x\r\n\xc2\xa0y\xe2\x80\xa8z 1st 2\xc2\xb2 4\xc2\xbd e\xcc\x81 "       \
    "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 "          \
    "<|endoftext|><|endof \xff\xfe \xe6\xad \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf   the there'  "

/* The next number of a small generator; equal seeds give equal numbers. */
static inline uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* The `code_point` as UTF-8; returns its bytes. */
size_t put_utf8(char *out, uint32_t code_point);

#endif
