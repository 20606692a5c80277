/* Opening byte-level BPE files: what is refused, what stands beside what, hostile bytes. */
#include "hook.h"
#include "support.h"

static void assert_refused(const char *json, const char *merges, enum kvad_status wanted,
                           const char *part) {
    struct kvad_error err = {0};
    struct kvad_tokenizer *t = NULL;
    enum kvad_status status = open_texts(json, merges, &t, &err);
    if (status != wanted || !strstr(err.text, part))
        fail_msg("%s\n  gave: %s: %s\n  not: %s", json, kvad_status_text(status), err.text, part);
    assert_null(t);
}

static struct kvad_tokenizer *open_ok(const char *json, const char *merges) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(open_texts(json, merges, &t, &err), &err);
    return t;
}

static void test_vocabularies_with_wrong_entries_are_refused(void **state) {
    (void)state;
    assert_refused("{}", "", KVAD_ERR_FORMAT, "empty");
    assert_refused("[1]", "", KVAD_ERR_UNSUPPORTED, "is not a tokenizer file");
    assert_refused("", "", KVAD_ERR_UNSUPPORTED, "is not a tokenizer file");
    assert_refused("{\"a\": 0", "", KVAD_ERR_FORMAT, "line 1");
    assert_refused("{\"a\": 0, \"a\": 1}", "", KVAD_ERR_FORMAT, "duplicate");
    assert_refused("{\"a\": \"0\"}", "", KVAD_ERR_FORMAT, "id of token 'a' must be a whole");
    assert_refused("{\"a\": 1.0}", "", KVAD_ERR_FORMAT, "must be a whole number");
    assert_refused("{\"a\": null}", "", KVAD_ERR_FORMAT, "must be a whole number");
    assert_refused("{\"a\": -1}", "", KVAD_ERR_FORMAT, "has id -1; ids of 1 tokens");
    assert_refused("{\"a\": 2147483647}", "", KVAD_ERR_FORMAT, "must be 0 to 4097");
    assert_refused("{\"a\": 9223372036854775807}", "", KVAD_ERR_FORMAT, "must be 0 to 4097");
    assert_refused("{\"a\": 3, \"b\": 3}", "", KVAD_ERR_FORMAT, "shares its id 3");
    assert_refused("{\"\": 3}", "", KVAD_ERR_FORMAT, "empty");
    assert_refused("{\"a\": 0}", NULL, KVAD_ERR_NOT_FOUND, "without merges; put merges.txt");
}

/* bugs.md TOK-11 */
static void test_merges_that_are_wrong_or_given_twice_are_refused(void **state) {
    (void)state;
    static const char vocab[] = "{\"h\": 0, \"e\": 1, \"he\": 2, \"\xc4\xa0\": 3}";
    assert_refused(vocab, "h e\nh e\n", KVAD_ERR_FORMAT, "merge 2 ('h' + 'e') is given twice");
    assert_refused(vocab, "h x\n", KVAD_ERR_FORMAT, "merge 1 ('h' + 'x') is not of tokens");
    assert_refused(vocab, "e h\n", KVAD_ERR_FORMAT, "is not of tokens");
    assert_refused(vocab, "he\n", KVAD_ERR_FORMAT, "two tokens with one space");
    assert_refused(vocab, " he\n", KVAD_ERR_FORMAT, "two tokens with one space");
    assert_refused(vocab, "h \n", KVAD_ERR_FORMAT, "two tokens with one space");
    assert_refused(vocab, "h e x\n", KVAD_ERR_FORMAT, "two tokens with one space");
    assert_refused(vocab, "h e\n#version: 0.2\n", KVAD_ERR_FORMAT, "merge 2");
    assert_refused(vocab, "h \xff\n", KVAD_ERR_FORMAT, "'\\xFF'");
    assert_refused(vocab, "hhhhhhhhhhhhhhhhhhhhhhhhhhhh e\n", KVAD_ERR_FORMAT, "merge 1");
}

