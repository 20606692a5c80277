/* Shapes out of config.json files of many families, and hostile ones. */
#include "lab/memory_formula.h"
#include "test.h"

static struct kvad_memory_shape read_shape(const char *text) {
    struct kvad_memory_shape shape;
    struct kvad_error err;
    assert_ok(kvad_memory_shape_read(text, strlen(text), "config.json", &shape, &err), &err);
    return shape;
}

static void test_gpt2_keys(void **state) {
    (void)state;
    struct kvad_memory_shape s =
        read_shape("{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_head\":12,\"n_embd\":768,"
                   "\"n_positions\":1024,\"n_ctx\":1024}");
    assert_int_equal(s.n_layers, 12);
    assert_int_equal(s.n_kv_heads, 12);
    assert_int_equal(s.k_dim, 64);
    assert_int_equal(s.n_ctx, 1024);
    assert_int_equal(s.window, 0);
}

static void test_llama_keys_with_kv_heads_and_a_head_size_of_its_own(void **state) {
    (void)state;
    struct kvad_memory_shape s =
        read_shape("{\"num_hidden_layers\":36,\"num_attention_heads\":32,\"hidden_size\":2560,"
                   "\"num_key_value_heads\":8,\"head_dim\":128,\"sliding_window\":null,"
                   "\"max_position_embeddings\":40960}");
    assert_int_equal(s.n_kv_heads, 8);
    assert_int_equal(s.k_dim, 128);
    assert_int_equal(s.v_dim, 128);
}

static void test_multi_query_keys(void **state) {
    (void)state;
    struct kvad_memory_shape s =
        read_shape("{\"n_layer\":32,\"n_head\":71,\"hidden_size\":4544,\"multi_query\":true}");
    assert_int_equal(s.n_kv_heads, 1);
    s = read_shape("{\"num_hidden_layers\":60,\"num_attention_heads\":128,\"hidden_size\":8192,"
                   "\"multi_query\":true,\"new_decoder_architecture\":true,\"num_kv_heads\":8}");
    assert_int_equal(s.n_kv_heads, 8);
}

static void test_latent_keys(void **state) {
    (void)state;
    struct kvad_memory_shape s = read_shape(
        "{\"num_hidden_layers\":60,\"num_attention_heads\":128,\"num_key_value_heads\":128,"
        "\"hidden_size\":5120,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"
        "\"qk_nope_head_dim\":128,\"v_head_dim\":128,\"max_position_embeddings\":163840}");
    assert_int_equal(s.latent_dim, 512);
    assert_int_equal(s.rope_dim, 64);
    assert_int_equal(s.k_dim, 192);
    assert_int_equal(s.v_dim, 128);
}

#define LAYERS(n, more)                                                                            \
    "{\"num_hidden_layers\":" #n ",\"num_attention_heads\":4,\"hidden_size\":64," more "}"

static void test_windows_cover_the_layers_that_the_file_says(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t window, n_layers;
    } cases[] = {
        {LAYERS(6, "\"sliding_window\":4096"), 4096, 6},
        {LAYERS(6, "\"sliding_window\":4096,\"use_sliding_window\":false"), 0, 0},
        {LAYERS(6, "\"sliding_window\":512,\"model_type\":\"gemma2\""), 512, 3},
        {LAYERS(13, "\"sliding_window\":512,\"model_type\":\"gemma3_text\""), 512, 11},
        {LAYERS(12, "\"sliding_window\":512,\"sliding_window_pattern\":4"), 512, 9},
        {LAYERS(8, "\"sliding_window\":512,\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                   "\"max_window_layers\":5"),
         512, 3},
        {LAYERS(2, "\"sliding_window\":512,\"layer_types\":[\"full_attention\","
                   "\"sliding_attention\"]"),
         512, 1},
        {LAYERS(2, "\"sliding_window\":512,\"layer_types\":[\"full_attention\","
                   "\"full_attention\"]"),
         0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_memory_shape s = read_shape(cases[i].text);
        assert_int_equal(s.window, cases[i].window);
        assert_int_equal(s.n_window_layers, cases[i].n_layers);
    }
}

