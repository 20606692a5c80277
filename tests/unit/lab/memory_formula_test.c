/* The lab's formulas against numbers worked out by hand, against the cache itself, and against
 * brute force on random shapes. */
#include <math.h>

#include "kv/shape.h"
#include "lab/memory_roads.h"
#include "lab/synthetic.h"
#include "model/model.h"
#include "random.h"
#include "test.h"

static size_t token_bytes(const char *name, enum kvad_memory_type type) {
    struct kvad_memory_shape shape;
    size_t bytes = 0;
    assert_true(kvad_memory_shape_find(name, &shape));
    assert_true(kvad_memory_token_bytes(&shape, type, type, &bytes));
    return bytes;
}

static void test_bytes_of_a_token_are_those_worked_out_by_hand(void **state) {
    (void)state;
    assert_int_equal(token_bytes("gpt2", KVAD_MEMORY_F32), 72 << 10);
    assert_int_equal(token_bytes("gpt2", KVAD_MEMORY_Q8), 12 * 12 * 2 * (64 + 4));
    assert_int_equal(token_bytes("gpt2-xl", KVAD_MEMORY_F32), 600 << 10);
    assert_int_equal(token_bytes("llama-7b", KVAD_MEMORY_F16), 512 << 10);
    assert_int_equal(token_bytes("llama-2-70b", KVAD_MEMORY_F16), 320 << 10);
    assert_int_equal(token_bytes("llama-3-8b", KVAD_MEMORY_BF16), 128 << 10);
    assert_int_equal(token_bytes("falcon-7b", KVAD_MEMORY_F16), 8 << 10);
    /* DeepSeek-V2's 60 layers keep 512 + 64 elements: table 1's 9/2 d_h l with d_h = 128. */
    assert_int_equal(token_bytes("deepseek-v2", KVAD_MEMORY_F16), 60 * 576 * 2);
    assert_int_equal(60 * 576, 60 * 128 * 9 / 2);
}

static void test_rows_count_their_scales(void **state) {
    (void)state;
    static const struct {
        enum kvad_memory_type type;
        uint32_t n;
        size_t bytes;
    } rows[] = {
        {KVAD_MEMORY_F32, 64, 256}, {KVAD_MEMORY_F16, 64, 128},  {KVAD_MEMORY_BF16, 63, 126},
        {KVAD_MEMORY_Q8, 64, 68},   {KVAD_MEMORY_Q4, 64, 36},    {KVAD_MEMORY_Q4, 65, 37},
        {KVAD_MEMORY_Q8_0, 64, 68}, {KVAD_MEMORY_Q8_0, 65, 102}, {KVAD_MEMORY_Q4_0, 64, 36},
        {KVAD_MEMORY_Q4_0, 1, 18},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(kvad_memory_row_bytes(rows[i].type, rows[i].n), rows[i].bytes);
}

static void test_a_whole_context_is_as_published(void **state) {
    (void)state;
    struct kvad_memory_shape shape;
    size_t bytes;
    /* A text of 2048 tokens on LLaMA-7B in f16: 1 GiB. */
    assert_true(kvad_memory_shape_find("llama-7b", &shape));
    assert_true(kvad_memory_text_bytes(&shape, KVAD_MEMORY_F16, KVAD_MEMORY_F16, 2048, &bytes));
    assert_int_equal(bytes, 1 << 30);
    /* Mistral keeps 4096 of 32768 tokens: an eighth (Jiang et al. 2023, section 2). */
    assert_true(kvad_memory_shape_find("mistral-7b", &shape));
    assert_true(kvad_memory_text_bytes(&shape, KVAD_MEMORY_F16, KVAD_MEMORY_F16, 32768, &bytes));
    assert_int_equal(bytes, 512 << 20);
}

static void test_known_gpt2_sizes_are_those_of_the_synthetic_models(void **state) {
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct kvad_description d;
        struct kvad_memory_shape shape;
        struct kvad_error err;
        assert_ok(kvad_synthetic_describe(kvad_synthetic_name(i), &d, &err), &err);
        assert_true(kvad_memory_shape_find(kvad_synthetic_name(i), &shape));
        assert_int_equal(shape.n_layers, d.n_layers);
        assert_int_equal(shape.n_heads, d.n_heads);
        assert_int_equal(shape.n_kv_heads, d.n_kv_heads);
        assert_int_equal(shape.k_dim, d.head_dim);
        assert_int_equal(shape.v_dim, d.head_dim);
        assert_int_equal(shape.n_ctx, d.n_ctx);
    }
}

