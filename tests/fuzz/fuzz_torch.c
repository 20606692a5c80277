/* A file of torch.save, zip or legacy. */
#include "fuzz.h"

#include "formats/torch.h"
#include "pickle_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kvad_heap heap;
    struct kvad_torch *torch = NULL;
    struct kvad_error err = {0};
    kvad_heap_init(&heap, NULL);
    kvad_torch_probe(data, size);
    if (kvad_torch_open(data, size, "model.pt", &heap, &torch, &err) == KVAD_OK) {
        struct pickle_walk walk = {.n_left = 10000};
        walk_value(&walk, kvad_torch_root(torch), 0);
    } else {
        fuzz_check(err.text[0] != 0 && torch == NULL);
    }
    kvad_torch_close(&torch);
    fuzz_check(heap.bytes == 0 && heap.bytes_peak < 200 * size + 65536);
    return 0;
}
