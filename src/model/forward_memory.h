/* The memory of a forward pass as a list, for those who make it and those who count it. */
#ifndef KVAD_MODEL_FORWARD_MEMORY_H
#define KVAD_MODEL_FORWARD_MEMORY_H

#include "model/forward_internal.h"

/* One of the step's buffers: where its pointer is, how many elements, of how many bytes each. */
struct forward_buffer {
    void **pointer;
    size_t count, size;
};

enum { FORWARD_BUFFERS = 15 };

/* All of them, but for the scratch of the workers (forward_worker.memory). */
void kvad_forward_list_buffers(struct kvad_forward *f, struct forward_buffer list[FORWARD_BUFFERS]);

#endif
