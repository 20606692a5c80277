#include "formats/safetensors.h"

#include "base/bytes.h"
#include "byte_buffer.h"
#include "failing_heap.h"
#include "random.h"
#include "test.h"

/* A file of a header and `n_data` bytes 0, 1, 2, ... */
static struct byte_buffer make_file(const char *header, size_t n_data) {
    struct byte_buffer b = {0};
    put_number(&b, strlen(header), 8);
    put_text(&b, header);
    for (size_t i = 0; i < n_data; i++)
        put_number(&b, i, 1);
    return b;
}

/* Open a copy of exact size, so that a sanitizer sees any read behind it. */
static enum kvad_status open_bytes(const void *data, size_t size, struct failing_heap *h,
                                   struct kvad_error *err) {
    unsigned char *copy = exact_copy(data, size);
    struct kvad_safetensors *file = NULL;
    enum kvad_status status = kvad_safetensors_open(copy, size, "file", &h->heap, &file, err);
    for (size_t i = 0; status == KVAD_OK && i < kvad_safetensors_count(file); i++) {
        const struct kvad_tensor *t = kvad_safetensors_tensor(file, i);
        size_t bytes = t->n_elements * kvad_dtype_bytes(t->dtype);
        assert_true(t->data >= copy && t->data + bytes <= copy + size);
        assert_true(t->offset == (uint64_t)(t->data - copy));
    }
    assert_true(status == KVAD_OK || file == NULL);
    kvad_safetensors_close(&file);
    free(copy);
    assert_int_equal(h->n_live, 0);
    return status;
}

