#include "pickle_support.h"

static void check_int(const struct kvad_pickle_value *value, int64_t wanted) {
    assert_int_equal(value->kind, KVAD_PICKLE_INT);
    assert_true(value->as.integer == wanted);
}

static void check_sample(const struct kvad_pickle_value *root) {
    check_int(kvad_pickle_get(root, "vocab_size"), 3);
    const struct kvad_pickle_value *itos = kvad_pickle_get(root, "itos");
    assert_int_equal(itos->as.dict.n, 3);
    check_int(itos->as.dict.keys[1], 1);
    assert_string_equal(itos->as.dict.values[1]->as.string.bytes, "\xc3\xa9");
    check_int(kvad_pickle_get(kvad_pickle_get(root, "stoi"), "\xc3\xa9"), 1);
    const struct kvad_pickle_value *f = kvad_pickle_get(root, "f");
    assert_int_equal(f->kind, KVAD_PICKLE_LIST);
    assert_int_equal(f->as.list.n, 15);
    const struct kvad_pickle_value **items = f->as.list.items;
    assert_true(items[0]->kind == KVAD_PICKLE_FLOAT && items[0]->as.number == 1.5);
    assert_true(items[1]->kind == KVAD_PICKLE_FLOAT && items[1]->as.number == -0.25);
    assert_true(items[2]->kind == KVAD_PICKLE_BOOL && items[2]->as.boolean);
    assert_true(items[3]->kind == KVAD_PICKLE_BOOL && !items[3]->as.boolean);
    assert_int_equal(items[4]->kind, KVAD_PICKLE_NONE);
    check_int(items[5], -7);
    check_int(items[6], (int64_t)1 << 40);
    check_int(items[7], INT64_MIN);
    assert_int_equal(items[8]->kind, KVAD_PICKLE_OBJECT);
    assert_true(items[9]->kind == KVAD_PICKLE_STRING && items[9]->as.string.size == 0);
    for (size_t n = 0; n < 5; n++) {
        assert_int_equal(items[10 + n]->kind, KVAD_PICKLE_LIST);
        assert_int_equal(items[10 + n]->as.list.n, n);
        for (size_t i = 0; i < n; i++)
            check_int(items[10 + n]->as.list.items[i], (int64_t)i + 1);
    }
}

static void test_protocols_2_to_5_give_the_same_values(void **state) {
    (void)state;
    for (int protocol = 2; protocol <= 5; protocol++) {
        bool is_old = protocol < 4;
        size_t size = is_old ? sizeof protocol_2 : sizeof protocol_4;
        unsigned char *data = exact_copy(is_old ? protocol_2 : protocol_4, size);
        data[1] = (unsigned char)protocol;
        struct opened o;
        assert_ok(open_bytes(&o, data, size), &o.err);
        check_sample(o.root);
        close_bytes(&o);
        free(data);
    }
}

static void test_meta_pkl_of_nanogpt_has_both_directions(void **state) {
    (void)state;
    static const char *const files[] = {"shakespeare-char/meta.pkl", "tiny/nanogpt/bias/meta.pkl",
                                        "tiny/nanogpt/with-optimizer/meta.pkl"};
    for (size_t i = 0; i < 3; i++) {
        const char *path = test_fixture(files[i]);
        if (!path) skip();
        struct byte_buffer file = read_whole_file(path);
        struct opened o;
        assert_ok(open_bytes(&o, file.data, file.size), &o.err);
        check_int(kvad_pickle_get(o.root, "vocab_size"), 65);
        const struct kvad_pickle_value *itos = kvad_pickle_get(o.root, "itos");
        const struct kvad_pickle_value *stoi = kvad_pickle_get(o.root, "stoi");
        assert_int_equal(itos->as.dict.n, 65);
        for (size_t k = 0; k < 65; k++)
            check_int(kvad_pickle_get(stoi, itos->as.dict.values[k]->as.string.bytes),
                      itos->as.dict.keys[k]->as.integer);
        close_bytes(&o);
        free_bytes(&file);
    }
}

static void test_integers_of_every_width_keep_their_sign(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
        int64_t wanted;
    } cases[] = {
        {"K\xff", 2, 255},
        {"M\xff\xff", 3, 65535},
        {"J\xff\xff\xff\xff", 5, -1},
        {"J\x00\x00\x00\x80", 5, INT32_MIN},
        {"J\xff\xff\xff\x7f", 5, INT32_MAX},
        {"\x8a\x00", 2, 0},
        {"\x8a\x01\xff", 3, -1},
        {"\x8a\x02\xff\x00", 4, 255},
        {"\x8a\x03\x00\x00\x80", 5, -8388608},
        {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 10, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        assert_ok(open_ops_(&o, cases[i].ops, cases[i].size), &o.err);
        check_int(o.root, cases[i].wanted);
        close_bytes(&o);
    }
}

