/* What a fuzz target defines. */
#ifndef KVAD_TESTS_FUZZ_H
#define KVAD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** Read `data` as the target's kind of file. Refusing it is right, crashing is not. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