static void test_every_known_model_is_found_and_consistent(void **state) {
    (void)state;
    unsigned n = 0;
    for (const char *name; (name = kvad_memory_shape_name(n)); n++) {
        struct kvad_memory_shape s;
        assert_true(kvad_memory_shape_find(name, &s));
        assert_string_equal(s.name, name);
        assert_true(strlen(s.source) > 4);
        assert_int_equal(s.n_heads % s.n_kv_heads, 0);
        assert_true(s.n_window_layers <= s.n_layers);
        assert_int_equal(s.window > 0, s.n_window_layers > 0);
        assert_true(s.n_ctx >= 1024);
    }
    assert_true(n >= 10);
    struct kvad_memory_shape s;
    assert_false(kvad_memory_shape_find("gpt5", &s));
}

/* ---------------------------------------------------------------- against the cache itself */

static void test_formula_is_what_the_cache_takes(void **state) {
    (void)state;
    static const size_t blocks[] = {16, 32, 64, 128, 256};
    struct test_random random = {6};
    for (int i = 0; i < 2000; i++) {
        struct kvad_kv_shape kv = {.n_layers = 1 + random_below(&random, 100),
                                   .n_kv_heads = 1 + random_below(&random, 64),
                                   .head_dim = 1 + random_below(&random, 300),
                                   .block_tokens = blocks[random_below(&random, 5)],
                                   .k_type = (enum kvad_kv_type)random_below(&random, 4),
                                   .v_type = (enum kvad_kv_type)random_below(&random, 4)};
        struct kvad_error err;
        assert_ok(kvad_kv_shape_init(&kv, &err), &err);
        struct kvad_model_info info = {.n_layers = (uint32_t)kv.n_layers,
                                       .n_heads = (uint32_t)kv.n_kv_heads,
                                       .n_kv_heads = (uint32_t)kv.n_kv_heads,
                                       .head_dim = (uint32_t)kv.head_dim};
        struct kvad_memory_shape shape;
        size_t bytes;
        kvad_memory_shape_of(&info, "random", &shape);
        assert_true(kvad_memory_token_bytes(&shape, kvad_memory_type_of(kv.k_type),
                                            kvad_memory_type_of(kv.v_type), &bytes));
        assert_int_equal(bytes, kvad_kv_token_bytes(&kv));
        assert_int_equal(bytes, kvad_kv_bytes_per_token(&info, kv.k_type, kv.v_type));

        uint32_t n_ctx = 1 + (uint32_t)random_below(&random, 5000);
        uint32_t tokens = (uint32_t)random_below(&random, n_ctx + 1);
        uint32_t block = (uint32_t)kv.block_tokens;
        struct kvad_memory_room paged =
            kvad_memory_room_of(KVAD_CACHE_PAGED, tokens, n_ctx, block, 3);
        assert_int_equal(paged.held * bytes, kvad_kv_blocks_for(&kv, tokens) * kv.block_bytes);
        assert_int_equal(paged.reserved * bytes,
                         3 * kvad_kv_blocks_for(&kv, n_ctx) * kv.block_bytes);
        struct kvad_memory_room grow =
            kvad_memory_room_of(KVAD_CACHE_GROW, tokens, n_ctx, block, 1);
        assert_int_equal(grow.reserved, paged.held);
        struct kvad_memory_room whole =
            kvad_memory_room_of(KVAD_CACHE_STATIC, tokens, n_ctx, block, 1);
        assert_int_equal(whole.held * bytes, kvad_kv_blocks_for(&kv, n_ctx) * kv.block_bytes);
        assert_int_equal(whole.held, whole.reserved);
    }
}