static void test_every_form_of_string_is_read(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
    } cases[] = {{"X\x03\0\0\0a\0b", 8},
                 {"\x8c\x03"
                  "a\0b",
                  5},
                 {"\x8d\x03\0\0\0\0\0\0\0a\0b", 12},
                 {"U\x03"
                  "a\0b",
                  5}};
    for (size_t i = 0; i < 4; i++) {
        struct opened o;
        assert_ok(open_ops_(&o, cases[i].ops, cases[i].size), &o.err);
        assert_int_equal(o.root->kind, KVAD_PICKLE_STRING);
        assert_int_equal(o.root->as.string.size, 3);
        assert_memory_equal(o.root->as.string.bytes, "a\0b", 4); /* with a NUL behind */
        close_bytes(&o);
    }
}

static void test_strings_are_utf8_with_surrogates_let_pass(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {{"\xed\xa0\x80", true},
                 {"\xf0\x9f\x98\x80", true},
                 {"\xf4\x8f\xbf\xbf", true},
                 {"\xc2\x80", true},
                 {"\x80", false},
                 {"\xc3", false},
                 {"\xc0\x80", false},
                 {"\xe0\x80\x80", false},
                 {"\xe2\x82", false},
                 {"\xf0\x8f\xbf\xbf", false},
                 {"\xf4\x90\x80\x80", false},
                 {"\xff", false},
                 {"\xe2\x28\xa1", false},
                 {"\xf8\x88\x80\x80\x80", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_buffer b = {0};
        struct kvad_error err;
        put_ops(&b, "\x80\x02");
        put_string(&b, cases[i].text);
        put_text(&b, ".");
        if (cases[i].valid)
            assert_ok(try_bytes(b.data, b.size, &err), &err);
        else
            assert_fails(try_bytes(b.data, b.size, &err), KVAD_ERR_FORMAT, &err, "not UTF-8");
        free_bytes(&b);
    }
}

static void test_the_last_of_equal_keys_wins(void **state) {
    (void)state;
    struct opened o;
    assert_ok(open_ops(&o, "}(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3K\1K\4u"), &o.err);
    check_int(kvad_pickle_get(o.root, "a"), 3);
    check_int(kvad_pickle_get(o.root, "b"), 2);
    assert_null(kvad_pickle_get(o.root, "c"));
    assert_null(kvad_pickle_get(NULL, "a"));
    assert_null(kvad_pickle_get(kvad_pickle_get(o.root, "a"), "a"));
    close_bytes(&o);
}

static void test_ordered_dicts_counters_and_sets_are_plain_containers(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
        enum kvad_pickle_kind kind;
        size_t n;
    } cases[] = {
#define CASE(literal, kind, n) {literal, sizeof(literal) - 1, KVAD_PICKLE_##kind, n}
        CASE("ccollections\nOrderedDict\n)RX\1\0\0\0aK\1s", DICT, 1),
        CASE("ccollections\nOrderedDict\n](](X\1\0\0\0aK\1ee\x85R", DICT, 1), /* Python 2 */
        CASE("ccollections\nOrderedDict\n)R}X\1\0\0\0_K\1sb", DICT, 0),       /* with attributes */
        CASE("ccollections\nCounter\n}X\1\0\0\0aK\1s\x85R", DICT, 1),
        CASE("ccollections\nCounter\n)R", DICT, 0),
        CASE("c__builtin__\nset\n](K\1K\2e\x85R", LIST, 2),
        CASE("cbuiltins\nset\n](K\1K\2e\x85R", LIST, 2),
        CASE("cbuiltins\nset\n)\x81", LIST, 0),
        CASE("\x8f", LIST, 0),
        CASE("(t", LIST, 0),
        CASE("](e", LIST, 0),
        CASE("}(u", DICT, 0),
        CASE("c__builtin__\nbytearray\nc_codecs\nencode\nX\1\0\0\0aX\6\0\0\0latin1\x86R\x85R",
             OBJECT, 0),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        assert_ok(open_ops_(&o, cases[i].ops, cases[i].size), &o.err);
        assert_int_equal(o.root->kind, cases[i].kind);
        if (cases[i].kind == KVAD_PICKLE_DICT) assert_int_equal(o.root->as.dict.n, cases[i].n);
        if (cases[i].kind == KVAD_PICKLE_LIST) assert_int_equal(o.root->as.list.n, cases[i].n);
        close_bytes(&o);
    }
}

