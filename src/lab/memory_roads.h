/* The roads to fewer bytes of cache: what each known one would make of a model's, with its formula.
 * Bytes alone: what a road costs in quality is another question, and those that change the
 * weights (fewer kv heads, a latent) need a model that was trained so. */
#ifndef KVAD_LAB_MEMORY_ROADS_H
#define KVAD_LAB_MEMORY_ROADS_H

#include <jansson.h>

#include "lab/memory_formula.h"

struct kvad_memory_question {
    struct kvad_memory_shape shape;
    uint32_t n_tokens;          /* T of each text; 0: the shape's n_ctx */
    uint32_t n_texts;           /* N; 0: 1 */
    uint32_t block_tokens;      /* B; 0: 16 */
    enum kvad_memory_type type; /* of keys and values */
};

struct kvad_memory_road {
    bool is_own;        /* what the model does already, as asked for */
    char name[40];      /* "2 kv heads (GQA)" */
    char formula[56];   /* "L*K*2*d*e" */
    char numbers[64];   /* "12*12*2*64*4" */
    size_t token_bytes; /* 0: depends on the length of the text */
    size_t bytes;       /* of all texts */
    double times;       /* how often it goes into the model's own cache as asked for */
};

enum { KVAD_MEMORY_ROADS = 48 };

struct kvad_memory_answer {
    struct kvad_memory_question question; /* zeros replaced */
    size_t token_bytes, bytes;            /* as asked for */
    struct kvad_memory_road roads[KVAD_MEMORY_ROADS];
    unsigned n_roads;
};

/** KVAD_ERR_ARGUMENT where a product does not fit 64 bits, or nobody says how long texts are. */
enum kvad_status kvad_memory_compute(const struct kvad_memory_question *question,
                                     struct kvad_memory_answer *answer, struct kvad_error *err);

/** The answer as JSON (docs/memory.md); the caller owns it. NULL when memory is out. */
json_t *kvad_memory_answer_json(const struct kvad_memory_answer *answer);

#endif
