/* Character vocabularies: JSON and nanoGPT's meta.pkl. */
#include "support.h"

static struct kvad_tokenizer *open_ok(const char *json) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(open_texts(json, NULL, &t, &err), &err);
    return t;
}

/* Open from bytes as meta.pkl. */
static enum kvad_status open_pickle(const char *data, size_t size, struct kvad_tokenizer **out,
                                    struct kvad_error *err) {
    struct kvad_tokenizer_files files = {.main = {"meta.pkl", data, size}};
    return kvad_tokenizer_open_memory(&files, NULL, out, err);
}

static void assert_decodes(const struct kvad_tokenizer *t, int32_t id, const char *wanted) {
    struct kvad_error err;
    const char *bytes;
    size_t size;
    assert_ok(kvad_tokenizer_piece(t, id, &bytes, &size, &err), &err);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(bytes, wanted, size);
}

static void test_stoi_encodes_each_code_point(void **state) {
    (void)state;
    struct kvad_tokenizer *t =
        open_ok("{\"stoi\": {\"a\": 2, \"\\n\": 0, \"\xc3\xa9\": 1, \"\xe6\x97\xa5\": 4, "
                "\"\xf0\x9f\x98\x80\": 3}}");
    static const int32_t wanted[] = {2, 1, 0, 4, 3, 2};
    static const char text[] = "a\xc3\xa9\n\xe6\x97\xa5\xf0\x9f\x98\x80"
                               "a";
    assert_ids(t, text, strlen(text), 0, wanted, 6);
    assert_ids(t, "", 0, 0, NULL, 0);
    assert_round_trip(t, text, strlen(text));
    assert_int_equal(kvad_tokenizer_size(t), 5);
    assert_int_equal(kvad_tokenizer_eos(t), -1);
    kvad_tokenizer_release(&t);
}

static void test_an_unknown_character_is_named_with_its_byte_offset(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_ok("{\"stoi\": {\"a\": 0, \"\xc3\xa9\": 1}}");
    struct kvad_error err;
    int32_t ids[8];
    size_t n = 55;
    assert_fails(kvad_tokenizer_encode(t, "\xc3\xa9\xc3\xa9\xe2\x82\xac", 7, 0, ids, 8, &n, &err),
                 KVAD_ERR_ARGUMENT, &err,
                 "character '\xe2\x82\xac' (U+20AC) at byte offset 4 is not in the vocabulary of 2 "
                 "characters; remove it");
    assert_int_equal(n, 55);
    assert_fails(kvad_tokenizer_encode(t, "a\n", 2, 0, ids, 8, &n, &err), KVAD_ERR_ARGUMENT, &err,
                 "'\\x0A' (U+000A) at byte offset 1");
    assert_fails(kvad_tokenizer_encode(t, "aa\xc3", 3, 0, ids, 8, &n, &err), KVAD_ERR_ARGUMENT,
                 &err, "not UTF-8 at byte offset 2 ('\\xC3')");
    assert_fails(kvad_tokenizer_encode(t, "a\xff", 2, 0, ids, 8, &n, &err), KVAD_ERR_ARGUMENT, &err,
                 "not UTF-8 at byte offset 1");
    kvad_tokenizer_release(&t);
}

static void test_itos_alone_or_as_a_list_or_beside_stoi_is_enough(void **state) {
    (void)state;
    static const char *const forms[] = {
        "{\"itos\": {\"0\": \"a\", \"1\": \"b\"}}",
        "{\"itos\": [\"a\", \"b\"]}",
        "{\"stoi\": {\"a\": 0, \"b\": 1}, \"itos\": {\"1\": \"b\", \"0\": \"a\"}}",
        ("{\"stoi\": {\"b\": 1, \"a\": 0}, \"itos\": [\"a\", \"b\"], \"vocab_size\": 2, "
         "\"tokenization\": \"char\"}"),
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct kvad_tokenizer *t = open_ok(forms[i]);
        static const int32_t wanted[] = {1, 0, 1};
        assert_ids(t, "bab", 3, 0, wanted, 3);
        assert_decodes(t, 0, "a");
        kvad_tokenizer_release(&t);
    }
}

