#include "formats/locate.h"

#include "failing_heap.h"
#include "temp_folder.h"
#include "test.h"

static struct temp_folder folder;
static struct failing_heap heap;

static const char *const variables[] = {
    "HF_HUB_CACHE",       "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME",
    "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR",    "TMPDIR"};

static int set_up(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    folder = temp_folder_create();
    failing_heap_init(&heap, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    temp_folder_destroy(&folder);
    return heap.n_live == 0 ? 0 : -1; /* every path was freed */
}

static void assert_weights(const char *path, const char *wanted) {
    struct kvad_error err;
    char *file = NULL;
    assert_ok(kvad_locate_weights(path, &heap.heap, &file, &err), &err);
    assert_string_equal(file, wanted);
    kvad_path_free(&heap.heap, file);
}

static void assert_snapshot(const char *name, const char *wanted) {
    struct kvad_error err;
    char *found = NULL;
    assert_ok(kvad_locate_snapshot(name, &heap.heap, &found, &err), &err);
    assert_string_equal(found, temp_path(&folder, wanted));
    kvad_path_free(&heap.heap, found);
}

static void assert_no_snapshot(const char *name, const char *text) {
    struct kvad_error err = {0};
    char *found = NULL;
    assert_fails(kvad_locate_snapshot(name, &heap.heap, &found, &err), KVAD_ERR_NOT_FOUND, &err,
                 text);
    assert_null(found);
}

static void test_a_file_is_itself(void **state) {
    (void)state;
    temp_write_text(&folder, "any.name", "x");
    char path[1024];
    snprintf(path, sizeof path, "%s", temp_path(&folder, "any.name"));
    assert_weights(path, path);
}

static void test_a_folder_gives_the_preferred_file(void **state) {
    (void)state;
    static const char *const in_rising_order[] = {"checkpoint.pt", "model.pt", "ckpt.pt",
                                                  "pytorch_model.bin.index.json",
                                                  "model.safetensors.index.json"};
    temp_write_text(&folder, "readme.txt", "x");
    for (size_t i = 0; i < sizeof in_rising_order / sizeof *in_rising_order; i++) {
        temp_write_text(&folder, in_rising_order[i], "x");
        assert_weights(folder.path, temp_path(&folder, in_rising_order[i]));
    }
}

/* bugs.md LOAD-35 */
static void test_a_file_beside_an_index_is_never_guessed_between(void **state) {
    (void)state;
    struct kvad_error err = {0};
    char *file = NULL;
    temp_write_text(&folder, "model.safetensors", "x");
    assert_weights(folder.path, temp_path(&folder, "model.safetensors"));
    temp_write_text(&folder, "model.safetensors.index.json", "x");
    assert_fails(kvad_locate_weights(folder.path, &heap.heap, &file, &err), KVAD_ERR_ARGUMENT, &err,
                 "holds both model.safetensors and model.safetensors.index.json");
    assert_null(file);
}

static void test_an_empty_folder_says_what_was_looked_for(void **state) {
    (void)state;
    struct kvad_error err = {0};
    char *file = NULL;
    assert_fails(kvad_locate_weights(folder.path, &heap.heap, &file, &err), KVAD_ERR_NOT_FOUND,
                 &err, "model.safetensors, model.safetensors.index.json, pytorch_model.bin");
    assert_non_null(strstr(err.text, "ckpt.pt"));
}

static void test_a_missing_path_names_itself_and_the_cache(void **state) {
    (void)state;
    struct kvad_error err = {0};
    char *file = NULL;
    assert_fails(kvad_locate_weights("./no/such/place", &heap.heap, &file, &err),
                 KVAD_ERR_NOT_FOUND, &err, "./no/such/place: no such file or folder");
    assert_null(strstr(err.text, "cache"));
    setenv("HF_HOME", folder.path, 1);
    assert_fails(kvad_locate_weights("org/name", &heap.heap, &file, &err), KVAD_ERR_NOT_FOUND, &err,
                 temp_path(&folder, "hub"));
}

static void test_the_snapshot_of_main_is_found(void **state) {
    (void)state;
    temp_write_text(&folder, "hub/models--org--name/refs/main", "abc123\n");
    temp_write_text(&folder, "hub/models--org--name/snapshots/abc123/model.safetensors", "x");
    temp_write_text(&folder, "hub/models--org--name/snapshots/def456/model.safetensors", "x");
    setenv("HF_HOME", folder.path, 1);
    assert_snapshot("org/name", "hub/models--org--name/snapshots/abc123");
    assert_weights("org/name",
                   temp_path(&folder, "hub/models--org--name/snapshots/abc123/model.safetensors"));
}

static void test_the_only_snapshot_needs_no_ref(void **state) {
    (void)state;
    temp_write_text(&folder, "models--org--name/snapshots/abc/x", "x");
    setenv("HF_HUB_CACHE", folder.path, 1);
    assert_snapshot("org/name", "models--org--name/snapshots/abc");
    temp_write_text(&folder, "models--org--name/snapshots/def/x", "x");
    assert_no_snapshot("org/name", folder.path);
}

static void test_a_short_name_finds_the_organisation_it_moved_to(void **state) {
    (void)state;
    setenv("HF_HUB_CACHE", folder.path, 1);
    temp_write_text(&folder, "models--openai-community--gpt2/snapshots/a/x", "x");
    assert_snapshot("gpt2", "models--openai-community--gpt2/snapshots/a");
    temp_write_text(&folder, "models--gpt2/snapshots/b/x", "x");
    assert_snapshot("gpt2", "models--gpt2/snapshots/b");
}

static void test_every_place_of_the_cache_is_tried_in_order(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *hub;
    } places[] = {{"HOME", "home", "home/.cache/huggingface/hub"},
                  {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
                  {"HF_HOME", "hf", "hf/hub"},
                  {"HUGGINGFACE_HUB_CACHE", "old", "old"},
                  {"HF_HUB_CACHE", "new", "new"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char snapshot[128], file[160];
        snprintf(snapshot, sizeof snapshot, "%s/models--o--n/snapshots/r", places[i].hub);
        snprintf(file, sizeof file, "%s/x", snapshot);
        temp_write_text(&folder, file, "x");
        setenv(places[i].variable, temp_path(&folder, places[i].value), 1);
        assert_snapshot("o/n", snapshot);
    }
}

static void test_names_and_refs_cannot_leave_the_cache(void **state) {
    (void)state;
    static const char *const names[] = {"..",   "../x", "a/../b", "/etc", "a/b/c",
                                        "a/",   "/a",   "a b",    "",     ".hidden",
                                        "a/..", "a//b", "a\\b",   "~x",   "a/.b"};
    setenv("HF_HUB_CACHE", folder.path, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_no_snapshot(names[i], "no such file or folder");
    static const char *const revisions[] = {"../../evil", "/evil", "..", "", "a/b"};
    temp_write_text(&folder, "evil/model.safetensors", "x");
    temp_write_text(&folder, "models--o--n/snapshots/good/x", "x");
    temp_write_text(&folder, "models--o--n/snapshots/other/x", "x");
    for (size_t i = 0; i < sizeof revisions / sizeof *revisions; i++) {
        temp_write_text(&folder, "models--o--n/refs/main", revisions[i]);
        assert_no_snapshot("o/n", folder.path);
    }
}

static void test_the_tiktoken_cache_follows_its_variables(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *wanted;
    } cases[] = {{NULL, NULL, "/tmp/data-gym-cache"},
                 {"TMPDIR", "/t", "/t/data-gym-cache"},
                 {"DATA_GYM_CACHE_DIR", "/d", "/d"},
                 {"TIKTOKEN_CACHE_DIR", "/k", "/k"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].variable) setenv(cases[i].variable, cases[i].value, 1);
        char *path = kvad_locate_tiktoken(&heap.heap);
        assert_string_equal(path, cases[i].wanted);
        kvad_path_free(&heap.heap, path);
    }
}

static void test_paths_split_into_folder_and_name(void **state) {
    (void)state;
    static const struct {
        const char *path, *folder, *name;
    } cases[] = {{"a", ".", "a"},         {"a/b", "a", "b"},  {"/b", "/", "b"},
                 {"/a/b/c", "/a/b", "c"}, {"a//b", "a", "b"}, {"./a", ".", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *found = kvad_path_folder(&heap.heap, cases[i].path);
        assert_string_equal(found, cases[i].folder);
        assert_string_equal(kvad_path_name(cases[i].path), cases[i].name);
        kvad_path_free(&heap.heap, found);
    }
}

static void test_failing_allocations_leave_nothing_behind(void **state) {
    (void)state;
    temp_write_text(&folder, "hub/models--org--name/refs/main", "abc123");
    temp_write_text(&folder, "hub/models--org--name/snapshots/abc123/ckpt.pt", "x");
    setenv("HF_HOME", folder.path, 1);
    for (size_t k = 1;; k++) {
        struct failing_heap h;
        struct kvad_error err = {0};
        char *file = NULL;
        failing_heap_init(&h, k);
        enum kvad_status status = kvad_locate_weights("org/name", &h.heap, &file, &err);
        if (h.n_calls < k) {
            assert_ok(status, &err);
            kvad_path_free(&h.heap, file);
            break;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_null(file);
        assert_int_equal(h.n_live, 0);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_is_itself),
        TEST(test_a_folder_gives_the_preferred_file),
        TEST(test_a_file_beside_an_index_is_never_guessed_between),
        TEST(test_an_empty_folder_says_what_was_looked_for),
        TEST(test_a_missing_path_names_itself_and_the_cache),
        TEST(test_the_snapshot_of_main_is_found),
        TEST(test_the_only_snapshot_needs_no_ref),
        TEST(test_a_short_name_finds_the_organisation_it_moved_to),
        TEST(test_every_place_of_the_cache_is_tried_in_order),
        TEST(test_names_and_refs_cannot_leave_the_cache),
        TEST(test_the_tiktoken_cache_follows_its_variables),
        TEST(test_paths_split_into_folder_and_name),
        TEST(test_failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
