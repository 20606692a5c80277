/* What a hostile pickle cannot do: take memory, time or stack out of proportion to its size. */
#include "pickle_support.h"

#include "random.h"

/* bugs.md LOAD-14 */
static void test_lengths_are_compared_with_what_is_left_before_memory_is_taken(void **state) {
    (void)state;
    check_malformed("X\xff\xff\xff\x00", "needs 16777215 more bytes");
    check_malformed("X\xff\xff\xff\xff", "string of 4294967295 bytes (at most 16777216)");
    check_malformed("X\x01\0\0\x01", "string of 16777217 bytes");
    check_malformed("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "string of 18446744073709551615 bytes");
    check_malformed("\x8a\xff\x01", "needs 255 more bytes");
    check_malformed("Nr\xff\xff\xff\xff", "memo index 4294967295");
    check_malformed("Nr\0\0\0\1", "memo index 16777216");
    check_malformed("Nq\x09", "memo index 9");
    struct kvad_error err;
    struct failing_heap heap;
    struct kvad_pickle *pickle = NULL;
    failing_heap_init(&heap, 0);
    assert_fails(kvad_pickle_open("\x80\2N.", ((size_t)256 << 20) + 1, "meta.pkl", &heap.heap,
                                  &pickle, &err),
                 KVAD_ERR_UNSUPPORTED, &err, "at most 268435456");
}

static void test_strings_of_16_mib_are_the_longest(void **state) {
    (void)state;
    enum { MOST = 16 << 20 };
    for (size_t more = 0; more < 2; more++) {
        struct byte_buffer b = {0};
        struct kvad_error err;
        put_ops(&b, "\x80\x02X");
        put_number(&b, MOST + more, 4);
        char *text = malloc(MOST + 1);
        assert_non_null(text);
        memset(text, 'x', MOST + 1);
        put_bytes(&b, text, MOST + more);
        put_text(&b, ".");
        assert_int_equal(try_bytes(b.data, b.size, &err), more ? KVAD_ERR_FORMAT : KVAD_OK);
        free(text);
        free_bytes(&b);
    }
}

static void test_values_may_nest_64_levels_deep_and_no_deeper(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++)
        for (size_t depth = 63; depth <= 66; depth++) {
            struct byte_buffer b = {0};
            struct kvad_error err;
            put_ops(&b, "\x80\x02");
            if (way == 0) { /* tuples in tuples, made from inside */
                put_text(&b, ")");
                for (size_t i = 1; i < depth; i++)
                    put_ops(&b, "\x85");
            } else { /* lists in lists, one by one or under marks */
                for (size_t i = 0; i < depth; i++)
                    put_text(&b, way == 1 || i == 0 ? "]" : "(]");
                for (size_t i = 1; i < depth; i++)
                    put_text(&b, way == 1 ? "a" : "e");
            }
            put_text(&b, ".");
            if (depth <= 64)
                assert_ok(try_bytes(b.data, b.size, &err), &err);
            else
                assert_fails(try_bytes(b.data, b.size, &err), KVAD_ERR_FORMAT, &err,
                             "deeper than 64");
            free_bytes(&b);
        }
}

static void test_a_million_levels_are_refused_without_recursion(void **state) {
    (void)state;
    static const char *const ops[] = {"\x85", "(", "]"};
    for (size_t i = 0; i < 3; i++) {
        struct byte_buffer b = {0};
        struct kvad_error err;
        put_ops(&b, "\x80\x02)");
        for (size_t k = 0; k < 1000000; k++)
            put_text(&b, ops[i]);
        if (i == 2)
            for (size_t k = 1; k < 1000000; k++)
                put_text(&b, "a");
        put_text(&b, ".");
        assert_int_equal(try_bytes(b.data, b.size, &err), KVAD_ERR_FORMAT);
        free_bytes(&b);
    }
}

static void test_shared_values_do_not_hide_depth(void **state) {
    (void)state;
    /* A chain of 40 in the memo, walked first, then hung below 30 more levels. */
    struct byte_buffer b = {0};
    struct kvad_error err;
    put_ops(&b, "\x80\x02)");
    for (int i = 0; i < 40; i++)
        put_ops(&b, "\x85");
    put_ops(&b, "q\1h\1");
    for (int i = 0; i < 30; i++)
        put_ops(&b, "\x85");
    put_ops(&b, "\x86.");
    assert_fails(try_bytes(b.data, b.size, &err), KVAD_ERR_FORMAT, &err, "deeper than 64");
    free_bytes(&b);
}

static void test_containers_that_contain_themselves_are_refused(void **state) {
    (void)state;
    check_malformed("]q\0h\0a", "a list that contains itself");
    check_malformed("}q\0K\1h\0s", "a dict that contains itself");
    check_malformed("}q\0K\1]h\0as", "a dict that contains itself");
    check_malformed("]q\0](h\0ea", "a list that contains itself");
    check_malformed("]q\0h\0\x85q\1a", "a list that contains itself");
    check_malformed("}q\0h\0\x85K\1s", "a dict that contains itself"); /* as part of its own key */
}

