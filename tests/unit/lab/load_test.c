#include "lab/load.h"

#include "test.h"

static void test_a_load_gives_all_its_memory_back(void **state) {
    (void)state;
    struct kvad_heap heap;
    struct kvad_error err;
    struct kvad_load *load = NULL;
    kvad_heap_init(&heap, NULL);
    assert_ok(kvad_load_start(&heap, (2 << 20) + 1, &load, &err), &err);
    assert_true(heap.bytes > 0);
    kvad_load_stop(&load);
    assert_null(load);
    assert_true(heap.bytes == 0);
    kvad_load_stop(&load);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_load_gives_all_its_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
