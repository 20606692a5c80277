/* kvad_model_load() and kvad_model_inspect() on files: fixtures, folders, names. */
#include "failing_heap.h"
#include "load_support.h"

/* ---- fixtures */

struct expected {
    const char *path;
    uint32_t n_heads_option;
    const char *family;
    uint32_t n_layers, n_heads, d_model, d_ff, n_vocab, n_tokens, n_ctx;
    enum kvad_activation activation;
    float eps;
    bool tied, bias, scale, by_layer;
    int32_t eos;
};

#define HF(name, l, h, d, ff, v, ctx, act, eps, tied, scale, by_layer)                             \
    {                                                                                              \
        "tiny/hf-gpt2/" name, 0, "gpt2", l, h, d, ff, v, v, ctx, KVAD_ACTIVATION_##act, eps, tied, \
            true, scale, by_layer, 0                                                               \
    }
#define NANO(path, l, h, d, v, ctx, bias)                                                          \
    {                                                                                              \
        path, 0, "nanogpt", l, h, d, 4 * d, v, 65, ctx, KVAD_ACTIVATION_GELU_ERF, 1e-5f, true,     \
            bias, true, false, -1                                                                  \
    }
#define HAND(name, option, family, l, h, d, v, ctx, act)                                           \
    {                                                                                              \
        "tiny/hand-written/" name, option, family, l, h, d, 4 * d, v, v, ctx,                      \
            KVAD_ACTIVATION_##act, 1e-5f, false, true, true, false, -1                             \
    }

static const struct expected fixtures[] = {
    HF("bin-legacy/pytorch_model.bin", 2, 3, 30, 120, 71, 29, GELU_TANH, 1e-5f, true, true, false),
    HF("bin-sharded/pytorch_model.bin.index.json", 2, 3, 30, 120, 71, 29, GELU_TANH, 1e-5f, true,
       true, false),
    HF("bin-zip/pytorch_model.bin", 2, 3, 30, 120, 71, 29, GELU_TANH, 1e-5f, true, true, false),
    HF("file-bf16/model.safetensors", 2, 2, 36, 144, 61, 35, GELU_TANH, 1e-5f, true, true, false),
    HF("file-f16/model.safetensors", 2, 2, 36, 144, 61, 35, GELU_TANH, 1e-5f, true, true, false),
    HF("inner-gelu-erf/model.safetensors", 2, 3, 48, 50, 67, 40, GELU_ERF, 1e-3f, true, true,
       false),
    HF("odd/model.safetensors", 3, 5, 35, 140, 101, 61, GELU_TANH, 1e-5f, true, true, false),
    HF("one-token-context/model.safetensors", 1, 1, 16, 64, 16, 2, GELU_TANH, 1e-5f, true, true,
       false),
    HF("plain-names/model.safetensors", 2, 3, 30, 120, 71, 29, GELU_TANH, 1e-5f, true, true, false),
    HF("relu-inverse-layer/model.safetensors", 4, 2, 34, 136, 50, 33, RELU, 1e-5f, true, true,
       true),
    HF("sharded/model.safetensors.index.json", 3, 3, 48, 192, 90, 32, GELU_TANH, 1e-5f, true, true,
       false),
    HF("silu-noscale-untied/model.safetensors", 2, 4, 40, 160, 83, 48, SILU, 1e-5f, false, false,
       false),
    HF("tanh/model.safetensors", 2, 2, 32, 128, 33, 17, TANH, 1e-5f, true, true, false),
    HF("upcast-fast-gelu/model.safetensors", 2, 1, 24, 96, 40, 31, GELU_TANH, 1e-5f, true, true,
       false),
    HF("wide-two-chunks/model.safetensors", 2, 4, 256, 600, 307, 530, GELU_TANH, 1e-5f, true, true,
       false),
    NANO("tiny/nanogpt/bias/ckpt.pt", 2, 3, 33, 65, 37, true),
    NANO("tiny/nanogpt/compiled-padded/ckpt.pt", 2, 2, 32, 128, 30, false),
    NANO("tiny/nanogpt/ddp-legacy/ckpt.pt", 2, 2, 24, 65, 24, true),
    NANO("tiny/nanogpt/no-bias/ckpt.pt", 3, 2, 34, 65, 41, false),
    NANO("tiny/nanogpt/with-optimizer/ckpt.pt", 2, 2, 24, 65, 24, true),
    NANO("shakespeare-char/ckpt.pt", 6, 6, 192, 65, 1024, false),
    HAND("lecture/model.pt", 0, "lecture", 3, 4, 36, 65, 32, RELU),
    HAND("lecture-wrapped/model.pt", 0, "lecture", 2, 3, 24, 50, 24, RELU),
    HAND("article/model.pt", 4, "article", 2, 4, 36, 65, 32, RELU),
    HAND("article-no-head-bias/model.pt", 5, "article", 2, 5, 30, 40, 20, RELU),
    HAND("book/model.pt", 3, "book", 2, 3, 36, 90, 32, GELU_TANH),
    HAND("book-qkv-bias/model.pt", 4, "book", 3, 4, 28, 60, 24, GELU_TANH),
    HAND("mingpt/model.pt", 3, "mingpt", 2, 3, 33, 70, 30, GELU_TANH),
};

