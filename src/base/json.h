/* Reading JSON from untrusted files: strict parsing and typed fields with errors that name the
 * field. */
#ifndef KVAD_BASE_JSON_H
#define KVAD_BASE_JSON_H

#include <jansson.h>

#include "kvad/kvad.h"

/** Parse `size` bytes as one JSON object. Duplicate keys, invalid UTF-8 and trailing bytes are
 * refused; a byte order mark at the head is passed over. `name` is the file's name for errors. The
 * caller owns *out (json_decref). */
enum kvad_status kvad_json_parse_object(const char *text, size_t size, const char *name,
                                        json_t **out, struct kvad_error *err);

/** Read an optional field of `object` into *out. Absent or null leaves *out as it was; a wrong type
 * or a value outside [min, max] is KVAD_ERR_FORMAT naming file, field, value and range. */
enum kvad_status kvad_json_get_u32(const json_t *object, const char *name, const char *field,
                                   uint32_t min, uint32_t max, uint32_t *out,
                                   struct kvad_error *err);
enum kvad_status kvad_json_get_double(const json_t *object, const char *name, const char *field,
                                      double min, double max, double *out, struct kvad_error *err);
enum kvad_status kvad_json_get_bool(const json_t *object, const char *name, const char *field,
                                    bool *out, struct kvad_error *err);
/** The string is borrowed from `object`. */
enum kvad_status kvad_json_get_string(const json_t *object, const char *name, const char *field,
                                      const char **out, struct kvad_error *err);

#endif
