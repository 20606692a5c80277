/* The two containers of torch.save, part by part. */
#include "torch_support.h"

#include <sys/mman.h>

/* ---- the zip container */

static void check_members(const struct zip_member *members, size_t n, enum kvad_status status,
                          const char *text) {
    struct zip_places at;
    struct byte_buffer file = write_zip(members, n, &(struct zip_style){0}, &at);
    struct kvad_error err;
    if (status == KVAD_OK)
        assert_ok(try_bytes(&file, &err), &err);
    else
        assert_fails(try_bytes(&file, &err), status, &err, text);
    free_bytes(&file);
}
#define MEMBERS(...)                                                                               \
    (struct zip_member[]) {                                                                        \
        __VA_ARGS__                                                                                \
    }
#define EMPTY_PICKLE "\x80\x02}.", 4

static void test_top_folder_is_that_of_the_first_entry(void **state) {
    (void)state;
    check_members(MEMBERS({"archive/data.pkl", EMPTY_PICKLE}), 1, KVAD_OK, "");
    check_members(MEMBERS({"my model.v2/data.pkl", EMPTY_PICKLE}), 1, KVAD_OK, "");
    check_members(MEMBERS({"a/version", "3\n", 2}, {"b/data.pkl", EMPTY_PICKLE}), 2,
                  KVAD_ERR_FORMAT, "without a/data.pkl");
    check_members(MEMBERS({"data.pkl", EMPTY_PICKLE}), 1, KVAD_ERR_FORMAT, "without a top folder");
    check_members(MEMBERS({"/data.pkl", EMPTY_PICKLE}), 1, KVAD_ERR_FORMAT, "without a top folder");
}

/* bugs.md LOAD-39 */
static void test_only_little_endian_files_are_read(void **state) {
    (void)state;
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}), 1, KVAD_OK, "");
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}, {"a/byteorder", "little", 6}), 2, KVAD_OK,
                  "");
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}, {"a/byteorder", "big", 3}), 2,
                  KVAD_ERR_UNSUPPORTED, "byte order is \"big\"");
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}, {"a/byteorder", "", 0}), 2,
                  KVAD_ERR_UNSUPPORTED, "byte order is \"\"");
}

static void test_torchscript_is_refused_by_name(void **state) {
    (void)state;
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}, {"a/constants.pkl", EMPTY_PICKLE}), 2,
                  KVAD_ERR_UNSUPPORTED, "TorchScript");
    check_members(MEMBERS({"a/data.pkl", EMPTY_PICKLE}, {"a/code/__torch__.py", "x", 1}), 2,
                  KVAD_ERR_UNSUPPORTED, "TorchScript");
}

static void test_data_pkl_must_be_one_undamaged_pickle(void **state) {
    (void)state;
    check_members(MEMBERS({"a/data.pkl", "\x80\x02}.}", 5}), 1, KVAD_ERR_FORMAT, "1 bytes follow");
    check_members(MEMBERS({"a/data.pkl", "", 0}), 1, KVAD_ERR_FORMAT, "not a pickle");
    struct zip_places at;
    struct byte_buffer file =
        write_zip(MEMBERS({"a/data.pkl", EMPTY_PICKLE}), 1, &(struct zip_style){0}, &at);
    struct kvad_error err;
    file.data[at.data[0] + 2] = ']';
    assert_fails(try_bytes(&file, &err), KVAD_ERR_FORMAT, &err, "CRC-32");
    set_number(&file, at.central[0] + 16, 0, 4); /* "not computed" */
    assert_ok(try_bytes(&file, &err), &err);
    free_bytes(&file);
}

/* As torch.jit.save writes it: the code is compressed. */
static void test_torchscript_is_told_from_other_compressed_archives(void **state) {
    (void)state;
    static const char *const names[] = {"a/code/x.py", "a/notes/x.py"};
    static const char *const texts[] = {"TorchScript", "a/notes/x.py (header at offset"};
    for (size_t i = 0; i < 2; i++) {
        struct zip_places at;
        struct kvad_error err;
        const struct zip_member members[] = {{"a/data.pkl", EMPTY_PICKLE}, {names[i], "xyz", 3}};
        struct byte_buffer file = write_zip(members, 2, &(struct zip_style){0}, &at);
        set_number(&file, at.local[1] + 8, 8, 2);
        set_number(&file, at.central[1] + 10, 8, 2);
        set_number(&file, at.central[1] + 24, 300, 4);
        assert_fails(try_bytes(&file, &err), KVAD_ERR_UNSUPPORTED, &err, texts[i]);
        free_bytes(&file);
    }
}

