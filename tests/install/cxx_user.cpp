// The public header from C++: the names link without mangling, structs and enums are usable.
#include <kvad/kvad.h>

#include <cstring>
#include <iostream>

int main() {
    kvad_engine_options options;
    kvad_engine_options_init(&options);
    if (options.struct_size != sizeof options || options.cache != KVAD_CACHE_PAGED) return 1;
    if (std::strcmp(kvad_status_text(KVAD_OK), "success") != 0) return 1;
    std::cout << kvad_version() << '\n';
    return 0;
}
