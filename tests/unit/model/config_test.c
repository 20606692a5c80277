/* config.json and model_args: every key that changes the maths, and every refusal. */
#include "pickle_writer.h"
#include "support.h"
#include "test.h"

static struct kvad_error err;
static struct model_file file;

static int set_up(void **state) {
    (void)state;
    err = (struct kvad_error){0};
    make_gpt2(&file, &odd_sizes);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    file_free(&file);
    return 0;
}

static struct kvad_description describe(const char *more) {
    struct kvad_model *model = NULL;
    assert_ok(load_file(&file, config_json(&odd_sizes, more), 0, &model, &err), &err);
    struct kvad_description description = model->description;
    kvad_model_release(&model);
    return description;
}

static void assert_refused(const char *config, enum kvad_status status, const char *text) {
    struct kvad_model *model = NULL;
    assert_fails(load_file(&file, config, 0, &model, &err), status, &err, text);
    assert_null(model);
}

static void refuse_more(const char *more, enum kvad_status status, const char *text) {
    assert_refused(config_json(&odd_sizes, more), status, text);
}

static void test_absent_keys_have_hugging_face_defaults(void **state) {
    (void)state;
    struct kvad_description d = describe("");
    assert_int_equal(d.activation, KVAD_ACTIVATION_GELU_TANH);
    assert_true(d.norm_eps == 1e-5f);
    assert_true(d.scale_attn);
    assert_false(d.scale_attn_by_layer);
    assert_true(d.head_tied);
    assert_int_equal(d.eos, -1); /* 50256 is outside this vocabulary */
    assert_int_equal(d.d_ff, odd_sizes.d_ff);
}

/* bugs.md LOAD-37 */
static void test_every_activation_of_the_table_is_known(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum kvad_activation activation;
    } cases[] = {
        {"gelu_new", KVAD_ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", KVAD_ACTIVATION_GELU_TANH},
        {"gelu_fast", KVAD_ACTIVATION_GELU_TANH},
        {"gelu", KVAD_ACTIVATION_GELU_ERF},
        {"relu", KVAD_ACTIVATION_RELU},
        {"silu", KVAD_ACTIVATION_SILU},
        {"swish", KVAD_ACTIVATION_SILU},
        {"tanh", KVAD_ACTIVATION_TANH},
        {"sigmoid", KVAD_ACTIVATION_SIGMOID},
        {"quick_gelu", KVAD_ACTIVATION_QUICK_GELU},
        {"linear", KVAD_ACTIVATION_LINEAR},
        {"gelu_python", KVAD_ACTIVATION_GELU_ERF},
        {"gelu_accurate", KVAD_ACTIVATION_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[64];
        snprintf(more, sizeof more, ", \"activation_function\": \"%s\"", cases[i].name);
        assert_int_equal(describe(more).activation, cases[i].activation);
    }
}

static void test_other_activations_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"mish", "gelu_10", "relu6", "GELU", "", "leaky_relu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char more[64], text[64];
        snprintf(more, sizeof more, ", \"activation_function\": \"%s\"", names[i]);
        snprintf(text, sizeof text, "activation_function \"%s\" is not supported", names[i]);
        refuse_more(more, KVAD_ERR_UNSUPPORTED, text);
    }
    refuse_more(", \"activation_function\": 3", KVAD_ERR_FORMAT, "activation_function");
}

static void test_the_callers_activation_wins(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.activation = KVAD_ACTIVATION_GELU_ERF;
    struct byte_buffer bytes = file_safetensors(&file);
    assert_ok(load_bytes(&bytes, config_json(&odd_sizes, ", \"activation_function\": \"relu\""),
                         &options, &model, &err),
              &err);
    assert_int_equal(model->description.activation, KVAD_ACTIVATION_GELU_ERF);
    kvad_model_release(&model);
    free_bytes(&bytes);
}

static void test_scale_flags_and_epsilon_are_read(void **state) {
    (void)state;
    struct kvad_description d =
        describe(", \"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": true, "
                 "\"layer_norm_epsilon\": 0.001, \"reorder_and_upcast_attn\": true, "
                 "\"eos_token_id\": 7");
    assert_false(d.scale_attn);
    assert_true(d.scale_attn_by_layer);
    assert_true(d.norm_eps == 0.001f);
    assert_int_equal(d.eos, 7);
}

