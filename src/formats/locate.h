/* Finding model files on this machine: paths, folders, the local Hugging Face and tiktoken caches.
 * Nothing is downloaded. Reads the environment; any thread. */
#ifndef KVAD_FORMATS_LOCATE_H
#define KVAD_FORMATS_LOCATE_H

#include "base/alloc.h"
#include "base/compiler.h"

/** The one file that holds a model's weights: `path` itself if it is a file; in a folder
 * model.safetensors, its index.json, pytorch_model.bin, its index.json, ckpt.pt, ... (first that is
 * there); else `path` as a name in the Hugging Face cache ("gpt2", "org/name").
 * KVAD_ERR_NOT_FOUND lists what was looked for. *file is freed with kvad_path_free(). */
enum kvad_status kvad_locate_weights(const char *path, struct kvad_heap *heap, char **file,
                                     struct kvad_error *err);

/** Folder of a model in the Hugging Face cache: the snapshot that refs/main names, or the only one.
 * HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub and
 * ~/.cache/huggingface/hub are tried in this order; a name without '/' also as the old short name
 * of openai-community/NAME and distilbert/NAME. */
enum kvad_status kvad_locate_snapshot(const char *name, struct kvad_heap *heap, char **folder,
                                      struct kvad_error *err);

/** tiktoken's cache folder (TIKTOKEN_CACHE_DIR, DATA_GYM_CACHE_DIR, or data-gym-cache in the folder
 * for temporary files), whether it exists or not; NULL if memory is out. */
char *kvad_locate_tiktoken(struct kvad_heap *heap);

bool kvad_path_is_file(const char *path);
bool kvad_path_is_folder(const char *path);
/** Text on the heap, or NULL; freed with kvad_path_free() (NULL allowed). */
char *kvad_path_format(struct kvad_heap *heap, const char *format, ...) KVAD_PRINTF(2, 3);
void kvad_path_free(struct kvad_heap *heap, char *path);
/** Folder of a file's path ("." where it names none), on the heap, or NULL. */
char *kvad_path_folder(struct kvad_heap *heap, const char *path);
/** The part after the last '/', inside `path`. */
const char *kvad_path_name(const char *path);

#endif