static void test_merges_may_end_in_crlf_have_blank_lines_and_begin_with_a_hash(void **state) {
    (void)state;
    static const char vocab[] = "{\"#\": 0, \"##\": 1, \"h\": 2, \"e\": 3, \"he\": 4}";
    static const char *const forms[] = {
        "#version: 0.2\n# #\nh e\n",
        "# #\nh e",
        "#version: 0.2\r\n# #\r\nh e\r\n\r\n",
        "\n# #\n\nh e\n",
        "\xef\xbb\xbf#version: 0.2\n# #\nh e\n", /* a byte order mark */
        "\xef\xbb\xbf# #\nh e\n",
    };
    static const int32_t wanted[] = {1, 4};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct kvad_tokenizer *t = open_ok(vocab, forms[i]);
        assert_ids(t, "##he", 4, 0, wanted, 2);
        kvad_tokenizer_release(&t);
    }
}

/* bugs.md TOK-11 TOK-16: small vocabularies load; a byte without a token is a clean error. */
static void test_vocabularies_of_1_255_and_256_bytes_load(void **state) {
    (void)state;
    static const char alphabet_file[] = "tests/data/small-bpe/vocab.json";
    size_t size;
    char *text = read_file(alphabet_file, &size);
    json_t *all = json_loads(text, 0, NULL);
    static const size_t sizes[] = {1, 255, 256};
    for (size_t i = 0; i < 3; i++) {
        json_t *vocab = json_object();
        const char *key;
        json_t *id;
        json_object_foreach(all, key, id) {
            json_int_t n = json_integer_value(id) - 1; /* id 0 is <|endoftext|>, then all bytes */
            if (n >= 0 && n < (json_int_t)sizes[i])
                json_object_set_new(vocab, key, json_integer(n));
        }
        char *json = json_dumps(vocab, 0);
        struct kvad_tokenizer *t = open_ok(json, "");
        assert_int_equal(kvad_tokenizer_size(t), sizes[i]);
        assert_int_equal(kvad_tokenizer_eos(t), -1);
        assert_round_trip(t, "!!", 2);
        struct kvad_error err;
        size_t n = 9;
        int32_t ids[4];
        if (sizes[i] == 1)
            assert_fails(kvad_tokenizer_encode(t, "!! !", 4, 0, ids, 4, &n, &err),
                         KVAD_ERR_ARGUMENT, &err, "byte 0x20 at offset 2");
        if (sizes[i] == 255)
            assert_fails(kvad_tokenizer_encode(t, "!\xad", 2, 0, ids, 4, &n, &err),
                         KVAD_ERR_ARGUMENT, &err, "byte 0xAD at offset 1");
        if (sizes[i] == 256) assert_round_trip(t, "any \xff\n text", 11);
        if (sizes[i] < 256) assert_int_equal(n, 9);
        kvad_tokenizer_release(&t);
        free(json);
        json_decref(vocab);
    }
    json_decref(all);
    free(text);
}

static void test_ids_with_holes_are_kept_and_a_hole_has_no_text(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_ok("{\"a\": 7, \"b\": 2, \"ab\": 4000}", "a b\n");
    struct kvad_error err;
    const char *bytes;
    size_t size;
    static const int32_t wanted[] = {4000, 2};
    assert_int_equal(kvad_tokenizer_size(t), 4001);
    assert_ids(t, "abb", 3, 0, wanted, 2);
    assert_ok(kvad_tokenizer_piece(t, 0, &bytes, &size, &err), &err);
    assert_int_equal(size, 0);
    kvad_tokenizer_release(&t);
}

/* Tokens in other characters than the byte alphabet's cannot be made by merges; they decode as
 * what they are. bugs.md TOK-14: nothing in a token's name is read as a number. */
