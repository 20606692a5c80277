#define _GNU_SOURCE /* O_TMPFILE */
#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names beside the target that are tried: processes that were killed may have left some. */
enum { N_TRIES = 100 };

static void name_beside(struct kvad_new_file *file, int number) {
    snprintf(file->beside, sizeof file->beside, "%s.%ld.%d.tmp", file->path, (long)getpid(),
             number);
}

static bool open_named(struct kvad_new_file *file) {
    for (int i = 0; i < N_TRIES; i++) {
        name_beside(file, i);
        file->fd = open(file->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0 || errno != EEXIST) break;
    }
    file->is_named = file->fd >= 0;
    return file->is_named;
}

#if defined(O_TMPFILE) && !defined(KVAD_NEW_FILE_NAMED)
static bool open_nameless(struct kvad_new_file *file) {
    char folder[KVAD_NEW_FILE_PATH];
    const char *slash = strrchr(file->path, '/');
    int n = slash ? (int)(slash - file->path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s", n, file->path);
    if (access("/proc/self/fd", X_OK) != 0) return false; /* the way to its name, later */
    file->fd = open(n ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    return file->fd >= 0;
}

static bool name_it(struct kvad_new_file *file) {
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
    for (int i = 0; i < N_TRIES; i++) {
        name_beside(file, i);
        file->is_named = linkat(AT_FDCWD, self, AT_FDCWD, file->beside, AT_SYMLINK_FOLLOW) == 0;
        if (file->is_named || errno != EEXIST) break;
    }
    return file->is_named;
}
#else
static bool open_nameless(struct kvad_new_file *file) {
    (void)file;
    return false;
}
static bool name_it(struct kvad_new_file *file) {
    return file->is_named;
}
#endif

bool kvad_new_file_open(struct kvad_new_file *file, const char *path) {
    struct stat st;
    file->is_direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    file->is_named = false;
    if (strlen(path) >= sizeof file->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(file->path, sizeof file->path, "%s", path);
    if (!file->is_direct) return open_nameless(file) || open_named(file);
    file->fd = open(path, O_WRONLY | O_CLOEXEC);
    return file->fd >= 0;
}

static bool keep(struct kvad_new_file *file) {
    bool ok = file->is_direct || file->is_named || name_it(file);
    if (close(file->fd) != 0 && errno != EINTR) ok = false;
    if (ok && (file->is_direct || rename(file->beside, file->path) == 0)) return true;
    int why = errno;
    if (file->is_named) unlink(file->beside);
    errno = why;
    return false;
}

bool kvad_new_file_keep(struct kvad_new_file *file) {
    /* A file that is named beside its place stays there if a signal ends the process now. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = keep(file);
    pthread_sigmask(SIG_SETMASK, &before, NULL); /* leaves errno */
    return ok;
}

void kvad_new_file_drop(struct kvad_new_file *file) {
    int why = errno;
    close(file->fd);
    if (file->is_named) unlink(file->beside);
    errno = why;
}

bool kvad_write_all(int fd, const void *data, size_t size) {
    const char *bytes = data;
    while (size > 0) {
        ssize_t n = write(fd, bytes, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}
