/* Where kvad_model_load() finds the tokenizer of a model, and that it gives all memory back. */
#include "failing_heap.h"
#include "load_support.h"

static void write_nanogpt(const char *relative, const char *dataset) {
    struct sizes sizes = odd_sizes;
    sizes.n_vocab = 4;
    make_nanogpt(&file, &sizes, false);
    write_bytes(
        relative,
        file_torch(&file, &(struct torch_style){
                              .key = "model", .args = true, .bias = 0, .dataset = dataset}));
    file_free(&file);
}

/* meta.pkl of three characters: {"stoi": {"a": 0, "b": 1, "c": 2}, ...} */
static void write_meta(const char *relative) {
    static const char meta[] = "\x80\x04}(\x8c\x04stoi}(\x8c\x01"
                               "aK\0\x8c\x01"
                               "bK\x01\x8c\x01"
                               "cK\x02u\x8c\x04itos}(K\0\x8c\x01"
                               "aK\x01\x8c\x01"
                               "bK\x02\x8c\x01"
                               "cu\x8c\nvocab_sizeK\x03u.";
    temp_write(&folder, relative, meta, sizeof meta - 1);
}

static void assert_three_characters(void) {
    struct kvad_model_info info;
    assert_non_null(kvad_model_tokenizer(model));
    assert_int_equal(kvad_tokenizer_size(kvad_model_tokenizer(model)), 3);
    kvad_model_get_info(model, &info);
    assert_int_equal(info.n_vocab, 4);
    assert_int_equal(info.n_tokens, 3); /* the fourth row is padding */
    assert_int_equal(said.n_none_found, 0);
    kvad_model_release(&model);
}

static void test_a_tokenizer_beside_the_model_is_found(void **state) {
    (void)state;
    write_nanogpt("out/ckpt.pt", NULL);
    write_meta("out/meta.pkl");
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_three_characters();
    assert_ok(load_here("out"), &err);
    assert_three_characters();
}

static void test_the_data_set_of_nanogpt_is_found_above_the_model(void **state) {
    (void)state;
    write_nanogpt("repo/out/run/ckpt.pt", "three");
    write_meta("repo/data/three/meta.pkl");
    assert_ok(load_here("repo/out/run/ckpt.pt"), &err);
    assert_three_characters();
}

static void test_the_data_set_of_nanogpt_is_found_in_the_working_folder(void **state) {
    (void)state;
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    write_nanogpt("elsewhere/ckpt.pt", "three");
    write_meta("nano/data/three/meta.pkl");
    assert_int_equal(chdir(temp_path(&folder, "nano")), 0);
    enum kvad_status status = load_here("elsewhere/ckpt.pt");
    assert_int_equal(chdir(here), 0);
    assert_ok(status, &err);
    assert_three_characters();
}

static void test_a_data_set_name_cannot_leave_the_data_folder(void **state) {
    (void)state;
    static const char *const names[] = {"../secret", "/secret", "a/../../secret", ""};
    write_meta("repo/secret/meta.pkl");
    write_meta("repo/data/meta.pkl");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_nanogpt("repo/out/ckpt.pt", names[i]);
        assert_ok(load_here("repo/out/ckpt.pt"), &err);
        assert_null(kvad_model_tokenizer(model));
        kvad_model_release(&model);
    }
}

static void test_a_tokenizer_path_wins_over_all(void **state) {
    (void)state;
    write_nanogpt("out/ckpt.pt", NULL);
    temp_write_text(&folder, "out/vocab.json", "{\"stoi\": {\"x\": 0}}");
    write_meta("else/meta.pkl");
    char path[1024];
    snprintf(path, sizeof path, "%s", temp_path(&folder, "else"));
    options.tokenizer_path = path;
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_three_characters();
    options.tokenizer_path = "/no/such/tokenizer";
    assert_fails(load_here("out/ckpt.pt"), KVAD_ERR_NOT_FOUND, &err, "/no/such/tokenizer");
    assert_null(model);
}

static void test_without_a_tokenizer_ids_work_and_the_log_says_what_to_do(void **state) {
    (void)state;
    write_nanogpt("out/ckpt.pt", NULL);
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_null(kvad_model_tokenizer(model));
    assert_int_equal(said.n_none_found, 1);
    assert_int_equal(model->n_tokens, 4);
    kvad_model_release(&model);
    options.no_tokenizer = true; /* silence on request */
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_int_equal(said.n_none_found, 1);
}

