#include "lab/ceiling.h"

#include "base/alloc.h"
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

static void test_operations_grow_with_the_steps(void **state) {
    (void)state;
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (!kvad_cpu_level_supported((enum kvad_cpu_level)level)) continue;
        const struct ceiling_ops *ops = ceiling_ops_of((enum kvad_cpu_level)level);
        double once, thrice;
        /* 1e-6 / (1 - 0.999999) is 1: the chains go there and stay finite. */
        float value = ops->fma(100, &once);
        assert_true(value > 0 && value < 1e6f);
        ops->fma(300, &thrice);
        assert_true(once > 0 && thrice == 3 * once);
        if (!ops->dot) continue;
        ops->dot(100, &once);
        ops->dot(300, &thrice);
        assert_true(once > 0 && thrice == 3 * once);
    }
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
        cmocka_unit_test(test_operations_grow_with_the_steps),
        cmocka_unit_test(test_rates_are_positive_on_any_number_of_threads),
        cmocka_unit_test(test_a_level_without_dot_products_has_no_ceiling_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
