/* The path helpers of locate.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/locate.h"

bool kvad_path_is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool kvad_path_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *kvad_path_format(struct kvad_heap *heap, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return NULL;
    char *text = kvad_alloc(heap, (size_t)length + 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void kvad_path_free(struct kvad_heap *heap, char *path) {
    if (path) kvad_free(heap, path, strlen(path) + 1);
}

const char *kvad_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *kvad_path_folder(struct kvad_heap *heap, const char *path) {
    const char *name = kvad_path_name(path);
    if (name == path) return kvad_path_format(heap, ".");
    size_t length = (size_t)(name - path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return kvad_path_format(heap, "%.*s", (int)kvad_min_size(length, 1 << 20), path);
}
