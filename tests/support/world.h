/* What most tests of requests start from: one tiny model and some random text for it. */
#ifndef KVAD_TEST_WORLD_H
#define KVAD_TEST_WORLD_H

#include "requests.h"
#include "tiny_model.h"

struct test_world {
    struct tiny_model *tiny;
    struct kvad_model *model;
    int32_t *tokens;
};
extern struct test_world world;

/** Fills it with a model of `sizes` and `n_tokens` random ids of its vocabulary. */
void make_world_of(const struct tiny_sizes *sizes, size_t n_tokens);
/** A group setup: tiny_odd and forty contexts of text. */
int make_world(void **state);
/** The group teardown to it: frees it and ends the pools of threads. */
int free_world(void **state);

/** A paged engine of one thread of make_world() with exactly this many blocks of 16 tokens. */
struct kvad_engine *open_blocks(size_t n_blocks, uint32_t n_sequences);

#endif
