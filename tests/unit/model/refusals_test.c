/* Every parameter exactly once, every tensor known, every shape right: or the load is refused by
 * name. */
#include "failing_heap.h"
#include "random.h"
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

static void assert_refused(uint32_t n_heads, enum kvad_status status, const char *text) {
    struct kvad_model *model = NULL;
    const char *config = n_heads ? NULL : config_json(&odd_sizes, "");
    assert_fails(load_file(&file, config, n_heads, &model, &err), status, &err, text);
    assert_null(model);
}

static void refuse_each_missing(uint32_t n_heads) {
    for (size_t i = 0; i < file.n_tensors; i++) {
        struct file_tensor kept = file.tensors[i];
        char text[128];
        if (strstr(kept.name, "mask") || strstr(kept.name, "tril")) continue;
        /* Without the last layer's or head's only tensors there is one less: that is no hole. */
        file.tensors[i] = file.tensors[--file.n_tensors];
        snprintf(text, sizeof text, "tensor %s is missing", kept.name);
        assert_refused(n_heads, KVAD_ERR_FORMAT, text);
        file.n_tensors++;
        file.tensors[file.n_tensors - 1] = file.tensors[i];
        file.tensors[i] = kept;
    }
}

/* bugs.md LOAD-2, LOAD-4 */
static void test_every_missing_tensor_is_named(void **state) {
    (void)state;
    refuse_each_missing(0);
    file_free(&file);
    make_mingpt_2020(&file, &odd_sizes);
    /* The marker of the family is one of its tensors; any layer's will do. */
    refuse_each_missing(2);
}

/* bugs.md LOAD-4 */
static void test_a_head_that_nothing_sets_is_refused(void **state) {
    (void)state;
    file_free(&file);
    make_book(&file, &odd_sizes, true);
    file_remove(&file, "out_head.weight");
    assert_refused(2, KVAD_ERR_FORMAT, "tensor out_head.weight is missing");
    file_free(&file);
    make_lecture(&file, &odd_sizes);
    file_remove(&file, "lm_head.weight");
    assert_refused(2, KVAD_ERR_FORMAT, "tensor lm_head.weight is missing");
}

static void test_a_piece_of_a_head_is_missed_by_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "blocks.1.sa.heads.0.key.weight", "blocks.1.sa.heads.1.key.weight",
        "blocks.2.sa.heads.1.value.weight", "blocks.0.sa.heads.0.query.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        file_free(&file);
        make_lecture(&file, &odd_sizes);
        file_remove(&file, names[i]);
        snprintf(text, sizeof text, "tensor %s is missing", names[i]);
        assert_refused(2, KVAD_ERR_FORMAT, text);
    }
}

static void test_biases_are_all_there_or_none(void **state) {
    (void)state;
    file_free(&file);
    make_nanogpt(&file, &odd_sizes, true);
    file_remove(&file, "transformer.h.1.mlp.c_fc.bias");
    assert_refused(2, KVAD_ERR_FORMAT, "tensor h.1.mlp.c_fc.bias is missing");
    file_free(&file);
    make_article(&file, &odd_sizes);
    file_add_vector(&file, "blocks.1.attn.proj.bias", KVAD_PARAMETER_OUT_BIAS, 1, 0, 22);
    assert_refused(2, KVAD_ERR_FORMAT, "tensor blocks.1.attn.proj.bias is unexpected");
    file_free(&file);
    make_book(&file, &odd_sizes, true);
    file_remove(&file, "trf_blocks.2.att.W_key.bias");
    assert_refused(2, KVAD_ERR_FORMAT, "tensor trf_blocks.2.att.W_key.bias is missing");
}

static void test_unknown_tensors_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "h.0.attn.rotary.inv_freq", "h.0.attn.c_attn.weights", "lm_head.bias",
        "value_head.weight",        "h.0.ln_3.weight",         "h.0.attn.bias.x",
        "h.00.ln_1.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        file_add_other(&file, names[i], "F32", 1, (size_t[]){1});
        snprintf(text, sizeof text, "tensor %s is unexpected", names[i]);
        assert_refused(0, KVAD_ERR_UNSUPPORTED, text);
        file_remove(&file, names[i]);
    }
}

