/* Every weight of every family lands where it belongs. */
#include "base/bytes.h"
#include "support.h"
#include "test.h"

static struct kvad_error err;
static struct model_file file;
static bool present[KVAD_PARAMETER_COUNT];

#define P(name) KVAD_PARAMETER_##name

static int set_up(void **state) {
    (void)state;
    err = (struct kvad_error){0};
    all_biases(present);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    file_free(&file);
    return 0;
}

/* Load the file as safetensors and compare every element. */
static void check_loaded(const char *config, uint32_t n_heads, bool tied, const char *family,
                         enum kvad_activation activation) {
    struct kvad_model *model = NULL;
    assert_ok(load_file(&file, config, n_heads, &model, &err), &err);
    check_model(model, &file.sizes, tied, present);
    assert_string_equal(model->description.family, family);
    assert_int_equal(model->description.activation, activation);
    kvad_model_release(&model);
    assert_null(model);
}

static void check_torch(const struct torch_style *style, uint32_t n_heads, bool tied,
                        const char *family) {
    struct kvad_model *model = NULL;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.n_heads = n_heads;
    struct byte_buffer bytes = file_torch(&file, style);
    assert_ok(load_bytes(&bytes, NULL, &options, &model, &err), &err);
    check_model(model, &file.sizes, tied, present);
    assert_string_equal(model->description.family, family);
    kvad_model_release(&model);
    free_bytes(&bytes);
}

static void check_gpt2(void) {
    check_loaded(config_json(&odd_sizes, ""), 0, true, "gpt2", KVAD_ACTIVATION_GELU_TANH);
}

/* bugs.md LOAD-3, LOAD-7 */
static void test_gpt2_is_stored_as_inputs_by_outputs(void **state) {
    (void)state;
    make_gpt2(&file, &odd_sizes);
    check_gpt2();
}

/* bugs.md LOAD-7 */
static void test_nanogpt_is_stored_as_outputs_by_inputs(void **state) {
    (void)state;
    make_nanogpt(&file, &odd_sizes, true);
    check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
    check_torch(&(struct torch_style){.key = "model", .args = true, .bias = 1}, 0, true, "nanogpt");
    check_torch(&(struct torch_style){.key = "model", .args = true, .bias = -1}, 0, true,
                "nanogpt");
}

static void test_nanogpt_without_biases_has_none(void **state) {
    (void)state;
    make_nanogpt(&file, &odd_sizes, false);
    no_biases(present);
    check_torch(&(struct torch_style){.key = "model", .args = true, .bias = 0}, 0, true, "nanogpt");
    check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
}