static enum kvad_status open_text(const char *header, size_t n_data, struct kvad_error *err) {
    struct failing_heap h;
    failing_heap_init(&h, 0);
    struct byte_buffer b = make_file(header, n_data);
    enum kvad_status status = open_bytes(b.data, b.size, &h, err);
    free_bytes(&b);
    return status;
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static const char two_tensors[] = "{" TENSOR("b", "F32", "[2,3]", "4", "28") "," TENSOR(
    "a", "BF16", "[2]", "0", "4") ",\"__metadata__\":{\"format\":\"pt\"}}   ";

static void test_tensors_come_in_file_order_with_shape_and_place(void **state) {
    (void)state;
    struct kvad_error err;
    struct failing_heap h;
    failing_heap_init(&h, 0);
    struct byte_buffer b = make_file(two_tensors, 28);
    struct kvad_safetensors *file;
    assert_true(kvad_safetensors_probe(b.data, b.size));
    assert_ok(kvad_safetensors_open(b.data, b.size, "file", &h.heap, &file, &err), &err);
    assert_int_equal(kvad_safetensors_count(file), 2);
    const struct kvad_tensor *first = kvad_safetensors_tensor(file, 0);
    const struct kvad_tensor *second = kvad_safetensors_tensor(file, 1);
    assert_string_equal(first->name, "a");
    assert_int_equal(first->dtype, KVAD_DTYPE_BF16);
    assert_string_equal(second->name, "b");
    assert_int_equal(second->n_dims, 2);
    assert_int_equal(second->shape[0], 2);
    assert_int_equal(second->shape[1], 3);
    assert_int_equal(second->stride[0], 3);
    assert_int_equal(second->stride[1], 1);
    assert_int_equal(second->n_elements, 6);
    assert_ptr_equal(second->data, b.data + b.size - 24);
    assert_int_equal(second->offset, b.size - 24);
    assert_string_equal(second->file, "file");
    kvad_safetensors_close(&file);
    assert_null(file);
    kvad_safetensors_close(&file);
    assert_int_equal(h.n_live, 0);
    free_bytes(&b);
}

static void test_legal_oddities_are_accepted(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
    } cases[] = {
        {"{}", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{" TENSOR("scalar", "F32", "[]", "0", "4") "}", 4},
        {"{" TENSOR("empty", "F32", "[0]", "0", "0") "}", 0},
        {"{" TENSOR("empty", "F32", "[3,0,2]", "0", "0") "," TENSOR("b", "U8", "[1]", "0", "1") "}",
         1},
        {"{" TENSOR("e1", "F32", "[0]", "2", "2") "," TENSOR(
             "e2", "F64", "[0,9]", "2", "2") "," TENSOR("x", "F16", "[1]", "0", "2") "}",
         2},
        {"{" TENSOR("", "U8", "[1]", "0", "1") "}", 1},
        {"{" TENSOR("m", "BOOL", "[1,1,2,2]", "0", "4") "," TENSOR("i", "I64", "[1]", "4",
                                                                   "12") "}",
         12},
        {"{" TENSOR("x", "U8", "[1,1,1,1,1,1,1,1]", "0", "1") "}", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_error err;
        assert_ok(open_text(cases[i].header, cases[i].n_data, &err), &err);
    }
}

/* bugs.md LOAD-24 */
static void test_every_lie_in_a_header_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        enum kvad_status status;
        const char *text;
    } cases[] = {
        {"", 0, KVAD_ERR_FORMAT, "must begin with '{'"},
        {" {}", 0, KVAD_ERR_FORMAT, "must begin with '{'"},
        {"[]", 0, KVAD_ERR_FORMAT, "must begin with '{'"},
        {"{", 0, KVAD_ERR_FORMAT, "file: line 1"},
        {"{}x", 0, KVAD_ERR_FORMAT, "file: line 1"},
        {"{\"\xff\":1}", 0, KVAD_ERR_FORMAT, "file: line 1"},
        {"{\"a\\u0000b\":1}", 0, KVAD_ERR_FORMAT, "file: line 1"},
        {"{\"x\":1}", 0, KVAD_ERR_FORMAT, "tensor x: its header entry"},
        {"{\"x\":{}}", 0, KVAD_ERR_FORMAT, "tensor x: field dtype"},
        {"{\"__metadata__\":[]}", 0, KVAD_ERR_FORMAT, "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, KVAD_ERR_FORMAT, "__metadata__ \"k\""},
        {"{" TENSOR("x", "F8_E4M3", "[4]", "0", "4") "}", 4, KVAD_ERR_UNSUPPORTED,
         "tensor x: dtype F8_E4M3"},
        {"{" TENSOR("x", "C64", "[1]", "0", "8") "}", 8, KVAD_ERR_UNSUPPORTED, "dtype C64"},
        {"{" TENSOR("x", "f32", "[1]", "0", "4") "}", 4, KVAD_ERR_UNSUPPORTED, "dtype f32"},
        {"{\"x\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, KVAD_ERR_FORMAT,
         "field dtype must be a string"},
        {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, KVAD_ERR_FORMAT,
         "field shape must be a list"},
        {"{" TENSOR("x", "F32", "[-1]", "0", "4") "}", 4, KVAD_ERR_FORMAT, "shape[0]"},
        {"{" TENSOR("x", "F32", "[1.0]", "0", "4") "}", 4, KVAD_ERR_FORMAT, "shape[0]"},
        {"{" TENSOR("x", "F32", "[1,\"1\"]", "0", "4") "}", 4, KVAD_ERR_FORMAT, "shape[1]"},
        {"{" TENSOR("x", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, KVAD_ERR_UNSUPPORTED,
         "9 dimensions"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, KVAD_ERR_FORMAT, "field data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, KVAD_ERR_FORMAT,
         "field data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, KVAD_ERR_FORMAT,
         "field data_offsets"},
        {"{" TENSOR("x", "F32", "[1]", "4", "0") "}", 4, KVAD_ERR_FORMAT, "[4, 0]"},
        {"{" TENSOR("x", "F32", "[1]", "-4", "0") "}", 4, KVAD_ERR_FORMAT, "field data_offsets"},
        {"{" TENSOR("x", "F32", "[1]", "0", "8") "}", 4, KVAD_ERR_FORMAT, "[0, 8]"},
        {"{" TENSOR("x", "F32", "[3]", "0", "8") "}", 8, KVAD_ERR_FORMAT,
         "shape [3] of F32 needs 12 bytes"},
        {"{" TENSOR("x", "F16", "[3]", "0", "8") "}", 8, KVAD_ERR_FORMAT, "needs 6 bytes"},
        {"{" TENSOR("x", "F32", "[2]", "0", "8") "}", 9, KVAD_ERR_FORMAT, "the tensors end"},
        {"{}", 1, KVAD_ERR_FORMAT, "the tensors end"},
        {"{" TENSOR("x", "F32", "[1]", "4", "8") "}", 8, KVAD_ERR_FORMAT, "leave a hole"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_error err = {0};
        assert_fails(open_text(cases[i].header, cases[i].n_data, &err), cases[i].status, &err,
                     cases[i].text);
    }
}

/* bugs.md LOAD-24 */
static void test_sizes_that_overflow_are_refused(void **state) {
    (void)state;
    static const char *const shapes[] = {
        "[4294967296,4294967296]", "[4294967296,4294967296,0]", /* a zero does not excuse it */
        "[9223372036854775807,3]", "[2147483648,2147483648,4]",
        "[4398046511105,4194304]", /* 2^42 + 1 times 2^22 */
        "[4611686018427387904]",   /* times 4 bytes wraps to 0 */
        "[4611686018427387905]",   /* ... to 4 */
        "[9223372036854775808]",   /* no int64 any more */
        "[18446744073709551616]",
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char header[256];
        struct kvad_error err = {0};
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]}}", shapes[i]);
        assert_int_equal(open_text(header, 4, &err), KVAD_ERR_FORMAT);
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,%.*s]}}",
                 (int)strcspn(shapes[i] + 1, ",]"), shapes[i] + 1);
        assert_int_equal(open_text(header, 4, &err), KVAD_ERR_FORMAT);
    }
}

