/* Reference values that PyTorch computed, beside the models in tests/data/models, models and
 * the fixtures (golden.safetensors, golden.json). */
#ifndef KVAD_TEST_GOLDEN_H
#define KVAD_TEST_GOLDEN_H

#include <jansson.h>

#include "base/file_map.h"
#include "formats/safetensors.h"

struct golden {
    char folder[512];
    struct kvad_file_map map;
    struct kvad_heap heap;
    struct kvad_safetensors *file;
    json_t *info; /* golden.json */
};

/* All models that have reference values. */
enum { GOLDEN_NAMES = 28 };
extern const char *const golden_names[GOLDEN_NAMES];

/** Folder of a model ("hf-gpt2/odd", "shakespeare-char"), in the repository or in the fixtures;
 * NULL if it is nowhere. The string is static. */
const char *golden_folder(const char *name);
/** Open the reference values in a folder; fails the test if they are unreadable. */
void golden_open(struct golden *golden, const char *folder);
void golden_close(struct golden *golden);

/** The model itself, without a tokenizer, so that all ids may be sampled. The caller owns one
 * reference. */
struct kvad_model *golden_load(const struct golden *golden);
/** The same with weights of this type. */
struct kvad_model *golden_load_as(const struct golden *golden, enum kvad_weight_type weights);

bool golden_has(const struct golden *golden, const char *name);
/** Elements of a tensor; its shape[0] in *n_rows (may be NULL). */
size_t golden_size(const struct golden *golden, const char *name, size_t *n_rows);
/** A tensor's values; free() them. */
double *golden_doubles(const struct golden *golden, const char *name, size_t *n);
int32_t *golden_ids(const struct golden *golden, const char *name, size_t *n);
/** A number of golden.json, or `otherwise`. */
double golden_number(const struct golden *golden, const char *field, double otherwise);

#endif
