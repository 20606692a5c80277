#include "cli/npy.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "cli/streams.h"

static bool say_failure(const struct cli_npy *npy) {
    cli_say("cannot write %s: %s", npy->place.path, strerror(errno));
    return false;
}

bool cli_npy_open(struct cli_npy *npy, const char *path, const size_t *shape, size_t n_shape) {
    /* Magic, version and length take 10 bytes; all together a multiple of 64, newline last. */
    enum { PREFIX = 10, HEADER = 128 };
    char header[HEADER], dimensions[80] = "";
    for (size_t i = 0, used = 0; i < n_shape; i++)
        used += (size_t)snprintf(dimensions + used, sizeof dimensions - used, "%zu, ", shape[i]);
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", PREFIX); /* 0x76 = HEADER - PREFIX */
    int n = snprintf(header + PREFIX, HEADER - PREFIX,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", dimensions);
    header[PREFIX + n] = ' '; /* over the NUL */
    header[HEADER - 1] = '\n';
    npy->n_left = 1;
    for (size_t i = 0; i < n_shape; i++)
        npy->n_left *= shape[i];
    npy->file = NULL;
    if (!kvad_new_file_open(&npy->place, path)) return say_failure(npy);
    int fd = dup(npy->place.fd); /* which the stream closes */
    npy->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!npy->file) {
        kvad_new_file_drop(&npy->place);
        return say_failure(npy);
    }
    return fwrite(header, 1, HEADER, npy->file) == HEADER || say_failure(npy);
}

bool cli_npy_write(struct cli_npy *npy, const float *values, size_t n) {
    enum { BLOCK = 1024 };
    unsigned char bytes[BLOCK][4];
    while (n) {
        size_t count = n < BLOCK ? n : BLOCK;
        for (size_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            for (unsigned b = 0; b < 4; b++)
                bytes[i][b] = (unsigned char)(bits >> 8 * b);
        }
        if (fwrite(bytes, 4, count, npy->file) != count) return say_failure(npy);
        values += count;
        n -= count;
        npy->n_left -= count;
    }
    return true;
}

bool cli_npy_close(struct cli_npy *npy) {
    if (!npy->file) return true;
    bool ok = fclose(npy->file) == 0;
    npy->file = NULL;
    if (ok && npy->n_left == 0) return kvad_new_file_keep(&npy->place) || say_failure(npy);
    kvad_new_file_drop(&npy->place);
    return ok || say_failure(npy);
}