static void test_foreign_parts_say_what_they_are(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
    } cases[] = {{"h.0.crossattention.c_attn.weight", "cross attention"},
                 {"h.0.ln_cross_attn.weight", "cross attention"},
                 {"h.0.crossattention.q_attn.weight", "cross attention"},
                 {"score.weight", "classifier head"},
                 {"multiple_choice_head.summary.weight", "multiple-choice head"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_add_other(&file, cases[i].name, "F32", 1, (size_t[]){1});
        assert_refused(0, KVAD_ERR_UNSUPPORTED, cases[i].text);
        assert_non_null(strstr(err.text, cases[i].name));
        file_remove(&file, cases[i].name);
    }
}

static void test_two_names_of_one_parameter_are_refused(void **state) {
    (void)state;
    file_free(&file);
    make_nanogpt(&file, &odd_sizes, false);
    file_add_vector(&file, "transformer.h.1.ln_1.gamma", KVAD_PARAMETER_NORM1_WEIGHT, 1, 0, 22);
    assert_refused(2, KVAD_ERR_FORMAT, "are the same parameter");
    assert_non_null(strstr(err.text, "transformer.h.1.ln_1.gamma"));
    assert_non_null(strstr(err.text, "transformer.h.1.ln_1.weight"));
}

static void test_a_layer_that_is_skipped_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < file.n_tensors; i++)
        if (strncmp(file.tensors[i].name, "h.1.", 4) == 0) file.tensors[i].name[2] = '5';
    assert_refused(2, KVAD_ERR_FORMAT, "tensor h.1.ln_1.weight is missing");
}

static void test_layer_numbers_allocate_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"h.999999999.ln_1.weight", "h.4294967.ln_1.weight",
                                        "h.40.ln_1.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct failing_heap h;
        failing_heap_init(&h, 0);
        struct kvad_model *model = NULL;
        struct kvad_model_options options;
        kvad_model_options_init(&options);
        options.allocator = h.heap.hook;
        options.n_heads = 2;
        file_rename(&file, i == 0 ? "h.0.ln_1.weight" : names[i - 1], names[i]);
        struct byte_buffer bytes = file_safetensors(&file);
        assert_fails(load_bytes(&bytes, NULL, &options, &model, &err), KVAD_ERR_FORMAT, &err,
                     "missing");
        assert_int_equal(h.n_live, 0);
        free_bytes(&bytes);
    }
}

/* Both shapes are said. */
static void test_wrong_shapes_are_refused_with_both(void **state) {
    (void)state;
    for (size_t i = 0; i < file.n_tensors; i++) {
        struct file_tensor *t = &file.tensors[i];
        struct file_tensor kept = *t;
        char text[128];
        t->shape[0] += 1;
        t->n = t->shape[0] * (t->n_dims == 2 ? t->shape[1] : 1);
        t->values = calloc(t->n, sizeof(float));
        snprintf(text, sizeof text, "tensor %s: shape [%zu", t->name, t->shape[0]);
        assert_refused(0, KVAD_ERR_FORMAT, text);
        assert_non_null(strstr(err.text, ", expected ["));
        free(t->values);
        *t = kept;
        t->n_dims++; /* one dimension more, as many elements */
        t->shape[t->n_dims - 1] = 1;
        assert_refused(0, KVAD_ERR_FORMAT, t->name);
        *t = kept;
    }
}

static void test_a_transposed_matrix_is_recognised(void **state) {
    (void)state;
    struct file_tensor *t = file_find(&file, "h.2.mlp.c_fc.weight");
    t->shape[0] = odd_sizes.d_ff;
    t->shape[1] = odd_sizes.d_model;
    assert_refused(0, KVAD_ERR_FORMAT, "the other way round");
    assert_non_null(
        strstr(err.text, "tensor h.2.mlp.c_fc.weight: shape [37, 22], expected [22, 37]"));
    /* A whole file of the other kind under a Hugging Face configuration. */
    file_free(&file);
    make_nanogpt(&file, &odd_sizes, true);
    assert_refused(0, KVAD_ERR_FORMAT, "the other way round");
}

static void test_integer_weights_are_refused_by_dtype(void **state) {
    (void)state;
    static const char *const names[] = {"h.1.attn.c_proj.weight", "ln_f.bias", "wpe.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        file_find(&file, names[i])->dtype = "I8";
        assert_refused(0, KVAD_ERR_UNSUPPORTED, "must be F32, F16, BF16 or F64, not I8");
        assert_non_null(strstr(err.text, names[i]));
        file_find(&file, names[i])->dtype = "F32";
    }
}

