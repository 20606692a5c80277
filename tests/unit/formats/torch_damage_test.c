/* Files of another kind, cut short, with flipped bytes, and memory that runs out. */
#include "torch_support.h"

#include "random.h"

static void test_other_kinds_of_file_are_refused_with_advice(void **state) {
    (void)state;
    struct byte_buffer b = {0};
    struct kvad_error err;
    for (int i = 0; i < 600; i++)
        put_number(&b, 0, 1);
    memcpy(b.data, "storages", 8);
    assert_false(kvad_torch_probe(b.data, b.size));
    memcpy(b.data + 257, "ustar", 5);
    assert_true(kvad_torch_probe(b.data, b.size));
    assert_fails(try_bytes(&b, &err), KVAD_ERR_UNSUPPORTED, &err, "tar file of torch 0.1");
    b.size = 4;
    memcpy(b.data, "\x80\x04N.", 4);
    assert_true(kvad_torch_probe(b.data, b.size));
    assert_fails(try_bytes(&b, &err), KVAD_ERR_UNSUPPORTED, &err, "torch.save");
    memcpy(b.data, "GGUF", 4);
    assert_false(kvad_torch_probe(b.data, b.size));
    assert_fails(try_bytes(&b, &err), KVAD_ERR_FORMAT, &err, "not a file of torch.save: 4 bytes");
    b.size = 0;
    assert_false(kvad_torch_probe(b.data, b.size));
    assert_fails(try_bytes(&b, &err), KVAD_ERR_FORMAT, &err, "not a file of torch.save: 0 bytes");
    free_bytes(&b);
}

static void make_samples(struct byte_buffer files[2]) {
    struct byte_buffer square = square_object();
    struct legacy_parts parts = legacy_parts();
    files[0] = zip_of_ops(&square);
    files[1] = legacy_of(&square, &parts);
    free_bytes(&square);
}

/* bugs.md LOAD-30 LOAD-40 */
static void test_every_prefix_of_both_kinds_is_refused(void **state) {
    (void)state;
    struct byte_buffer files[2];
    make_samples(files);
    for (size_t i = 0; i < 2; i++) {
        struct byte_buffer *b = &files[i];
        size_t whole = b->size;
        struct kvad_error err;
        for (b->size = 0; b->size < whole; b->size++) {
            enum kvad_status status = try_bytes(b, &err);
            assert_true(status == KVAD_ERR_FORMAT || status == KVAD_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, "x.pt"));
        }
        assert_ok(try_bytes(b, &err), &err);
        free_bytes(b);
    }
}

/* Every element of every tensor of the outermost dict, so that a sanitizer sees wrong bounds. */
static void touch_tensors(const struct kvad_pickle_value *root) {
    if (root->kind != KVAD_PICKLE_DICT) return;
    for (size_t i = 0; i < root->as.dict.n; i++) {
        const struct kvad_pickle_value *value = root->as.dict.values[i];
        if (value->kind != KVAD_PICKLE_TENSOR || value->as.tensor.n_dims > 2) continue;
        const struct kvad_tensor *t = &value->as.tensor;
        size_t columns = t->n_dims ? t->shape[t->n_dims - 1] : 1;
        size_t rows = t->n_dims == 2 ? t->shape[0] : 1;
        float *row = malloc((columns + 1) * sizeof *row);
        assert_non_null(row);
        for (size_t r = 0; r < rows; r++)
            kvad_tensor_read_row(t, r, row, NULL);
        free(row);
    }
}

/* bugs.md LOAD-47 */
static void test_flipped_bytes_never_do_harm(void **state) {
    (void)state;
    struct byte_buffer files[2];
    make_samples(files);
    struct test_random random = {20241001};
    size_t n_read = 0;
    for (int round = 0; round < 40000; round++) {
        struct byte_buffer b = {0};
        put_bytes(&b, files[round % 2].data, files[round % 2].size);
        for (size_t n = 1 + random_below(&random, 3); n > 0; n--)
            b.data[random_below(&random, b.size)] = (unsigned char)random_u64(&random);
        struct opened o;
        if (open_bytes(&o, b.data, b.size) == KVAD_OK) {
            touch_tensors(o.root);
            n_read++;
        } else {
            assert_true(strlen(o.err.text) > 10);
        }
        close_bytes(&o);
        free_bytes(&b);
    }
    assert_true(n_read > 1000); /* padding, time stamps and weights may hold anything */
    free_bytes(&files[0]);
    free_bytes(&files[1]);
}

static void test_failure_of_any_allocation_is_clean(void **state) {
    (void)state;
    struct byte_buffer files[2];
    make_samples(files);
    for (size_t i = 0; i < 2; i++) {
        enum kvad_status status = KVAD_ERR_NO_MEMORY;
        for (size_t k = 1; status != KVAD_OK; k++) {
            struct failing_heap heap;
            struct kvad_torch *torch = NULL;
            struct kvad_error err;
            failing_heap_init(&heap, k);
            status =
                kvad_torch_open(files[i].data, files[i].size, "x.pt", &heap.heap, &torch, &err);
            kvad_torch_close(&torch);
            assert_int_equal(heap.n_live, 0);
            assert_int_equal(heap.heap.bytes, 0);
            if (status == KVAD_OK)
                assert_true(k > 5);
            else
                assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        }
        free_bytes(&files[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_kinds_of_file_are_refused_with_advice),
        cmocka_unit_test(test_every_prefix_of_both_kinds_is_refused),
        cmocka_unit_test(test_flipped_bytes_never_do_harm),
        cmocka_unit_test(test_failure_of_any_allocation_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