static void test_tokens_outside_of_the_byte_alphabet_decode_as_their_own_text(void **state) {
    (void)state;
    struct kvad_tokenizer *t =
        open_ok("{\"a\": 0, \"\xe6\x97\xa5 x\": 1, \"<0x-1>\": 2, \"<0x41>\": 3}", "");
    struct kvad_error err;
    const char *bytes;
    size_t size;
    assert_ok(kvad_tokenizer_piece(t, 1, &bytes, &size, &err), &err);
    assert_int_equal(size, 5);
    assert_memory_equal(bytes, "\xe6\x97\xa5 x", 5);
    assert_ok(kvad_tokenizer_piece(t, 2, &bytes, &size, &err), &err);
    assert_memory_equal(bytes, "<0x-1>", size);
    assert_ok(kvad_tokenizer_piece(t, 3, &bytes, &size, &err), &err);
    assert_memory_equal(bytes, "<0x41>", size);
    kvad_tokenizer_release(&t);
}

/* Set root[path...] of the small tokenizer.json to a value and expect a refusal. */
static void assert_change_refused(const char *parent, const char *field, const char *value,
                                  enum kvad_status status, const char *part) {
    json_t *root = json_load_file("tests/data/small-bpe/tokenizer-pairs.json", 0, NULL);
    assert_non_null(root);
    json_t *object = *parent ? json_object_get(root, parent) : root;
    json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    json_object_set_new(object, field, json);
    char *text = json_dumps(root, 0);
    assert_refused(text, NULL, status, part);
    free(text);
    json_decref(root);
}

static void
test_what_tokenizer_json_asks_for_and_kvad_does_not_do_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *parent, *field, *value, *part;
    } cases[] = {
        {"", "normalizer", "{\"type\": \"NFC\"}", "normalizer 'NFC' is not supported"},
        {"", "normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}",
         "normalizer 'Sequence'"},
        {"", "pre_tokenizer", "{\"type\": \"Metaspace\"}", "pre_tokenizer 'Metaspace'"},
        {"", "pre_tokenizer", "null", "pre_tokenizer ''"},
        {"", "pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}]}",
         "pre_tokenizer 'Sequence'"},
        {"", "decoder", "{\"type\": \"WordPiece\"}", "decoder 'WordPiece'"},
        {"", "post_processor",
         "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"<s>\": {}}}",
         "post_processor 'TemplateProcessing'"},
        {"", "post_processor",
         "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
         "\"BertProcessing\"}]}",
         "post_processor 'BertProcessing'"},
        {"pre_tokenizer", "use_regex", "false", "use_regex false"},
        {"model", "type", "\"Unigram\"", "model 'Unigram'"},
        {"model", "type", "\"WordPiece\"", "model 'WordPiece'"},
        {"model", "dropout", "0.1", "field \"dropout\""},
        {"model", "byte_fallback", "true", "field \"byte_fallback\""},
        {"model", "continuing_subword_prefix", "\"##\"", "continuing_subword_prefix"},
        {"model", "end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_change_refused(cases[i].parent, cases[i].field, cases[i].value, KVAD_ERR_UNSUPPORTED,
                              cases[i].part);
}