static void test_files_of_no_known_family_name_a_tensor(void **state) {
    (void)state;
    file_free(&file);
    file.sizes = odd_sizes;
    file_add_other(&file, "model.layers.0.self_attn.q_proj.weight", "F32", 2, (size_t[]){2, 2});
    assert_refused(2, KVAD_ERR_UNSUPPORTED, "model.layers.0.self_attn.q_proj.weight");
    file_free(&file);
    assert_refused(2, KVAD_ERR_FORMAT, "holds no tensors");
}

/* All matrices are views of the token embedding's bytes: the file stays small. */
static void test_a_small_file_cannot_ask_for_much_memory(void **state) {
    (void)state;
    struct sizes wide = {9, 1, 400, 1600, 400, 2};
    struct failing_heap heap;
    struct kvad_model *model = NULL;
    struct kvad_model_options options;
    failing_heap_init(&heap, 0);
    kvad_model_options_init(&options);
    options.allocator = heap.heap.hook;
    file_free(&file);
    make_nanogpt(&file, &wide, false);
    for (size_t i = 1; i < file.n_tensors; i++)
        if (file.tensors[i].n_dims == 2) file.tensors[i].same_as = 1;
    struct byte_buffer torch =
        file_torch(&file, &(struct torch_style){.key = "model", .args = true, .bias = 0});
    assert_true(torch.size < 1000000);
    assert_fails(load_bytes(&torch, NULL, &options, &model, &err), KVAD_ERR_FORMAT, &err,
                 "share too many of them");
    assert_int_equal(heap.n_live, 0);
    free_bytes(&torch);
}

/* bugs.md LOAD-30, LOAD-40 */
static void test_every_truncation_is_refused(void **state) {
    (void)state;
    struct byte_buffer bytes = file_safetensors(&file);
    struct byte_buffer torch = {0};
    file_free(&file);
    struct sizes small = {1, 1, 2, 3, 4, 5};
    make_nanogpt(&file, &small, true);
    torch = file_torch(&file, &(struct torch_style){.key = "model", .args = true, .bias = 1});
    for (size_t size = 0; size < bytes.size; size += size < 300 ? 1 : 997) {
        struct kvad_model *model = NULL;
        struct byte_buffer part = {bytes.data, size, size};
        assert_int_equal(load_bytes(&part, config_json(&odd_sizes, ""), NULL, &model, &err),
                         KVAD_ERR_FORMAT);
    }
    for (size_t size = 0; size < torch.size; size += size < 300 ? 1 : 61) {
        struct kvad_model *model = NULL;
        struct byte_buffer part = {torch.data, size, size};
        assert_int_equal(load_bytes(&part, NULL, NULL, &model, &err), KVAD_ERR_FORMAT);
    }
    free_bytes(&bytes);
    free_bytes(&torch);
}

/* bugs.md LOAD-47 */
static void test_flipped_bytes_load_or_are_refused(void **state) {
    (void)state;
    struct sizes small = {2, 1, 2, 3, 4, 5};
    file_free(&file);
    make_gpt2(&file, &small);
    struct byte_buffer bytes = file_safetensors(&file);
    struct test_random random = {7};
    for (size_t round = 0; round < 3000; round++) {
        struct byte_buffer copy = {exact_copy(bytes.data, bytes.size), bytes.size, bytes.size};
        struct kvad_model *model = NULL;
        copy.data[random_below(&random, 2500 < bytes.size ? 2500 : bytes.size)] ^=
            (unsigned char)(1u << random_below(&random, 8));
        load_bytes(&copy, config_json(&small, ""), NULL, &model, &err);
        kvad_model_release(&model);
        free_bytes(&copy);
    }
    free_bytes(&bytes);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_every_missing_tensor_is_named),
        TEST(test_a_head_that_nothing_sets_is_refused),
        TEST(test_a_piece_of_a_head_is_missed_by_name),
        TEST(test_biases_are_all_there_or_none),
        TEST(test_unknown_tensors_are_refused_by_name),
        TEST(test_foreign_parts_say_what_they_are),
        TEST(test_two_names_of_one_parameter_are_refused),
        TEST(test_a_layer_that_is_skipped_is_named),
        TEST(test_layer_numbers_allocate_nothing),
        TEST(test_wrong_shapes_are_refused_with_both),
        TEST(test_a_transposed_matrix_is_recognised),
        TEST(test_integer_weights_are_refused_by_dtype),
        TEST(test_files_of_no_known_family_name_a_tensor),
        TEST(test_a_small_file_cannot_ask_for_much_memory),
        TEST(test_every_truncation_is_refused),
        TEST(test_flipped_bytes_load_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
