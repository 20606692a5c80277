/* Writing arrays of float32 as NumPy reads them: .npy version 1.0, little-endian, row-major. */
#ifndef KVAD_CLI_NPY_H
#define KVAD_CLI_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cli_npy {
    FILE *file;
    const char *path;
};

/** Create the file and write its header; shape has `n_shape` <= 3 numbers. False after a message on
 * stderr. */
bool cli_npy_open(struct cli_npy *npy, const char *path, const size_t *shape, size_t n_shape);
/** Append `n` numbers in row-major order. */
bool cli_npy_write(struct cli_npy *npy, const float *values, size_t n);
/** Close a file of which every number was written; false if any did not arrive. NULL file allowed.
 */
bool cli_npy_close(struct cli_npy *npy);

#endif
