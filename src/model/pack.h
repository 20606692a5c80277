/* Packed models: weights in the engine's own layout in a file that is mapped, not read.
 *
 *   0   "KVADPACK"
 *   8   u32 version, u32 0x01020304 as the writer's CPU stores it
 *   16  u64 bytes of the JSON, offset of the weights, bytes of the weights
 *   40  u64 XXH64 of the JSON, XXH64 of the weights, 0
 *   64  JSON: the description, then the tokenizer's files, then zeros up to a multiple of 4096,
 *       then the weights
 *
 * The weights are the model's area (model/layout.c) byte for byte, so a change of that layout is a
 * new version. */
#ifndef KVAD_MODEL_PACK_H
#define KVAD_MODEL_PACK_H

#include "model/build.h"

/** Whether the file begins as a packed model; false also if it cannot be read. */
bool kvad_pack_probe(const char *path);

/** kvad_model_load() for a packed file. KVAD_ERR_FORMAT and KVAD_ERR_UNSUPPORTED name field, value
 * and remedy. The weights' type is the file's; asking for another one is refused. */
enum kvad_status kvad_pack_load(const char *path, const struct kvad_model_options *options,
                                struct kvad_model **out, struct kvad_error *err);

/* ---- shared by writer and reader */

enum { KVAD_PACK_VERSION = 1, KVAD_PACK_HEADER = 64, KVAD_PACK_ALIGNMENT = 4096 };
#define KVAD_PACK_MAGIC "KVADPACK"
#define KVAD_PACK_ORDER 0x01020304u

struct kvad_pack_header {
    char magic[8];
    uint32_t version, order;
    uint64_t json_bytes, data_offset, data_bytes, json_hash, data_hash, zero;
};

/* Names of the tokenizer's files, in the order of kvad_tokenizer_maps. */
extern const char *const kvad_pack_roles[5];

#endif
