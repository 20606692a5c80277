/* Objects around tensors: wrappers, versions of rebuild, classes that are refused. */
#include "torch_support.h"

static void put_square(struct byte_buffer *b) {
    struct pickled_tensor tensor = {.n_stored = 16, .n_dims = 2, .shape = {4, 4}, .stride = {4, 1}};
    put_tensor(b, &tensor);
}

static void check_ops(struct byte_buffer *ops, enum kvad_status status, const char *text) {
    struct byte_buffer file = zip_of_ops(ops);
    struct opened o;
    if (status == KVAD_OK) {
        assert_ok(open_bytes(&o, file.data, file.size), &o.err);
        assert_int_equal(o.root->kind, KVAD_PICKLE_TENSOR);
        float row[4];
        assert_ok(kvad_tensor_read_row(&o.root->as.tensor, 1, row, &o.err), &o.err);
        assert_true(row[0] == 4.5f && row[3] == 7.5f);
    } else {
        assert_fails(open_bytes(&o, file.data, file.size), status, &o.err, text);
    }
    close_bytes(&o);
    free_bytes(&file);
    free_bytes(ops);
}

static void test_parameters_are_their_tensors(void **state) {
    (void)state;
    static const char *const names[][2] = {{"torch._utils", "_rebuild_parameter"},
                                           {"torch._utils", "_rebuild_parameter_with_state"},
                                           {"torch.nn.parameter", "Parameter"}};
    for (size_t i = 0; i < 3; i++)
        for (int with_new = 0; with_new < 2; with_new++) {
            struct byte_buffer ops = {0};
            put_global(&ops, names[i][0], names[i][1]);
            put_text(&ops, "(");
            put_square(&ops);
            put_ops(&ops, "\x88");
            put_global(&ops, "collections", "OrderedDict");
            put_text(&ops, ")R");
            if (i == 1) put_text(&ops, "}");
            put_text(&ops, "t");
            if (with_new)
                put_ops(&ops, "\x81");
            else
                put_text(&ops, "R");
            put_text(&ops, "}b"); /* attributes */
            check_ops(&ops, KVAD_OK, "");
        }
    struct byte_buffer ops = {0};
    put_global(&ops, "torch.nn.parameter", "Parameter");
    put_ops(&ops, "K\1\x85R");
    check_ops(&ops, KVAD_ERR_FORMAT, "Parameter needs a tensor");
    struct byte_buffer state_ops = {0};
    put_square(&state_ops);
    put_text(&state_ops, ")b"); /* would replace its bytes */
    check_ops(&state_ops, KVAD_ERR_FORMAT, "given to a tensor");
}

/* _rebuild_tensor and _v3, on whose arguments `middle` stands between strides and the end. */
static void check_rebuild(const char *function, const char *storage_module, const char *class,
                          int64_t n_stored, const char *dtype, const char *metadata,
                          enum kvad_status status, const char *text) {
    struct byte_buffer ops = {0};
    put_global(&ops, "torch._utils", function);
    put_text(&ops, "(");
    put_storage(&ops, storage_module, class, "0", n_stored);
    put_int(&ops, 0);
    put_global(&ops, "torch", "Size");
    put_tuple(&ops, (int64_t[]){4, 4}, 2);
    put_ops(&ops, "\x85R");
    put_tuple(&ops, (int64_t[]){4, 1}, 2);
    if (strcmp(function, "_rebuild_tensor") != 0) put_ops(&ops, "\x89N");
    if (dtype) put_global(&ops, "torch", dtype);
    if (metadata) {
        put_text(&ops, "}");
        put_string(&ops, metadata);
        put_ops(&ops, "\x88s");
    }
    put_text(&ops, "tR");
    check_ops(&ops, status, text);
}

