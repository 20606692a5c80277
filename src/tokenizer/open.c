/* kvad_tokenizer_open(): which files make a tokenizer, and where they lie. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file_map.h"
#include "tokenizer/tokenizer.h"

enum { PATH_BYTES = 4096 };

/* Names that belong together: Hugging Face's, OpenAI's, and those in tiktoken's cache, which are
 * the SHA-1 of the addresses of OpenAI's. */
static const struct {
    const char *vocab, *merges;
} pairs[] = {
    {"vocab.json", "merges.txt"},
    {"encoder.json", "vocab.bpe"},
    {"6c7ea1a7e38e3a7f062df639a5b80947f075ffe6", "6d1cbeee0f20b3d9449abfede4726ed8212e3aee"},
};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

/* A path that is known to exist, or "". */
struct path {
    char text[PATH_BYTES];
};

struct paths {
    struct path main, merges, added, config, special;
};

/* folder/name if that is a file; else "". */
static bool find(struct path *path, const char *folder, size_t folder_size, const char *name) {
    struct stat st;
    int n = snprintf(path->text, sizeof path->text, "%.*s%s%s", (int)folder_size, folder,
                     folder_size && folder[folder_size - 1] != '/' ? "/" : "", name);
    if (n > 0 && (size_t)n < sizeof path->text && stat(path->text, &st) == 0 &&
        !S_ISDIR(st.st_mode))
        return true;
    path->text[0] = 0;
    return false;
}

static enum kvad_status find_in_folder(struct paths *paths, const char *folder,
                                       struct kvad_error *err) {
    size_t n = strlen(folder);
    if (find(&paths->main, folder, n, "tokenizer.json")) return KVAD_OK;
    for (size_t i = 0; i < N_PAIRS; i++)
        if (find(&paths->merges, folder, n, pairs[i].merges) &&
            find(&paths->main, folder, n, pairs[i].vocab))
            return KVAD_OK;
    paths->merges.text[0] = 0;
    if (find(&paths->main, folder, n, "meta.pkl")) return KVAD_OK;
    if (find(&paths->main, folder, n, "vocab.json")) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_NOT_FOUND,
                     "%s: no tokenizer in this folder: looked for tokenizer.json, vocab.json with "
                     "merges.txt, encoder.json with vocab.bpe, and meta.pkl",
                     folder);
}

/* A file that was named: its other half lies beside it. */
static void find_partner(struct paths *paths, const char *folder, size_t folder_size,
                         const char *base) {
    for (size_t i = 0; i < N_PAIRS; i++) {
        struct path other;
        if (strcmp(base, pairs[i].vocab) == 0) {
            find(&paths->merges, folder, folder_size, pairs[i].merges);
            return;
        }
        if (strcmp(base, pairs[i].merges) == 0) {
            if (!find(&other, folder, folder_size, pairs[i].vocab)) return;
            paths->merges = paths->main;
            paths->main = other;
            return;
        }
    }
    for (size_t i = 0; i < N_PAIRS && !paths->merges.text[0]; i++)
        find(&paths->merges, folder, folder_size, pairs[i].merges);
}

static enum kvad_status find_all(struct paths *paths, const char *path, struct kvad_error *err) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    size_t folder_size = slash ? (size_t)(slash - path) + 1 : 0;
    if (strlen(path) >= PATH_BYTES)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "the path of the tokenizer has %zu bytes; at most "
                         "%d are possible",
                         strlen(path), PATH_BYTES - 1);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        KVAD_TRY(find_in_folder(paths, path, err));
        folder_size = strlen(path);
    } else {
        memcpy(paths->main.text, path, strlen(path) + 1);
        find_partner(paths, path, folder_size, path + folder_size);
    }
    find(&paths->added, path, folder_size, "added_tokens.json");
    find(&paths->config, path, folder_size, "tokenizer_config.json");
    find(&paths->special, path, folder_size, "special_tokens_map.json");
    return KVAD_OK;
}

void kvad_tokenizer_maps_close(struct kvad_tokenizer_maps *maps) {
    for (size_t i = 0; i < 5; i++)
        kvad_file_map_close(&maps->maps[i]);
}

enum kvad_status kvad_tokenizer_maps_open(const char *path, struct kvad_tokenizer_maps *maps,
                                          struct kvad_error *err) {
    struct paths paths = {0};
    memset(maps, 0, sizeof *maps);
    const struct path *from[5] = {&paths.main, &paths.merges, &paths.added, &paths.config,
                                  &paths.special};
    struct kvad_tokenizer_files *files = &maps->files;
    struct kvad_tokenizer_file *to[5] = {&files->main, &files->merges, &files->added,
                                         &files->config, &files->special};
    KVAD_TRY(find_all(&paths, path, err));
    for (size_t i = 0; i < 5; i++) {
        if (!from[i]->text[0]) continue;
        memcpy(maps->paths[i], from[i]->text, sizeof maps->paths[i]);
        KVAD_TRY(kvad_file_map_open(&maps->maps[i], maps->paths[i], err));
        *to[i] =
            (struct kvad_tokenizer_file){maps->paths[i], maps->maps[i].data, maps->maps[i].size};
    }
    return KVAD_OK;
}

enum kvad_status kvad_tokenizer_open(const char *path, const struct kvad_allocator *allocator,
                                     struct kvad_tokenizer **out, struct kvad_error *err) {
    struct kvad_tokenizer_maps maps;
    enum kvad_status status = kvad_tokenizer_maps_open(path, &maps, err);
    if (status == KVAD_OK) status = kvad_tokenizer_open_memory(&maps.files, allocator, out, err);
    kvad_tokenizer_maps_close(&maps);
    return status;
}
