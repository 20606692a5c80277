#include "test.h"

#include <sys/mman.h>

#include "failing_heap.h"
#include "formats/zip.h"
#include "zip_writer.h"

static const struct zip_member members[] = {
    {"top/data.pkl", "hello", 5}, {"top/byteorder", "little", 6}, {"top/data/0", "abcdefgh", 8},
    {"top/data/empty", "", 0},    {"top/data/1", "xyz", 3},
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static enum kvad_status try_open(const struct byte_buffer *b, struct kvad_error *err) {
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    unsigned char *copy = exact_copy(b->data, b->size);
    struct kvad_zip zip = {0};
    enum kvad_status status = kvad_zip_open(&zip, copy, b->size, "x.pt", &heap.heap, err);
    if (status == KVAD_OK) status = kvad_zip_check_stored(&zip, err);
    kvad_zip_close(&zip);
    free(copy);
    assert_int_equal(heap.n_live, 0);
    return status;
}

static void check_members(const struct byte_buffer *b) {
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    struct kvad_zip zip = {0};
    struct kvad_error err;
    assert_ok(kvad_zip_open(&zip, b->data, b->size, "x.pt", &heap.heap, &err), &err);
    assert_int_equal(zip.n_entries, N_MEMBERS);
    assert_memory_equal(zip.first, "top/data.pkl", zip.first_size);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const struct kvad_zip_entry *entry =
            kvad_zip_find(&zip, members[i].name, strlen(members[i].name));
        assert_non_null(entry);
        assert_int_equal(entry->size, members[i].size);
        assert_int_equal(entry->offset % 64, 0);
        assert_memory_equal(b->data + entry->offset, members[i].data, entry->size);
        assert_ok(kvad_zip_check(&zip, entry, &err), &err);
    }
    assert_null(kvad_zip_find(&zip, "top/data", 8));
    assert_null(kvad_zip_find(&zip, "top/data/00", 11));
    kvad_zip_close(&zip);
    assert_int_equal(heap.n_live, 0);
}

static void check_style(const struct zip_style *style) {
    struct zip_places at;
    struct byte_buffer b = write_zip(members, N_MEMBERS, style, &at);
    check_members(&b);
    free_bytes(&b);
}

static void test_sizes_come_from_the_directory_and_data_after_the_local_padding(void **state) {
    (void)state;
    check_style(&(struct zip_style){0});
    check_style(&(struct zip_style){.local_sizes = true});
}

/* bugs.md LOAD-23 */
static void test_archives_with_and_without_zip64_fields_read_the_same(void **state) {
    (void)state;
    check_style(&(struct zip_style){.wide_fields = true});
    check_style(&(struct zip_style){.no_zip64 = true});
}

/* bugs.md LOAD-23 */
static void test_end_record_is_found_before_a_comment_of_any_length(void **state) {
    (void)state;
    static char comment[65536];
    check_style(&(struct zip_style){.comment = "a comment"});
    memset(comment, 'c', sizeof comment - 1);
    memcpy(comment + 100, "PK\5\6", 4); /* not an end record: its comment would not fit */
    check_style(&(struct zip_style){.comment = comment});
}

/* bugs.md LOAD-23 */
static void test_entries_beyond_4_gib_are_found(void **state) {
    (void)state;
    const size_t gap = (size_t)5 << 30, size = gap + 4096;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        print_message("SKIPPED: no address space of 5 GiB\n");
        skip();
    }
    struct zip_places at;
    struct zip_style wide = {.wide_fields = true};
    struct byte_buffer b = write_zip(members, N_MEMBERS, &wide, &at);
    /* Stretch the last but one member over the gap: what follows it moves up. */
    size_t moved = at.local[4];
    memcpy(memory, b.data, moved);
    memcpy(memory + moved + gap, b.data + moved, b.size - moved);
    unsigned char *up = memory + gap;
    struct byte_buffer view = {up, b.size, 0};
    set_number(&view, at.central[3] + 46 + strlen(members[3].name) + 8, gap, 8);
    set_number(&view, at.central[3] + 46 + strlen(members[3].name) + 16, gap, 8);
    set_number(&view, at.central[4] + 46 + strlen(members[4].name) + 24, moved + gap, 8);
    set_number(&view, at.directory_end + 48, at.directory + gap, 8);
    set_number(&view, at.locator + 8, at.directory_end + gap, 8);
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    struct kvad_zip zip = {0};
    struct kvad_error err;
    assert_ok(kvad_zip_open(&zip, memory, b.size + gap, "big.pt", &heap.heap, &err), &err);
    assert_int_equal(kvad_zip_find(&zip, "top/data/empty", 14)->size, gap);
    const struct kvad_zip_entry *last = kvad_zip_find(&zip, "top/data/1", 10);
    assert_int_equal(last->offset, at.data[4] + gap);
    assert_memory_equal(memory + last->offset, "xyz", 3);
    kvad_zip_close(&zip);
    munmap(memory, size);
    free_bytes(&b);
}