/* ---------------------------------------------------------------- random shapes */

static struct kvad_memory_question random_question(struct test_random *random) {
    uint32_t k = 1 + (uint32_t)random_below(random, 16);
    struct kvad_memory_question q = {
        .shape = {.name = "random",
                  .n_layers = 1 + (uint32_t)random_below(random, 80),
                  .n_heads = k * (1 + (uint32_t)random_below(random, 12)),
                  .n_kv_heads = k,
                  .k_dim = 2 * (1 + (uint32_t)random_below(random, 128)),
                  .n_ctx = 1 + (uint32_t)random_below(random, 9000)},
        .n_tokens = (uint32_t)random_below(random, 9000),
        .n_texts = (uint32_t)random_below(random, 40),
        .block_tokens = 16u << random_below(random, 5),
        .type = (enum kvad_memory_type)random_below(random, KVAD_MEMORY_TYPES)};
    q.shape.v_dim =
        random_below(random, 3) ? q.shape.k_dim : 2 * (1 + (uint32_t)random_below(random, 128));
    if (random_below(random, 3) == 0) {
        q.shape.window = 1 + (uint32_t)random_below(random, 9000);
        q.shape.n_window_layers = 1 + (uint32_t)random_below(random, q.shape.n_layers);
    }
    if (random_below(random, 4) == 0) {
        q.shape.latent_dim = 2 * (1 + (uint32_t)random_below(random, 600));
        q.shape.rope_dim = 2 * (uint32_t)random_below(random, 60);
        q.shape.n_kv_heads = q.shape.n_heads;
    }
    return q;
}

/* A term of + * / and brackets over whole numbers, as the roads print them. */
static double term(const char **at);

static double factor(const char **at) {
    if (**at == '(') {
        ++*at;
        double value = term(at);
        assert_int_equal(**at, ')');
        ++*at;
        return value;
    }
    char *end;
    double value = strtod(*at, &end);
    assert_ptr_not_equal(end, *at);
    *at = end;
    return value;
}

static double product(const char **at) {
    double value = factor(at);
    while (**at == '*' || **at == '/') {
        bool divides = *(*at)++ == '/';
        double next = factor(at);
        value = divides ? value / next : value * next;
    }
    return value;
}

static double term(const char **at) {
    double value = product(at);
    while (**at == '+') {
        ++*at;
        value += product(at);
    }
    return value;
}

static double evaluate(const char *text) {
    double value = term(&text);
    assert_int_equal(*text, 0);
    return value;
}

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void test_printed_numbers_are_the_printed_bytes(void **state) {
    (void)state;
    struct test_random random = {7};
    for (int i = 0; i < 2000; i++) {
        struct kvad_memory_question q = random_question(&random);
        struct kvad_memory_answer a;
        struct kvad_error err;
        assert_ok(kvad_memory_compute(&q, &a, &err), &err);
        size_t layer;
        assert_true(kvad_memory_layer_bytes(&q.shape, q.type, q.type, &layer));
        for (unsigned r = 0; r < a.n_roads; r++) {
            const struct kvad_memory_road *road = &a.roads[r];
            double value = evaluate(road->numbers);
            if (road->token_bytes)
                assert_true(value == (double)road->token_bytes);
            else if (starts(road->name, "window"))
                assert_true(value * (double)layer * a.question.n_texts == (double)road->bytes);
            else if (!q.shape.window && !starts(road->name, "paged, mean"))
                assert_true(value * (double)a.token_bytes * a.question.n_texts ==
                            (double)road->bytes);
        }
    }
}

