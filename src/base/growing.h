/* The structs of kvad.h that grow at their end, passed between a program and a library that may
 * know different sizes of them (kvad.h, "growth"). Any thread. */
#ifndef KVAD_BASE_GROWING_H
#define KVAD_BASE_GROWING_H

#include "kvad/kvad.h"

/** Fill the caller's struct of `size` bytes from ours: what it has no room for is left out, what we
 * do not know is zero. */
void kvad_growing_give(void *callers, size_t size, const void *ours, size_t our_size);

/** kvad_growing_give() for defaults of options, whose first field becomes `size`. */
void kvad_growing_give_options(void *callers, size_t size, const void *ours, size_t our_size);

/** Take over the caller's options into ours, which hold the defaults: fields that an older program
 * does not have keep them. Both begin with a size_t struct_size; ours stays what it is.
 * KVAD_ERR_ARGUMENT if the caller's is no size of an older or the same version; `kind` is the one
 * of the message: "engine". */
enum kvad_status kvad_growing_take_options(void *ours, size_t our_size, const void *callers,
                                           const char *kind, struct kvad_error *err);

#endif
