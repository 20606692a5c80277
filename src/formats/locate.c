#include "formats/locate.h"

#include <ctype.h>
#include <dirent.h>
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

static enum kvad_status find_in_folder(const char *folder, struct kvad_heap *heap, char **file,
                                       struct kvad_error *err) {
    for (size_t i = 0; i < N_WEIGHT_FILES; i++) {
        char *path = kvad_path_format(heap, "%s/%s", folder, weight_files[i]);
        if (!path) return kvad_fail_memory(err, "a path", strlen(folder));
        if (!kvad_path_is_file(path)) {
            kvad_path_free(heap, path);
            continue;
        }
        /* One file and an index of shards may be two different models: never guess, never merge. */
        if (!is_index(path) && i + 1 < N_WEIGHT_FILES && is_index(weight_files[i + 1])) {
            char *index = kvad_path_format(heap, "%s/%s", folder, weight_files[i + 1]);
            bool both = index && kvad_path_is_file(index);
            kvad_path_free(heap, index);
            if (both || !index) {
                kvad_path_free(heap, path);
                if (!index) return kvad_fail_memory(err, "a path", strlen(folder));
                return kvad_fail(err, KVAD_ERR_ARGUMENT,
                                 "%s: holds both %s and %s; give the path of the one you mean",
                                 folder, weight_files[i], weight_files[i + 1]);
            }
        }
        *file = path;
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

/* hub/models--ORG--NAME/snapshots/REVISION, or NULL. `repo` has '/' written as "--". */
static char *snapshot_in(struct kvad_heap *heap, const char *hub, const char *repo) {
    char revision[128];
    char *path = kvad_path_format(heap, "%s/models--%s/refs/main", hub, repo);
    bool known = path && read_revision(path, revision, sizeof revision);
    kvad_path_free(heap, path);
    if (!known) {
        path = kvad_path_format(heap, "%s/models--%s/snapshots", hub, repo);
        known = path && only_snapshot(path, revision, sizeof revision);
        kvad_path_free(heap, path);
    }
    if (!known) return NULL;
    path = kvad_path_format(heap, "%s/models--%s/snapshots/%s", hub, repo, revision);
    if (path && kvad_path_is_folder(path)) return path;
    kvad_path_free(heap, path);
    return NULL;
}

/* Try the name, and the short names that the Hub moved into organisations. */
static char *snapshot_by_name(struct kvad_heap *heap, const char *hub, const char *name) {
    static const char *const organisations[] = {"", "openai-community--", "distilbert--"};
    const char *slash = strchr(name, '/');
    size_t n_tries = slash ? 1 : sizeof organisations / sizeof *organisations;
    for (size_t i = 0; i < n_tries; i++) {
        char *repo = slash
                         ? kvad_path_format(heap, "%.*s--%s", (int)(slash - name), name, slash + 1)
                         : kvad_path_format(heap, "%s%s", organisations[i], name);
        char *found = repo ? snapshot_in(heap, hub, repo) : NULL;
        kvad_path_free(heap, repo);
        if (found) return found;
    }
    return NULL;
}

enum kvad_status kvad_locate_snapshot(const char *name, struct kvad_heap *heap, char **folder,
                                      struct kvad_error *err) {
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
        if (!root || !*root) continue;
        char *hub = kvad_path_format(heap, "%s%s", root, places[i].below);
        if (!hub) return kvad_fail_memory(err, "a path", strlen(root));
        char *found = snapshot_by_name(heap, hub, name);
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%s", used ? ", " : "", hub);
        kvad_path_free(heap, hub);
        if (found) {
            *folder = found;
            return KVAD_OK;
        }
    }
    return kvad_fail(err, KVAD_ERR_NOT_FOUND,
                     "%s: no such file or folder, and no such model in the Hugging Face cache "
                     "(looked in %s)",
                     name, *looked ? looked : "no folder: HOME is not set");
}

enum kvad_status kvad_locate_weights(const char *path, struct kvad_heap *heap, char **file,
                                     struct kvad_error *err) {
    if (kvad_path_is_folder(path)) return find_in_folder(path, heap, file, err);
    if (kvad_path_is_file(path)) {
        char *copy = kvad_path_format(heap, "%s", path);
        if (!copy) return kvad_fail_memory(err, "a path", strlen(path));
        *file = copy;
        return KVAD_OK;
    }
    char *folder = NULL;
    KVAD_TRY(kvad_locate_snapshot(path, heap, &folder, err));
    enum kvad_status status = find_in_folder(folder, heap, file, err);
    kvad_path_free(heap, folder);
    return status;
}

char *kvad_locate_tiktoken(struct kvad_heap *heap) {
    const char *root = getenv("TIKTOKEN_CACHE_DIR");
    if (!root) root = getenv("DATA_GYM_CACHE_DIR");
    if (root) return kvad_path_format(heap, "%s", root);
    const char *temporary = getenv("TMPDIR");
    return kvad_path_format(heap, "%s/data-gym-cache",
                            temporary && *temporary ? temporary : "/tmp");
}
