/* safetensors: a JSON header and one buffer. Follows the reject rules of the reference reader. */
#ifndef KVAD_FORMATS_SAFETENSORS_H
#define KVAD_FORMATS_SAFETENSORS_H

#include "base/alloc.h"
#include "formats/tensor.h"

struct kvad_safetensors;

bool kvad_safetensors_probe(const unsigned char *data, size_t size);

/** Open over bytes that stay valid until close. Tensors point into `data`. Errors name file,
 * tensor, field and offset. */
enum kvad_status kvad_safetensors_open(const unsigned char *data, size_t size, const char *name,
                                       struct kvad_heap *heap, struct kvad_safetensors **out,
                                       struct kvad_error *err);
/** Tensors in file order (by offset). */
size_t kvad_safetensors_count(const struct kvad_safetensors *file);
const struct kvad_tensor *kvad_safetensors_tensor(const struct kvad_safetensors *file, size_t i);
void kvad_safetensors_close(struct kvad_safetensors **file);

#endif
