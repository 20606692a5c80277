#include "world.h"

#include <stdlib.h>

#include "test.h"

struct test_world world;

void make_world_of(const struct tiny_sizes *sizes, size_t n_tokens) {
    world.tiny = tiny_model_create(sizes);
    world.model = tiny_model_build(world.tiny);
    world.tokens = tiny_tokens(sizes->n_vocab, n_tokens, 3);
}

int make_world(void **state) {
    (void)state;
    make_world_of(&tiny_odd, 40 * (size_t)tiny_odd.n_ctx);
    return 0;
}

int free_world(void **state) {
    kvad_model_release(&world.model);
    tiny_model_destroy(world.tiny);
    free(world.tokens);
    return release_test_threads(state);
}

struct kvad_engine *open_blocks(size_t n_blocks, uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = n_sequences;
    options.kv_bytes = n_blocks * tiny_block_bytes(&tiny_odd);
    struct kvad_engine *engine = open_engine(world.model, &options);
    assert_int_equal(engine->pool.n_blocks, n_blocks);
    return engine;
}
