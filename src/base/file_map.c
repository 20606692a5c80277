#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const unsigned char empty_file[1];

static enum kvad_status map_descriptor(struct kvad_file_map *map, int fd, const char *path,
                                       struct kvad_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return kvad_fail(err, KVAD_ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return kvad_fail(err, KVAD_ERR_IO, "%s: is a folder, not a file", path);
    if (!S_ISREG(st.st_mode))
        return kvad_fail(err, KVAD_ERR_IO, "%s: is not a regular file (cannot be mapped)", path);
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return kvad_fail(err, KVAD_ERR_IO, "%s: too large for this machine", path);
    size_t size = (size_t)st.st_size;
    if (size == 0) {
        *map = (struct kvad_file_map){empty_file, 0};
        return KVAD_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return kvad_fail(err, errno == ENOMEM ? KVAD_ERR_NO_MEMORY : KVAD_ERR_IO,
                         "%s: cannot map %zu bytes: %s", path, size, strerror(errno));
    *map = (struct kvad_file_map){data, size};
    return KVAD_OK;
}

enum kvad_status kvad_file_map_open(struct kvad_file_map *map, const char *path,
                                    struct kvad_error *err) {
    /* O_NONBLOCK: opening a pipe must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return kvad_fail(err,
                         errno == ENOENT || errno == ENOTDIR ? KVAD_ERR_NOT_FOUND : KVAD_ERR_IO,
                         "%s: cannot open: %s", path, strerror(errno));
    enum kvad_status status = map_descriptor(map, fd, path, err);
    close(fd);
    return status;
}

void kvad_file_map_close(struct kvad_file_map *map) {
    if (map->data && map->data != empty_file) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct kvad_file_map){NULL, 0};
}