static void test_the_end_id_may_be_a_list_null_or_outside(void **state) {
    (void)state;
    assert_int_equal(describe(", \"eos_token_id\": [5, 6]").eos, 5);
    assert_int_equal(describe(", \"eos_token_id\": null").eos, -1);
    assert_int_equal(describe(", \"eos_token_id\": 50256").eos, -1);
    assert_int_equal(describe(", \"eos_token_id\": -1").eos, -1);
    refuse_more(", \"eos_token_id\": \"x\"", KVAD_ERR_FORMAT, "eos_token_id");
}

static void test_a_null_mlp_width_is_four_times_the_models(void **state) {
    (void)state;
    struct sizes sizes = odd_sizes;
    sizes.d_ff = 4 * sizes.d_model;
    file_free(&file);
    make_gpt2(&file, &sizes);
    struct kvad_model *model = NULL;
    assert_ok(load_file(&file,
                        "{\"n_layer\": 3, \"n_head\": 2, \"n_embd\": 22, \"n_inner\": null, "
                        "\"n_positions\": 19, \"vocab_size\": 45}",
                        0, &model, &err),
              &err);
    assert_int_equal(model->description.d_ff, 88);
    kvad_model_release(&model);
}

static void test_alias_keys_are_accepted_if_they_agree(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    assert_ok(load_file(&file,
                        "{\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"hidden_size\": "
                        "22, \"n_inner\": 37, \"max_position_embeddings\": 19, \"n_ctx\": 19, "
                        "\"vocab_size\": 45}",
                        0, &model, &err),
              &err);
    kvad_model_release(&model);
    describe(", \"hidden_size\": 22");
    refuse_more(", \"hidden_size\": 44", KVAD_ERR_FORMAT, "n_embd is 22, but hidden_size is 44");
}

static void test_a_missing_head_without_a_tie_is_refused(void **state) {
    (void)state;
    refuse_more(", \"tie_word_embeddings\": false", KVAD_ERR_FORMAT,
                "tensor lm_head.weight is missing");
}

static void test_foreign_architectures_are_refused_by_name(void **state) {
    (void)state;
    refuse_more(", \"add_cross_attention\": true", KVAD_ERR_UNSUPPORTED, "add_cross_attention");
    refuse_more(", \"pruned_heads\": {\"0\": [1]}", KVAD_ERR_UNSUPPORTED, "pruned_heads");
    describe(", \"add_cross_attention\": false, \"pruned_heads\": {}");
    static const char *const types[] = {"llama", "gpt_neo", "openai-gpt", "GPT2", ""};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", types[i]);
        assert_refused(config, KVAD_ERR_UNSUPPORTED, "model_type");
    }
    assert_refused("{\"model_type\": 1}", KVAD_ERR_FORMAT, "model_type");
}

static void test_odd_sizes_are_refused_with_field_and_range(void **state) {
    (void)state;
    static const char *const fields[] = {"n_layer", "n_head",      "n_embd",
                                         "n_inner", "n_positions", "vocab_size"};
    static const char *const values[] = {
        "0",          "-1",  "2147483647",          "2147483648", "4294967295", "4294967296",
        "4294967298", "1.0", "9223372036854775807", "true",       "\"2\"",      "[2]"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            char config[512];
            snprintf(config, sizeof config, "{\"%s\": %s", fields[i], values[j]);
            for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
                static const uint32_t right[] = {3, 2, 22, 37, 19, 45};
                if (k == i) continue;
                size_t used = strlen(config);
                snprintf(config + used, sizeof config - used, ", \"%s\": %u", fields[k], right[k]);
            }
            strcat(config, "}");
            assert_refused(config, KVAD_ERR_FORMAT, fields[i]);
        }
    refuse_more(", \"layer_norm_epsilon\": -1", KVAD_ERR_FORMAT, "layer_norm_epsilon");
    refuse_more(", \"layer_norm_epsilon\": 2", KVAD_ERR_FORMAT, "layer_norm_epsilon");
    refuse_more(", \"layer_norm_epsilon\": \"x\"", KVAD_ERR_FORMAT, "layer_norm_epsilon");
    refuse_more(", \"scale_attn_weights\": 1", KVAD_ERR_FORMAT, "scale_attn_weights");
    refuse_more(", \"tie_word_embeddings\": \"no\"", KVAD_ERR_FORMAT, "tie_word_embeddings");
}