enum place { LOCAL, CENTRAL, END64, LOCATOR, END };
struct mutation {
    enum place place;
    size_t index, delta;
    uint64_t value;
    size_t bytes;
    enum kvad_status status;
    const char *text;
    bool wide; /* start from an archive with zip64 extra fields */
};

static size_t place_of(const struct zip_places *at, const struct mutation *m) {
    switch (m->place) {
    case LOCAL: return at->local[m->index] + m->delta;
    case CENTRAL: return at->central[m->index] + m->delta;
    case END64: return at->directory_end + m->delta;
    case LOCATOR: return at->locator + m->delta;
    case END: break;
    }
    return at->end + m->delta;
}

#define F KVAD_ERR_FORMAT
#define U KVAD_ERR_UNSUPPORTED
static const struct mutation mutations[] = {
    {CENTRAL, 0, 10, 8, 2, F, "differ on its compression", false},
    {LOCAL, 0, 8, 8, 2, F, "differ on its compression", false},
    {CENTRAL, 0, 20, 4, 4, U, "compressed", false}, /* packed size differs */
    {CENTRAL, 1, 8, 0x809, 2, U, "encrypted", false},
    {CENTRAL, 1, 8, 0x848, 2, U, "encrypted", false},
    {CENTRAL, 1, 8, 0x2808, 2, U, "encrypted", false},
    {CENTRAL, 1, 34, 1, 2, F, "several parts", false},
    {CENTRAL, 2, 42, 0xfffffffe, 4, F, "no local header", false},
    {CENTRAL, 2, 42, 1, 4, F, "no local header", false},
    {CENTRAL, 2, 42, 0xffffffff, 4, F, "extra field", false},
    {LOCAL, 2, 26, 9, 2, F, "another name", false},
    {LOCAL, 2, 30, 'T', 1, F, "another name", false},
    {LOCAL, 2, 28, 65535, 2, F, "reach into the directory", false},
    {LOCAL, 4, 28, 160, 2, F, "reach into the directory", false},
    {CENTRAL, 0, 0, 0, 1, F, "malformed zip directory", false},
    {CENTRAL, 4, 28, 500, 2, F, "cut short", false},
    {CENTRAL, 4, 32, 1, 2, F, "cut short", false},
    {CENTRAL, 0, 28, 0, 2, F, "name is empty", false},
    {CENTRAL, 0, 46, 0, 1, F, "NUL", false},
    {CENTRAL, 0, 32, 60, 2, F, "malformed zip directory", false},
    {END64, 0, 0, 0, 1, F, "does not point to a zip64", false},
    {END64, 0, 4, 45, 8, F, "does not end at its locator", false},
    {END64, 0, 16, 1, 4, F, "several parts", false},
    {END64, 0, 24, 4, 8, F, "several parts", false},
    {END64, 0, 32, 6, 8, F, "several parts", false},
    {END64, 0, 40, 1, 8, F, "contradict", false},
    {END64, 0, 48, 1, 8, F, "contradict", false},
    {END64, 0, 40, 1, 8, F, "behind its stated place", true},
    {END64, 0, 48, 1, 8, F, "behind its stated place", true},
    {END64, 0, 48, UINT64_MAX, 8, F, "outside the file", true},
    {END64, 0, 40, UINT64_MAX, 8, F, "outside the file", true},
    {END64, 0, 48, (uint64_t)1 << 63, 8, F, "outside the file", true},
    {LOCATOR, 0, 8, UINT64_MAX, 8, F, "does not point to a zip64", false},
    {LOCATOR, 0, 8, 0, 8, F, "does not point to a zip64", false},
    {LOCATOR, 0, 4, 1, 4, F, "several parts", false},
    {LOCATOR, 0, 16, 2, 4, F, "several parts", false},
    {END, 0, 10, 4, 2, F, "contradict", false},
    {END, 0, 12, 1, 4, F, "contradict", false},
    {END, 0, 16, 1, 4, F, "contradict", false},
    {END, 0, 20, 1, 2, F, "no zip end record", false},
    {END, 0, 0, 0, 1, F, "no zip end record", false},
    /* in the zip64 extra field, 46 + name + 4 behind the start: size, packed size, offset */
    {CENTRAL, 0, 46 + 12 + 8, UINT64_MAX, 8, U, "compressed", true},
    {CENTRAL, 0, 46 + 12 + 24, UINT64_MAX, 8, F, "no local header", true},
    {CENTRAL, 0, 46 + 12 + 6, 7, 2, F, "extra field", true},
    {CENTRAL, 0, 46 + 12 + 6, 16, 2, F, "extra field", true},
    {CENTRAL, 0, 46 + 12 + 6, 999, 2, F, "extra field", true},
    {CENTRAL, 0, 46 + 12 + 4, 9, 2, F, "extra field", true},
};

