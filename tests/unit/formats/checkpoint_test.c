#include "formats/checkpoint.h"

#include "failing_heap.h"
#include "pickle_writer.h"
#include "temp_folder.h"
#include "test.h"
#include "zip_writer.h"

static struct temp_folder folder;
static struct failing_heap heap;
static const struct kvad_checkpoint *checkpoint;
static struct kvad_error err;

static int set_up(void **state) {
    (void)state;
    folder = temp_folder_create();
    failing_heap_init(&heap, 0);
    checkpoint = NULL;
    err = (struct kvad_error){0};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    kvad_checkpoint_close(&checkpoint);
    temp_folder_destroy(&folder);
    return heap.n_live == 0 ? 0 : -1;
}

/* Tensors of one byte each, with the names in `names` (ended by NULL). */
static void write_safetensors(const char *relative, const char *const *names) {
    struct byte_buffer header = {0}, b = {0};
    put_text(&header, "{");
    size_t n = 0;
    for (; names[n]; n++) {
        char text[256];
        snprintf(text, sizeof text,
                 "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                 n ? "," : "", names[n], n, n + 1);
        put_text(&header, text);
    }
    put_text(&header, "}");
    put_number(&b, header.size, 8);
    put_bytes(&b, header.data, header.size);
    for (size_t i = 0; i < n; i++)
        put_number(&b, i, 1);
    temp_write(&folder, relative, b.data, b.size);
    free_bytes(&header);
    free_bytes(&b);
}

/* A torch zip whose pickle has this body between the protocol and STOP. */
static void write_torch(const char *relative, const struct byte_buffer *body) {
    struct byte_buffer pickle = {0};
    put_ops(&pickle, "\x80\x02");
    put_bytes(&pickle, body->data, body->size);
    put_ops(&pickle, ".");
    const struct zip_member members[] = {{"a/data.pkl", pickle.data, pickle.size},
                                         {"a/data/0", "\0\0\x80\x3f", 4}};
    struct zip_places at;
    struct byte_buffer b = write_zip(members, 2, &(struct zip_style){0}, &at);
    temp_write(&folder, relative, b.data, b.size);
    free_bytes(&b);
    free_bytes(&pickle);
}

static void put_named_tensor(struct byte_buffer *b, const char *name) {
    const struct pickled_tensor t = {.n_stored = 1, .n_dims = 1, .shape = {1}, .stride = {1}};
    put_string(b, name);
    put_tensor(b, &t);
}

static enum kvad_status open_here(const char *relative) {
    return kvad_checkpoint_open(temp_path(&folder, relative), &heap.heap, &checkpoint, &err);
}

static void assert_names(const char *const *names) {
    size_t n = 0;
    for (; names[n]; n++) {
        assert_true(n < checkpoint->n_tensors);
        assert_string_equal(checkpoint->tensors[n].name, names[n]);
        assert_ptr_equal(kvad_checkpoint_find(checkpoint, names[n]), &checkpoint->tensors[n]);
    }
    assert_int_equal(checkpoint->n_tensors, n);
    assert_null(kvad_checkpoint_find(checkpoint, "no such tensor"));
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_a_file_gives_sorted_tensors_and_its_configuration(void **state) {
    (void)state;
    write_safetensors("any.safetensors", NAMES("b", "c", "a"));
    temp_write_text(&folder, "config.json", "{\"n_layer\": 3}");
    assert_ok(open_here("any.safetensors"), &err);
    assert_names(NAMES("a", "b", "c"));
    assert_int_equal(json_integer_value(json_object_get(checkpoint->config, "n_layer")), 3);
    assert_string_equal(checkpoint->config_name, temp_path(&folder, "config.json"));
    assert_string_equal(checkpoint->folder, folder.path);
    assert_string_equal(checkpoint->path, temp_path(&folder, "any.safetensors"));
    assert_null(checkpoint->root);
}

static void test_a_folder_gives_its_weights(void **state) {
    (void)state;
    write_safetensors("model.safetensors", NAMES("x"));
    assert_ok(kvad_checkpoint_open(folder.path, &heap.heap, &checkpoint, &err), &err);
    assert_names(NAMES("x"));
    assert_null(checkpoint->config);
}

static void test_a_broken_configuration_is_refused(void **state) {
    (void)state;
    write_safetensors("model.safetensors", NAMES("x"));
    temp_write_text(&folder, "config.json", "{\"n_layer\": 3,}");
    assert_fails(open_here("model.safetensors"), KVAD_ERR_FORMAT, &err, "config.json: line 1");
    temp_write_text(&folder, "config.json", "{\"n_layer\": 3, \"n_layer\": 4}");
    assert_fails(open_here("model.safetensors"), KVAD_ERR_FORMAT, &err, "duplicate");
    temp_write_text(&folder, "config.json", "[]");
    assert_fails(open_here("model.safetensors"), KVAD_ERR_FORMAT, &err, "must be an object");
}

static void test_a_state_dict_is_found_under_the_usual_keys(void **state) {
    (void)state;
    static const char *const keys[] = {NULL, "model", "state_dict", "model_state_dict",
                                       "model_state"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct byte_buffer b = {0};
        if (keys[i]) {
            put_ops(&b, "}(");
            put_string(&b, "epoch");
            put_int(&b, 3);
            put_string(&b, keys[i]);
        }
        put_ops(&b, "}(");
        put_named_tensor(&b, "w");
        put_string(&b, "n_head"); /* what is no tensor is no parameter */
        put_int(&b, 4);
        put_ops(&b, "u");
        if (keys[i]) put_ops(&b, "u");
        write_torch("x.pt", &b);
        free_bytes(&b);
        assert_ok(open_here("x.pt"), &err);
        assert_names(NAMES("w"));
        assert_string_equal(checkpoint->tensors[0].file, checkpoint->path);
        assert_non_null(checkpoint->root);
        if (keys[i]) assert_int_equal(kvad_pickle_get(checkpoint->root, "epoch")->as.integer, 3);
        kvad_checkpoint_close(&checkpoint);
    }
}

static void test_a_torch_file_without_a_state_dict_says_what_to_save(void **state) {
    (void)state;
    struct byte_buffer b = {0};
    put_ops(&b, "}(");
    put_string(&b, "model");
    put_int(&b, 1);
    put_ops(&b, "u");
    write_torch("x.pt", &b);
    free_bytes(&b);
    assert_fails(open_here("x.pt"), KVAD_ERR_FORMAT, &err, "save model.state_dict()");
    struct byte_buffer list = {0};
    put_ops(&list, "]");
    write_torch("x.pt", &list);
    free_bytes(&list);
    assert_fails(open_here("x.pt"), KVAD_ERR_FORMAT, &err, "no dict of named tensors");
}

static void test_a_name_that_is_there_twice_is_refused(void **state) {
    (void)state;
    struct byte_buffer b = {0};
    put_ops(&b, "}(");
    put_named_tensor(&b, "w");
    put_named_tensor(&b, "w");
    put_ops(&b, "u");
    write_torch("x.pt", &b);
    free_bytes(&b);
    assert_fails(open_here("x.pt"), KVAD_ERR_FORMAT, &err, "tensor w is there twice");
}

static void write_index(const char *text) {
    temp_write_text(&folder, "model.safetensors.index.json", text);
}

/* bugs.md LOAD-33, LOAD-35 */
static void test_shards_are_what_the_index_says_and_nothing_else(void **state) {
    (void)state;
    write_safetensors("model-1.safetensors", NAMES("a", "stale"));
    write_safetensors("model-2.safetensors", NAMES("b", "a"));
    write_safetensors("model-3.safetensors", NAMES("stray"));
    write_index("{\"metadata\": {\"total_size\": 2}, \"weight_map\": {"
                "\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\"}}");
    assert_ok(kvad_checkpoint_open(folder.path, &heap.heap, &checkpoint, &err), &err);
    assert_names(NAMES("a", "b"));
    assert_string_equal(checkpoint->tensors[0].file, temp_path(&folder, "model-1.safetensors"));
    kvad_checkpoint_close(&checkpoint);
    /* By its path the index is taken, whatever lies beside it. */
    write_safetensors("model.safetensors", NAMES("stray"));
    assert_ok(open_here("model.safetensors.index.json"), &err);
    assert_names(NAMES("a", "b"));
}

/* bugs.md LOAD-33 */
static void test_a_missing_shard_or_tensor_is_named(void **state) {
    (void)state;
    write_safetensors("model-1.safetensors", NAMES("a"));
    write_index("{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": "
                "\"model-2.safetensors\"}}");
    assert_fails(open_here("model.safetensors.index.json"), KVAD_ERR_NOT_FOUND, &err,
                 temp_path(&folder, "model-2.safetensors"));
    write_safetensors("model-2.safetensors", NAMES("c"));
    assert_fails(open_here("model.safetensors.index.json"), KVAD_ERR_FORMAT, &err,
                 "tensor b should be in model-2.safetensors");
}

/* bugs.md LOAD-34 */
static void test_shard_names_cannot_leave_the_folder(void **state) {
    (void)state;
    static const char *const names[] = {"../x", "/etc/passwd",  "a/b",      "..", ".",
                                        "",     "a\\\\..\\\\b", "sub/../x", "/",  ".hidden"};
    write_safetensors("x", NAMES("w"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"weight_map\": {\"w\": \"%s\"}}", names[i]);
        write_index(text);
        assert_fails(open_here("model.safetensors.index.json"), KVAD_ERR_FORMAT, &err,
                     "must be a plain file name");
    }
}

static void test_a_malformed_index_names_the_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {{"{}", "weight_map"},
                 {"{\"weight_map\": []}", "weight_map"},
                 {"{\"weight_map\": {}}", "weight_map"},
                 {"{\"weight_map\": {\"w\": 1}}", "weight_map \"w\""},
                 {"{\"weight_map\": {\"w\": \"x\", \"w\": \"y\"}}", "duplicate"},
                 {"", "index.json"},
                 {"{\"weight_map\": {\"w\"", "index.json: line 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index(cases[i].text);
        assert_fails(open_here("model.safetensors.index.json"), KVAD_ERR_FORMAT, &err,
                     cases[i].wanted);
    }
}

static void test_files_of_no_known_kind_are_refused_with_a_hint(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {{"", "is the download complete?"},
                 {"GGUF", "neither a safetensors nor a torch file (4 bytes)"},
                 {"<!DOCTYPE html><html>404</html>", "is the download complete?"},
                 {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        temp_write_text(&folder, "model.bin", cases[i].text);
        assert_fails(open_here("model.bin"), KVAD_ERR_FORMAT, &err, cases[i].wanted);
    }
    temp_write_text(&folder, "short.safetensors", "ab");
    assert_fails(open_here("short.safetensors"), KVAD_ERR_FORMAT, &err, "8-byte header length");
    assert_fails(open_here("none.safetensors"), KVAD_ERR_NOT_FOUND, &err, "none.safetensors");
}

static void test_bytes_in_memory_need_no_file(void **state) {
    (void)state;
    static const char bytes[] = "\x3b\0\0\0\0\0\0\0"
                                "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
                                "        \0\0\x80\x3f";
    struct byte_buffer b = {0};
    put_bytes(&b, bytes, sizeof bytes - 1);
    set_number(&b, 0, b.size - 12, 8);
    assert_ok(kvad_checkpoint_open_memory(b.data, b.size, "{\"n_head\": 2}", &heap.heap,
                                          &checkpoint, &err),
              &err);
    assert_names(NAMES("w"));
    assert_non_null(checkpoint->config);
    assert_null(checkpoint->folder);
    kvad_checkpoint_close(&checkpoint);
    assert_fails(kvad_checkpoint_open_memory(b.data, b.size, "[", &heap.heap, &checkpoint, &err),
                 KVAD_ERR_FORMAT, &err, "config.json");
    assert_fails(kvad_checkpoint_open_memory(NULL, 0, NULL, &heap.heap, &checkpoint, &err),
                 KVAD_ERR_ARGUMENT, &err, "NULL");
    free_bytes(&b);
}

static void test_failing_allocations_leave_nothing_behind(void **state) {
    (void)state;
    write_safetensors("model-1.safetensors", NAMES("a"));
    write_safetensors("model-2.safetensors", NAMES("b"));
    temp_write_text(&folder, "config.json", "{}");
    write_index("{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": "
                "\"model-2.safetensors\"}}");
    for (size_t k = 1;; k++) {
        struct failing_heap h;
        failing_heap_init(&h, k);
        enum kvad_status status = kvad_checkpoint_open(folder.path, &h.heap, &checkpoint, &err);
        if (h.n_calls < k) {
            assert_ok(status, &err);
            kvad_checkpoint_close(&checkpoint);
            assert_int_equal(h.n_live, 0);
            break;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_null(checkpoint);
        assert_int_equal(h.n_live, 0);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_gives_sorted_tensors_and_its_configuration),
        TEST(test_a_folder_gives_its_weights),
        TEST(test_a_broken_configuration_is_refused),
        TEST(test_a_state_dict_is_found_under_the_usual_keys),
        TEST(test_a_torch_file_without_a_state_dict_says_what_to_save),
        TEST(test_a_name_that_is_there_twice_is_refused),
        TEST(test_shards_are_what_the_index_says_and_nothing_else),
        TEST(test_a_missing_shard_or_tensor_is_named),
        TEST(test_shard_names_cannot_leave_the_folder),
        TEST(test_a_malformed_index_names_the_field),
        TEST(test_files_of_no_known_kind_are_refused_with_a_hint),
        TEST(test_bytes_in_memory_need_no_file),
        TEST(test_failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