static void test_square_matrices_of_one_size_are_not_guessed(void **state) {
    (void)state;
    struct sizes square = {
        .n_layers = 2, .n_heads = 3, .d_model = 9, .d_ff = 9, .n_vocab = 9, .n_ctx = 9};
    make_gpt2(&file, &square);
    check_loaded(config_json(&square, ""), 0, true, "gpt2", KVAD_ACTIVATION_GELU_TANH);
    check_loaded(NULL, 3, true, "gpt2", KVAD_ACTIVATION_GELU_TANH); /* c_attn decides for all */
    file_free(&file);
    make_nanogpt(&file, &square, true);
    check_loaded(NULL, 3, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
}

static void test_mingpt_is_untied_with_the_tanh_gelu(void **state) {
    (void)state;
    make_mingpt(&file, &odd_sizes);
    check_loaded(NULL, 2, false, "mingpt", KVAD_ACTIVATION_GELU_TANH);
    check_torch(&(struct torch_style){0}, 2, false, "mingpt");
}

static void test_mingpt_of_2020_has_q_k_and_v_apart(void **state) {
    (void)state;
    make_mingpt_2020(&file, &odd_sizes);
    check_loaded(NULL, 2, false, "mingpt-2020", KVAD_ACTIVATION_GELU_ERF);
    check_torch(&(struct torch_style){.key = "model_state"}, 2, false, "mingpt-2020");
}

static void test_gpt2_blocks_under_mingpt_names(void **state) {
    (void)state;
    make_blocks(&file, &odd_sizes);
    check_loaded(NULL, 2, true, "mingpt-like", KVAD_ACTIVATION_GELU_ERF);
}

static void test_the_lecture_has_a_matrix_per_head(void **state) {
    (void)state;
    make_lecture(&file, &odd_sizes);
    present[P(QKV_BIAS)] = false;
    present[P(HEAD_BIAS)] = true;
    check_loaded(NULL, 0, false, "lecture", KVAD_ACTIVATION_RELU);
    check_torch(&(struct torch_style){.key = "model_state_dict"}, 0, false, "lecture");
    check_torch(&(struct torch_style){0}, 0, false, "lecture");
}

static void test_the_article_has_no_attention_biases(void **state) {
    (void)state;
    make_article(&file, &odd_sizes);
    present[P(QKV_BIAS)] = present[P(OUT_BIAS)] = false;
    present[P(HEAD_BIAS)] = true;
    check_loaded(NULL, 2, false, "article", KVAD_ACTIVATION_RELU);
    file_remove(&file, "lm_head.bias");
    present[P(HEAD_BIAS)] = false;
    check_loaded(NULL, 2, false, "article", KVAD_ACTIVATION_RELU);
}

static void test_the_book_has_scale_and_shift(void **state) {
    (void)state;
    make_book(&file, &odd_sizes, true);
    check_loaded(NULL, 2, false, "book", KVAD_ACTIVATION_GELU_TANH);
    file_free(&file);
    make_book(&file, &odd_sizes, false);
    present[P(QKV_BIAS)] = false;
    check_loaded(NULL, 2, false, "book", KVAD_ACTIVATION_GELU_TANH);
    check_torch(&(struct torch_style){.key = "state_dict"}, 2, false, "book");
}

static void test_norms_named_gamma_and_beta_are_norms(void **state) {
    (void)state;
    make_nanogpt(&file, &odd_sizes, true);
    for (size_t i = 0; i < file.n_tensors; i++) {
        char *name = file.tensors[i].name;
        char *last = strrchr(name, '.');
        if (strstr(name, "ln_")) strcpy(last, strcmp(last, ".weight") == 0 ? ".gamma" : ".beta");
    }
    check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
}

/* bugs.md LOAD-1, LOAD-2, LOAD-45 */
static void test_prefixes_in_any_nesting_change_nothing(void **state) {
    (void)state;
    static const char *const prefixes[] = {"",
                                           "transformer.",
                                           "_orig_mod.",
                                           "module.",
                                           "module._orig_mod.",
                                           "_orig_mod.module.",
                                           "model.transformer.",
                                           "_orig_mod.module._orig_mod.transformer.",
                                           "_fsdp_wrapped_module."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        make_gpt2(&file, &odd_sizes);
        file_prefix(&file, prefixes[i]);
        check_gpt2();
        file_free(&file);
        make_nanogpt(&file, &odd_sizes, true);
        file_prefix(&file, prefixes[i]);
        check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
        file_free(&file);
        make_book(&file, &odd_sizes, true);
        file_prefix(&file, prefixes[i]);
        check_loaded(NULL, 2, false, "book", KVAD_ACTIVATION_GELU_TANH);
        file_free(&file);
    }
}

/* bugs.md LOAD-45 */
static void test_mixed_prefixes_are_refused(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    make_gpt2(&file, &odd_sizes);
    file_rename(&file, "h.1.ln_2.weight", "transformer.h.1.ln_2.weight");
    assert_fails(load_file(&file, config_json(&odd_sizes, ""), 0, &model, &err), KVAD_ERR_FORMAT,
                 &err, "different prefixes");
    assert_null(model);
}

/* bugs.md LOAD-3, LOAD-5 */
static void test_a_head_equal_to_the_embedding_lies_in_memory_once(void **state) {
    (void)state;
    make_gpt2(&file, &odd_sizes);
    file_add_matrix(&file, "lm_head.weight", P(EMBEDDING), 0, 0, odd_sizes.n_vocab,
                    odd_sizes.d_model, false);
    check_gpt2();
    check_loaded(config_json(&odd_sizes, ", \"tie_word_embeddings\": false"), 0, true, "gpt2",
                 KVAD_ACTIVATION_GELU_TANH);
    file_free(&file);
    make_book(&file, &odd_sizes, true); /* the book loads GPT-2 so */
    file_remove(&file, "out_head.weight");
    file_add_matrix(&file, "out_head.weight", P(EMBEDDING), 0, 0, odd_sizes.n_vocab,
                    odd_sizes.d_model, false);
    check_loaded(NULL, 2, true, "book", KVAD_ACTIVATION_GELU_TANH);
}

static size_t n_warnings;
static void count_warnings(void *user, enum kvad_log_level level, const char *text) {
    (void)user;
    if (level == KVAD_LOG_WARNING && strstr(text, "should be tied")) n_warnings++;
}

/* bugs.md LOAD-5 */
static void test_a_different_head_is_used_as_it_is_and_said(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.log.write = count_warnings;
    make_gpt2(&file, &odd_sizes);
    file_add_head(&file, "lm_head.weight");
    struct byte_buffer bytes = file_safetensors(&file);
    n_warnings = 0;
    assert_ok(load_bytes(&bytes, config_json(&odd_sizes, ""), &options, &model, &err), &err);
    check_model(model, &odd_sizes, false, present);
    assert_int_equal(n_warnings, 1);
    kvad_model_release(&model);
    assert_ok(load_bytes(&bytes, config_json(&odd_sizes, ", \"tie_word_embeddings\": false"),
                         &options, &model, &err),
              &err);
    assert_int_equal(n_warnings, 1);
    kvad_model_release(&model);
    free_bytes(&bytes);
}

/* bugs.md LOAD-6 */
static void test_either_name_of_a_tied_tensor_is_enough(void **state) {
    (void)state;
    make_gpt2(&file, &odd_sizes);
    file_rename(&file, "wte.weight", "lm_head.weight");
    check_gpt2();
    file_free(&file);
    make_nanogpt(&file, &odd_sizes, true);
    file_remove(&file, "transformer.wte.weight");
    check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
    file_free(&file);
    make_nanogpt(&file, &odd_sizes, true);
    file_remove(&file, "lm_head.weight");
    check_loaded(NULL, 2, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
}

/* bugs.md LOAD-44 */
static void test_mask_buffers_are_ignored_exactly(void **state) {
    (void)state;
    make_gpt2(&file, &odd_sizes);
    for (uint32_t l = 0; l < odd_sizes.n_layers; l++) {
        char name[64];
        size_t mask[4] = {1, 1, odd_sizes.n_ctx, odd_sizes.n_ctx};
        snprintf(name, sizeof name, "h.%u.attn.bias", l);
        file_add_other(&file, name, l == 0 ? "F32" : l == 1 ? "BOOL" : "U8", 4, mask);
        snprintf(name, sizeof name, "h.%u.attn.masked_bias", l);
        file_add_other(&file, name, l == 0 ? "F32" : "F16", 0, mask);
    }
    check_gpt2();
    /* ... and what only looks like one is not dropped. */
    struct kvad_model *model = NULL;
    file_remove(&file, "h.1.attn.bias");
    file_add_other(&file, "h.1.attn.bias", "F32", 1, (size_t[]){3 * (size_t)odd_sizes.d_model});
    assert_fails(load_file(&file, config_json(&odd_sizes, ""), 0, &model, &err), KVAD_ERR_FORMAT,
                 &err, "tensor h.1.attn.bias: shape [66]");
}

static void test_sizes_of_one_load(void **state) {
    (void)state;
    static const struct sizes cases[] = {{1, 1, 1, 1, 1, 1},
                                         {1, 1, 1, 300, 1, 1},
                                         {2, 1, 1, 1, 70, 1},
                                         {1, 2, 2, 1, 1, 30},
                                         {1, 1, 70, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_gpt2(&file, &cases[i]);
        check_loaded(config_json(&cases[i], ""), 0, true, "gpt2", KVAD_ACTIVATION_GELU_TANH);
        file_free(&file);
        make_nanogpt(&file, &cases[i], true);
        check_loaded(NULL, cases[i].n_heads, true, "nanogpt", KVAD_ACTIVATION_GELU_ERF);
        file_free(&file);
    }
}

static void test_half_precision_files_give_their_exact_values(void **state) {
    (void)state;
    static const char *const dtypes[] = {"F16", "BF16", "F64"};
    for (size_t i = 0; i < 3; i++) {
        make_gpt2(&file, &odd_sizes);
        file_set_dtype(&file, dtypes[i]);
        check_gpt2();
        file_free(&file);
    }
}

/* Weights that are not finite are the model's own: the forward pass names where they show. */
static void test_weights_that_are_not_finite_are_loaded(void **state) {
    (void)state;
    struct kvad_model *model = NULL;
    make_gpt2(&file, &odd_sizes);
    file_find(&file, "h.0.ln_1.bias")->values[3] = kvad_float_from_bits(0x7fc00000);
    assert_ok(load_file(&file, config_json(&odd_sizes, ""), 0, &model, &err), &err);
    assert_true(model->layers[0].norm1.bias[3] != model->layers[0].norm1.bias[3]);
    kvad_model_release(&model);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_gpt2_is_stored_as_inputs_by_outputs),
        TEST(test_nanogpt_is_stored_as_outputs_by_inputs),
        TEST(test_nanogpt_without_biases_has_none),
        TEST(test_square_matrices_of_one_size_are_not_guessed),
        TEST(test_mingpt_is_untied_with_the_tanh_gelu),
        TEST(test_mingpt_of_2020_has_q_k_and_v_apart),
        TEST(test_gpt2_blocks_under_mingpt_names),
        TEST(test_the_lecture_has_a_matrix_per_head),
        TEST(test_the_article_has_no_attention_biases),
        TEST(test_the_book_has_scale_and_shift),
        TEST(test_norms_named_gamma_and_beta_are_norms),
        TEST(test_prefixes_in_any_nesting_change_nothing),
        TEST(test_mixed_prefixes_are_refused),
        TEST(test_a_head_equal_to_the_embedding_lies_in_memory_once),
        TEST(test_a_different_head_is_used_as_it_is_and_said),
        TEST(test_either_name_of_a_tied_tensor_is_enough),
        TEST(test_mask_buffers_are_ignored_exactly),
        TEST(test_sizes_of_one_load),
        TEST(test_half_precision_files_give_their_exact_values),
        TEST(test_weights_that_are_not_finite_are_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
