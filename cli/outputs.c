#include "cli/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/streams.h"

enum { PATH_BYTES = 4096, N_OUTPUTS = 3 };

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

/* The file that stdout goes to, and the one that it becomes; both empty: none. */
static char beside[PATH_BYTES + 32], target[PATH_BYTES];

int cli_outputs_redirect(const char *path) {
    struct stat st;
    if (strcmp(path, "-") == 0) return CLI_EXIT_OK;
    bool is_direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (strlen(path) >= PATH_BYTES) {
        cli_say("cannot write %s: the name is too long", path);
        return CLI_EXIT_FAILURE;
    }
    if (!is_direct) {
        snprintf(target, sizeof target, "%s", path);
        snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid());
    }
    int fd = is_direct ? open(path, O_WRONLY | O_CLOEXEC)
                       : open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && dup2(fd, STDOUT_FILENO) != -1;
    if (!ok) {
        cli_say("cannot write %s: %s", path, strerror(errno));
        target[0] = beside[0] = 0;
    }
    if (fd >= 0) close(fd);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILURE;
}

int cli_outputs_finish(int status) {
    struct stat st;
    if (!beside[0]) return status;
    bool is_written = fflush(stdout) == 0 && fstat(STDOUT_FILENO, &st) == 0;
    if (status != CLI_EXIT_OK && (!is_written || st.st_size == 0)) {
        unlink(beside);
        return status;
    }
    if (is_written && rename(beside, target) == 0) return status;
    cli_say("cannot write %s: %s", target, strerror(errno));
    unlink(beside);
    return status == CLI_EXIT_OK ? CLI_EXIT_FAILURE : status;
}