static void test_data_pkl_beyond_256_mib_is_refused_unread(void **state) {
    (void)state;
    const size_t bytes = ((size_t)256 << 20) + 1;
    struct zip_places at;
    struct byte_buffer b =
        write_zip(MEMBERS({"a/data.pkl", "", 0}), 1, &(struct zip_style){.no_zip64 = true}, &at);
    unsigned char *memory = mmap(NULL, b.size + bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    set_number(&b, at.central[0] + 16, 0, 4); /* no check sum */
    set_number(&b, at.central[0] + 20, bytes, 4);
    set_number(&b, at.central[0] + 24, bytes, 4);
    set_number(&b, at.end + 16, at.directory + bytes, 4);
    memcpy(memory, b.data, at.data[0]);
    memcpy(memory + at.data[0] + bytes, b.data + at.data[0], b.size - at.data[0]);
    struct failing_heap heap;
    struct kvad_torch *torch = NULL;
    struct kvad_error err;
    failing_heap_init(&heap, 0);
    assert_fails(kvad_torch_open(memory, b.size + bytes, "x.pt", &heap.heap, &torch, &err),
                 KVAD_ERR_UNSUPPORTED, &err, "data.pkl of 268435457 bytes (at most 268435456)");
    assert_int_equal(heap.n_live, 0);
    munmap(memory, b.size + bytes);
    free_bytes(&b);
}

/* ---- the legacy container */

static void check_legacy(const struct byte_buffer *object, const struct legacy_parts *parts,
                         enum kvad_status status, const char *text) {
    struct byte_buffer file = legacy_of(object, parts);
    struct kvad_error err;
    if (status == KVAD_OK)
        assert_ok(try_bytes(&file, &err), &err);
    else
        assert_fails(try_bytes(&file, &err), status, &err, text);
    free_bytes(&file);
}

#define KEY_0                                                                                      \
    "X\1\0\0\0"                                                                                    \
    "0"
#define KEY_1                                                                                      \
    "X\1\0\0\0"                                                                                    \
    "1"

static void test_each_part_of_a_legacy_file_is_checked(void **state) {
    (void)state;
    struct byte_buffer square = square_object();
    struct legacy_parts good = legacy_parts(), p = good;
    check_legacy(&square, &p, KVAD_OK, "");
    p.version = "M\xea\x03";
    check_legacy(&square, &p, KVAD_ERR_UNSUPPORTED, "another version than 1001");
    p = good;
    p.system = LEGACY_BIG;
    check_legacy(&square, &p, KVAD_ERR_UNSUPPORTED, "byte order is big");
    p.system = "}", p.system_size = 1;
    check_legacy(&square, &p, KVAD_ERR_FORMAT, "does not say little_endian");
    static const struct {
        const char *keys;
        size_t size;
        const char *text;
    } cases[] = {{PART("]"), "storage 0 is used, but not stored"},
                 {PART("](" KEY_0 KEY_0 "e"), "stored twice"},
                 {PART("](" KEY_1 KEY_0 "e"), "the object does not use it"},
                 {PART("]K\1a"), "no plain strings"},
                 {PART("]X\2\0\0\0"
                       "0\0a"),
                  "no plain strings"},
                 {PART("}"), "is no list"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p = good;
        p.keys = cases[i].keys, p.keys_size = cases[i].size;
        check_legacy(&square, &p, KVAD_ERR_FORMAT, cases[i].text);
    }
    p = good, p.count = 17;
    check_legacy(&square, &p, KVAD_ERR_FORMAT, "another number of elements");
    p = good, p.count = UINT64_MAX;
    check_legacy(&square, &p, KVAD_ERR_FORMAT, "another number of elements");
    p = good, p.n_floats = 15;
    check_legacy(&square, &p, KVAD_ERR_FORMAT, "cut short");
    free_bytes(&square);
}

static void test_a_legacy_storage_has_one_type(void **state) {
    (void)state;
    struct byte_buffer object = {0};
    struct pickled_tensor tensor = {.n_stored = 16, .n_dims = 1, .shape = {1}, .stride = {1}};
    put_tensor(&object, &tensor);
    tensor.class = "HalfStorage";
    put_tensor(&object, &tensor);
    put_ops(&object, "\x86");
    struct legacy_parts parts = legacy_parts();
    check_legacy(&object, &parts, KVAD_ERR_FORMAT, "described in two ways");
    free_bytes(&object);
}

static void test_bytes_behind_a_legacy_file_are_refused(void **state) {
    (void)state;
    struct byte_buffer square = square_object();
    struct legacy_parts parts = legacy_parts();
    struct byte_buffer file = legacy_of(&square, &parts);
    struct kvad_error err;
    put_text(&file, "x");
    assert_fails(try_bytes(&file, &err), KVAD_ERR_FORMAT, &err, "1 bytes follow the last storage");
    free_bytes(&file);
    free_bytes(&square);
}

/* Old files describe a part of a storage in a sixth field: (view key, first element, elements). */
static void test_legacy_views_are_honoured_and_bounded(void **state) {
    (void)state;
    static const struct {
        int64_t begin, size;
        int64_t offset, n;
        const char *text; /* NULL: read, and begins with element begin + offset */
    } cases[] = {
        {4, 8, 0, 8, NULL},         {4, 8, 2, 6, NULL},
        {0, 16, 15, 1, NULL},       {4, 8, 1, 8, "outside"},
        {9, 8, 0, 1, "malformed"},  {17, 0, 0, 0, "malformed"},
        {-1, 8, 0, 1, "malformed"}, {INT64_MAX, INT64_MAX, 0, 1, "malformed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer object = {0};
        put_global(&object, "torch._utils", "_rebuild_tensor");
        put_text(&object, "((");
        put_string(&object, "storage");
        put_global(&object, "torch", "FloatStorage");
        put_string(&object, "0");
        put_string(&object, "cpu");
        put_int(&object, 16);
        put_string(&object, "view");
        put_int(&object, cases[i].begin);
        put_int(&object, cases[i].size);
        put_ops(&object, "\x87tQ");
        put_int(&object, cases[i].offset);
        put_tuple(&object, &cases[i].n, 1);
        put_tuple(&object, (int64_t[]){1}, 1);
        put_text(&object, "tR");
        struct legacy_parts parts = legacy_parts();
        struct byte_buffer file = legacy_of(&object, &parts);
        struct opened o;
        if (cases[i].text) {
            assert_fails(open_bytes(&o, file.data, file.size), KVAD_ERR_FORMAT, &o.err,
                         cases[i].text);
        } else {
            assert_ok(open_bytes(&o, file.data, file.size), &o.err);
            float row[16];
            assert_ok(kvad_tensor_read_row(&o.root->as.tensor, 0, row, &o.err), &o.err);
            assert_true(row[0] == (float)(cases[i].begin + cases[i].offset) + 0.5f);
        }
        close_bytes(&o);
        free_bytes(&file);
        free_bytes(&object);
    }
}

/* bugs.md LOAD-41 LOAD-42 */
static void test_storages_at_odd_offsets_are_read(void **state) {
    (void)state;
    struct byte_buffer square = square_object();
    struct legacy_parts parts = legacy_parts();
    struct byte_buffer file = legacy_of(&square, &parts);
    unsigned char *shifted = malloc(file.size + 8);
    assert_non_null(shifted);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(shifted + shift, file.data, file.size);
        struct failing_heap heap;
        struct kvad_torch *torch = NULL;
        struct kvad_error err;
        failing_heap_init(&heap, 0);
        assert_ok(kvad_torch_open(shifted + shift, file.size, "x", &heap.heap, &torch, &err), &err);
        const struct kvad_pickle_value *w = kvad_pickle_get(kvad_torch_root(torch), "w");
        float row[4];
        assert_ok(kvad_tensor_read_row(&w->as.tensor, 3, row, &err), &err);
        assert_true(row[0] == 12.5f && row[3] == 15.5f);
        kvad_torch_close(&torch);
    }
    free(shifted);
    free_bytes(&file);
    free_bytes(&square);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_folder_is_that_of_the_first_entry),
        cmocka_unit_test(test_only_little_endian_files_are_read),
        cmocka_unit_test(test_torchscript_is_refused_by_name),
        cmocka_unit_test(test_torchscript_is_told_from_other_compressed_archives),
        cmocka_unit_test(test_data_pkl_must_be_one_undamaged_pickle),
        cmocka_unit_test(test_data_pkl_beyond_256_mib_is_refused_unread),
        cmocka_unit_test(test_each_part_of_a_legacy_file_is_checked),
        cmocka_unit_test(test_a_legacy_storage_has_one_type),
        cmocka_unit_test(test_bytes_behind_a_legacy_file_are_refused),
        cmocka_unit_test(test_legacy_views_are_honoured_and_bounded),
        cmocka_unit_test(test_storages_at_odd_offsets_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
