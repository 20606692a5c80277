/* The folder of a report: whole files or none, and finished parts that a later run takes up. */
#ifndef KVAD_LAB_STORE_H
#define KVAD_LAB_STORE_H

#include <jansson.h>

#include "kvad/kvad.h"

/* Largest JSON file that is read. */
enum { KVAD_STORE_MAX_BYTES = 64 << 20 };

/** Make the folder `path` where it is not, with its parents. KVAD_ERR_IO says what is in the way or
 * that nothing can be written there. */
enum kvad_status kvad_store_make_folder(const char *path, struct kvad_error *err);

/** Write `size` bytes as the file `name` in `folder`, which is whole at any moment
 * (base/new_file.h). */
enum kvad_status kvad_store_write(const char *folder, const char *name, const char *bytes,
                                  size_t size, struct kvad_error *err);
/** The same with a JSON value, indented, numbers with 17 significant digits at most. */
enum kvad_status kvad_store_write_json(const char *folder, const char *name, const json_t *value,
                                       struct kvad_error *err);
/** Remove a file; one that is not there is fine. */
void kvad_store_remove(const char *folder, const char *name);

/** Read a file that holds one JSON object, at most KVAD_STORE_MAX_BYTES long. KVAD_ERR_NOT_FOUND,
 * KVAD_ERR_IO, KVAD_ERR_FORMAT. The caller owns *out. */
enum kvad_status kvad_store_read_json(const char *path, json_t **out, struct kvad_error *err);

/** Keep the result of a part under a key that says all that it depends on, with a checksum. */
enum kvad_status kvad_store_keep(const char *folder, const char *part, const json_t *key,
                                 const json_t *result, struct kvad_error *err);
/** The kept result of a part if its key is equal, owned by the caller; NULL: there is none, or it
 * is of something else, or it is not what was kept. */
json_t *kvad_store_kept(const char *folder, const char *part, const json_t *key);

/** 16 hexadecimal digits of a hash over the model's weights as they lie in memory and over what
 * they mean. Reads all weights. */
enum { KVAD_STORE_FINGERPRINT = 17 };
void kvad_store_fingerprint(const struct kvad_model *model, char out[KVAD_STORE_FINGERPRINT]);

/** The same of this program's own file, so that another build is told from this one; zeros where it
 * cannot be read. */
void kvad_store_program(char out[KVAD_STORE_FINGERPRINT]);

#endif