/* Sizes below the limit of a field that no file could hold: no memory is taken for them. */
static void test_sizes_that_the_tensors_do_not_have_are_refused(void **state) {
    (void)state;
    struct sizes sizes = odd_sizes;
    sizes.n_layers = 4;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "tensor h.3.ln_1.weight is missing");
    sizes.n_layers = 268435456;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "tensor h.3.ln_1.weight is missing");
    sizes.n_layers = 2;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "is unexpected: by config.json");
    sizes = odd_sizes;
    sizes.n_vocab = 46;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT,
                   "tensor wte.weight: shape [45, 22], expected [46, 22] by config.json");
    sizes = odd_sizes;
    sizes.n_ctx = 18;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "tensor wpe.weight: shape [19, 22]");
    sizes = odd_sizes;
    sizes.d_ff = 36;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "expected [22, 36]");
    sizes = odd_sizes;
    sizes.d_model = 24;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "expected [45, 24]");
    sizes = odd_sizes;
    sizes.n_heads = 4;
    assert_refused(config_json(&sizes, ""), KVAD_ERR_FORMAT, "22 is not divisible by 4 heads");
}

static void test_the_head_count_comes_from_exactly_one_place(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    assert_fails(load_file(&file, NULL, 0, &model, &err), KVAD_ERR_ARGUMENT, &err, "--n-head");
    assert_fails(load_file(&file, NULL, 3, &model, &err), KVAD_ERR_ARGUMENT, &err,
                 "22 is not divisible by 3 heads");
    assert_fails(load_file(&file, NULL, UINT32_MAX, &model, &err), KVAD_ERR_ARGUMENT, &err,
                 "is not divisible");
    assert_ok(load_file(&file, NULL, 11, &model, &err), &err);
    assert_int_equal(model->description.n_heads, 11);
    kvad_model_release(&model);
    assert_fails(load_file(&file, config_json(&odd_sizes, ""), 11, &model, &err), KVAD_ERR_ARGUMENT,
                 &err, "has 2 attention heads, but 11 were asked for");
    assert_ok(load_file(&file, config_json(&odd_sizes, ""), 2, &model, &err), &err);
    kvad_model_release(&model);
    /* Hand-written models may have a config.json of their own. */
    file_free(&file);
    make_book(&file, &odd_sizes, true);
    assert_ok(load_file(&file, "{\"n_heads\": 11, \"drop_rate\": 0.1}", 0, &model, &err), &err);
    assert_int_equal(model->description.n_heads, 11);
    kvad_model_release(&model);
}

static void test_model_args_are_checked_against_the_tensors(void **state) {
    (void)state;
    static const struct {
        struct sizes sizes;
        int bias;
        const char *text;
    } cases[] = {
        {{4, 2, 22, 37, 45, 19}, 1, "tensor h.3.ln_1.weight is missing"},
        {{2, 2, 22, 37, 45, 19}, 1, "by model_args of the checkpoint there are 2 layers"},
        {{3, 4, 22, 37, 45, 19}, 1, "22 is not divisible by 4 heads"},
        {{3, 2, 24, 37, 45, 19}, 1, "expected [45, 24]"},
        {{3, 2, 22, 37, 50, 19}, 1, "expected [50, 22]"},
        {{3, 2, 22, 37, 45, 20}, 1, "expected [20, 22]"},
        {{3, 2, 22, 37, 45, 19}, 0, "is unexpected: model_args says bias=False"},
        {{3, 0, 22, 37, 45, 19}, 1, "n_head is 0"},
        {{3, UINT32_MAX, 22, 37, 45, 19}, 1, "n_head is 4294967295"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_model *model = NULL;
        file_free(&file);
        make_nanogpt(&file, &odd_sizes, true);
        file.sizes = cases[i].sizes;
        struct torch_style style = {.key = "model", .args = true, .bias = cases[i].bias};
        struct byte_buffer bytes = file_torch(&file, &style);
        assert_fails(load_bytes(&bytes, NULL, NULL, &model, &err), KVAD_ERR_FORMAT, &err,
                     cases[i].text);
        free_bytes(&bytes);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_absent_keys_have_hugging_face_defaults),
        TEST(test_every_activation_of_the_table_is_known),
        TEST(test_other_activations_are_refused_by_name),
        TEST(test_the_callers_activation_wins),
        TEST(test_scale_flags_and_epsilon_are_read),
        TEST(test_the_end_id_may_be_a_list_null_or_outside),
        TEST(test_a_null_mlp_width_is_four_times_the_models),
        TEST(test_alias_keys_are_accepted_if_they_agree),
        TEST(test_a_missing_head_without_a_tie_is_refused),
        TEST(test_foreign_architectures_are_refused_by_name),
        TEST(test_odd_sizes_are_refused_with_field_and_range),
        TEST(test_sizes_that_the_tensors_do_not_have_are_refused),
        TEST(test_the_head_count_comes_from_exactly_one_place),
        TEST(test_model_args_are_checked_against_the_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