/* bugs.md LOAD-32 */
static void test_a_zero_dimension_in_any_place_is_safe(void **state) {
    (void)state;
    static const char *const shapes[] = {"[0,7,9]", "[7,0,9]", "[7,9,0]", "[0,0]",
                                         "[0,9223372036854775807,9223372036854775807]"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char header[256];
        struct kvad_error err = {0};
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,0]}}", shapes[i]);
        assert_ok(open_text(header, 0, &err), &err);
    }
}

/* bugs.md LOAD-25 */
static void test_tensors_that_share_or_skip_bytes_are_refused(void **state) {
    (void)state;
    struct kvad_error err = {0};
    assert_fails(
        open_text("{" TENSOR("k", "U8", "[8]", "0", "8") "," TENSOR("v", "U8", "[8]", "0", "8") "}",
                  8, &err),
        KVAD_ERR_FORMAT, &err, "overlap");
    assert_fails(
        open_text("{" TENSOR("k", "U8", "[8]", "0", "8") "," TENSOR("v", "U8", "[2]", "4", "6") "}",
                  8, &err),
        KVAD_ERR_FORMAT, &err, "tensor v begins at offset");
    assert_fails(
        open_text("{" TENSOR("k", "U8", "[4]", "0", "4") "," TENSOR("v", "U8", "[3]", "5", "8") "}",
                  8, &err),
        KVAD_ERR_FORMAT, &err, "leave a hole");
}

/* bugs.md LOAD-43 */
static void test_duplicate_keys_are_refused_at_every_level(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{" TENSOR("a", "U8", "[1]", "0", "1") "," TENSOR("a", "U8", "[1]", "0", "1") "}",
        "{\"x\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"__metadata__\":{\"f\":\"1\",\"f\":\"2\"}," TENSOR("a", "U8", "[1]", "0", "1") "}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct kvad_error err = {0};
        assert_fails(open_text(headers[i], 1, &err), KVAD_ERR_FORMAT, &err, "duplicate");
    }
}

/* bugs.md LOAD-38, LOAD-41 */
static void test_values_are_right_at_every_alignment(void **state) {
    (void)state;
    static const unsigned char values[] = {
        0x80, 0x3f, 0x00, 0xc0,                         /* bf16  1, -2 */
        0x00, 0x3c, 0x00, 0xc0,                         /* f16   1, -2 */
        0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, /* f32   1, -2 */
        0,    0,    0,    0,    0,    0,    0xf0, 0x3f, /* f64   1 */
        0,    0,    0,    0,    0,    0,    0x00, 0xc0, /*      -2 */
    };
    for (size_t pad = 0; pad < 8; pad++) {
        struct byte_buffer b =
            make_file("{" TENSOR("a", "BF16", "[2]", "0", "4") "," TENSOR(
                          "b", "F16", "[2]", "4",
                          "8") "," TENSOR("c", "F32", "[2]", "8",
                                          "16") "," TENSOR("d", "F64", "[2]", "16", "32") "}",
                      0);
        set_number(&b, 0, b.size - 8 + pad, 8);
        put_bytes(&b, "        ", pad);
        put_bytes(&b, values, sizeof values);
        unsigned char *copy = exact_copy(b.data, b.size);
        struct failing_heap h;
        struct kvad_error err;
        struct kvad_safetensors *file;
        failing_heap_init(&h, 0);
        assert_ok(kvad_safetensors_open(copy, b.size, "file", &h.heap, &file, &err), &err);
        for (size_t i = 0; i < 4; i++) {
            float row[2];
            assert_ok(kvad_tensor_read_row(kvad_safetensors_tensor(file, i), 0, row, &err), &err);
            assert_true(row[0] == 1.0f && row[1] == -2.0f);
        }
        kvad_safetensors_close(&file);
        free(copy);
        free_bytes(&b);
    }
}

