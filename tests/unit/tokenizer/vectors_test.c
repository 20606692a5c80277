/* Ids against the reference implementations: GPT-2's own vocabulary (fixtures) and the small BPE of
 * the repository, whose vectors were made with the tokenizers library. */
#include "support.h"

static struct kvad_tokenizer *open_gpt2(void) {
    if (!test_fixture("gpt2-tokenizer/vocab.json")) skip();
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(kvad_tokenizer_open(test_fixture("gpt2-tokenizer/vocab.json"), NULL, &t, &err), &err);
    return t;
}

/* Lines of {"text": ..., "ids": [...]}; returns how many. */
static size_t check_lines(const struct kvad_tokenizer *t, const char *path, unsigned flags) {
    size_t size, n = 0;
    char *data = read_file(path, &size);
    for (char *line = strtok(data, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        const json_t *text = json_object_get(row, "text");
        struct ids ids = ids_of_json(json_object_get(row, "ids"));
        assert_ids(t, json_string_value(text), json_string_length(text), flags, ids.ids, ids.n);
        free(ids.ids);
        json_decref(row);
    }
    free(data);
    return n;
}

/* An array of [text, ids]. */
static size_t check_array(const struct kvad_tokenizer *t, const json_t *array) {
    size_t i;
    json_t *row;
    json_array_foreach(array, i, row) {
        const json_t *text = json_array_get(row, 0);
        struct ids ids = ids_of_json(json_array_get(row, 1));
        assert_ids(t, json_string_value(text), json_string_length(text), KVAD_ENCODE_SPECIAL,
                   ids.ids, ids.n);
        free(ids.ids);
    }
    return i;
}

/* bugs.md TOK-1 TOK-9 TOK-21: ids, not round trips */
static void test_gpt2_gives_the_ids_of_all_47_llama_cpp_vectors(void **state) {
    (void)state;
    static const char cut[] = "\n__ggml_vocab_test__\n";
    struct kvad_tokenizer *t = open_gpt2();
    size_t size, out_size, n = 0;
    char *text = read_file(test_fixture("gpt2-tokenizer/vectors.inp"), &size);
    char *out = read_file(test_fixture("gpt2-tokenizer/vectors.out"), &out_size);
    char *line = out;
    for (char *at = text; at; n++) {
        char *end = strstr(at, cut), *line_end = strchr(line, '\n');
        int32_t wanted[1000];
        size_t n_wanted = 0;
        char *next = line;
        for (long id = strtol(line, &next, 10); next != line && (!line_end || next <= line_end);
             line = next, id = strtol(line, &next, 10))
            wanted[n_wanted++] = (int32_t)id;
        assert_ids(t, at, end ? (size_t)(end - at) : strlen(at), 0, wanted, n_wanted);
        at = end ? end + strlen(cut) : NULL;
        line = line_end ? line_end + 1 : out + out_size;
    }
    assert_int_equal(n, 47);
    free(text);
    free(out);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-21 TOK-22 */
static void test_gpt2_gives_the_ids_of_1500_random_texts(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_gpt2();
    assert_int_equal(check_lines(t, test_fixture("gpt2-tokenizer/vectors.jsonl"), 0), 1500);
    kvad_tokenizer_release(&t);
}

struct edge {
    const char *text;
    int32_t ids[12];
    size_t n;
};

/* bugs.md TOK-1 TOK-2 TOK-3 TOK-8 TOK-9 TOK-17 TOK-22 */
static void test_gpt2_edge_cases_have_their_verified_ids(void **state) {
    (void)state;
    static const struct edge edges[] = {
        {"I'LL we'll can't", {40, 6, 3069, 356, 1183, 460, 470}, 7},
        {"'S", {6, 50}, 2},
        {"don't'", {9099, 470, 6}, 3},
        {"\xe2\x80\x99s", {447, 247, 82}, 3},
        {"a  b", {64, 220, 275}, 3},
        {"a \n b", {64, 220, 198, 275}, 4},
        {"x  ", {87, 220, 220}, 3},
        {"\n\n", {628}, 1},
        {"\r\n", {201, 198}, 2},
        {"a\tb", {64, 197, 65}, 3},
        {"a\t b", {64, 197, 275}, 3},
        {" \xc2\xa0x", {220, 1849, 87}, 3},
        {"1st 2\xc2\xb2", {16, 301, 362, 31185}, 4},
        {"e\xcc\x81", {68, 136, 223}, 3},
        {"na\xc3\xafve", {2616, 38776}, 2},
        {"", {0}, 0},
        {"hello world", {31373, 995}, 2},
        {"abc abc", {39305, 450, 66}, 3},
        {"Hello,", {15496, 11}, 2},
        {"\n", {198}, 1},
        {"\t\t", {197, 197}, 2},
    };
    struct kvad_tokenizer *t = open_gpt2();
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        assert_ids(t, edges[i].text, strlen(edges[i].text), 0, edges[i].ids, edges[i].n);
    assert_int_equal(kvad_tokenizer_size(t), 50257);
    assert_int_equal(kvad_tokenizer_eos(t), 50256);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-6 */
static void test_gpt2_end_of_text_is_special_only_when_asked(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_gpt2();
    static const char text[] = "hello <|endoftext|>";
    static const int32_t special[] = {31373, 220, 50256};
    static const int32_t plain[] = {31373, 1279, 91, 437, 1659, 5239, 91, 29};
    assert_ids(t, text, strlen(text), KVAD_ENCODE_SPECIAL, special, 3);
    assert_ids(t, text, strlen(text), 0, plain, 8);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-10: the ids that tiktoken's own test lists. */
static void test_gpt2_runs_of_zeros_merge_as_in_tiktoken(void **state) {
    (void)state;
    static const struct edge runs[] = {
        {"0", {15}, 1},
        {"00", {405}, 1},
        {"000", {830}, 1},
        {"0000", {2388}, 1},
        {"00000", {20483}, 1},
        {"000000", {10535}, 1},
        {"0000000", {24598}, 1},
        {"00000000", {8269}, 1},
        {"000000000", {10535, 830}, 2},
        {"0000000000", {8269, 405}, 2},
        {"00000000000", {8269, 830}, 2},
        {"000000000000", {8269, 2388}, 2},
        {"0000000000000", {8269, 20483}, 2},
        {"00000000000000", {8269, 10535}, 2},
        {"000000000000000", {8269, 24598}, 2},
        {"0000000000000000", {25645}, 1},
        {"00000000000000000", {8269, 10535, 830}, 3},
    };
    struct kvad_tokenizer *t = open_gpt2();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        assert_ids(t, runs[i].text, strlen(runs[i].text), 0, runs[i].ids, runs[i].n);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-7 TOK-15: every id of the vocabulary can be asked for, the longest too. */
static void test_gpt2_pieces_of_all_ids_decode_and_most_encode_back(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_gpt2();
    struct kvad_error err;
    size_t back = 0;
    for (int32_t id = 0; id < 50257; id++) {
        const char *bytes;
        size_t size, n;
        int32_t first;
        assert_ok(kvad_tokenizer_piece(t, id, &bytes, &size, &err), &err);
        assert_in_range(size, 1, 128);
        assert_ok(kvad_tokenizer_encode(t, bytes, size, KVAD_ENCODE_SPECIAL, &first, 1, &n, &err),
                  &err);
        back += n == 1 && first == id;
    }
    /* Tokens that cross what the pre-tokenizer cuts today, or that no merge gives, do not. */
    assert_true(back > 50000);
    kvad_tokenizer_release(&t);
}

/* One BPE in its three forms. */
static const char *const forms[] = {
    "tests/data/small-bpe",
    "tests/data/small-bpe/tokenizer-pairs.json",
    "tests/data/small-bpe/tokenizer-strings.json",
    "tests/data/small-bpe/merges.txt",
};

/* bugs.md TOK-1 TOK-3 TOK-22 TOK-24 */
static void test_small_bpe_gives_the_reference_ids_in_every_file_form(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct kvad_error err;
        struct kvad_tokenizer *t = NULL;
        assert_ok(kvad_tokenizer_open(forms[i], NULL, &t, &err), &err);
        assert_int_equal(kvad_tokenizer_size(t), 512);
        assert_int_equal(kvad_tokenizer_eos(t), 0);
        assert_int_equal(check_lines(t, "tests/data/small-bpe/vectors.jsonl", KVAD_ENCODE_SPECIAL),
                         14);
        json_t *rows = json_load_file("tests/data/tokenizer/random.json", JSON_ALLOW_NUL, NULL);
        assert_non_null(rows);
        assert_int_equal(check_array(t, rows), json_array_size(rows));
        assert_true(json_array_size(rows) > 1000);
        json_decref(rows);
        kvad_tokenizer_release(&t);
    }
}

/* Put what a variant changes into tokenizer.json, and open that. */
static struct kvad_tokenizer *open_variant(const json_t *change) {
    json_t *root = json_load_file("tests/data/small-bpe/tokenizer-pairs.json", 0, NULL);
    assert_non_null(root);
    json_t *model = json_object_get(root, "model");
    json_object_set(root, "added_tokens", json_object_get(change, "added_tokens"));
    json_object_set(root, "pre_tokenizer", json_object_get(change, "pre_tokenizer"));
    json_object_set(model, "ignore_merges", json_object_get(change, "ignore_merges"));
    json_object_update(json_object_get(model, "vocab"), json_object_get(change, "vocab"));
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(open_texts(text, NULL, &t, &err), &err);
    free(text);
    json_decref(root);
    return t;
}

/* bugs.md TOK-23 */
static void test_added_tokens_prefix_space_and_ignore_merges_equal_the_reference(void **state) {
    (void)state;
    json_t *root = json_load_file("tests/data/tokenizer/variants.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    size_t i;
    json_t *variant;
    json_array_foreach(json_object_get(root, "variants"), i, variant) {
        print_message("variant: %s\n", json_string_value(json_object_get(variant, "name")));
        struct kvad_tokenizer *t = open_variant(json_object_get(variant, "change"));
        check_array(t, json_object_get(variant, "vectors"));
        kvad_tokenizer_release(&t);
    }
    assert_int_equal(i, 5);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_gives_the_ids_of_all_47_llama_cpp_vectors),
        cmocka_unit_test(test_gpt2_gives_the_ids_of_1500_random_texts),
        cmocka_unit_test(test_gpt2_edge_cases_have_their_verified_ids),
        cmocka_unit_test(test_gpt2_end_of_text_is_special_only_when_asked),
        cmocka_unit_test(test_gpt2_runs_of_zeros_merge_as_in_tiktoken),
        cmocka_unit_test(test_gpt2_pieces_of_all_ids_decode_and_most_encode_back),
        cmocka_unit_test(test_small_bpe_gives_the_reference_ids_in_every_file_form),
        cmocka_unit_test(test_added_tokens_prefix_space_and_ignore_merges_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
