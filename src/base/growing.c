#include "base/growing.h"

#include <string.h>

#include "base/error.h"

void kvad_growing_give(void *callers, size_t size, const void *ours, size_t our_size) {
    size_t n = size < our_size ? size : our_size;
    memcpy(callers, ours, n);
    memset((char *)callers + n, 0, size - n);
}

void kvad_growing_give_options(void *callers, size_t size, const void *ours, size_t our_size) {
    kvad_growing_give(callers, size, ours, our_size);
    if (size >= sizeof size) memcpy(callers, &size, sizeof size);
}

enum kvad_status kvad_growing_take_options(void *ours, size_t our_size, const void *callers,
                                           const char *kind, struct kvad_error *err) {
    size_t size;
    memcpy(&size, callers, sizeof size);
    if (size < sizeof size || size > our_size)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s options: struct_size is %zu, this library knows %zu: call "
                         "kvad_%s_options_init() first, and do not use a header that is newer than "
                         "the library",
                         kind, size, our_size, kind);
    memcpy((char *)ours + sizeof size, (const char *)callers + sizeof size, size - sizeof size);
    return KVAD_OK;
}