/* bugs.md LOAD-30, LOAD-40 */
static void test_every_truncation_and_extension_is_refused(void **state) {
    (void)state;
    struct byte_buffer b = make_file(two_tensors, 28);
    for (size_t size = 0; size <= b.size; size++) {
        struct failing_heap h;
        struct kvad_error err = {0};
        failing_heap_init(&h, 0);
        assert_int_equal(open_bytes(b.data, size, &h, &err),
                         size < b.size ? KVAD_ERR_FORMAT : KVAD_OK);
    }
    struct failing_heap h;
    struct kvad_error err = {0};
    failing_heap_init(&h, 0);
    put_number(&b, 0, 1);
    assert_fails(open_bytes(b.data, b.size, &h, &err), KVAD_ERR_FORMAT, &err, "the tensors end");
    free_bytes(&b);
}

/* bugs.md LOAD-14, LOAD-24 */
static void test_a_length_prefix_alone_allocates_nothing(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3,
                                       27,
                                       1u << 31,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 63,
                                       100000000,
                                       100000001,
                                       UINT64_MAX,
                                       UINT64_MAX - 7,
                                       UINT64_MAX - 8,
                                       UINT64_C(1) << 31 | 2,
                                       UINT64_C(1) << 32 | 2};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct failing_heap h;
        struct kvad_error err = {0};
        failing_heap_init(&h, 0);
        struct byte_buffer b = make_file("{}", 0);
        set_number(&b, 0, lengths[i], 8);
        assert_int_equal(open_bytes(b.data, b.size, &h, &err), KVAD_ERR_FORMAT);
        assert_int_equal(h.n_calls, 0);
        free_bytes(&b);
    }
}

/* bugs.md LOAD-47 */
static void test_flipped_bytes_are_refused_or_harmless(void **state) {
    (void)state;
    struct byte_buffer b = make_file(two_tensors, 28);
    struct test_random random = {1};
    for (size_t round = 0; round < 20000; round++) {
        unsigned char *copy = exact_copy(b.data, b.size);
        size_t n_flips = 1 + random_below(&random, 3);
        for (size_t i = 0; i < n_flips; i++)
            copy[random_below(&random, b.size)] ^= (unsigned char)(1u << random_below(&random, 8));
        struct failing_heap h;
        struct kvad_error err = {0};
        failing_heap_init(&h, 0);
        open_bytes(copy, b.size, &h, &err);
        free(copy);
    }
    free_bytes(&b);
}

static void test_failing_allocations_leave_nothing_behind(void **state) {
    (void)state;
    struct byte_buffer b = make_file(two_tensors, 28);
    for (size_t k = 1;; k++) {
        struct failing_heap h;
        struct kvad_error err = {0};
        failing_heap_init(&h, k);
        enum kvad_status status = open_bytes(b.data, b.size, &h, &err);
        if (status == KVAD_OK) {
            assert_int_equal(k, 3);
            break;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
    }
    free_bytes(&b);
}

static void test_a_real_file_opens(void **state) {
    (void)state;
    const char *path = test_fixture("tiny/hf-gpt2/plain-names/model.safetensors");
    if (!path) skip();
    struct byte_buffer b = read_whole_file(path);
    struct failing_heap h;
    struct kvad_error err;
    struct kvad_safetensors *file;
    failing_heap_init(&h, 0);
    assert_ok(kvad_safetensors_open(b.data, b.size, path, &h.heap, &file, &err), &err);
    assert_int_equal(kvad_safetensors_count(file), 32);
    kvad_safetensors_close(&file);
    free_bytes(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_come_in_file_order_with_shape_and_place),
        cmocka_unit_test(test_legal_oddities_are_accepted),
        cmocka_unit_test(test_every_lie_in_a_header_is_refused_by_name),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_a_zero_dimension_in_any_place_is_safe),
        cmocka_unit_test(test_tensors_that_share_or_skip_bytes_are_refused),
        cmocka_unit_test(test_duplicate_keys_are_refused_at_every_level),
        cmocka_unit_test(test_values_are_right_at_every_alignment),
        cmocka_unit_test(test_every_truncation_and_extension_is_refused),
        cmocka_unit_test(test_a_length_prefix_alone_allocates_nothing),
        cmocka_unit_test(test_flipped_bytes_are_refused_or_harmless),
        cmocka_unit_test(test_failing_allocations_leave_nothing_behind),
        cmocka_unit_test(test_a_real_file_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
