/* Tensors of torch files: views, types, wrappers, and what the fixtures hold. */
#include "torch_support.h"

#include <sys/mman.h>
#include <unistd.h>

static void test_every_torch_fixture_opens(void **state) {
    (void)state;
    static const char *const files[] = {
        "shakespeare-char/ckpt.pt",
        "tiny/nanogpt/bias/ckpt.pt",
        "tiny/nanogpt/compiled-padded/ckpt.pt",
        "tiny/nanogpt/ddp-legacy/ckpt.pt",
        "tiny/nanogpt/no-bias/ckpt.pt",
        "tiny/nanogpt/with-optimizer/ckpt.pt",
        "tiny/hand-written/article-no-head-bias/model.pt",
        "tiny/hand-written/article/model.pt",
        "tiny/hand-written/book-qkv-bias/model.pt",
        "tiny/hand-written/book/model.pt",
        "tiny/hand-written/lecture-wrapped/model.pt",
        "tiny/hand-written/lecture/model.pt",
        "tiny/hand-written/mingpt/model.pt",
        "tiny/hf-gpt2/bin-legacy/pytorch_model.bin",
        "tiny/hf-gpt2/bin-sharded/pytorch_model-00001-of-00003.bin",
        "tiny/hf-gpt2/bin-sharded/pytorch_model-00002-of-00003.bin",
        "tiny/hf-gpt2/bin-sharded/pytorch_model-00003-of-00003.bin",
        "tiny/hf-gpt2/bin-zip/pytorch_model.bin",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *path = test_fixture(files[i]);
        if (!path) skip();
        struct byte_buffer file = read_whole_file(path);
        assert_true(kvad_torch_probe(file.data, file.size));
        struct opened o;
        assert_ok(open_bytes(&o, file.data, file.size), &o.err);
        assert_int_equal(o.root->kind, KVAD_PICKLE_DICT);
        assert_true(o.root->as.dict.n > 0);
        assert_true(o.heap.heap.bytes_peak < 160 * 1024);
        close_bytes(&o);
        free_bytes(&file);
    }
}

static void test_nanogpt_checkpoint_has_what_training_put_there(void **state) {
    (void)state;
    const char *path = test_fixture("shakespeare-char/ckpt.pt");
    if (!path) skip();
    struct byte_buffer file = read_whole_file(path);
    struct opened o;
    assert_ok(open_bytes(&o, file.data, file.size), &o.err);
    const struct kvad_pickle_value *args = kvad_pickle_get(o.root, "model_args");
    assert_int_equal(kvad_pickle_get(args, "block_size")->as.integer, 1024);
    assert_int_equal(kvad_pickle_get(args, "bias")->kind, KVAD_PICKLE_BOOL);
    assert_false(kvad_pickle_get(args, "bias")->as.boolean);
    assert_true(kvad_pickle_get(args, "dropout")->as.number == 0.0);
    const struct kvad_pickle_value *model = kvad_pickle_get(o.root, "model");
    const struct kvad_tensor *wte = &kvad_pickle_get(model, "transformer.wte.weight")->as.tensor;
    const struct kvad_tensor *head = &kvad_pickle_get(model, "lm_head.weight")->as.tensor;
    assert_ptr_equal(wte->data, head->data); /* tied: one storage, two tensors */
    assert_int_equal(wte->shape[0], 65);
    assert_int_equal(wte->shape[1], 192);
    assert_int_equal(wte->n_elements, 65 * 192);
    assert_string_equal(wte->file, "x.pt");
    assert_string_equal(wte->name, "");
    assert_ptr_equal(wte->data, o.copy + wte->offset);
    const struct kvad_pickle_value *loss = kvad_pickle_get(o.root, "best_val_loss");
    assert_int_equal(loss->kind, KVAD_PICKLE_TENSOR); /* 0-d, not a float */
    assert_int_equal(loss->as.tensor.n_dims, 0);
    float number;
    assert_ok(kvad_tensor_read_row(&loss->as.tensor, 0, &number, &o.err), &o.err);
    assert_true(number > 1.5f && number < 1.6f);
    close_bytes(&o);
    free_bytes(&file);
}

