/* Models of the GPT-2 sizes, and others, with random weights: for measuring without a download. */
#ifndef KVAD_LAB_SYNTHETIC_H
#define KVAD_LAB_SYNTHETIC_H

#include "kvad/kvad.h"

struct kvad_description;

/** Name of the index-th size ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "tiny"); NULL after
 * the last. "tiny" is for trying a command out; "odd" is as asymmetrical as a model can be (6 heads
 * on 2 kv heads of 7, 3 layers, 101 ids, a context of 17 blocks that reaches across a fold of
 * attention) with weights so large that every score counts: no mistake can hide. */
const char *kvad_synthetic_name(unsigned index);

/** The sizes of a named model; KVAD_ERR_NOT_FOUND for an unknown name. */
enum kvad_status kvad_synthetic_describe(const char *name, struct kvad_description *out,
                                         struct kvad_error *err);

/** Build a model of a named size. The weights are a function of (seed, parameter, layer, row,
 * column) alone: uniform with the standard deviation 0.02 of GPT-2's own initialisation ("odd":
 * 0.23), norms about 1. `options` may be NULL; its allocator, log, progress and type of weights
 * count. No tokenizer. */
enum kvad_status kvad_synthetic_build(const char *name, uint64_t seed,
                                      const struct kvad_model_options *options,
                                      struct kvad_model **out, struct kvad_error *err);

/** The same for a model of any sizes; with all biases but the head's, or none. What
 * kvad_description_check() says. */
enum kvad_status kvad_synthetic_build_sizes(const struct kvad_description *description,
                                            bool has_bias, uint64_t seed,
                                            const struct kvad_model_options *options,
                                            struct kvad_model **out, struct kvad_error *err);

#endif
