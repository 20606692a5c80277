#include "lab/work.h"

#include "test.h"

/* GPT-2 124M as numbers only: no weights. */
struct gpt2 {
    struct kvad_model model;
    struct kvad_layer_weights layers[12];
};

static float nothing; /* "there is a bias" */

static struct kvad_linear_weights linear(size_t n, size_t k) {
    return (struct kvad_linear_weights){.type = KVAD_WEIGHTS_F32,
                                        .panel_bytes = k * KVAD_PANEL * sizeof(float),
                                        .bias = &nothing,
                                        .n = n,
                                        .k = k};
}

static void set_up(struct gpt2 *g) {
    struct kvad_norm_weights norm = {&nothing, &nothing};
    *g = (struct gpt2){.model.description = {.n_layers = 12,
                                             .n_heads = 12,
                                             .n_kv_heads = 12,
                                             .head_dim = 64,
                                             .d_model = 768,
                                             .d_ff = 3072,
                                             .n_vocab = 50257,
                                             .n_ctx = 1024,
                                             .head_tied = true}};
    for (size_t i = 0; i < 12; i++)
        g->layers[i] = (struct kvad_layer_weights){norm, linear(2304, 768), linear(768, 768),
                                                   norm, linear(3072, 768), linear(768, 3072)};
    g->model.layers = g->layers;
    g->model.final_norm = norm;
    g->model.head = linear(50257, 768);
    g->model.head.bias = NULL;
}

enum { KV_TOKEN = 12 * 2 * 768 * 4 }; /* 72 KiB */

/* 85,056,000 numbers in the layers, and 50,272 rows of the head: padded to whole panels. */
static void test_weights_are_what_a_pass_reads(void **state) {
    (void)state;
    struct gpt2 g;
    set_up(&g);
    double layers = 12.0 * (12.0 * 768 * 768 + (2304 + 768 + 3072 + 768) + 4 * 768);
    assert_true(kvad_work_weight_bytes(&g.model, false) == 4 * layers);
    assert_true(kvad_work_weight_bytes(&g.model, true) == 4 * (layers + 2 * 768 + 50272.0 * 768));
}

static void test_one_token_costs_what_the_formula_says(void **state) {
    (void)state;
    struct gpt2 g;
    set_up(&g);
    struct kvad_work_step step = {.n_sequences = 1,
                                  .position = 1000,
                                  .n_rows = 1,
                                  .n_logits = 1,
                                  .n_batch_rows = 512,
                                  .kv_bytes_per_token = KV_TOKEN};
    struct kvad_work work = kvad_work_of(&g.model, &step);
    /* 2 * (12 layers * 12 d^2 + vocabulary * d) */
    assert_true(work.linear_flops == 2.0 * (84934656 + 50257.0 * 768));
    /* 4 * layers * d * visible tokens, the new one included */
    assert_true(work.attention_flops == 4.0 * 12 * 768 * 1001);
    assert_true(work.kv_bytes == 1001.0 * 73728);
    /* The rows of embedding and positions besides the weights. */
    assert_true(work.weight_bytes == kvad_work_weight_bytes(&g.model, true) + 2 * 768 * 4);
}

static void test_rows_of_a_prompt_see_a_triangle(void **state) {
    (void)state;
    struct gpt2 g;
    set_up(&g);
    struct kvad_work_step step = {.n_sequences = 1,
                                  .n_rows = 100,
                                  .n_logits = 1,
                                  .n_batch_rows = 512,
                                  .kv_bytes_per_token = KV_TOKEN};
    struct kvad_work work = kvad_work_of(&g.model, &step);
    assert_true(work.attention_flops == 4.0 * 12 * 768 * 5050);
    assert_true(work.linear_flops == 2.0 * (100.0 * 84934656 + 50257.0 * 768));
    assert_true(work.kv_bytes == 100.0 * 73728);
}

static void test_weights_are_read_once_for_each_pass(void **state) {
    (void)state;
    struct gpt2 g;
    set_up(&g);
    struct kvad_work_step step = {.n_sequences = 1,
                                  .n_rows = 1000,
                                  .n_logits = 1,
                                  .n_batch_rows = 512,
                                  .kv_bytes_per_token = KV_TOKEN};
    struct kvad_work work = kvad_work_of(&g.model, &step);
    double layers = kvad_work_weight_bytes(&g.model, false);
    double head = kvad_work_weight_bytes(&g.model, true) - layers;
    assert_true(work.weight_bytes == 2 * layers + head + 1000.0 * 2 * 768 * 4);
    /* The second pass reads the keys and values of the first one too. */
    assert_true(work.kv_bytes == (512.0 + 1000) * 73728);
}

static void test_a_batch_shares_the_weights_but_not_the_cache(void **state) {
    (void)state;
    struct gpt2 g;
    set_up(&g);
    struct kvad_work_step one = {.n_sequences = 1,
                                 .position = 16,
                                 .n_rows = 1,
                                 .n_logits = 1,
                                 .n_batch_rows = 512,
                                 .kv_bytes_per_token = KV_TOKEN};
    struct kvad_work_step many = one;
    many.n_sequences = 16;
    struct kvad_work a = kvad_work_of(&g.model, &one), b = kvad_work_of(&g.model, &many);
    assert_true(b.kv_bytes == 16 * a.kv_bytes && b.linear_flops == 16 * a.linear_flops);
    assert_true(b.attention_flops == 16 * a.attention_flops);
    assert_true(b.weight_bytes == a.weight_bytes + 15 * 2 * 768 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_what_a_pass_reads),
        cmocka_unit_test(test_one_token_costs_what_the_formula_says),
        cmocka_unit_test(test_rows_of_a_prompt_see_a_triangle),
        cmocka_unit_test(test_weights_are_read_once_for_each_pass),
        cmocka_unit_test(test_a_batch_shares_the_weights_but_not_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
