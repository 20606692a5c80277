#include "cli/outputs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/new_file.h"
#include "cli/streams.h"

enum { PATH_BYTES = KVAD_NEW_FILE_PATH, N_OUTPUTS = 3 };

static bool is_file(const char *path, struct stat *st) {
    return path && strcmp(path, "-") != 0 && stat(path, st) == 0 && S_ISREG(st->st_mode);
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the existing file `path` lies in the folder `model`. */
static bool is_inside(const char *path, const char *model) {
    struct stat folder, parent;
    char name[PATH_BYTES];
    if (stat(model, &folder) != 0 || !S_ISDIR(folder.st_mode)) return false;
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(name, sizeof name, "%.*s/", (int)(slash - path), path)
                  : snprintf(name, sizeof name, ".");
    return n > 0 && n < PATH_BYTES && stat(name, &parent) == 0 && is_same(&folder, &parent);
}

static int refuse(const char *path, const char *what) {
    cli_say("%s: is %s; writing would destroy it: name another file", path, what);
    return CLI_EXIT_USAGE;
}

static int check_one(const char *output, const struct cli_settings *settings) {
    const char *model = settings->arguments.n > 0 ? settings->arguments.items[0] : NULL;
    const char *inputs[] = {model, settings->file, settings->batch, settings->tokenizer};
    struct stat out, in;
    if (!is_file(output, &out)) return CLI_EXIT_OK;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (is_file(inputs[i], &in) && is_same(&out, &in))
            return refuse(output, i == 0 ? "the model" : "also an input");
    if (model && is_inside(output, model)) return refuse(output, "a file of the model's folder");
    return CLI_EXIT_OK;
}

/* Two names of one file: the same text, or the same existing file. */
static bool are_same(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b || strcmp(a, "-") == 0) return false;
    return strcmp(a, b) == 0 || (is_file(a, &x) && is_file(b, &y) && is_same(&x, &y));
}

int cli_outputs_check(const struct cli_settings *settings) {
    const char *outputs[N_OUTPUTS] = {settings->output, settings->logits, settings->hidden};
    for (size_t i = 0; i < N_OUTPUTS; i++) {
        int status = check_one(outputs[i], settings);
        if (status != CLI_EXIT_OK) return status;
        for (size_t j = 0; j < i; j++)
            if (are_same(outputs[i], outputs[j]))
                return refuse(outputs[i], "named for two outputs");
    }
    return CLI_EXIT_OK;
}

/* What stdout goes to until it is whole, and whether it does. */
static struct kvad_new_file result;
static bool is_redirected;

int cli_outputs_redirect(const char *path) {
    if (strcmp(path, "-") == 0) return CLI_EXIT_OK;
    is_redirected = kvad_new_file_open(&result, path);
    if (is_redirected && dup2(result.fd, STDOUT_FILENO) != -1) return CLI_EXIT_OK;
    cli_say("cannot write %s: %s", path, strerror(errno));
    if (is_redirected) kvad_new_file_drop(&result);
    is_redirected = false;
    return CLI_EXIT_FAILURE;
}

int cli_outputs_finish(int status) {
    struct stat st;
    if (!is_redirected) return status;
    bool is_written = fflush(stdout) == 0 && fstat(STDOUT_FILENO, &st) == 0;
    if (status != CLI_EXIT_OK && (!is_written || st.st_size == 0)) {
        kvad_new_file_drop(&result);
        return status;
    }
    if (is_written && kvad_new_file_keep(&result)) return status;
    cli_say("cannot write %s: %s", result.path, strerror(errno));
    if (!is_written) kvad_new_file_drop(&result);
    return status == CLI_EXIT_OK ? CLI_EXIT_FAILURE : status;
}
