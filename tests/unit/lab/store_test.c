#include "lab/store.h"

#include <dirent.h>
#include <unistd.h>

#include "lab/report.h"
#include "lab/synthetic.h"
#include "test.h"

static char folder[64];

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvad-store-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));)
        if (entry->d_name[0] != '.') kvad_store_remove(folder, entry->d_name);
    if (open) closedir(open);
    return rmdir(folder);
}

static json_t *parsed(const char *text) {
    json_t *value = json_loads(text, 0, NULL);
    assert_non_null(value);
    return value;
}

static void test_a_part_comes_back_under_its_key_alone(void **state) {
    (void)state;
    struct kvad_error err = {0};
    json_t *key = parsed("{\"seed\":1,\"model\":{\"name\":\"m\"}}");
    json_t *other = parsed("{\"seed\":2,\"model\":{\"name\":\"m\"}}");
    json_t *result = parsed("{\"x\":0.1}");
    assert_null(kvad_store_kept(folder, "verify", key));
    assert_ok(kvad_store_keep(folder, "verify", key, result, &err), &err);
    json_t *kept = kvad_store_kept(folder, "verify", key);
    assert_true(json_equal(kept, result));
    assert_null(kvad_store_kept(folder, "verify", other));
    assert_null(kvad_store_kept(folder, "memory", key));
    assert_ok(kvad_store_write(folder, "verify.part.json", "{\"key\":", 7, &err), &err);
    assert_null(kvad_store_kept(folder, "verify", key));
    json_decref(kept);
    json_decref(result);
    json_decref(other);
    json_decref(key);
}

static void test_numbers_survive_a_file(void **state) {
    (void)state;
    struct kvad_error err = {0};
    char path[128];
    json_t *value = parsed("{\"a\":0.1,\"b\":1e-300,\"c\":9007199254740993}"), *back = NULL;
    assert_ok(kvad_store_write_json(folder, "x.json", value, &err), &err);
    snprintf(path, sizeof path, "%s/x.json", folder);
    assert_ok(kvad_store_read_json(path, &back, &err), &err);
    assert_true(json_equal(value, back));
    json_decref(back);
    json_decref(value);
}

static void test_a_folder_in_the_place_of_a_file_is_refused(void **state) {
    (void)state;
    struct kvad_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/x", folder);
    assert_ok(kvad_store_make_folder(path, &err), &err);
    assert_ok(kvad_store_make_folder(path, &err), &err);
    assert_fails(kvad_store_write(folder, "x", "1", 1, &err), KVAD_ERR_IO, &err, "cannot write");
    rmdir(path);
    assert_ok(kvad_store_write(folder, "x", "1", 1, &err), &err);
    assert_fails(kvad_store_make_folder(path, &err), KVAD_ERR_IO, &err, "in the way");
}

static void test_other_weights_have_another_fingerprint(void **state) {
    (void)state;
    char prints[3][KVAD_STORE_FINGERPRINT];
    for (int i = 0; i < 3; i++) {
        struct kvad_error err = {0};
        struct kvad_model *model = NULL;
        assert_ok(kvad_synthetic_build("tiny", i == 2 ? 7 : 1, NULL, &model, &err), &err);
        kvad_store_fingerprint(model, prints[i]);
        kvad_model_release(&model);
    }
    assert_int_equal(strlen(prints[0]), 16);
    assert_string_equal(prints[0], prints[1]);
    assert_string_not_equal(prints[0], prints[2]);
}

static void test_a_report_without_parts_has_a_page_that_says_so(void **state) {
    (void)state;
    struct kvad_error err = {0};
    struct kvad_heap heap;
    struct kvad_html html;
    json_t *report =
        parsed("{\"kind\":\"kvad lab report\",\"schema\":1,\"model\":{},\"machine\":{},"
               "\"options\":{},\"parts\":{}}");
    kvad_heap_init(&heap, NULL);
    kvad_html_init(&html, &heap);
    assert_ok(kvad_report_check(report, "x", &err), &err);
    assert_ok(kvad_report_summarise(report, &err), &err);
    kvad_report_page(&html, report);
    assert_false(html.failed);
    assert_non_null(strstr(html.bytes, "not measured"));
    kvad_html_deinit(&html);
    json_decref(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_part_comes_back_under_its_key_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_survive_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_in_the_place_of_a_file_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test(test_other_weights_have_another_fingerprint),
        cmocka_unit_test(test_a_report_without_parts_has_a_page_that_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