static void test_lists_and_dicts_keep_their_items_through_growth(void **state) {
    (void)state;
    struct byte_buffer b = {0};
    put_ops(&b, "\x80\x02]q\x01}q\x02"); /* a list and a dict; in the end (list, dict, list) */
    for (unsigned i = 0; i < 3000; i++) {
        put_ops(&b, "(");
        put_int(&b, i);
        put_int(&b, -(int64_t)i);
        put_ops(&b, "u");
    }
    put_ops(&b, "h\x01(");
    for (unsigned i = 0; i < 3000; i++)
        put_int(&b, i * i);
    put_ops(&b, "eK\x07"
                "a\x87.");
    struct opened o;
    assert_ok(open_bytes(&o, b.data, b.size), &o.err);
    const struct kvad_pickle_value *list = o.root->as.list.items[0];
    const struct kvad_pickle_value *dict = o.root->as.list.items[1];
    assert_ptr_equal(list, o.root->as.list.items[2]);
    assert_int_equal(list->as.list.n, 3001);
    assert_int_equal(dict->as.dict.n, 3000);
    for (unsigned i = 0; i < 3000; i++) {
        check_int(list->as.list.items[i], i * i);
        check_int(dict->as.dict.keys[i], i);
        check_int(dict->as.dict.values[i], -(int64_t)i);
    }
    check_int(list->as.list.items[3000], 7);
    close_bytes(&o);
    free_bytes(&b);
}

/* bugs.md LOAD-18 */
static void test_every_opcode_checks_the_types_it_works_on(void **state) {
    (void)state;
    check_malformed("K\1K\2\x86K\1K\2s", "items set in a tuple");
    check_malformed("](K\1K\2u", "items set in a list");
    check_malformed("N(K\1K\2u", "items set in a None");
    check_malformed("ccollections\nOrderedDict\n(K\1K\2u", "items set in a class");
    check_malformed("}K\1a", "append to a dict");
    check_malformed(")K\1a", "append to a tuple");
    check_malformed("\x8f(K\1e", "append to a set");
    check_malformed("X\1\0\0\0a(K\1e", "append to a string");
    check_malformed("}(K\1u", "a key without a value");
    check_malformed("}]K\1s", "a list as key");
    check_malformed("}}K\1s", "a dict as key");
    check_malformed("}\x8fK\1s", "a set as key");
    check_malformed("})}b", "attributes (a dict) given to a tuple");
    check_malformed("}]]b", "attributes (a list) given to a list");
    check_malformed("K\1}b", "attributes (a dict) given to a int");
    check_malformed("}}b", "attributes (a dict) given to a dict");
    check_malformed("K\1)R", "call of a int with a tuple");
    check_malformed("ccollections\nOrderedDict\n]R", "call of a class with a list");
    check_malformed("ccollections\nOrderedDict\nK\1\x85R", "OrderedDict needs");
    check_malformed("ccollections\nOrderedDict\n]K\1a\x85R", "OrderedDict needs");
    check_malformed("ccollections\nOrderedDict\n])a\x85R", "OrderedDict needs");
    check_malformed("ccollections\nOrderedDict\n]]\x86R", "OrderedDict needs");
    check_malformed("ccollections\nOrderedDict\n]](]K\1ea\x85R", "a list as key");
    check_malformed("ccollections\nCounter\n]\x85R", "Counter needs a dict");
    check_malformed("cbuiltins\nset\n}\x85R", "set needs a list");
    check_unsupported("K\1Q", "persistent id");
}

