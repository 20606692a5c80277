#include "model/names.h"

#include "test.h"

static void test_wrapper_prefixes_are_stripped_in_any_nesting(void **state) {
    (void)state;
    static const struct {
        const char *name, *rest;
    } cases[] = {
        {"wte.weight", "wte.weight"},
        {"transformer.wte.weight", "wte.weight"},
        {"module.transformer.h.0.x", "h.0.x"},
        {"_orig_mod.module._orig_mod.model.transformer.h.0.x", "h.0.x"},
        {"h.0.module.x", "h.0.module.x"}, /* only in front */
        {"transformerwte.weight", "transformerwte.weight"},
        {"modules.x", "modules.x"},
        {"model.", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cases[i].name + kvad_name_prefix(cases[i].name), cases[i].rest);
}

static void test_patterns_match_whole_names_and_give_numbers(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool match;
        uint32_t layer, head;
    } cases[] = {
        {"wte.weight", "wte.weight", true, 0, 0},
        {"wte.weight", "wte.weights", false, 0, 0},
        {"wte.weight", "wte.weigh", false, 0, 0},
        {"h.*.x", "h.0.x", true, 0, 0},
        {"h.*.x", "h.12.x", true, 12, 0},
        {"h.*.x", "h.999999999.x", true, 999999999, 0},
        {"h.*.x", "h.1000000000.x", false, 0, 0},
        {"h.*.x", "h.18446744073709551616.x", false, 0, 0},
        {"h.*.x", "h.01.x", false, 0, 0}, /* one layer has one name */
        {"h.*.x", "h.-1.x", false, 0, 0},
        {"h.*.x", "h.+1.x", false, 0, 0},
        {"h.*.x", "h. 1.x", false, 0, 0},
        {"h.*.x", "h..x", false, 0, 0},
        {"h.*.x", "h.x", false, 0, 0},
        {"b.*.heads.#.q", "b.3.heads.7.q", true, 3, 7},
        {"b.*.heads.#.q", "b.3.heads.q", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t layer = 77, head = 77;
        bool match = kvad_name_match(cases[i].pattern, cases[i].name, &layer, &head);
        if (match != cases[i].match) print_error("%s\n", cases[i].name);
        assert_true(match == cases[i].match);
        assert_int_equal(layer, match ? cases[i].layer : 77);
        assert_int_equal(head, match ? cases[i].head : 77);
    }
}

static void test_a_pattern_expands_to_the_name_it_matches(void **state) {
    (void)state;
    char text[64];
    uint32_t layer, head;
    kvad_name_expand("b.*.heads.#.q", 12, 345, text, sizeof text);
    assert_string_equal(text, "b.12.heads.345.q");
    assert_true(kvad_name_match("b.*.heads.#.q", text, &layer, &head));
    assert_int_equal(layer, 12);
    assert_int_equal(head, 345);
    for (size_t size = 1; size < 20; size++) { /* always terminated, never beyond */
        char small[20];
        memset(small, 'x', sizeof small);
        kvad_name_expand("b.*.heads.#.q", 12, 345, small, size);
        assert_true(strlen(small) < size);
        if (size < sizeof small) assert_true(small[size] == 'x');
        assert_memory_equal(small, text, strlen(small));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrapper_prefixes_are_stripped_in_any_nesting),
        cmocka_unit_test(test_patterns_match_whole_names_and_give_numbers),
        cmocka_unit_test(test_a_pattern_expands_to_the_name_it_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
