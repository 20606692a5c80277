#include "formats/locate.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Order of preference inside a folder. An index stands right behind the file that it replaces. */
static const char *const weight_files[] = {
    "model.safetensors", "model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
    "ckpt.pt",           "model.pt",
    "model.pth",         "checkpoint.pt",
    "checkpoint.pth",
};
enum { N_WEIGHT_FILES = sizeof weight_files / sizeof *weight_files };

/* While searching, paths lie on the stack, so that a lack of memory cannot look like a missing
 * file. Linux opens nothing longer. */
struct path {
    char text[4096];
};

static bool make_path(struct path *path, const char *format, ...) KVAD_PRINTF(2, 3);
static bool make_path(struct path *path, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path->text, sizeof path->text, format, args);
    va_end(args);
    return length >= 0 && (size_t)length < sizeof path->text;
}

static bool is_index(const char *name) {
    static const char suffix[] = ".index.json";
    size_t length = strlen(name);
    return length >= sizeof suffix && strcmp(name + length - (sizeof suffix - 1), suffix) == 0;
}

static enum kvad_status nothing_in_folder(const char *folder, struct kvad_error *err) {
    char list[320];
    size_t used = 0;
    for (size_t i = 0; i < N_WEIGHT_FILES; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 weight_files[i]);
    return kvad_fail(err, KVAD_ERR_NOT_FOUND,
                     "%s: no weights in this folder; looked for %s; for another name give the path "
                     "of the file",
                     folder, list);
}

static enum kvad_status find_in_folder(const char *folder, struct path *file,
                                       struct kvad_error *err) {
    for (size_t i = 0; i < N_WEIGHT_FILES; i++) {
        if (!make_path(file, "%s/%s", folder, weight_files[i]) || !kvad_path_is_file(file->text))
            continue;
        /* One file and an index of shards may be two different models: never guess, never merge. */
        struct path index;
        if (!is_index(weight_files[i]) && i + 1 < N_WEIGHT_FILES && is_index(weight_files[i + 1]) &&
            make_path(&index, "%s/%s", folder, weight_files[i + 1]) &&
            kvad_path_is_file(index.text))
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "%s: holds both %s and %s; give the path of the one you mean", folder,
                             weight_files[i], weight_files[i + 1]);
        return KVAD_OK;
    }
    return nothing_in_folder(folder, err);
}

/* "name" or "org/name" of letters, digits, '.', '_', '-': what the Hub allows. */
static bool is_hub_name(const char *name) {
    size_t n_slashes = 0, part = 0;
    for (const char *c = name; *c; c++) {
        if (*c == '/') {
            if (part == 0 || ++n_slashes > 1) return false;
            part = 0;
            continue;
        }
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
        if (part == 0 && *c == '.') return false; /* also "." and ".." */
        part++;
    }
    return part > 0;
}

/* The revision that refs/main holds: one line, a plain name. */
static bool read_revision(const char *path, char *revision, size_t size) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    size_t n = fread(revision, 1, size - 1, file);
    fclose(file);
    revision[n] = 0;
    revision[strcspn(revision, "\r\n")] = 0;
    return is_hub_name(revision) && !strchr(revision, '/');
}

/* The only folder in `snapshots`; false if there are none or several. */
static bool only_snapshot(const char *snapshots, char *revision, size_t size) {
    DIR *dir = opendir(snapshots);
    if (!dir) return false;
    size_t n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= size) continue;
        if (n++ == 0) snprintf(revision, size, "%s", entry->d_name);
    }
    closedir(dir);
    return n == 1;
}

/* hub/models--ORG--NAME/snapshots/REVISION. `repo` has '/' written as "--". */
static bool snapshot_in(const char *hub, const char *repo, struct path *out) {
    char revision[128];
    bool known = make_path(out, "%s/models--%s/refs/main", hub, repo) &&
                 read_revision(out->text, revision, sizeof revision);
    if (!known)
        known = make_path(out, "%s/models--%s/snapshots", hub, repo) &&
                only_snapshot(out->text, revision, sizeof revision);
    return known && make_path(out, "%s/models--%s/snapshots/%s", hub, repo, revision) &&
           kvad_path_is_folder(out->text);
}

/* Try the name, and the short names that the Hub moved into organisations. */
static bool snapshot_by_name(const char *hub, const char *name, struct path *out) {
    static const char *const organisations[] = {"", "openai-community--", "distilbert--"};
    const char *slash = strchr(name, '/');
    struct path repo;
    if (slash)
        return make_path(&repo, "%.*s--%s", (int)(slash - name), name, slash + 1) &&
               snapshot_in(hub, repo.text, out);
    for (size_t i = 0; i < sizeof organisations / sizeof *organisations; i++)
        if (make_path(&repo, "%s%s", organisations[i], name) && snapshot_in(hub, repo.text, out))
            return true;
    return false;
}

static enum kvad_status find_snapshot(const char *name, struct path *out, struct kvad_error *err) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    if (!is_hub_name(name))
        return kvad_fail(err, KVAD_ERR_NOT_FOUND, "%s: no such file or folder", name);
    char looked[256] = "";
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *root = getenv(places[i].variable);
        struct path hub;
        if (!root || !*root || !make_path(&hub, "%s%s", root, places[i].below)) continue;
        if (snapshot_by_name(hub.text, name, out)) return KVAD_OK;
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%.200s", used ? ", " : "", hub.text);
    }
    return kvad_fail(err, KVAD_ERR_NOT_FOUND,
                     "%s: no such file or folder, and no such model in the Hugging Face cache "
                     "(looked in %s)",
                     name, *looked ? looked : "no folder: HOME is not set");
}

/* The result on the heap. */
static enum kvad_status give(const char *text, struct kvad_heap *heap, char **out,
                             struct kvad_error *err) {
    char *copy = kvad_path_format(heap, "%s", text);
    if (!copy) return kvad_fail_memory(err, "a path", strlen(text) + 1);
    *out = copy;
    return KVAD_OK;
}

enum kvad_status kvad_locate_snapshot(const char *name, struct kvad_heap *heap, char **folder,
                                      struct kvad_error *err) {
    struct path found;
    KVAD_TRY(find_snapshot(name, &found, err));
    return give(found.text, heap, folder, err);
}

enum kvad_status kvad_locate_weights(const char *path, struct kvad_heap *heap, char **file,
                                     struct kvad_error *err) {
    struct path folder, found;
    if (kvad_path_is_folder(path)) {
        KVAD_TRY(find_in_folder(path, &found, err));
        return give(found.text, heap, file, err);
    }
    if (kvad_path_is_file(path)) return give(path, heap, file, err);
    KVAD_TRY(find_snapshot(path, &folder, err));
    KVAD_TRY(find_in_folder(folder.text, &found, err));
    return give(found.text, heap, file, err);
}

char *kvad_locate_tiktoken(struct kvad_heap *heap) {
    const char *root = getenv("TIKTOKEN_CACHE_DIR");
    if (!root) root = getenv("DATA_GYM_CACHE_DIR");
    if (root) return kvad_path_format(heap, "%s", root);
    const char *temporary = getenv("TMPDIR");
    return kvad_path_format(heap, "%s/data-gym-cache",
                            temporary && *temporary ? temporary : "/tmp");
}