/* As in nanoGPT: encode goes character by character and never sees them. */
static void test_longer_keys_are_special_text(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_ok(
        "{\"stoi\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 3, \"<\": 4, \"|\": 5}}");
    static const int32_t plain[] = {0, 1, 4, 5}, special[] = {2, 3, 4, 5};
    struct kvad_error err;
    size_t n;
    assert_int_equal(kvad_tokenizer_eos(t), 3);
    assert_ids(t, "ab<|", 4, 0, plain, 4);
    assert_ids(t, "ab<|endoftext|><|", 17, KVAD_ENCODE_SPECIAL, special, 4);
    assert_fails(kvad_tokenizer_encode(t, "<|endoftext|>", 13, 0, NULL, 0, &n, &err),
                 KVAD_ERR_ARGUMENT, &err, "character 'e'");
    assert_decodes(t, 2, "ab");
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-14 and hostile tables: refused with what is wrong */
static void test_tables_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"{\"stoi\": {}}", "are empty"},
        {"{\"itos\": []}", "are empty"},
        {"{\"stoi\": {\"a\": -1}}", "has id -1"},
        {"{\"stoi\": {\"a\": 4294967296}}", "has id 4294967296"},
        {"{\"stoi\": {\"a\": 99999}}", "ids of 1 tokens must be 0 to 4097"},
        {"{\"stoi\": {\"a\": 1.5}}", "must map texts to ids"},
        {"{\"stoi\": {\"a\": \"1\"}}", "must map texts to ids"},
        {"{\"stoi\": {\"a\": 0, \"b\": 0}}", "share their id 0"},
        {"{\"stoi\": {\"\": 0}}", "empty"},
        {"{\"itos\": {\"0\": \"a\", \"1\": \"a\"}}", "or their text"},
        {"{\"itos\": {\"0\": 5}}", "must map ids to texts"},
        {"{\"itos\": [1]}", "must map ids to texts"},
        {"{\"itos\": {\"+1\": \"a\"}}", "must map ids to texts"},
        {"{\"itos\": {\" 1\": \"a\"}}", "must map ids to texts"},
        {"{\"itos\": {\"-1\": \"a\"}}", "must map ids to texts"},
        {"{\"itos\": {\"0x1\": \"a\"}}", "must map ids to texts"},
        {"{\"itos\": {\"\": \"a\"}}", "must map ids to texts"},
        {"{\"itos\": {\"99999999999\": \"a\"}}", "must map ids to texts"},
        {"{\"stoi\": {\"a\": 0, \"b\": 1}, \"itos\": [\"b\", \"a\"]}", "but stoi does not"},
        {"{\"stoi\": {\"a\": 0, \"b\": 1}, \"itos\": [\"a\"]}", "itos has 1"},
        {"{\"stoi\": {\"a\": 0}, \"tokenization\": \"word\"}", "'word', only character"},
        {"{\"stoi\": {\"a\": 0}, \"tokenization\": 3}", "tokenization"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvad_error err = {0};
        struct kvad_tokenizer *t = NULL;
        assert_int_not_equal(open_texts(cases[i].json, NULL, &t, &err), KVAD_OK);
        if (!strstr(err.text, cases[i].part)) fail_msg("%s: %s", cases[i].json, err.text);
        assert_null(t);
    }
}

static void test_the_hand_written_models_vocabularies_open(void **state) {
    (void)state;
    static const char *const folders[] = {"article", "article-no-head-bias", "lecture",
                                          "lecture-wrapped"};
    for (size_t i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "tiny/hand-written/%s/vocab.json", folders[i]);
        const char *path = test_fixture(name);
        if (!path) skip();
        struct kvad_error err;
        struct kvad_tokenizer *t = NULL;
        assert_ok(kvad_tokenizer_open(path, NULL, &t, &err), &err);
        assert_round_trip(t, " 09\n", 4);
        assert_decodes(t, 0, " ");
        kvad_tokenizer_release(&t);
    }
}

static void test_meta_pkl_of_the_shakespeare_model_has_its_65_characters(void **state) {
    (void)state;
    const char *path = test_fixture("shakespeare-char/meta.pkl");
    if (!path) skip();
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(kvad_tokenizer_open(path, NULL, &t, &err), &err);
    assert_int_equal(kvad_tokenizer_size(t), 65);
    assert_int_equal(kvad_tokenizer_eos(t), -1);
    static const char sorted[] = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz";
    int32_t wanted[65];
    for (int32_t i = 0; i < 65; i++)
        wanted[i] = i;
    assert_ids(t, sorted, 65, 0, wanted, 65);
    assert_round_trip(t, sorted, 65);
    size_t n;
    assert_fails(kvad_tokenizer_encode(t, "ROMEO: 5", 8, 0, NULL, 0, &n, &err), KVAD_ERR_ARGUMENT,
                 &err, "character '5' (U+0035) at byte offset 7");
    kvad_tokenizer_release(&t);
}