/* bugs.md LOAD-11 LOAD-12 */
static void test_each_field_alone_set_wrong_is_refused_with_its_reason(void **state) {
    (void)state;
    struct kvad_error err;
    for (size_t i = 0; i < sizeof mutations / sizeof mutations[0]; i++) {
        const struct mutation *m = &mutations[i];
        struct zip_places at;
        struct zip_style style = {.wide_fields = m->wide};
        struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
        set_number(&b, place_of(&at, m), m->value, m->bytes);
        print_message("mutation %zu: %s\n", i, m->text);
        assert_fails(try_open(&b, &err), m->status, &err, m->text);
        assert_non_null(strstr(err.text, "x.pt"));
        free_bytes(&b);
    }
}

/* bugs.md LOAD-9 */
static void test_sizes_near_the_end_of_64_bits_do_not_wrap(void **state) {
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 63, (uint64_t)1 << 63,
                                     (uint64_t)1 << 42 | 1, 0x100000000u};
    struct kvad_error err;
    for (size_t i = 0; i < 5; i++) {
        struct zip_places at;
        struct zip_style style = {.wide_fields = true};
        struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
        size_t extra = at.central[2] + 46 + strlen(members[2].name) + 8;
        set_number(&b, extra, sizes[i], 8);
        set_number(&b, extra + 8, sizes[i], 8);
        assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "larger than the whole file");
        free_bytes(&b);
    }
}

/* bugs.md LOAD-25 */
static void test_names_and_bytes_that_occur_twice_are_refused(void **state) {
    (void)state;
    struct kvad_error err;
    struct zip_places at;
    struct zip_style style = {0};
    static const struct zip_member twice[] = {{"a/b", "1", 1}, {"a/c", "2", 1}, {"a/b", "3", 1}};
    struct byte_buffer b = write_zip(twice, 3, &style, &at);
    assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "occurs twice");
    free_bytes(&b);
    b = write_zip(members, N_MEMBERS, &style, &at);
    /* The second entry reaches into the third. */
    set_number(&b, at.central[1] + 20, at.local[2] - at.data[1] + 1, 4);
    set_number(&b, at.central[1] + 24, at.local[2] - at.data[1] + 1, 4);
    assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "overlaps");
    free_bytes(&b);
}

static void test_the_last_entry_must_end_before_the_directory(void **state) {
    (void)state;
    struct kvad_error err;
    for (size_t more = 0; more < 2; more++) {
        struct zip_places at;
        struct zip_style style = {0};
        struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
        size_t room = at.directory - at.data[4] + more;
        set_number(&b, at.central[4] + 20, room, 4);
        set_number(&b, at.central[4] + 24, room, 4);
        if (more)
            assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "reach into the directory");
        else
            assert_ok(try_open(&b, &err), &err);
        free_bytes(&b);
    }
}

static void test_counts_that_differ_from_the_directory_are_refused(void **state) {
    (void)state;
    struct kvad_error err;
    for (uint64_t n = 0; n < 8; n++) {
        struct zip_places at;
        struct zip_style style = {.no_zip64 = true};
        struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
        set_number(&b, at.end + 8, n, 2);
        set_number(&b, at.end + 10, n, 2);
        enum kvad_status status = try_open(&b, &err);
        assert_int_equal(status, n == N_MEMBERS ? KVAD_OK : KVAD_ERR_FORMAT);
        free_bytes(&b);
    }
}

