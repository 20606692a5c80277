/* A plain pickle (meta.pkl). */
#include "fuzz.h"

#include "formats/pickle.h"
#include "pickle_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kvad_heap heap;
    struct kvad_pickle *pickle = NULL;
    struct kvad_error err = {0};
    kvad_heap_init(&heap, NULL);
    if (kvad_pickle_open(data, size, "meta.pkl", &heap, &pickle, &err) == KVAD_OK) {
        struct pickle_walk walk = {.n_left = 10000};
        walk_value(&walk, kvad_pickle_root(pickle), 0);
    } else {
        fuzz_check(err.text[0] != 0 && pickle == NULL);
    }
    kvad_pickle_close(&pickle);
    fuzz_check(heap.bytes == 0 && heap.bytes_peak < 200 * size + 65536);
    return 0;
}