/* pickle.dumps({'stoi': {'a': 0, 'b': 1}, 'itos': X}, 2), with X between the parts. */
#define PICKLE_HEAD  "\x80\x02}(X\x04\0\0\0stoi}(X\x01\0\0\0aK\0X\x01\0\0\0bK\x01uX\x04\0\0\0itos"
#define PICKLE(itos) PICKLE_HEAD itos "u."

static void test_meta_pkl_forms_of_other_trainers_are_read(void **state) {
    (void)state;
    static const struct {
        const char *data;
        size_t size;
    } good[] = {
#define CASE(itos) {PICKLE(itos), sizeof PICKLE(itos) - 1}
        CASE("}(K\0X\x01\0\0\0aK\x01X\x01\0\0\0bu"), /* {0: 'a', 1: 'b'} */
        CASE("}(X\x01\0\0\0"
             "0X\x01\0\0\0aX\x01\0\0\0"
             "1X\x01\0\0\0bu"),              /* {'0': 'a', ...} */
        CASE("](X\x01\0\0\0aX\x01\0\0\0be"), /* ['a', 'b'] */
        CASE("}"),                           /* {} */
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct kvad_error err;
        struct kvad_tokenizer *t = NULL;
        assert_ok(open_pickle(good[i].data, good[i].size, &t, &err), &err);
        assert_round_trip(t, "abba", 4);
        kvad_tokenizer_release(&t);
    }
    static const struct {
        const char *data;
        size_t size;
        const char *part;
    } bad[] = {
#define BAD(itos, part) {PICKLE(itos), sizeof PICKLE(itos) - 1, part}
        BAD("}(K\0K\0K\x01X\x01\0\0\0bu", "must map ids to texts"),
        BAD("}(K\x01X\x01\0\0\0aK\0X\x01\0\0\0bu", "but stoi does not"),
        BAD("](K\x01"
            "e",
            "must map ids to texts"),
        BAD("}(NX\x01\0\0\0au", "must map ids to texts"),
        {"\x80\x02}.", 4, "neither"},
        {"\x80\x02K\x01.", 5, "neither"},
        {"\x80\x02}X\x04\0\0\0stoiK\x01s.", 16, "must map texts to ids"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvad_error err = {0};
        struct kvad_tokenizer *t = NULL;
        assert_int_not_equal(open_pickle(bad[i].data, bad[i].size, &t, &err), KVAD_OK);
        if (!strstr(err.text, bad[i].part)) fail_msg("case %zu: %s", i, err.text);
        assert_null(t);
    }
}

static void test_a_truncated_meta_pkl_is_refused_at_every_length(void **state) {
    (void)state;
    const char *path = test_fixture("shakespeare-char/meta.pkl");
    if (!path) skip();
    size_t size;
    char *data = read_file(path, &size);
    for (size_t n = 0; n < size; n++) {
        struct kvad_error err;
        struct kvad_tokenizer *t = NULL;
        char *exact = malloc(n ? n : 1);
        memcpy(exact, data, n);
        assert_int_not_equal(open_pickle(exact, n, &t, &err), KVAD_OK);
        assert_null(t);
        free(exact);
    }
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stoi_encodes_each_code_point),
        cmocka_unit_test(test_an_unknown_character_is_named_with_its_byte_offset),
        cmocka_unit_test(test_itos_alone_or_as_a_list_or_beside_stoi_is_enough),
        cmocka_unit_test(test_longer_keys_are_special_text),
        cmocka_unit_test(test_tables_that_contradict_themselves_are_refused),
        cmocka_unit_test(test_the_hand_written_models_vocabularies_open),
        cmocka_unit_test(test_meta_pkl_of_the_shakespeare_model_has_its_65_characters),
        cmocka_unit_test(test_meta_pkl_forms_of_other_trainers_are_read),
        cmocka_unit_test(test_a_truncated_meta_pkl_is_refused_at_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