/* Two random models of one configuration: other numbers, the same names and shapes. */
static void test_zip_and_legacy_files_describe_a_model_alike(void **state) {
    (void)state;
    struct byte_buffer files[2];
    struct opened o[2];
    static const char *const names[] = {"tiny/hf-gpt2/bin-zip/pytorch_model.bin",
                                        "tiny/hf-gpt2/bin-legacy/pytorch_model.bin"};
    for (size_t i = 0; i < 2; i++) {
        const char *path = test_fixture(names[i]);
        if (!path) skip();
        files[i] = read_whole_file(path);
        assert_ok(open_bytes(&o[i], files[i].data, files[i].size), &o[i].err);
    }
    const struct kvad_pickle_value *zip = o[0].root;
    assert_int_equal(zip->as.dict.n, o[1].root->as.dict.n);
    for (size_t i = 0; i < zip->as.dict.n; i++) {
        const struct kvad_tensor *a = &zip->as.dict.values[i]->as.tensor;
        const struct kvad_pickle_value *other =
            kvad_pickle_get(o[1].root, zip->as.dict.keys[i]->as.string.bytes);
        assert_non_null(other);
        const struct kvad_tensor *b = &other->as.tensor;
        assert_int_equal(a->n_dims, b->n_dims);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        if (a->n_dims == 0 || a->n_dims > 2) continue; /* mask buffers */
        float row[256];
        assert_true(b->shape[b->n_dims - 1] <= 256);
        assert_ok(kvad_tensor_read_row(b, 0, row, &o[1].err), &o[1].err);
        for (size_t k = 0; k < b->shape[b->n_dims - 1]; k++)
            assert_true(row[k] * row[k] < 100.0f);
    }
    for (size_t i = 0; i < 2; i++) {
        close_bytes(&o[i]);
        free_bytes(&files[i]);
    }
}

/* Whole pages inside every storage are made unreadable: opening must not notice. */
static void test_bytes_of_tensors_are_not_touched_by_opening(void **state) {
    (void)state;
    const char *path = test_fixture("tiny/nanogpt/with-optimizer/ckpt.pt");
    if (!path) skip();
    struct byte_buffer file = read_whole_file(path);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (file.size / page + 1) * page;
    unsigned char *data =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    memcpy(data, file.data, file.size);
    struct opened o;
    assert_ok(open_bytes(&o, file.data, file.size), &o.err);
    const struct kvad_pickle_value *model = kvad_pickle_get(o.root, "model");
    const struct kvad_pickle_value *states =
        kvad_pickle_get(kvad_pickle_get(o.root, "optimizer"), "state");
    assert_true(states->as.dict.n > 0);
    size_t n_closed = 0;
    for (size_t i = 0; i < model->as.dict.n + 2 * states->as.dict.n; i++) {
        size_t k = i - model->as.dict.n;
        const struct kvad_tensor *t =
            i < model->as.dict.n
                ? &model->as.dict.values[i]->as.tensor
                : &kvad_pickle_get(states->as.dict.values[k / 2], k % 2 ? "exp_avg" : "exp_avg_sq")
                       ->as.tensor;
        size_t begin = (t->offset + page - 1) / page * page;
        size_t end = (t->offset + 4 * t->n_elements) / page * page;
        if (end <= begin) continue;
        assert_int_equal(mprotect(data + begin, end - begin, PROT_NONE), 0);
        n_closed++;
    }
    assert_true(n_closed > 10);
    struct failing_heap heap;
    struct kvad_torch *torch = NULL;
    failing_heap_init(&heap, 0);
    assert_ok(kvad_torch_open(data, file.size, path, &heap.heap, &torch, &o.err), &o.err);
    kvad_torch_close(&torch);
    munmap(data, room);
    close_bytes(&o);
    free_bytes(&file);
}

static void check_view(const struct pickled_tensor *tensor, const float *wanted) {
    struct byte_buffer file = zip_of_tensor(tensor);
    struct opened o;
    assert_ok(open_bytes(&o, file.data, file.size), &o.err);
    const struct kvad_tensor *t = &kvad_pickle_get(o.root, "w")->as.tensor;
    size_t rows = t->n_dims == 2 ? t->shape[0] : 1, columns = t->shape[t->n_dims - 1];
    for (size_t r = 0; r < rows; r++) {
        float row[16];
        assert_ok(kvad_tensor_read_row(t, r, row, &o.err), &o.err);
        assert_memory_equal(row, wanted + r * columns, columns * sizeof *row);
    }
    close_bytes(&o);
    free_bytes(&file);
}