static void check_info(const struct expected *e, const struct kvad_model_info *info) {
    assert_string_equal(info->family, e->family);
    assert_int_equal(info->n_layers, e->n_layers);
    assert_int_equal(info->n_heads, e->n_heads);
    assert_int_equal(info->n_kv_heads, e->n_heads);
    assert_int_equal(info->head_dim, e->d_model / e->n_heads);
    assert_int_equal(info->d_model, e->d_model);
    assert_int_equal(info->d_ff, e->d_ff);
    assert_int_equal(info->n_vocab, e->n_vocab);
    assert_int_equal(info->n_tokens, e->n_tokens);
    assert_int_equal(info->n_ctx, e->n_ctx);
    assert_int_equal(info->activation, e->activation);
    assert_true(info->norm_eps == e->eps);
    assert_true(info->head_tied == e->tied);
    assert_true(info->has_bias == e->bias);
    assert_int_equal(info->eos, e->eos);
}

/* bugs.md LOAD-37 */
static void test_every_fixture_loads_with_its_description(void **state) {
    (void)state;
    size_t n_absent = 0;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const struct expected *e = &fixtures[i];
        const char *path = test_fixture(e->path);
        if (!path) {
            n_absent++;
            continue;
        }
        struct kvad_model_info loaded, inspected;
        options.n_heads = e->n_heads_option;
        assert_ok(kvad_model_load(path, &options, &model, &err), &err);
        kvad_model_get_info(model, &loaded);
        check_info(e, &loaded);
        assert_true(model->description.scale_attn == e->scale);
        assert_true(model->description.scale_attn_by_layer == e->by_layer);
        assert_ok(kvad_model_inspect(path, &options, &inspected, &err), &err);
        check_info(e, &inspected);
        assert_int_equal(inspected.weight_bytes, loaded.weight_bytes);
        assert_int_equal(inspected.n_parameters, loaded.n_parameters);
        assert_int_equal(inspected.kv_bytes_per_token, loaded.kv_bytes_per_token);
        kvad_model_release(&model);
    }
    if (n_absent) skip();
}

static void test_files_that_do_not_say_their_heads_ask_for_them(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        if (!fixtures[i].n_heads_option) continue;
        const char *path = test_fixture(fixtures[i].path);
        if (!path) skip();
        options.n_heads = 0;
        assert_fails(kvad_model_load(path, &options, &model, &err), KVAD_ERR_ARGUMENT, &err,
                     "--n-head");
    }
}

/* ---- folders and names */

static void write_gpt2(const char *relative_folder) {
    char name[256];
    make_gpt2(&file, &odd_sizes);
    snprintf(name, sizeof name, "%s/model.safetensors", relative_folder);
    write_bytes(name, file_safetensors(&file));
    snprintf(name, sizeof name, "%s/config.json", relative_folder);
    temp_write_text(&folder, name, config_json(&odd_sizes, ""));
    file_free(&file);
}

static void test_a_name_in_the_hugging_face_cache_loads(void **state) {
    (void)state;
    bool present[KVAD_PARAMETER_COUNT];
    all_biases(present);
    write_gpt2(".cache/huggingface/hub/models--org--tiny/snapshots/1");
    assert_ok(kvad_model_load("org/tiny", &options, &model, &err), &err);
    check_model(model, &odd_sizes, true, present);
    assert_fails(kvad_model_load("org/other", &options, &model, &err), KVAD_ERR_NOT_FOUND, &err,
                 "org/other");
    assert_fails(kvad_model_load("", &options, &model, &err), KVAD_ERR_ARGUMENT, &err, "empty");
    assert_fails(kvad_model_load(NULL, &options, &model, &err), KVAD_ERR_ARGUMENT, &err, "empty");
}

static void test_options_without_init_are_refused(void **state) {
    (void)state;
    struct kvad_model_info info;
    struct kvad_model_options wrong = {0};
    write_gpt2("m");
    assert_fails(kvad_model_load(temp_path(&folder, "m"), &wrong, &model, &err), KVAD_ERR_ARGUMENT,
                 &err, "kvad_model_options_init");
    wrong.struct_size = sizeof wrong + 8;
    assert_fails(kvad_model_inspect(temp_path(&folder, "m"), &wrong, &info, &err),
                 KVAD_ERR_ARGUMENT, &err, "struct_size");
    options.activation = (enum kvad_activation)99;
    assert_fails(load_here("m"), KVAD_ERR_ARGUMENT, &err, "activation is 99");
    assert_ok(kvad_model_load(temp_path(&folder, "m"), NULL, &model, &err), &err);
}

static void test_inspecting_takes_no_memory_for_weights(void **state) {
    (void)state;
    struct sizes wide = {
        .n_layers = 1, .n_heads = 4, .d_model = 400, .d_ff = 1600, .n_vocab = 3000, .n_ctx = 10};
    struct failing_heap heap;
    struct kvad_model_info info;
    failing_heap_init(&heap, 0);
    options.allocator = heap.heap.hook;
    make_nanogpt(&file, &wide, true);
    write_bytes("ckpt.pt",
                file_torch(&file, &(struct torch_style){.key = "model", .args = true, .bias = 1}));
    kvad_heap_init(&heap.heap, &options.allocator);
    assert_ok(kvad_model_inspect(temp_path(&folder, "ckpt.pt"), &options, &info, &err), &err);
    assert_true(info.weight_bytes > 10u << 20);
    assert_true(info.head_tied);
    assert_int_equal(heap.n_live, 0);
    size_t n_inspect = heap.n_calls;
    assert_ok(load_here("ckpt.pt"), &err);
    assert_true(heap.n_calls > n_inspect);
    kvad_model_release(&model);
    assert_int_equal(heap.n_live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LOAD_TEST(test_every_fixture_loads_with_its_description),
        LOAD_TEST(test_files_that_do_not_say_their_heads_ask_for_them),
        LOAD_TEST(test_a_name_in_the_hugging_face_cache_loads),
        LOAD_TEST(test_options_without_init_are_refused),
        LOAD_TEST(test_inspecting_takes_no_memory_for_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