static void test_the_text_part_of_a_model_that_sees_is_read(void **state) {
    (void)state;
    struct kvad_memory_shape s =
        read_shape("{\"model_type\":\"gemma3\",\"text_config\":" LAYERS(6, "\"head_dim\":256") "}");
    assert_int_equal(s.n_layers, 6);
    assert_int_equal(s.k_dim, 256);
}

static void test_hostile_files_are_refused_by_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1"},
        {"[]", "must be an object"},
        {"{}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":2}", "num_attention_heads"},
        {"{\"num_hidden_layers\":2,\"num_attention_heads\":4}", "hidden_size"},
        {LAYERS(0, "\"x\":1"), "num_hidden_layers"},
        {LAYERS(-3, "\"x\":1"), "num_hidden_layers"},
        {LAYERS(65537, "\"x\":1"), "num_hidden_layers"},
        {LAYERS(18446744073709551615, "\"x\":1"), "config.json"},
        {LAYERS(1e99, "\"x\":1"), "whole number"},
        {LAYERS("2", "\"x\":1"), "whole number"},
        {LAYERS(2.5, "\"x\":1"), "whole number"},
        {LAYERS(2, "\"num_hidden_layers\":3"), "duplicate"},
        {LAYERS(2, "\"n_layer\":3"), "but n_layer is 3"},
        {LAYERS(2, "\"head_dim\":1048577"), "head_dim"},
        {LAYERS(2, "\"head_dim\":true"), "head_dim"},
        {LAYERS(2, "\"num_key_value_heads\":3"), "do not divide"},
        {LAYERS(2, "\"num_key_value_heads\":8"), "do not divide"},
        {LAYERS(2, "\"num_key_value_heads\":0"), "num_key_value_heads"},
        {LAYERS(2, "\"sliding_window\":0"), "sliding_window"},
        {LAYERS(2, "\"sliding_window\":4294967297"), "sliding_window"},
        {LAYERS(2, "\"max_position_embeddings\":99999999999"), "max_position_embeddings"},
        {LAYERS(2, "\"layer_types\":[\"full_attention\"]"), "list of 2"},
        {LAYERS(2, "\"layer_types\":7"), "list of 2"},
        {LAYERS(2, "\"layer_types\":[1,2]"), "layer_types[0]"},
        {LAYERS(2, "\"layer_types\":[\"full_attention\",\"linear_attention\"]"),
         "linear_attention"},
        {LAYERS(2, "\"sliding_window_pattern\":0"), "sliding_window_pattern"},
        {LAYERS(2, "\"kv_lora_rank\":512"), "qk_nope_head_dim"},
        {LAYERS(2, "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128"), "v_head_dim"},
        {LAYERS(2, "\"kv_lora_rank\":-1"), "kv_lora_rank"},
        {"{\"num_hidden_layers\":2,\"num_attention_heads\":3,\"hidden_size\":64}", "head_dim"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_memory_shape shape;
        struct kvad_error err = {0};
        enum kvad_status status = kvad_memory_shape_read(cases[i].text, strlen(cases[i].text),
                                                         "config.json", &shape, &err);
        if (status != KVAD_ERR_FORMAT && status != KVAD_ERR_UNSUPPORTED)
            fail_msg("%s: %s", cases[i].text, kvad_status_text(status));
        if (!strstr(err.text, cases[i].part)) print_error("%s -> %s\n", cases[i].text, err.text);
        assert_non_null(strstr(err.text, cases[i].part));
        assert_null(strchr(err.text, '\n'));
    }
}

static void test_nesting_has_an_end(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text = test_malloc(2 * DEPTH + 16);
    size_t n = (size_t)sprintf(text, "{\"a\":");
    memset(text + n, '[', DEPTH);
    struct kvad_memory_shape shape;
    struct kvad_error err;
    assert_int_equal(kvad_memory_shape_read(text, n + DEPTH, "deep", &shape, &err),
                     KVAD_ERR_FORMAT);
    test_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_keys),
        cmocka_unit_test(test_llama_keys_with_kv_heads_and_a_head_size_of_its_own),
        cmocka_unit_test(test_multi_query_keys),
        cmocka_unit_test(test_latent_keys),
        cmocka_unit_test(test_windows_cover_the_layers_that_the_file_says),
        cmocka_unit_test(test_the_text_part_of_a_model_that_sees_is_read),
        cmocka_unit_test(test_hostile_files_are_refused_by_field),
        cmocka_unit_test(test_nesting_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