static void test_malformed_fields_of_tokenizer_json_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *parent, *field, *value, *part;
    } cases[] = {
        {"", "added_tokens", "{}", "added_tokens must be an array"},
        {"", "added_tokens", "[5]", "added_tokens must be objects"},
        {"", "added_tokens", "[{\"id\": 1}]", "needs \"content\""},
        {"", "added_tokens", "[{\"content\": \"x\"}]", "and \"id\""},
        {"", "added_tokens", "[{\"content\": \"\", \"id\": 600}]", "not empty"},
        {"", "added_tokens", "[{\"content\": \"zz\", \"id\": -1}]", "field \"id\""},
        {"", "added_tokens", "[{\"content\": \"zz\", \"id\": 2000000000}]", "has id 2000000000"},
        {"", "added_tokens", "[{\"content\": \"zz\", \"id\": 5}]", "id 5 of another token"},
        {"", "added_tokens", "[{\"content\": \"a\", \"id\": 600}]", "but the vocabulary gives it"},
        {"", "added_tokens", "[{\"content\": \"\xc3\xbc\", \"id\": 185}]", "id 185 of another"},
        {"", "added_tokens",
         "[{\"content\": \"zz\", \"id\": 600}, {\"content\": \"zz\", \"id\": 601, \"special\": "
         "true}]",
         "given twice"},
        {"pre_tokenizer", "add_prefix_space", "1", "add_prefix_space"},
        {"pre_tokenizer", "use_regex", "\"yes\"", "use_regex"},
        {"model", "vocab", "[]", "\"vocab\" (an object)"},
        {"model", "merges", "{}", "\"merges\" (an array)"},
        {"model", "merges", "[[\"a\"]]", "merge 1 must be"},
        {"model", "merges", "[[\"a\", 5]]", "merge 1 must be"},
        {"model", "merges", "[7]", "merge 1 must be"},
        {"model", "merges", "[[\"\", \"a\"]]", "merge 1 ('' + 'a')"},
        {"model", "merges", "[[\"h\", \"e\"], \"h e\"]", "merge 2 ('h' + 'e') is given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_change_refused(cases[i].parent, cases[i].field, cases[i].value, KVAD_ERR_FORMAT,
                              cases[i].part);
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < 3; i++) {
        char value[128], part[64];
        snprintf(value, sizeof value, "[{\"content\": \"zz\", \"id\": 600, \"%s\": true}]",
                 flags[i]);
        snprintf(part, sizeof part, "'zz': %s is not supported", flags[i]);
        assert_change_refused("", "added_tokens", value, KVAD_ERR_UNSUPPORTED, part);
    }
}

static void test_unk_token_matters_only_where_a_byte_has_no_token(void **state) {
    (void)state;
    static const char json[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
        "{\"vocab\": {\"a\": 0, \"<unk>\": 1}, \"merges\": [], \"unk_token\": %s}}";
    char text[400];
    snprintf(text, sizeof text, json, "\"<unk>\"");
    assert_refused(text, NULL, KVAD_ERR_UNSUPPORTED, "unk_token");
    snprintf(text, sizeof text, json, "null");
    struct kvad_tokenizer *t = open_ok(text, NULL);
    kvad_tokenizer_release(&t);
}

/* Keys that all hash to one slot: the inverse of the hash's mixing gives them. */
static void test_merges_chosen_to_collide_are_stopped_early(void **state) {
    (void)state;
    struct kvad_heap heap;
    struct kvad_bpe bpe;
    struct kvad_error err;
    kvad_heap_init(&heap, NULL);
    assert_ok(kvad_bpe_init(&bpe, &heap, 2000, &err), &err);
    enum kvad_bpe_add added = KVAD_BPE_ADDED;
    uint64_t n = 0;
    for (; n < 2000 && added == KVAD_BPE_ADDED; n++) {
        uint64_t h = n << 32 | 5;
        h ^= h >> 33;
        h *= 0x9cb4b2f8129337dbu; /* inverse of 0xc4ceb9fe1a85ec53 modulo 2^64 */
        h ^= h >> 33;
        h *= 0x4f74430c22a54005u; /* inverse of 0xff51afd7ed558ccd */
        h ^= h >> 33;
        added = kvad_bpe_add(&bpe, (uint32_t)(h >> 32), (uint32_t)h, 1);
    }
    assert_int_equal(added, KVAD_BPE_COLLISIONS);
    assert_int_equal(n, KVAD_MAX_PROBES + 1);
    kvad_bpe_deinit(&bpe);
    assert_int_equal(heap.bytes, 0);
}

/* Bytes of a file, cut or changed: refused, or a tokenizer that works. ASan holds the rest. */
static void try_bytes(const char *main, size_t main_size, const char *merges, size_t merges_size) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    char *a = malloc(main_size ? main_size : 1), *b = malloc(merges_size ? merges_size : 1);
    memcpy(a, main, main_size);
    memcpy(b, merges, merges_size);
    struct kvad_tokenizer_files files = {.main = {"m", a, main_size},
                                         .merges = {"merges", b, merges_size}};
    enum kvad_status status = kvad_tokenizer_open_memory(&files, NULL, &t, &err);
    free(a);
    free(b);
    assert_int_equal(status == KVAD_OK, t != NULL);
    if (t) {
        size_t n;
        status =
            kvad_tokenizer_encode(t, NASTY, strlen(NASTY), KVAD_ENCODE_SPECIAL, NULL, 0, &n, &err);
        assert_true(status == KVAD_OK || status == KVAD_ERR_ARGUMENT);
    }
    kvad_tokenizer_release(&t);
}