static void test_the_road_that_the_model_is_on_costs_what_was_asked(void **state) {
    (void)state;
    struct test_random random = {8};
    for (int i = 0; i < 2000; i++) {
        struct kvad_memory_question q = random_question(&random);
        struct kvad_memory_answer a;
        struct kvad_error err;
        unsigned n_own = 0;
        assert_ok(kvad_memory_compute(&q, &a, &err), &err);
        for (unsigned r = 0; r < a.n_roads; r++) {
            if (!a.roads[r].is_own) continue;
            n_own++;
            assert_int_equal(a.roads[r].bytes, a.bytes);
            assert_true(a.roads[r].times == 1);
        }
        /* Its heads or its latent, its type, and its window if it has one. */
        assert_int_equal(n_own, 2 + (q.shape.window > 0));
    }
}

static const struct kvad_memory_road *find_road(const struct kvad_memory_answer *answer,
                                                const char *name) {
    for (unsigned i = 0; i < answer->n_roads; i++)
        if (strcmp(answer->roads[i].name, name) == 0) return &answer->roads[i];
    fail_msg("no road \"%s\"", name);
    return NULL;
}

/* LLaMA-7B, f16, one text of 1000 tokens: 512 KiB each. */
static void test_roads_are_those_worked_out_by_hand(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t bytes;
    } roads[] = {
        {"32 kv heads (MHA)", 1000 * 512u << 10},
        {"8 kv heads (GQA)", 1000 * 128u << 10},
        {"1 kv head (MQA)", 1000 * 16u << 10},
        {"latent 512+64 (MLA)", 1000 * 36u << 10}, /* 32 layers of 4.5 times 128 */
        {"q8, a scale per row", 1000 * 264u << 10},
        {"window 250 in 32/32 layers", 250 * 512u << 10},
        {"reserved for the longest", 2048 * 512u << 10},
        {"paged, T tokens", 1008 * 512u << 10},
    };
    struct kvad_memory_question q = {.n_tokens = 1000, .type = KVAD_MEMORY_F16};
    struct kvad_memory_answer a;
    struct kvad_error err;
    assert_true(kvad_memory_shape_find("llama-7b", &q.shape));
    assert_ok(kvad_memory_compute(&q, &a, &err), &err);
    for (size_t i = 0; i < sizeof roads / sizeof *roads; i++) {
        const struct kvad_memory_road *road = find_road(&a, roads[i].name);
        assert_int_equal(road->bytes, roads[i].bytes);
        assert_true(fabs(road->times - (1000 * 512u << 10) / (double)roads[i].bytes) < 1e-12);
    }
    q.n_tokens = 3000; /* longer than the context: that is the longest then */
    assert_ok(kvad_memory_compute(&q, &a, &err), &err);
    assert_int_equal(find_road(&a, "reserved for the longest")->bytes, 3000 * 512u << 10);
    q.n_tokens = 32768;
    assert_ok(kvad_memory_compute(&q, &a, &err), &err);
    assert_int_equal(find_road(&a, "window 4096 in 32/32 layers")->bytes, 4096 * 512ull << 10);
}

/* 720 has 30 divisors; not all of them are shown, but the model's own is. */
static void test_many_divisors_leave_room_for_the_models_own(void **state) {
    (void)state;
    struct kvad_memory_question q = {.shape = {.name = "many",
                                               .n_layers = 1,
                                               .n_heads = 720,
                                               .n_kv_heads = 2,
                                               .k_dim = 64,
                                               .v_dim = 64,
                                               .n_ctx = 100}};
    struct kvad_memory_answer a;
    struct kvad_error err;
    assert_ok(kvad_memory_compute(&q, &a, &err), &err);
    assert_true(find_road(&a, "2 kv heads (GQA)")->is_own);
    assert_true(a.n_roads < KVAD_MEMORY_ROADS);
}

