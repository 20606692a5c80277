/* A whole file, mapped read-only. */
#ifndef KVAD_BASE_FILE_MAP_H
#define KVAD_BASE_FILE_MAP_H

#include "kvad/kvad.h"

struct kvad_file_map {
    const unsigned char *data; /* [size]; never NULL after a successful open */
    size_t size;
};

/** Map a regular file. KVAD_ERR_NOT_FOUND if it does not exist, KVAD_ERR_IO for anything that is
 * not a readable regular file (folder, device, pipe, no permission). An empty file has size 0. The
 * file must not shrink while it is mapped. */
enum kvad_status kvad_file_map_open(struct kvad_file_map *map, const char *path,
                                    struct kvad_error *err);
/** Unmap; a zeroed or closed map is allowed. */
void kvad_file_map_close(struct kvad_file_map *map);

#endif