static void test_a_broken_tokenizer_beside_the_model_is_refused(void **state) {
    (void)state;
    write_nanogpt("out/ckpt.pt", NULL);
    temp_write_text(&folder, "out/meta.pkl", "not a pickle");
    assert_int_equal(load_here("out/ckpt.pt"), KVAD_ERR_FORMAT);
    assert_non_null(strstr(err.text, "meta.pkl"));
    assert_null(model);
    options.no_tokenizer = true;
    assert_ok(load_here("out/ckpt.pt"), &err);
}

static void write_gpt2_sized(uint32_t n_vocab) {
    struct sizes sizes = {1, 1, 2, 2, n_vocab, 3};
    make_nanogpt(&file, &sizes, false);
    write_bytes("out/ckpt.pt",
                file_torch(&file, &(struct torch_style){.key = "model", .args = true, .bias = 0}));
    file_free(&file);
}

static void test_gpt2_sized_models_find_gpt2s_tokenizer_in_the_caches(void **state) {
    (void)state;
    static const char *const places[] = {
        "tiktoken/6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
        "tiktoken/6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
        ".cache/huggingface/hub/models--gpt2/snapshots/1/vocab.json",
        ".cache/huggingface/hub/models--gpt2/snapshots/1/merges.txt"};
    for (size_t i = 0; i < 4; i += 2) {
        for (size_t j = 0; j < 2; j++) {
            const char *path =
                test_fixture(j ? "gpt2-tokenizer/merges.txt" : "gpt2-tokenizer/vocab.json");
            if (!path) skip();
            write_bytes(places[i + j], read_whole_file(path));
        }
        write_gpt2_sized(50304);
        assert_ok(load_here("out/ckpt.pt"), &err);
        assert_non_null(kvad_model_tokenizer(model));
        struct kvad_model_info info;
        kvad_model_get_info(model, &info);
        assert_int_equal(info.n_tokens, 50257);
        assert_int_equal(info.n_vocab, 50304);
        assert_int_equal(info.eos, 50256);
        kvad_model_release(&model);
        temp_remove_tree(temp_path(&folder, "tiktoken"));
    }
    write_nanogpt("out/ckpt.pt", NULL); /* of another size: not GPT-2's */
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_null(kvad_model_tokenizer(model));
}

static void test_a_padded_gpt2_vocabulary_is_known_without_a_tokenizer(void **state) {
    (void)state;
    write_gpt2_sized(50304);
    assert_ok(load_here("out/ckpt.pt"), &err);
    assert_int_equal(model->n_tokens, 50257);
    assert_non_null(strstr(said.last, "parameters"));
    assert_int_equal(said.n_none_found, 1);
}

static void test_failing_allocations_leave_nothing_behind(void **state) {
    (void)state;
    write_nanogpt("repo/out/ckpt.pt", "three");
    write_meta("repo/data/three/meta.pkl");
    for (size_t k = 1;; k++) {
        struct failing_heap heap;
        failing_heap_init(&heap, k);
        options.allocator = heap.heap.hook;
        enum kvad_status status = load_here("repo/out/ckpt.pt");
        bool reached = heap.n_calls >= k;
        if (reached) {
            assert_int_equal(status, KVAD_ERR_NO_MEMORY);
            assert_null(model);
        } else {
            assert_ok(status, &err);
            assert_non_null(kvad_model_tokenizer(model));
        }
        kvad_model_release(&model);
        assert_int_equal(heap.n_live, 0);
        if (!reached) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LOAD_TEST(test_a_tokenizer_beside_the_model_is_found),
        LOAD_TEST(test_the_data_set_of_nanogpt_is_found_above_the_model),
        LOAD_TEST(test_the_data_set_of_nanogpt_is_found_in_the_working_folder),
        LOAD_TEST(test_a_data_set_name_cannot_leave_the_data_folder),
        LOAD_TEST(test_a_tokenizer_path_wins_over_all),
        LOAD_TEST(test_without_a_tokenizer_ids_work_and_the_log_says_what_to_do),
        LOAD_TEST(test_a_broken_tokenizer_beside_the_model_is_refused),
        LOAD_TEST(test_gpt2_sized_models_find_gpt2s_tokenizer_in_the_caches),
        LOAD_TEST(test_a_padded_gpt2_vocabulary_is_known_without_a_tokenizer),
        LOAD_TEST(test_failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
