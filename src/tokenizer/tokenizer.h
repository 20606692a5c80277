/* What a tokenizer is made of, and how the readers of its files fill it. */
#ifndef KVAD_TOKENIZER_TOKENIZER_H
#define KVAD_TOKENIZER_TOKENIZER_H

#include <jansson.h>

#include "base/file_map.h"
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/vocab.h"

enum kvad_tokenizer_kind { KVAD_TOKENIZER_BPE, KVAD_TOKENIZER_CHARS };

/* Immutable after open but for the reference count and the heap's counters, which are atomic;
 * working memory of a call is the call's own. */
struct kvad_tokenizer {
    struct kvad_heap heap;
    struct kvad_heap *scratch_heap; /* = &heap: for calls that have the tokenizer as const */
    _Atomic uint32_t n_references;
    enum kvad_tokenizer_kind kind;
    struct kvad_vocab vocab;
    struct kvad_added added;
    struct kvad_bpe bpe;   /* KVAD_TOKENIZER_BPE */
    bool add_prefix_space; /* a text that does not begin with a space gets one */
    bool ignore_merges;    /* a piece that is a token as a whole is not merged */
    int32_t eos;           /* -1: none */
};

/* A file's bytes and its name for errors; data NULL: there is no such file. Not kept after open. */
struct kvad_tokenizer_file {
    const char *name;
    const void *data;
    size_t size;
};
struct kvad_tokenizer_files {
    struct kvad_tokenizer_file main;    /* tokenizer.json, vocab.json, meta.pkl, ... */
    struct kvad_tokenizer_file merges;  /* merges.txt */
    struct kvad_tokenizer_file added;   /* added_tokens.json */
    struct kvad_tokenizer_file config;  /* tokenizer_config.json: eos_token, add_prefix_space */
    struct kvad_tokenizer_file special; /* special_tokens_map.json: eos_token */
};

/* The files of a tokenizer, mapped. */
struct kvad_tokenizer_maps {
    struct kvad_tokenizer_files files; /* names and data lie below */
    struct kvad_file_map maps[5];
    char paths[5][4096];
};
/** Map the files that kvad_tokenizer_open(path) would read; close with
 * kvad_tokenizer_maps_close(), also after a failure. */
enum kvad_status kvad_tokenizer_maps_open(const char *path, struct kvad_tokenizer_maps *maps,
                                          struct kvad_error *err);
void kvad_tokenizer_maps_close(struct kvad_tokenizer_maps *maps);

/** kvad_tokenizer_open() without a file system. What `main` holds decides what it is. */
enum kvad_status kvad_tokenizer_open_memory(const struct kvad_tokenizer_files *files,
                                            const struct kvad_allocator *allocator,
                                            struct kvad_tokenizer **out, struct kvad_error *err);

/** Bytes of the longest piece: what one token may add to a text. */
size_t kvad_tokenizer_longest(const struct kvad_tokenizer *tokenizer);

/* A token that is matched before pre-tokenisation, as a file gives it. */
struct kvad_added_source {
    const char *text;
    size_t size;
    uint32_t id;
    bool special, normalized;
};

/* The parts of a byte-level BPE, from whichever files. */
struct kvad_bpe_source {
    const char *name;     /* of the file with the vocabulary */
    const json_t *vocab;  /* object: token -> id */
    const json_t *merges; /* array of "A B" or ["A", "B"]; NULL: merges_file */
    struct kvad_tokenizer_file merges_file;
    const struct kvad_added_source *added; /* [n_added] */
    size_t n_added;
};

/* The readers fill a zeroed tokenizer (heap apart); a half-filled one is the caller's to close. */
enum kvad_status kvad_tokenizer_load_bpe(struct kvad_tokenizer *t,
                                         const struct kvad_bpe_source *source,
                                         struct kvad_error *err);
/** vocab.json with merges and added tokens from `files`. `config` is tokenizer_config.json and
 * `eos` the text of its end token; either may be NULL. */
enum kvad_status kvad_tokenizer_load_vocab(struct kvad_tokenizer *t, const json_t *vocab,
                                           const struct kvad_tokenizer_files *files,
                                           const json_t *config, const char *eos,
                                           struct kvad_error *err);
/** tokenizer.json. */
enum kvad_status kvad_tokenizer_load_hf(struct kvad_tokenizer *t, const json_t *root,
                                        const char *name, struct kvad_error *err);
/** An object with "stoi" or "itos". */
enum kvad_status kvad_tokenizer_load_chars_json(struct kvad_tokenizer *t, const json_t *root,
                                                const char *name, struct kvad_error *err);
/** meta.pkl. */
enum kvad_status kvad_tokenizer_load_chars_pickle(struct kvad_tokenizer *t,
                                                  const struct kvad_tokenizer_file *file,
                                                  struct kvad_error *err);

/** An id as a vocabulary file may give it: a whole number in [0, limit), where the limit is about
 * twice the number of tokens, so that a small file cannot ask for much memory. */
enum kvad_status kvad_tokenizer_check_id(const char *name, const char *token, size_t size,
                                         int64_t id, size_t n_tokens, struct kvad_error *err);

#endif