static void test_all_versions_of_rebuild_are_read(void **state) {
    (void)state;
    check_rebuild("_rebuild_tensor", "torch", "FloatStorage", 16, NULL, NULL, KVAD_OK, "");
    check_rebuild("_rebuild_tensor_v2", "torch", "FloatStorage", 16, NULL, "any", KVAD_OK, "");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, "float32", NULL,
                  KVAD_OK, "");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, "float32", "any",
                  KVAD_OK, "");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, "float64", NULL,
                  KVAD_ERR_FORMAT, "outside its storage 0 of 8 elements");
    check_rebuild("_rebuild_tensor_v3", "torch", "FloatStorage", 16, "float32", NULL,
                  KVAD_ERR_FORMAT, "untyped storage");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, "Size", NULL,
                  KVAD_ERR_FORMAT, "untyped storage");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, NULL, NULL,
                  KVAD_ERR_FORMAT, "with 6 arguments");
    check_rebuild("_rebuild_tensor_v3", "torch.storage", "UntypedStorage", 64, "float8_e4m3fn",
                  NULL, KVAD_ERR_UNSUPPORTED, "torch.float8_e4m3fn");
    check_rebuild("_rebuild_tensor", "torch", "FloatStorage", 16, NULL, "any", KVAD_ERR_FORMAT,
                  "with 5 arguments");
}

static void test_lazy_negation_is_refused_rather_than_ignored(void **state) {
    (void)state;
    check_rebuild("_rebuild_tensor_v2", "torch", "FloatStorage", 16, NULL, "neg",
                  KVAD_ERR_UNSUPPORTED, ".resolve_neg()");
    check_rebuild("_rebuild_tensor_v2", "torch", "FloatStorage", 16, NULL, "conj",
                  KVAD_ERR_UNSUPPORTED, ".resolve_conj()");
}

static void test_layouts_and_devices_are_read_and_ignored(void **state) {
    (void)state;
    struct byte_buffer ops = {0};
    put_square(&ops);
    put_text(&ops, "q");
    put_number(&ops, 1, 1);
    put_text(&ops, "}"); /* its attributes: a dict of such things */
    put_string(&ops, "device");
    put_global(&ops, "torch", "device");
    put_string(&ops, "cuda");
    put_ops(&ops, "K\0\x86Rs");
    put_string(&ops, "layout");
    put_global(&ops, "torch.serialization", "_get_layout");
    put_string(&ops, "torch.strided");
    put_ops(&ops, "\x85Rsb");
    check_ops(&ops, KVAD_OK, "");
}

static void test_names_of_types_cannot_be_called(void **state) {
    (void)state;
    static const char *const ops[] = {"ctorch\nFloatStorage\n)R", "ctorch\nfloat32\n)\x81"};
    for (size_t i = 0; i < 2; i++) {
        struct byte_buffer b = {0};
        put_text(&b, ops[i]);
        check_ops(&b, KVAD_ERR_FORMAT, "which is only a name");
    }
}

/* bugs.md LOAD-19 LOAD-20 */
static void test_no_container_runs_a_foreign_class(void **state) {
    (void)state;
    struct byte_buffer ops = {0}, pickle = {0};
    put_global(&ops, "posix", "system");
    put_string(&ops, "true");
    put_ops(&ops, "\x85R");
    put_ops(&pickle, "\x80\x02");
    put_bytes(&pickle, ops.data, ops.size);
    put_text(&pickle, ".");
    struct legacy_parts parts = legacy_parts();
    struct byte_buffer legacy = legacy_of(&ops, &parts), zip = zip_of_ops(&ops);
    struct kvad_error err;
    assert_fails(try_bytes(&zip, &err), KVAD_ERR_UNSUPPORTED, &err, "posix.system");
    assert_fails(try_bytes(&legacy, &err), KVAD_ERR_UNSUPPORTED, &err, "posix.system");
    assert_fails(try_bytes(&pickle, &err), KVAD_ERR_UNSUPPORTED, &err, "not a file of torch.save");
    struct legacy_parts bad_keys = parts;
    bad_keys.keys = "cposix\nsystem\n)R";
    bad_keys.keys_size = strlen(bad_keys.keys);
    struct byte_buffer square = square_object(), second = legacy_of(&square, &bad_keys);
    assert_fails(try_bytes(&second, &err), KVAD_ERR_UNSUPPORTED, &err, "posix.system");
    free_bytes(&ops);
    free_bytes(&pickle);
    free_bytes(&legacy);
    free_bytes(&zip);
    free_bytes(&square);
    free_bytes(&second);
}

