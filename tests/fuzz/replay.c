/* The main() of a fuzz target in ordinary builds: run the target on every file of its corpus. A
 * crash or a sanitizer's report ends the program; a file that is refused cleanly has passed. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The input lies in memory of exactly its size, so that ASan sees one byte too many. */
static int run_file(const char *path) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        fprintf(stderr, "%s: not a readable file\n", path);
        if (file) fclose(file);
        return 1;
    }
    size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int failed = !data || fread(data, 1, size, file) != size;
    fclose(file);
    if (!failed) {
        printf("%s: %zu bytes\n", path, size);
        fflush(stdout);
        failed = LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return failed;
}

static int is_input(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    int n_entries = scandir(argv[1], &entries, is_input, alphasort), n_failed = 0;
    if (n_entries <= 0) {
        fprintf(stderr, "%s: no corpus\n", argv[1]);
        return 1;
    }
    for (int i = 0; i < n_entries; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        n_failed += run_file(path) != 0;
        free(entries[i]);
    }
    free(entries);
    printf("%d passed, %d failed\n", n_entries - n_failed, n_failed);
    return n_failed != 0;
}
