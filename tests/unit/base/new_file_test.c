/* Files that get their name when they are whole; compiled a second time for file systems without
 * nameless files. */
#include "base/new_file.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "temp_folder.h"
#include "test.h"

static void put(const struct kvad_new_file *file, const char *text) {
    assert_int_equal(write(file->fd, text, strlen(text)), strlen(text));
}

static void assert_holds(const char *path, const char *text) {
    char got[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(got, text);
}

static size_t count_files(const char *folder) {
    DIR *directory = opendir(folder);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(directory));)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

static void test_a_kept_file_replaces_the_old_one_and_a_dropped_one_does_not(void **state) {
    (void)state;
    struct temp_folder folder = temp_folder_create();
    const char *path = temp_path(&folder, "result");
    struct kvad_new_file file;
    static const char *const texts[] = {"first", "second, longer", "3"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(kvad_new_file_open(&file, path));
        put(&file, texts[i]);
        if (i) assert_holds(path, texts[i - 1]); /* until it is kept */
        assert_true(kvad_new_file_keep(&file));
        assert_holds(path, texts[i]);
        assert_int_equal(count_files(folder.path), 1);
    }
    assert_true(kvad_new_file_open(&file, path));
    put(&file, "half");
    errno = 77;
    kvad_new_file_drop(&file);
    assert_int_equal(errno, 77);
    assert_holds(path, "3");
    assert_int_equal(count_files(folder.path), 1);
    temp_folder_destroy(&folder);
}

static void test_what_cannot_be_begun_or_kept_says_why_and_leaves_nothing(void **state) {
    (void)state;
    struct temp_folder folder = temp_folder_create();
    struct kvad_new_file file;
    assert_false(kvad_new_file_open(&file, temp_path(&folder, "no/such/folder")));
    assert_int_equal(errno, ENOENT);
    assert_false(kvad_new_file_open(&file, folder.path));
    assert_int_equal(errno, EISDIR);
    static char longest[KVAD_NEW_FILE_PATH + 1];
    memset(longest, 'x', KVAD_NEW_FILE_PATH);
    assert_false(kvad_new_file_open(&file, longest));
    assert_int_equal(errno, ENAMETOOLONG);
    /* The place becomes a folder in the meantime. */
    const char *path = temp_path(&folder, "result");
    assert_true(kvad_new_file_open(&file, path));
    assert_int_equal(mkdir(path, 0777), 0);
    assert_false(kvad_new_file_keep(&file));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(count_files(folder.path), 1);
    assert_int_equal(rmdir(path), 0);
    temp_folder_destroy(&folder);
}

static void test_names_left_by_killed_processes_are_no_hindrance(void **state) {
    (void)state;
    struct temp_folder folder = temp_folder_create();
    struct kvad_new_file files[3];
    const char *path = temp_path(&folder, "result");
    for (int i = 0; i < 3; i++) /* all of one process, at once */
        assert_true(kvad_new_file_open(&files[i], path));
    put(&files[1], "one");
    assert_true(kvad_new_file_keep(&files[1]));
    kvad_new_file_drop(&files[0]);
    kvad_new_file_drop(&files[2]);
    assert_holds(path, "one");
    assert_int_equal(count_files(folder.path), 1);
    temp_folder_destroy(&folder);
}

static void replace_for_ever(const char *path) {
    struct kvad_new_file file;
    while (kvad_new_file_open(&file, path) && kvad_new_file_keep(&file))
        continue;
    _exit(1);
}

/* An old file is replaced in two steps: the new one gets a name beside it, then the name. A process
 * that does nothing else is killed at moments of all kinds. */
static void test_ctrl_c_never_leaves_a_second_name(void **state) {
    (void)state;
    struct temp_folder folder = temp_folder_create();
    const char *path = temp_path(&folder, "result");
    struct kvad_new_file file;
    assert_true(kvad_new_file_open(&file, path));
    bool is_nameless = !file.is_named;
    assert_true(kvad_new_file_keep(&file));
    for (int i = 0; is_nameless && i < 60; i++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) replace_for_ever(path);
        struct timespec pause = {0, 1000000 + 13000 * i};
        nanosleep(&pause, NULL);
        assert_int_equal(kill(child, i % 2 ? SIGINT : SIGTERM), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(count_files(folder.path), 1);
    }
    temp_folder_destroy(&folder);
    if (!is_nameless) skip();
}

static void test_a_device_is_written_in_place(void **state) {
    (void)state;
    struct kvad_new_file file;
    struct stat st;
    assert_true(kvad_new_file_open(&file, "/dev/null"));
    put(&file, "gone");
    assert_true(kvad_new_file_keep(&file));
    assert_true(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kept_file_replaces_the_old_one_and_a_dropped_one_does_not),
        cmocka_unit_test(test_what_cannot_be_begun_or_kept_says_why_and_leaves_nothing),
        cmocka_unit_test(test_names_left_by_killed_processes_are_no_hindrance),
        cmocka_unit_test(test_ctrl_c_never_leaves_a_second_name),
        cmocka_unit_test(test_a_device_is_written_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
