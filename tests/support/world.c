#include "world.h"

#include <stdlib.h>

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
