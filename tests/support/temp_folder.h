/* A folder of files for one test, removed at its end. */
#ifndef KVAD_TEST_TEMP_FOLDER_H
#define KVAD_TEST_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct temp_folder {
    char path[256];
};

static inline struct temp_folder temp_folder_create(void) {
    struct temp_folder folder;
    const char *root = getenv("TMPDIR");
    snprintf(folder.path, sizeof folder.path, "%s/kvad-test-XXXXXX", root && *root ? root : "/tmp");
    if (!mkdtemp(folder.path)) abort();
    return folder;
}

static inline void temp_remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char child[1024];
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(child, sizeof child, "%.600s/%s", path, entry->d_name);
        if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode))
            temp_remove_tree(child);
        else
            remove(child);
    }
    if (dir) closedir(dir);
    remove(path);
}
static inline void temp_folder_destroy(struct temp_folder *folder) {
    temp_remove_tree(folder->path);
}

/** Path of something in the folder; static. */
static inline const char *temp_path(const struct temp_folder *folder, const char *relative) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder->path, relative);
    return path;
}

/** Write a file; the folders on the way are made. */
static inline void temp_write(const struct temp_folder *folder, const char *relative,
                              const void *data, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s", temp_path(folder, relative));
    for (char *slash = path + strlen(folder->path); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}
static inline void temp_write_text(const struct temp_folder *folder, const char *relative,
                                   const char *text) {
    temp_write(folder, relative, text, strlen(text));
}

#endif
