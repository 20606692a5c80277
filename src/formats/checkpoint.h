/* One or more files as one set of named tensors with its configuration: what model/ loads from. */
#ifndef KVAD_FORMATS_CHECKPOINT_H
#define KVAD_FORMATS_CHECKPOINT_H

#include <jansson.h>

#include "base/alloc.h"
#include "formats/pickle.h"
#include "formats/tensor.h"

/* All borrowed from the checkpoint and valid until close. */
struct kvad_checkpoint {
    const struct kvad_tensor *tensors; /* [n_tensors], names as in the file, sorted by name */
    size_t n_tensors;
    const json_t *config;                 /* config.json beside the tensors, or NULL */
    const char *config_name;              /* its path, for errors */
    const struct kvad_pickle_value *root; /* what torch.save saved (the outermost dict), or NULL */
    uint64_t n_bytes;                     /* of all weight files together */
    const char *path;                     /* the main file, for errors */
    const char *folder; /* its folder: tokenizer files are looked for there; NULL from memory */
};

/** Open a file, a folder, an index.json of shards or a name in the local Hugging Face cache. Every
 * shard of an index must be there and hold what the index says. For torch files the tensors are
 * those of the state_dict: the outermost dict itself or what it has under "model", "state_dict" or
 * "model_state_dict". A duplicate name is refused. Thread-safe; the result is immutable. */
enum kvad_status kvad_checkpoint_open(const char *path, struct kvad_heap *heap,
                                      const struct kvad_checkpoint **out, struct kvad_error *err);
/** The same over one file's bytes, which stay valid until close; `config_json` may be NULL. */
enum kvad_status kvad_checkpoint_open_memory(const void *data, size_t size, const char *config_json,
                                             struct kvad_heap *heap,
                                             const struct kvad_checkpoint **out,
                                             struct kvad_error *err);
void kvad_checkpoint_close(const struct kvad_checkpoint **checkpoint);

/** The tensor of this exact name, or NULL. O(log n). */
const struct kvad_tensor *kvad_checkpoint_find(const struct kvad_checkpoint *checkpoint,
                                               const char *name);

#endif
