/* Files of torch.save: the zip container, read in place, and the legacy format of torch < 1.6. */
#ifndef KVAD_FORMATS_TORCH_H
#define KVAD_FORMATS_TORCH_H

#include "formats/pickle.h"

struct kvad_torch;

/** Whether the bytes look like a torch file of either kind (also one that open will refuse with
 * advice: tar, TorchScript). */
bool kvad_torch_probe(const unsigned char *data, size_t size);

/** Open over bytes that stay valid until close (a mapped file). Nothing is copied but the value
 * tree; tensors point into `data`. KVAD_ERR_FORMAT or KVAD_ERR_UNSUPPORTED name entry, offset,
 * cause and remedy. */
enum kvad_status kvad_torch_open(const unsigned char *data, size_t size, const char *name,
                                 struct kvad_heap *heap, struct kvad_torch **out,
                                 struct kvad_error *err);
/** The saved object; tensors are KVAD_PICKLE_TENSOR values with empty names. */
const struct kvad_pickle_value *kvad_torch_root(const struct kvad_torch *torch);
void kvad_torch_close(struct kvad_torch **torch);

#endif