static void test_doubling_by_sharing_takes_neither_time_nor_memory(void **state) {
    (void)state;
    struct byte_buffer b = {0};
    put_ops(&b, "\x80\x02)");
    for (int i = 0; i < 62; i++)
        put_ops(&b, "q\0h\0\x86"); /* 2^62 leaves, if copied */
    put_text(&b, ".");
    struct opened o;
    assert_ok(open_bytes(&o, b.data, b.size), &o.err);
    assert_true(o.heap.heap.bytes_peak < 16384);
    close_bytes(&o);
    free_bytes(&b);
}

/* bugs.md LOAD-14 */
static void test_memory_is_proportional_to_the_input(void **state) {
    (void)state;
    static const struct {
        const char *before, *repeated, *after;
    } cases[] = {
        {"(", "]", "t"},
        {"(", "}", "t"},
        {"(", "N", "t"},
        {"(", ")\x85", "t"},
        {"]", "Na", ""},
        {"}", "NNs", ""},
        {"(", "]\x94", "t"},
        {"(", "\x8c\1a", "t"},
        {"(N\x94N\x94", "h\1", "t"},
        {"(", "NN\x86", "t"},
        {"(", "\x8f\x85", "t"},
        {"(N\x94"
         "ccollections\nOrderedDict\n\x94)\x94",
         "h\1h\2R", "t"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer b = {0};
        put_ops(&b, "\x80\x04");
        put_text(&b, cases[i].before);
        while (b.size < 200000)
            put_text(&b, cases[i].repeated);
        put_text(&b, cases[i].after);
        put_text(&b, ".");
        struct opened o;
        open_bytes(&o, b.data, b.size); /* accepted or not: the bound holds */
        assert_true(o.heap.heap.bytes_peak < 200 * b.size);
        close_bytes(&o);
        free_bytes(&b);
    }
    /* A dict rebuilt again and again from one long list: refused before it becomes quadratic. */
    struct byte_buffer b = {0};
    put_ops(&b, "\x80\x04(ccollections\nOrderedDict\n\x94](");
    for (int i = 0; i < 20000; i++)
        put_ops(&b, "NN\x86");
    put_ops(&b, "e\x94");
    for (int i = 0; i < 20000; i++)
        put_ops(&b, "h\0h\1\x85R");
    put_ops(&b, "t.");
    struct opened o;
    assert_fails(open_bytes(&o, b.data, b.size), KVAD_ERR_FORMAT, &o.err, "bytes of memory");
    assert_true(o.heap.heap.bytes_peak < 200 * b.size);
    close_bytes(&o);
    free_bytes(&b);
}

/* bugs.md LOAD-30 */
static void test_every_prefix_is_refused(void **state) {
    (void)state;
    struct kvad_error err;
    for (size_t size = 0; size < sizeof protocol_2; size++)
        assert_int_equal(try_bytes(protocol_2, size, &err), KVAD_ERR_FORMAT);
    for (size_t size = 0; size < sizeof protocol_4; size++)
        assert_int_equal(try_bytes(protocol_4, size, &err), KVAD_ERR_FORMAT);
}

/* bugs.md LOAD-47 */
static void test_flipped_bytes_never_do_harm(void **state) {
    (void)state;
    struct test_random random = {20240901};
    struct kvad_error err;
    for (int round = 0; round < 20000; round++) {
        bool is_old = round % 2;
        size_t size = is_old ? sizeof protocol_2 : sizeof protocol_4;
        unsigned char *data = exact_copy(is_old ? protocol_2 : protocol_4, size);
        for (size_t n = 1 + random_below(&random, 4); n > 0; n--)
            data[random_below(&random, size)] = (unsigned char)random_u64(&random);
        err.text[0] = 0;
        if (try_bytes(data, size, &err) != KVAD_OK) assert_true(strlen(err.text) > 20);
        free(data);
    }
}

static void test_failure_of_any_allocation_is_clean(void **state) {
    (void)state;
    for (size_t k = 1;; k++) {
        struct failing_heap heap;
        struct kvad_error err;
        struct kvad_pickle *pickle = NULL;
        failing_heap_init(&heap, k);
        enum kvad_status status =
            kvad_pickle_open(protocol_4, sizeof protocol_4, "meta.pkl", &heap.heap, &pickle, &err);
        kvad_pickle_close(&pickle);
        assert_int_equal(heap.n_live, 0);
        assert_int_equal(heap.heap.bytes, 0);
        if (status == KVAD_OK) {
            assert_true(k > 4);
            return;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_non_null(strstr(err.text, "out of memory"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_are_compared_with_what_is_left_before_memory_is_taken),
        cmocka_unit_test(test_strings_of_16_mib_are_the_longest),
        cmocka_unit_test(test_values_may_nest_64_levels_deep_and_no_deeper),
        cmocka_unit_test(test_a_million_levels_are_refused_without_recursion),
        cmocka_unit_test(test_shared_values_do_not_hide_depth),
        cmocka_unit_test(test_containers_that_contain_themselves_are_refused),
        cmocka_unit_test(test_doubling_by_sharing_takes_neither_time_nor_memory),
        cmocka_unit_test(test_memory_is_proportional_to_the_input),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_flipped_bytes_never_do_harm),
        cmocka_unit_test(test_failure_of_any_allocation_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