/* bugs.md LOAD-27 */
static void test_transposed_sliced_and_expanded_views_are_what_torch_saw(void **state) {
    (void)state;
    static const struct {
        struct pickled_tensor tensor;
        float wanted[8];
    } cases[] = {
        {{.n_stored = 16, .n_dims = 2, .shape = {2, 3}, .stride = {3, 1}},
         {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f}},
        {{.n_stored = 16, .n_dims = 2, .shape = {3, 2}, .stride = {1, 3}}, /* .t() of it */
         {0.5f, 3.5f, 1.5f, 4.5f, 2.5f, 5.5f}},
        {{.n_stored = 16, .offset = 9, .n_dims = 2, .shape = {2, 3}, .stride = {4, 1}},
         {9.5f, 10.5f, 11.5f, 13.5f, 14.5f, 15.5f}}, /* [2:, 1:] of a 4 x 4 */
        {{.n_stored = 16, .offset = 1, .n_dims = 1, .shape = {5}, .stride = {3}},
         {1.5f, 4.5f, 7.5f, 10.5f, 13.5f}}, /* [1::3] */
        {{.n_stored = 16, .offset = 15, .n_dims = 1, .shape = {1}, .stride = {99}}, {15.5f}},
        {{.n_stored = 16, .offset = 2, .n_dims = 2, .shape = {2, 2}, .stride = {0, 1}},
         {2.5f, 3.5f, 2.5f, 3.5f}}, /* .expand() */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_view(&cases[i].tensor, cases[i].wanted);
}

/* bugs.md LOAD-28 LOAD-32 */
static void test_tensors_without_elements_are_read(void **state) {
    (void)state;
    static const struct pickled_tensor cases[] = {
        {.n_stored = 16, .n_dims = 2, .shape = {0, 4}, .stride = {4, 1}},
        {.n_stored = 16, .n_dims = 2, .shape = {4, 0}, .stride = {1, 1}},
        {.n_stored = 16, .offset = 16, .n_dims = 1, .shape = {0}, .stride = {1}},
        {.n_stored = 16, .n_dims = 3, .shape = {0, 0, 0}, .stride = {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer file = zip_of_tensor(&cases[i]);
        struct opened o;
        assert_ok(open_bytes(&o, file.data, file.size), &o.err);
        assert_int_equal(kvad_pickle_get(o.root, "w")->as.tensor.n_elements, 0);
        close_bytes(&o);
        free_bytes(&file);
    }
}

/* bugs.md LOAD-9 LOAD-10 LOAD-12 LOAD-18 LOAD-28 */
static void test_views_that_leave_their_storage_are_refused(void **state) {
    (void)state;
    static const struct {
        struct pickled_tensor t;
        const char *text;
    } cases[] = {
        {{.n_stored = 16, .n_dims = 2, .shape = {4, 5}, .stride = {5, 1}}, "outside"},
        {{.n_stored = 16, .offset = 1, .n_dims = 1, .shape = {16}, .stride = {1}}, "outside"},
        {{.n_stored = 16, .offset = 16, .n_dims = 1, .shape = {1}, .stride = {1}}, "outside"},
        {{.n_stored = 16, .offset = 16}, "outside"},
        {{.n_stored = 16, .offset = 17, .n_dims = 1, .shape = {0}, .stride = {1}}, "outside"},
        {{.n_stored = 16, .n_dims = 1, .shape = {3}, .stride = {8}}, "outside"},
        {{.n_stored = 16, .offset = INT64_MAX, .n_dims = 1, .shape = {3}, .stride = {INT64_MAX}},
         "outside"},
        {{.n_stored = 16, .n_dims = 1, .shape = {3}, .stride = {INT64_MAX}}, "outside"},
        {{.n_stored = 16, .n_dims = 2, .shape = {2, 3}, .stride = {INT64_MAX, INT64_MAX}},
         "outside"},
        {{.n_stored = 16, .n_dims = 2, .shape = {4, (1ll << 42) + 1}, .stride = {1, 1}},
         "outside|"},
        {{.n_stored = 16, .n_dims = 2, .shape = {1ll << 32, 1ll << 32}, .stride = {0, 0}},
         "outside"},
        {{.n_stored = 16, .n_dims = 1, .shape = {1ll << 40}, .stride = {0}}, "more elements"},
        {{.n_stored = 16, .n_dims = 2, .shape = {1ll << 40, 0}, .stride = {1, 1}}, "more elements"},
        {{.n_stored = 16, .n_dims = 1, .shape = {-1}, .stride = {1}}, "something else than counts"},
        {{.n_stored = 16, .n_dims = 1, .shape = {2}, .stride = {-1}}, "something else than counts"},
        {{.n_stored = 16, .offset = -1, .n_dims = 1, .shape = {2}, .stride = {1}}, "wrong type"},
        {{.n_stored = 16,
          .n_dims = 9,
          .shape = {1, 1, 1, 1, 1, 1, 1, 1, 1},
          .stride = {1, 1, 1, 1, 1, 1, 1, 1, 1}},
         "9 dimensions"},
        {{.n_stored = -1, .n_dims = 1, .shape = {1}, .stride = {1}}, "negative size"},
        {{.n_stored = INT64_MAX, .n_dims = 1, .shape = {1}, .stride = {1}}, "too large"},
        {{.n_stored = 1000000000, .n_dims = 1, .shape = {1}, .stride = {1}},
         "storage 0 holds 64 bytes, but 1000000000 elements of F32 need 4000000000"},
        {{.n_stored = 17, .n_dims = 1, .shape = {1}, .stride = {1}}, "need 68"},
        {{.n_stored = 15, .n_dims = 1, .shape = {1}, .stride = {1}}, "need 60"},
        {{.class = "DoubleStorage", .n_stored = 16, .n_dims = 1, .shape = {1}, .stride = {1}},
         "16 elements of F64 need 128"},
        {{.key = "1", .n_stored = 16, .n_dims = 1, .shape = {1}, .stride = {1}}, "top/data/1"},
        {{.key = "../data.pkl", .n_stored = 16, .n_dims = 1, .shape = {1}, .stride = {1}},
         "is not in the archive"},
        {{.key = "", .n_stored = 16, .n_dims = 1, .shape = {1}, .stride = {1}}, "key is empty"},
        {{.class = "ComplexFloatStorage", .n_stored = 8}, "torch.ComplexFloatStorage"},
        {{.class = "float32", .n_stored = 16}, "wrong type"},
        {{.class = "Size", .n_stored = 16}, "wrong type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer file = zip_of_tensor(&cases[i].t);
        struct kvad_error err = {0};
        enum kvad_status status = try_bytes(&file, &err);
        assert_true(status == KVAD_ERR_FORMAT || status == KVAD_ERR_UNSUPPORTED);
        const char *text = cases[i].text, *bar = strchr(text, '|');
        if (!(bar ? strstr(err.text, "outside") || strstr(err.text, "more elements")
                  : strstr(err.text, text) != NULL))
            fail_msg("case %zu: %s", i, err.text);
        assert_non_null(strstr(err.text, "x.pt"));
        free_bytes(&file);
    }
}

static void test_every_storage_class_gives_its_type(void **state) {
    (void)state;
    static const struct {
        const char *class;
        enum kvad_dtype dtype;
    } cases[] = {{"FloatStorage", KVAD_DTYPE_F32},     {"HalfStorage", KVAD_DTYPE_F16},
                 {"BFloat16Storage", KVAD_DTYPE_BF16}, {"DoubleStorage", KVAD_DTYPE_F64},
                 {"LongStorage", KVAD_DTYPE_I64},      {"IntStorage", KVAD_DTYPE_I32},
                 {"ShortStorage", KVAD_DTYPE_I16},     {"CharStorage", KVAD_DTYPE_I8},
                 {"ByteStorage", KVAD_DTYPE_U8},       {"BoolStorage", KVAD_DTYPE_BOOL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t n = 64 / (int64_t)kvad_dtype_bytes(cases[i].dtype);
        struct pickled_tensor tensor = {.class = cases[i].class,
                                        .n_stored = n,
                                        .offset = n - 1,
                                        .n_dims = 1,
                                        .shape = {1},
                                        .stride = {1}};
        struct byte_buffer file = zip_of_tensor(&tensor);
        struct opened o;
        assert_ok(open_bytes(&o, file.data, file.size), &o.err);
        const struct kvad_tensor *t = &kvad_pickle_get(o.root, "w")->as.tensor;
        assert_int_equal(t->dtype, cases[i].dtype);
        assert_int_equal(t->offset % 64, 64 - kvad_dtype_bytes(t->dtype));
        close_bytes(&o);
        free_bytes(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_torch_fixture_opens),
        cmocka_unit_test(test_nanogpt_checkpoint_has_what_training_put_there),
        cmocka_unit_test(test_zip_and_legacy_files_describe_a_model_alike),
        cmocka_unit_test(test_bytes_of_tensors_are_not_touched_by_opening),
        cmocka_unit_test(test_transposed_sliced_and_expanded_views_are_what_torch_saw),
        cmocka_unit_test(test_tensors_without_elements_are_read),
        cmocka_unit_test(test_views_that_leave_their_storage_are_refused),
        cmocka_unit_test(test_every_storage_class_gives_its_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
