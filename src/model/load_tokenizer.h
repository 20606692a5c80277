/* Finding the tokenizer that belongs to a model. */
#ifndef KVAD_MODEL_LOAD_TOKENIZER_H
#define KVAD_MODEL_LOAD_TOKENIZER_H

#include "formats/checkpoint.h"
#include "model/model.h"

/** Look where options.tokenizer_path says; else beside the model; else where nanoGPT keeps it
 * (data/DATASET/meta.pkl, by the checkpoint's config.dataset, below the model's folder, its parents
 * and the working folder); else, for vocabularies of GPT-2's size, in the local Hugging Face and
 * tiktoken caches. None found: KVAD_OK with *out NULL and a log line that says what to do.
 * A tokenizer that is found but unreadable is a failure. The caller owns one reference.
 * *path (on `heap`, kvad_path_free()) is where it was found, NULL where none was. */
enum kvad_status kvad_model_find_tokenizer(const struct kvad_checkpoint *checkpoint,
                                           const struct kvad_model_options *options,
                                           uint32_t n_vocab, struct kvad_heap *heap,
                                           struct kvad_tokenizer **out, char **path,
                                           struct kvad_error *err);

/** What follows from a model's tokenizer (NULL: none): how many ids may be sampled, and the id that
 * ends a text where the files of the model name none. */
void kvad_model_decide_tokens(const struct kvad_tokenizer *tokenizer, struct kvad_model *model);

#endif
