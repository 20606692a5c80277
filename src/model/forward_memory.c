#include "model/forward_memory.h"

void kvad_forward_visit_memory(const struct kvad_forward *forward,
                               void (*visit)(void *user, const void *memory, size_t bytes),
                               void *user) {
    struct kvad_forward copy = *forward; /* the list points into a forward pass that it may fill */
    struct forward_buffer list[FORWARD_BUFFERS];
    kvad_forward_list_buffers(&copy, list);
    visit(user, forward, sizeof *forward);
    for (size_t i = 0; i < FORWARD_BUFFERS; i++)
        visit(user, *list[i].pointer, list[i].count * list[i].size);
    for (unsigned i = 0; i < forward->n_workers; i++)
        visit(user, forward->workers[i].memory, forward->workers[i].bytes);
}