/* bugs.md LOAD-23 */
static void test_bytes_in_front_of_the_archive_are_refused_with_the_reason(void **state) {
    (void)state;
    struct zip_places at;
    struct kvad_error err;
    struct zip_style styles[] = {{0}, {.no_zip64 = true}};
    static const char *const texts[] = {"zip64 locator", "3 bytes behind its stated place"};
    for (size_t i = 0; i < 2; i++) {
        struct byte_buffer zip = write_zip(members, N_MEMBERS, &styles[i], &at), b = {0};
        put_text(&b, "abc");
        put_bytes(&b, zip.data, zip.size);
        assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, texts[i]);
        free_bytes(&zip);
        free_bytes(&b);
    }
}

/* bugs.md LOAD-30 */
static void test_every_prefix_of_an_archive_is_refused(void **state) {
    (void)state;
    struct zip_places at;
    struct kvad_error err;
    struct zip_style style = {0};
    struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
    size_t whole = b.size;
    for (b.size = 0; b.size < whole; b.size++)
        assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "cut short");
    free_bytes(&b);
}

static void test_an_empty_archive_is_refused(void **state) {
    (void)state;
    struct kvad_error err;
    struct byte_buffer b = {0};
    put_number(&b, 0x06054b50, 4);
    put_number(&b, 0, 18 - 8);
    put_number(&b, 0, 8);
    assert_fails(try_open(&b, &err), KVAD_ERR_FORMAT, &err, "empty");
    free_bytes(&b);
}

static void test_check_sums_are_compared_where_the_writer_made_them(void **state) {
    (void)state;
    struct zip_places at;
    struct kvad_error err;
    struct zip_style style = {0};
    struct failing_heap heap;
    for (int i = 0; i < 3; i++) {
        struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
        if (i) b.data[at.data[0]] ^= 1;
        if (i == 2) set_number(&b, at.central[0] + 16, 0, 4);
        struct kvad_zip zip = {0};
        failing_heap_init(&heap, 0);
        assert_ok(kvad_zip_open(&zip, b.data, b.size, "x.pt", &heap.heap, &err), &err);
        const struct kvad_zip_entry *entry = kvad_zip_find(&zip, "top/data.pkl", 12);
        if (i == 1)
            assert_fails(kvad_zip_check(&zip, entry, &err), KVAD_ERR_FORMAT, &err, "CRC-32");
        else
            assert_ok(kvad_zip_check(&zip, entry, &err), &err);
        kvad_zip_close(&zip);
        free_bytes(&b);
    }
}

static void test_memory_stays_below_the_size_of_the_directory(void **state) {
    (void)state;
    struct zip_places at;
    struct kvad_error err;
    struct zip_style style = {0};
    struct byte_buffer b = write_zip(members, N_MEMBERS, &style, &at);
    struct failing_heap heap;
    failing_heap_init(&heap, 0);
    struct kvad_zip zip = {0};
    assert_ok(kvad_zip_open(&zip, b.data, b.size, "x.pt", &heap.heap, &err), &err);
    assert_true(heap.heap.bytes_peak <= 2 * (at.directory_end - at.directory));
    kvad_zip_close(&zip);
    failing_heap_init(&heap, 1);
    assert_fails(kvad_zip_open(&zip, b.data, b.size, "x.pt", &heap.heap, &err), KVAD_ERR_NO_MEMORY,
                 &err, "zip directory");
    kvad_zip_close(&zip);
    free_bytes(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_come_from_the_directory_and_data_after_the_local_padding),
        cmocka_unit_test(test_archives_with_and_without_zip64_fields_read_the_same),
        cmocka_unit_test(test_end_record_is_found_before_a_comment_of_any_length),
        cmocka_unit_test(test_entries_beyond_4_gib_are_found),
        cmocka_unit_test(test_each_field_alone_set_wrong_is_refused_with_its_reason),
        cmocka_unit_test(test_sizes_near_the_end_of_64_bits_do_not_wrap),
        cmocka_unit_test(test_names_and_bytes_that_occur_twice_are_refused),
        cmocka_unit_test(test_the_last_entry_must_end_before_the_directory),
        cmocka_unit_test(test_counts_that_differ_from_the_directory_are_refused),
        cmocka_unit_test(test_bytes_in_front_of_the_archive_are_refused_with_the_reason),
        cmocka_unit_test(test_every_prefix_of_an_archive_is_refused),
        cmocka_unit_test(test_an_empty_archive_is_refused),
        cmocka_unit_test(test_check_sums_are_compared_where_the_writer_made_them),
        cmocka_unit_test(test_memory_stays_below_the_size_of_the_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
