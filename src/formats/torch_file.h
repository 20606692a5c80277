/* The two containers that torch.save writes; torch.c picks. Each reads into a created pickle whose
 * tensors are bound and whose root is set, or fails. */
#ifndef KVAD_FORMATS_TORCH_FILE_H
#define KVAD_FORMATS_TORCH_FILE_H

#include "formats/pickle_vm.h"

/* First bytes of the legacy format: a pickle of the number 0x1950a86a20f9469cfc6c. */
#define KVAD_TORCH_LEGACY_MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
enum { KVAD_TORCH_LEGACY_MAGIC_SIZE = 15 };

enum kvad_status kvad_torch_read_zip(struct kvad_pickle *pickle, const unsigned char *data,
                                     size_t size, struct kvad_error *err);
enum kvad_status kvad_torch_read_legacy(struct kvad_pickle *pickle, const unsigned char *data,
                                        size_t size, struct kvad_error *err);

#endif
