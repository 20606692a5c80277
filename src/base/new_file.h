/* A file that gets its name when it is whole, so that the file of before stays until then and a
 * process that is killed leaves nothing. On Linux it has no name before; where the file system
 * cannot do that (NFS, for one) it lies beside its place as NAME.PID.N.tmp, and only there does a
 * killed process leave something. */
#ifndef KVAD_BASE_NEW_FILE_H
#define KVAD_BASE_NEW_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { KVAD_NEW_FILE_PATH = 4096 };

struct kvad_new_file {
    int fd;         /* write here */
    bool is_direct; /* the path names a device or a pipe, which is written in place */
    bool is_named;  /* `beside` exists */
    char path[KVAD_NEW_FILE_PATH], beside[KVAD_NEW_FILE_PATH + 48];
};

/** Begin the file that `path` will name. False with errno; then there is nothing to end. */
bool kvad_new_file_open(struct kvad_new_file *file, const char *path);
/** All is written: close it and give it its name, replacing a file of before; signals wait for that
 * moment. False with errno, the file of before untouched. Ends the object in any case. */
bool kvad_new_file_keep(struct kvad_new_file *file);
/** Close and forget it; errno stays. */
void kvad_new_file_drop(struct kvad_new_file *file);

/** Write all of `size` bytes to a descriptor, however many calls that takes; false with errno. */
bool kvad_write_all(int fd, const void *data, size_t size);

#endif
