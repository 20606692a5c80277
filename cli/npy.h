/* Writing arrays of float32 as NumPy reads them: .npy version 1.0, little-endian, row-major. */
#ifndef KVAD_CLI_NPY_H
#define KVAD_CLI_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/new_file.h"

struct cli_npy {
    FILE *file;    /* NULL: not open */
    size_t n_left; /* numbers that the shape still wants */
    struct kvad_new_file place;
};

/** Create the file and write its header; shape has `n_shape` <= 3 numbers. False after a message on
 * stderr. */
bool cli_npy_open(struct cli_npy *npy, const char *path, const size_t *shape, size_t n_shape);
/** Append `n` numbers in row-major order, at most those that are left. */
bool cli_npy_write(struct cli_npy *npy, const float *values, size_t n);
/** Close the file and give it its name if all numbers of its shape are there; else, as when a run
 * failed half-way, nothing has changed. False, after a message, if it could not be written. A file
 * that is not open is allowed. */
bool cli_npy_close(struct cli_npy *npy);

#endif