static void test_window_and_mean_are_what_counting_gives(void **state) {
    (void)state;
    struct test_random random = {9};
    for (int i = 0; i < 200; i++) {
        struct kvad_memory_question q = random_question(&random);
        q.n_tokens = 1 + (uint32_t)random_below(&random, 700);
        if (q.shape.window) q.shape.window = 1 + (uint32_t)random_below(&random, 700);
        struct kvad_memory_answer a;
        struct kvad_error err;
        assert_ok(kvad_memory_compute(&q, &a, &err), &err);
        size_t layer, kept = 0, room = 0, block = q.block_tokens;
        assert_true(kvad_memory_layer_bytes(&q.shape, q.type, q.type, &layer));
        for (uint32_t l = 0; l < q.shape.n_layers; l++) {
            size_t limit = l < q.shape.n_window_layers ? q.shape.window : SIZE_MAX;
            kept += kvad_min_size(q.n_tokens, limit);
            for (size_t t = 1; t <= q.n_tokens; t++)
                room += kvad_min_size((t + block - 1) / block * block, limit);
        }
        assert_int_equal(a.bytes, kept * layer * a.question.n_texts);
        double mean = (double)room * (double)layer * a.question.n_texts / q.n_tokens;
        double got = (double)a.roads[a.n_roads - 1].bytes;
        assert_string_equal(a.roads[a.n_roads - 1].name, "paged, mean of 1..T tokens");
        assert_true(got > mean - 1 - mean * 1e-12 && got < mean + 1 + mean * 1e-12);
    }
}

static void test_bytes_beyond_64_bits_are_refused(void **state) {
    (void)state;
    struct kvad_memory_question q = {.n_texts = INT32_MAX, .n_tokens = INT32_MAX};
    struct kvad_memory_answer a;
    struct kvad_error err;
    assert_true(kvad_memory_shape_find("llama-7b", &q.shape));
    assert_fails(kvad_memory_compute(&q, &a, &err), KVAD_ERR_ARGUMENT, &err, "64 bits");
    q.n_texts = 1;
    q.n_tokens = 0;
    q.shape.n_ctx = 0;
    assert_fails(kvad_memory_compute(&q, &a, &err), KVAD_ERR_ARGUMENT, &err, "--ctx");
}

/* The largest numbers that a file may hold. */
static void test_no_product_wraps(void **state) {
    (void)state;
    struct test_random random = {10};
    for (int i = 0; i < 5000; i++) {
        struct kvad_memory_shape s = {.n_layers = 1u << random_below(&random, 17),
                                      .n_kv_heads = 1u << random_below(&random, 17),
                                      .k_dim = 1u << random_below(&random, 21),
                                      .v_dim = 1u << random_below(&random, 21)};
        size_t tokens = (size_t)1 << random_below(&random, 48), bytes = 0;
        long double exact = (long double)s.n_layers * s.n_kv_heads *
                            (4 * ((long double)s.k_dim + s.v_dim)) * (long double)tokens;
        bool fits = exact < 18446744073709551616.0L;
        assert_int_equal(
            kvad_memory_text_bytes(&s, KVAD_MEMORY_F32, KVAD_MEMORY_F32, tokens, &bytes), fits);
        if (fits) assert_true((long double)bytes == exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_a_token_are_those_worked_out_by_hand),
        cmocka_unit_test(test_rows_count_their_scales),
        cmocka_unit_test(test_a_whole_context_is_as_published),
        cmocka_unit_test(test_known_gpt2_sizes_are_those_of_the_synthetic_models),
        cmocka_unit_test(test_every_known_model_is_found_and_consistent),
        cmocka_unit_test(test_formula_is_what_the_cache_takes),
        cmocka_unit_test(test_printed_numbers_are_the_printed_bytes),
        cmocka_unit_test(test_the_road_that_the_model_is_on_costs_what_was_asked),
        cmocka_unit_test(test_roads_are_those_worked_out_by_hand),
        cmocka_unit_test(test_many_divisors_leave_room_for_the_models_own),
        cmocka_unit_test(test_window_and_mean_are_what_counting_gives),
        cmocka_unit_test(test_bytes_beyond_64_bits_are_refused),
        cmocka_unit_test(test_no_product_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