static void test_stack_mark_and_memo_are_never_read_below_their_floor(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
        const char *text;
    } cases[] = {
#define CASE(literal, text) {literal, sizeof(literal) - 1, text}
        CASE("", "ends with 0 values"),
        CASE("K\1K\1", "ends with 2 values"),
        CASE("K\1(", "ends with 1 values"),
        CASE("t", "no mark"),
        CASE("e", "no mark"),
        CASE("u", "no mark"),
        CASE("(e", "underflow below the mark"),
        CASE("(u", "underflow below the mark"),
        CASE("](K\1(K\1ee", "append to a int"),
        CASE("]((K\1ee", "underflow below the mark"),
        CASE("a", "underflow"),
        CASE("]a", "underflow"),
        CASE("](a", "underflow"), /* the list lies below the mark */
        CASE("}K\1s", "underflow"),
        CASE("}(K\1s", "underflow"),
        CASE("\x85", "underflow"),
        CASE("K\1(\x85", "underflow"),
        CASE("K\1\x86", "underflow"),
        CASE("K\1K\1\x87", "underflow"),
        CASE("R", "underflow"),
        CASE("\x81", "underflow"),
        CASE("b", "underflow"),
        CASE("Q", "underflow"),
        CASE("\x93", "underflow"),
        CASE("q\0", "underflow"),
        CASE("r\0\0\0\0", "underflow"),
        CASE("\x94", "underflow"),
        CASE("h\0", "memo has no entry 0"),
        CASE("j\0\0\0\0", "memo has no entry 0"),
        CASE("Nq\1h\0", "memo has no entry 0"),
        CASE("Nq\1h\2", "memo has no entry 2"),
        CASE("Nj\xff\xff\xff\xff", "memo has no entry 4294967295"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused_(cases[i].ops, cases[i].size, KVAD_ERR_FORMAT, cases[i].text);
}

static void test_opcodes_outside_the_list_are_refused_by_name(void **state) {
    (void)state;
    static const unsigned char known[] =
        "\x80.c\x81Rbaesu(t\x85\x86\x87N\x89\x88)]}\x8fKMJGXU\x8aQhjqr\x95\x94\x8c\x8d\x93";
    for (unsigned op = 0; op < 256; op++) {
        if (memchr(known, (int)op, sizeof known - 1)) continue;
        struct byte_buffer b = {0};
        struct kvad_error err;
        char text[16];
        snprintf(text, sizeof text, "opcode 0x%02x", op);
        put_ops(&b, "\x80\x02");
        put_number(&b, op, 1);
        put_text(&b, "\1\1\1\1\1\1\1\1.");
        assert_fails(try_bytes(b.data, b.size, &err), KVAD_ERR_UNSUPPORTED, &err, text);
        free_bytes(&b);
    }
    check_unsupported("(i__main__\nX\n", "INST");
    check_unsupported("N2", "DUP");
    check_unsupported("\x82\1", "EXT1");
}

/* bugs.md LOAD-20 */
static void test_classes_outside_the_list_are_refused_by_name(void **state) {
    (void)state;
    check_unsupported("cposix\nsystem\nX\4\0\0\0true\x85R", "class posix.system is not read");
    check_unsupported("cnumpy\nndarray\n", "class numpy.ndarray is not read");
    check_unsupported("ctorch\nFloatStorage\n", "class torch.FloatStorage");
    check_unsupported("ccollections\nordereddict\n", "collections.ordereddict");
    check_unsupported("ccollections.OrderedDict\n\n", "collections.OrderedDict.");
    check_unsupported("X\5\0\0\0posixX\6\0\0\0system\x93", "class posix.system in a pickle");
    check_malformed("K\1X\6\0\0\0system\x93", "STACK_GLOBAL without two strings");
    check_malformed("cposix", "name of a class");
    check_malformed("cposix\nsystem", "name of a class");
}

static void test_streams_must_be_pickles_of_protocol_2_to_5_and_end_there(void **state) {
    (void)state;
    struct kvad_error err;
    assert_fails(try_bytes("", 0, &err), KVAD_ERR_FORMAT, &err, "not a pickle");
    assert_fails(try_bytes("\x80", 1, &err), KVAD_ERR_FORMAT, &err, "not a pickle");
    assert_fails(try_bytes("(dp0\n.", 6, &err), KVAD_ERR_FORMAT, &err, "not a pickle");
    assert_fails(try_bytes("\x80\1N.", 4, &err), KVAD_ERR_UNSUPPORTED, &err, "protocol 1");
    assert_fails(try_bytes("\x80\6N.", 4, &err), KVAD_ERR_UNSUPPORTED, &err, "protocol 6");
    assert_fails(try_bytes("\x80\2N.N", 5, &err), KVAD_ERR_FORMAT, &err, "1 bytes follow");
    assert_fails(try_bytes("\x80\2N", 3, &err), KVAD_ERR_FORMAT, &err, "cut short");
    assert_fails(try_bytes("\x80\2\x80\2N.", 6, &err), KVAD_ERR_FORMAT, &err, "PROTO inside");
    check_malformed("\x95\xff\0\0\0\0\0\0\0N", "frame of 255 bytes");
    check_malformed("\x95\xff\xff\xff\xff\xff\xff\xff\xffN", "frame of 18446744073709551615 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocols_2_to_5_give_the_same_values),
        cmocka_unit_test(test_meta_pkl_of_nanogpt_has_both_directions),
        cmocka_unit_test(test_integers_of_every_width_keep_their_sign),
        cmocka_unit_test(test_every_form_of_string_is_read),
        cmocka_unit_test(test_strings_are_utf8_with_surrogates_let_pass),
        cmocka_unit_test(test_the_last_of_equal_keys_wins),
        cmocka_unit_test(test_ordered_dicts_counters_and_sets_are_plain_containers),
        cmocka_unit_test(test_lists_and_dicts_keep_their_items_through_growth),
        cmocka_unit_test(test_every_opcode_checks_the_types_it_works_on),
        cmocka_unit_test(test_stack_mark_and_memo_are_never_read_below_their_floor),
        cmocka_unit_test(test_opcodes_outside_the_list_are_refused_by_name),
        cmocka_unit_test(test_classes_outside_the_list_are_refused_by_name),
        cmocka_unit_test(test_streams_must_be_pickles_of_protocol_2_to_5_and_end_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
