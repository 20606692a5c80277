/* A load on the memory bus while something else is measured. */
#ifndef KVAD_LAB_LOAD_H
#define KVAD_LAB_LOAD_H

#include "base/alloc.h"

struct kvad_load;

/** Start a thread that copies one half of `bytes` to the other, again and again, until it is
 * stopped: more than a cache holds, and at least 2 MiB. Memory from `heap`; KVAD_ERR_NO_MEMORY, or
 * KVAD_ERR_UNSUPPORTED where no thread can be started. */
enum kvad_status kvad_load_start(struct kvad_heap *heap, size_t bytes, struct kvad_load **out,
                                 struct kvad_error *err);
/** Stop it, wait for its end and write NULL; NULL is allowed. */
void kvad_load_stop(struct kvad_load **load);

#endif