static void test_a_pickled_module_is_refused_with_the_way_out(void **state) {
    (void)state;
    static const char way_out[] = "torch.save(model.state_dict(), \"model.pt\")";
    struct byte_buffer whole = {0}, inside = {0};
    put_text(&whole, "c__main__\nGPT\n)\x81}b");
    struct byte_buffer file = zip_of_ops(&whole);
    struct kvad_error err;
    assert_fails(try_bytes(&file, &err), KVAD_ERR_UNSUPPORTED, &err,
                 "a whole Python object of class __main__.GPT");
    assert_non_null(strstr(err.text, way_out));
    free_bytes(&file);
    /* A legacy file names it by a persistent id. */
    struct byte_buffer persistent = {0};
    put_text(&persistent, "(");
    put_string(&persistent, "module");
    put_text(&persistent, "cmodel\nGPT\n");
    struct legacy_parts parts = legacy_parts();
    file = legacy_of(&persistent, &parts);
    assert_fails(try_bytes(&file, &err), KVAD_ERR_UNSUPPORTED, &err,
                 "a whole Python object of class model.GPT");
    free_bytes(&file);
    put_text(&inside, "}");
    put_string(&inside, "args");
    put_text(&inside, "cargparse\nNamespace\n)\x81s");
    file = zip_of_ops(&inside);
    assert_fails(try_bytes(&file, &err), KVAD_ERR_UNSUPPORTED, &err,
                 "class argparse.Namespace is not read");
    assert_non_null(strstr(err.text, way_out));
    free_bytes(&file);
    free_bytes(&whole);
    free_bytes(&persistent);
    free_bytes(&inside);
}

static void test_names_in_errors_are_printable_whatever_the_file_holds(void **state) {
    (void)state;
    struct byte_buffer ops = {0};
    put_ops(&ops, "c\xffmo\x1b[2Jd\xc3\xa9\xc2\x9b"
                  "ule\nname\xe2\x82\n");
    check_ops(&ops, KVAD_ERR_UNSUPPORTED, "class ?mo?[2Jd\xc3\xa9??ule.name??, not its weights");
}

static void test_malformed_persistent_ids_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
    } cases[] = {{PART("K\1Q")},
                 {PART(")Q")},
                 {PART("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                       "0X\3\0\0\0cpu]tQ")},
                 {PART("(X\7\0\0\0storagectorch\nFloatStorage\nK\0X\3\0\0\0cpuK\1tQ")},
                 {PART("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                       "0NK\1tQ")},
                 {PART("(X\7\0\0\0storageX\1\0\0\0"
                       "fX\1\0\0\0"
                       "0X\3\0\0\0cpuK\1tQ")},
                 {PART("(X\7\0\0\0storagectorch\nFloatStorage\nX\2\0\0\0"
                       "0\0X\3\0\0\0cpuK\1tQ")},
                 {PART("(X\6\0\0\0modulectorch\nFloatStorage\nX\1\0\0\0"
                       "0X\3\0\0\0cpuK\1tQ")}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer ops = {0};
        put_bytes(&ops, cases[i].ops, cases[i].size);
        check_ops(&ops, KVAD_ERR_FORMAT, i == 6 ? "NUL" : "persistent id");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_their_tensors),
        cmocka_unit_test(test_all_versions_of_rebuild_are_read),
        cmocka_unit_test(test_lazy_negation_is_refused_rather_than_ignored),
        cmocka_unit_test(test_layouts_and_devices_are_read_and_ignored),
        cmocka_unit_test(test_names_of_types_cannot_be_called),
        cmocka_unit_test(test_no_container_runs_a_foreign_class),
        cmocka_unit_test(test_a_pickled_module_is_refused_with_the_way_out),
        cmocka_unit_test(test_names_in_errors_are_printable_whatever_the_file_holds),
        cmocka_unit_test(test_malformed_persistent_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
