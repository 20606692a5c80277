#include "lab/ceiling.h"

#include "base/alloc.h"
#include "random.h"
#include "test.h"

enum { WORDS = 8 * 1237 }; /* lines that no number of streams divides */

static uint64_t *new_words(struct kvad_heap *heap, uint64_t *all) {
    kvad_heap_init(heap, NULL);
    uint64_t *words = kvad_alloc(heap, WORDS * sizeof *words), state = 1;
    assert_non_null(words);
    *all = 0;
    for (size_t i = 0; i < WORDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = state ^ state >> 29;
        *all ^= words[i];
    }
    return words;
}

/* A read that is left out, or done twice, changes the result. */
static void test_every_way_of_every_level_reads_every_byte_once(void **state) {
    (void)state;
    struct kvad_heap heap;
    uint64_t all, *words = new_words(&heap, &all);
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (!kvad_cpu_level_supported((enum kvad_cpu_level)level)) continue;
        const struct ceiling_ops *ops = ceiling_ops_of((enum kvad_cpu_level)level);
        for (unsigned way = 0; way < CEILING_WAYS; way++)
            assert_true(ops->read((const unsigned char *)words, WORDS * 8, way) == all);
        assert_true(ops->read((const unsigned char *)words, 64, 7) ==
                    (words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^
                     words[7]));
    }
    kvad_free(&heap, words, WORDS * sizeof *words);
}

/* Each way to compute must give what plain arithmetic gives with the same operands, for as many
 * products as it says that it did: a product that the compiler left out or computed once for all
 * steps would be missing. */
static void test_every_multiply_add_of_every_level_is_in_the_result(void **state) {
    (void)state;
    struct test_random random = {1};
    struct ceiling_operands operands = {.factor = 2, .term = -3};
    for (size_t i = 0; i < CEILING_STARTS; i++)
        operands.start[i] = (float)random_below(&random, 31) - 15;
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (!kvad_cpu_level_supported((enum kvad_cpu_level)level)) continue;
        const struct ceiling_ops *ops = ceiling_ops_of((enum kvad_cpu_level)level);
        /* Whole numbers below 2^24: exact in any order, fused or not. */
        for (size_t n_steps = 1; n_steps <= 9; n_steps++) {
            double flops, expected = 0;
            float value = ops->fma(&operands, n_steps, &flops);
            size_t n_chains = (size_t)(flops / 2) / n_steps;
            assert_in_range(n_chains, 32, CEILING_STARTS);
            for (size_t i = 0; i < n_chains; i++) {
                double chain = operands.start[i];
                for (size_t step = 0; step < n_steps; step++)
                    chain = chain * operands.factor + operands.term;
                expected += chain;
            }
            assert_true(value == expected && flops == 2.0 * (double)(n_chains * n_steps));
        }
    }
}

static uint32_t plain_dot(const struct ceiling_operands *operands, size_t n_steps, size_t n_bytes) {
    uint32_t sum = 0;
    for (size_t step = 0; step < n_steps; step++) {
        const unsigned char *weights = operands->weights[step % operands->n_sets];
        for (size_t i = 0; i < n_bytes; i++)
            sum += (uint32_t)(weights[i] * operands->inputs[0][i % 4]) +
                   (uint32_t)(weights[i] * operands->inputs[1][i % 4]);
    }
    return sum;
}