static void test_truncated_and_damaged_files_never_crash(void **state) {
    (void)state;
    size_t sizes[3];
    char *files[3] = {read_file("tests/data/small-bpe/vocab.json", &sizes[0]),
                      read_file("tests/data/small-bpe/merges.txt", &sizes[1]),
                      read_file("tests/data/small-bpe/tokenizer-pairs.json", &sizes[2])};
    for (size_t n = 0; n < sizes[2]; n += 31)
        try_bytes(files[2], n, "", 0);
    for (size_t n = 0; n < sizes[0]; n += 31)
        try_bytes(files[0], n, files[1], sizes[1]);
    for (size_t n = 0; n < sizes[1]; n += 7)
        try_bytes(files[0], sizes[0], files[1], n);
    uint32_t seed = 5;
    for (int round = 0; round < 1500; round++) {
        int which = round % 3;
        char *byte = files[which] + next_random(&seed) % sizes[which], before = *byte;
        *byte = (char)next_random(&seed);
        if (which == 2)
            try_bytes(files[2], sizes[2], "", 0);
        else
            try_bytes(files[0], sizes[0], files[1], sizes[1]);
        *byte = before;
    }
    for (int i = 0; i < 3; i++)
        free(files[i]);
}

static void test_each_failed_allocation_of_open_is_a_clean_error(void **state) {
    (void)state;
    static const char *const paths[] = {"tests/data/small-bpe/vocab.json",
                                        "tests/data/small-bpe/tokenizer-strings.json"};
    for (size_t i = 0; i < 2; i++) {
        enum kvad_status status = KVAD_ERR_NO_MEMORY;
        size_t k = 1;
        for (; status != KVAD_OK; k++) {
            struct hook hook;
            struct kvad_tokenizer *t = NULL;
            struct kvad_error err;
            hook_init(&hook, k);
            status = kvad_tokenizer_open(paths[i], &hook.allocator, &t, &err);
            if (status != KVAD_OK) {
                assert_int_equal(status, KVAD_ERR_NO_MEMORY);
                assert_non_null(strstr(err.text, "out of memory"));
                assert_null(t);
            }
            kvad_tokenizer_release(&t);
            assert_int_equal(hook.bytes, 0);
        }
        assert_in_range(k, 5, 30);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabularies_with_wrong_entries_are_refused),
        cmocka_unit_test(test_merges_that_are_wrong_or_given_twice_are_refused),
        cmocka_unit_test(test_merges_may_end_in_crlf_have_blank_lines_and_begin_with_a_hash),
        cmocka_unit_test(test_vocabularies_of_1_255_and_256_bytes_load),
        cmocka_unit_test(test_ids_with_holes_are_kept_and_a_hole_has_no_text),
        cmocka_unit_test(test_tokens_outside_of_the_byte_alphabet_decode_as_their_own_text),
        cmocka_unit_test(test_what_tokenizer_json_asks_for_and_kvad_does_not_do_is_refused_by_name),
        cmocka_unit_test(test_malformed_fields_of_tokenizer_json_are_refused),
        cmocka_unit_test(test_unk_token_matters_only_where_a_byte_has_no_token),
        cmocka_unit_test(test_merges_chosen_to_collide_are_stopped_early),
        cmocka_unit_test(test_truncated_and_damaged_files_never_crash),
        cmocka_unit_test(test_each_failed_allocation_of_open_is_a_clean_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
