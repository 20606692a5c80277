/* Building the JSON results. */
#ifndef KVAD_CLI_JSON_H
#define KVAD_CLI_JSON_H

#include <jansson.h>

#include "cli/text.h"

/** A string of any bytes: what is not UTF-8 becomes U+FFFD. NULL when memory is out. */
json_t *cli_json_string(const char *bytes, size_t size);
/** A number; null where it is not finite, which JSON cannot say. */
json_t *cli_json_number(double value);
json_t *cli_json_ids(const int32_t *ids, size_t n);

/** Print on one line, give the object back and flush. Returns an exit code; NULL members mean that
 * memory was out. */
int cli_json_print(json_t *object);

#endif
