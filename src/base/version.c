#include "kvad/kvad.h"

#define STRING_OF(x)          #x
#define VERSION_TEXT(a, b, c) STRING_OF(a) "." STRING_OF(b) "." STRING_OF(c)

const char *kvad_version(void) {
    return VERSION_TEXT(KVAD_VERSION_MAJOR, KVAD_VERSION_MINOR, KVAD_VERSION_PATCH);
}
