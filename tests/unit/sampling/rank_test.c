#include "sampling/rank.h"

#include <math.h>

#include "random.h"
#include "test.h"

enum { N = 4000 };
static struct kvad_ranked items[N], spare[N], wanted[N];

static int compare(const void *a, const void *b) {
    const struct kvad_ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void test_sort_equals_a_plain_sort(void **state) {
    (void)state;
    struct test_random random = {3};
    static const size_t sizes[] = {0, 1, 2, 3, 100, N};
    static const uint64_t masks[] = {UINT64_MAX, 7, UINT64_C(0xffe0000000000000), 0,
                                     UINT64_C(0x0000fff000000fff)};
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; ++m) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
            for (size_t i = 0; i < sizes[s]; ++i) {
                items[i] = (struct kvad_ranked){random_u64(&random) & masks[m], (uint32_t)i};
                wanted[i] = items[i];
            }
            qsort(wanted, sizes[s], sizeof wanted[0], compare); /* stable: ids ascend */
            kvad_rank_sort(items, sizes[s], spare);
            for (size_t i = 0; i < sizes[s]; ++i) {
                assert_true(items[i].key == wanted[i].key);
                assert_int_equal(items[i].id, wanted[i].id);
            }
        }
    }
}

static void test_keys_order_scores_and_give_them_back(void **state) {
    (void)state;
    const double descending[] = {1.7e308, 5,       nextafter(5, 0), 1e-300, 5e-324,
                                 0,       -5e-324, -1e-300,         -5,     -1.7e308};
    size_t n = sizeof descending / sizeof descending[0];
    for (size_t i = 0; i < n; ++i) {
        uint64_t key = kvad_key_from_score(descending[i]);
        assert_true(kvad_score_from_key(key) == descending[i]);
        if (i > 0) assert_true(kvad_key_from_score(descending[i - 1]) < key);
    }
    assert_true(kvad_key_from_score(-0.0) == kvad_key_from_score(0.0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort_equals_a_plain_sort),
        cmocka_unit_test(test_keys_order_scores_and_give_them_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
