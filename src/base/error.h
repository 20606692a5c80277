/* Filling struct kvad_error and passing statuses up. */
#ifndef KVAD_BASE_ERROR_H
#define KVAD_BASE_ERROR_H

#include "base/compiler.h"
#include "kvad/kvad.h"

/** Write status and one formatted line into `err` (may be NULL) and return `status`, so that a
 * failure is one line: `return kvad_fail(err, KVAD_ERR_FORMAT, "%s: ...", path);` Control
 * characters and what is not UTF-8 become '?'. Any thread. */
enum kvad_status kvad_fail(struct kvad_error *err, enum kvad_status status, const char *format, ...)
    KVAD_PRINTF(3, 4);

/** kvad_fail() for memory: "out of memory: <what> needs <bytes> bytes". */
enum kvad_status kvad_fail_memory(struct kvad_error *err, const char *what, size_t bytes);

#define KVAD_TRY(expr)                                                                             \
    do {                                                                                           \
        enum kvad_status try_status_ = (expr);                                                     \
        if (try_status_ != KVAD_OK) return try_status_;                                            \
    } while (0)

#endif