static void test_every_product_of_bytes_of_every_level_is_in_the_result(void **state) {
    (void)state;
    struct test_random random = {2};
    struct ceiling_operands operands[2];
    ceiling_operands_init(&operands[0]);
    operands[1] = operands[0];
    for (size_t i = 0; i < sizeof operands[1].weights; i++)
        operands[1].weights[i / CEILING_WEIGHTS][i % CEILING_WEIGHTS] =
            (unsigned char)random_below(&random, 128);
    for (size_t i = 0; i < 8; i++)
        operands[1].inputs[i / 4][i % 4] = (signed char)((int)random_below(&random, 255) - 127);
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (!kvad_cpu_level_supported((enum kvad_cpu_level)level)) continue;
        const struct ceiling_ops *ops = ceiling_ops_of((enum kvad_cpu_level)level);
        for (size_t n_steps = 1; ops->dot && n_steps <= 1001; n_steps += 1 + n_steps / 8 * 50)
            for (size_t i = 0; i < 2 * CEILING_SETS; i++) {
                double count;
                operands[i % 2].n_sets = 1 + i / 2;
                uint32_t value = ops->dot(&operands[i % 2], n_steps, &count);
                size_t n_bytes = (size_t)(count / 4) / n_steps;
                assert_in_range(n_bytes, 32, CEILING_WEIGHTS);
                assert_true(count == 4.0 * (double)(n_bytes * n_steps));
                assert_int_equal(value, plain_dot(&operands[i % 2], n_steps, n_bytes));
            }
    }
}

/* What is measured with: floats that stay ordinary numbers however long, no byte that is 0. */
static void test_operands_stay_ordinary_numbers(void **state) {
    (void)state;
    struct ceiling_operands operands;
    double flops;
    ceiling_operands_init(&operands);
    double mean = ceiling_plain.fma(&operands, 20000000, &flops) / (flops / 2 / 20000000);
    assert_true(mean > 0.9 && mean < 1.1);
    for (size_t i = 0; i < sizeof operands.weights; i++)
        assert_in_range(operands.weights[i / CEILING_WEIGHTS][i % CEILING_WEIGHTS], 1, 127);
    for (size_t i = 0; i < 8; i++)
        assert_true(operands.inputs[i / 4][i % 4] != 0);
}

static void test_rates_are_positive_on_any_number_of_threads(void **state) {
    (void)state;
    struct kvad_heap heap;
    struct kvad_error err;
    uint64_t all, *words = new_words(&heap, &all);
    for (unsigned n = 1; n <= 3; n++) {
        struct kvad_threads *threads;
        struct kvad_ceiling ceiling;
        assert_ok(kvad_threads_create(n, NULL, &threads, &err), &err);
        kvad_ceiling_init(&ceiling, kvad_cpu_level_best(), threads, words, WORDS * 8, 1e-5);
        assert_true(kvad_ceiling_read(&ceiling) > 0);
        assert_true(kvad_ceiling_fma(&ceiling) > 0);
        assert_true(kvad_ceiling_dot(&ceiling) > 0 || !ceiling.ops->dot);
        kvad_threads_release(&threads);
    }
    kvad_free(&heap, words, WORDS * sizeof *words);
}

/* The oldest CPUs have no instruction for products of bytes. */
static void test_a_level_without_dot_products_has_no_ceiling_for_them(void **state) {
    (void)state;
    struct kvad_heap heap;
    struct kvad_error err;
    struct kvad_threads *threads;
    struct kvad_ceiling ceiling;
    uint64_t all, *words = new_words(&heap, &all);
    assert_ok(kvad_threads_create(1, NULL, &threads, &err), &err);
    kvad_ceiling_init(&ceiling, KVAD_CPU_BASELINE, threads, words, WORDS * 8, 1e-5);
    assert_true(kvad_ceiling_dot(&ceiling) == 0);
    kvad_threads_release(&threads);
    kvad_free(&heap, words, WORDS * sizeof *words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_of_every_level_reads_every_byte_once),
        cmocka_unit_test(test_every_multiply_add_of_every_level_is_in_the_result),
        cmocka_unit_test(test_every_product_of_bytes_of_every_level_is_in_the_result),
        cmocka_unit_test(test_operands_stay_ordinary_numbers),
        cmocka_unit_test(test_rates_are_positive_on_any_number_of_threads),
        cmocka_unit_test(test_a_level_without_dot_products_has_no_ceiling_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
