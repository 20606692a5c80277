/* Where files lie: folders, names, and what stands beside a vocabulary. */
#include <unistd.h>

#include "support.h"

/* A folder of its own for each test, removed by clean(). */
static char folder[256];

static int make_folder(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kvad-tokenizer-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *const all_names[] = {
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "meta.pkl",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "other.json",
    "r50k_base.tiktoken",
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
};

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int clean(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof all_names / sizeof all_names[0]; i++)
        unlink(path_of(all_names[i]));
    return rmdir(folder);
}

static void put(const char *name, const char *data, size_t size) {
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static void put_copy(const char *name, const char *from) {
    size_t size;
    char *data = read_file(from, &size);
    put(name, data, size);
    free(data);
}

static void put_text(const char *name, const char *text) {
    put(name, text, strlen(text));
}

/* Open a file of the folder, or the folder itself for "". */
static struct kvad_tokenizer *open_ok(const char *name) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(kvad_tokenizer_open(path_of(name), NULL, &t, &err), &err);
    return t;
}

static void assert_open_fails(const char *name, enum kvad_status status, const char *part) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_fails(kvad_tokenizer_open(path_of(name), NULL, &t, &err), status, &err, part);
    assert_null(t);
}

static void assert_small_bpe(struct kvad_tokenizer *t) {
    static const int32_t wanted[] = {353};
    assert_int_equal(kvad_tokenizer_size(t), 512);
    assert_ids(t, "The", 3, 0, wanted, 1);
    kvad_tokenizer_release(&t);
}

static void test_the_halves_of_a_vocabulary_find_each_other_by_every_pair_of_names(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"vocab.json", "merges.txt"},
        {"encoder.json", "vocab.bpe"},
        {"6c7ea1a7e38e3a7f062df639a5b80947f075ffe6", "6d1cbeee0f20b3d9449abfede4726ed8212e3aee"},
    };
    for (size_t i = 0; i < 3; i++) {
        put_copy(names[i][0], "tests/data/small-bpe/vocab.json");
        put_copy(names[i][1], "tests/data/small-bpe/merges.txt");
        assert_small_bpe(open_ok(""));
        assert_small_bpe(open_ok(names[i][0]));
        assert_small_bpe(open_ok(names[i][1]));
        unlink(path_of(names[i][0]));
        unlink(path_of(names[i][1]));
    }
    put_copy("other.json", "tests/data/small-bpe/vocab.json");
    put_copy("merges.txt", "tests/data/small-bpe/merges.txt");
    assert_small_bpe(open_ok("other.json"));
}

static void test_errors_say_what_was_looked_for(void **state) {
    (void)state;
    assert_open_fails("", KVAD_ERR_NOT_FOUND, "looked for tokenizer.json, vocab.json");
    assert_open_fails("nothing", KVAD_ERR_NOT_FOUND, "nothing: cannot open");
    put_copy("merges.txt", "tests/data/small-bpe/merges.txt");
    assert_open_fails("", KVAD_ERR_NOT_FOUND, "looked for");
    assert_open_fails("merges.txt", KVAD_ERR_UNSUPPORTED, "is not a tokenizer file");
    unlink(path_of("merges.txt"));
    put_copy("vocab.json", "tests/data/small-bpe/vocab.json");
    assert_open_fails("", KVAD_ERR_NOT_FOUND, "put merges.txt (or vocab.bpe) beside");
    assert_open_fails("vocab.json", KVAD_ERR_NOT_FOUND, "put merges.txt (or vocab.bpe) beside");
    put_text("r50k_base.tiktoken", "IQ== 0\n");
    assert_open_fails("r50k_base.tiktoken", KVAD_ERR_UNSUPPORTED, "is not a tokenizer file");
    char *longer = malloc(5001);
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    memset(longer, 'x', 5000);
    longer[5000] = 0;
    assert_fails(kvad_tokenizer_open(longer, NULL, &t, &err), KVAD_ERR_ARGUMENT, &err, "5000");
    free(longer);
}

static void test_a_folder_prefers_tokenizer_json_then_halves_then_characters(void **state) {
    (void)state;
    static const char chars[] = "{\"stoi\": {\"a\": 0}}";
    put_text("vocab.json", chars);
    struct kvad_tokenizer *t = open_ok("");
    assert_int_equal(kvad_tokenizer_size(t), 1);
    kvad_tokenizer_release(&t);
    static const char pickle[] = "\x80\x02}X\x04\0\0\0itos](X\x01\0\0\0aX\x01\0\0\0bes.";
    put("meta.pkl", pickle, sizeof pickle - 1);
    t = open_ok("");
    assert_int_equal(kvad_tokenizer_size(t), 2);
    kvad_tokenizer_release(&t);
    put_copy("vocab.json", "tests/data/small-bpe/vocab.json");
    put_copy("merges.txt", "tests/data/small-bpe/merges.txt");
    assert_small_bpe(open_ok(""));
    put_text("tokenizer.json", chars);
    t = open_ok("");
    assert_int_equal(kvad_tokenizer_size(t), 1);
    kvad_tokenizer_release(&t);
}

static void put_small_bpe(void) {
    put_copy("vocab.json", "tests/data/small-bpe/vocab.json");
    put_copy("merges.txt", "tests/data/small-bpe/merges.txt");
}

static void test_added_tokens_json_extends_a_vocabulary(void **state) {
    (void)state;
    put_small_bpe();
    put_text("added_tokens.json", "{\"<pad>\": 512, \"<|endoftext|>\": 0}");
    struct kvad_tokenizer *t = open_ok("");
    static const int32_t special[] = {65, 512, 66};
    assert_int_equal(kvad_tokenizer_size(t), 513);
    assert_ids(t, "a<pad>b", 7, KVAD_ENCODE_SPECIAL, special, 3);
    assert_round_trip(t, "a<pad>b", 7);
    kvad_tokenizer_release(&t);
    put_text("added_tokens.json", "{\"<pad>\": \"512\"}");
    assert_open_fails("", KVAD_ERR_FORMAT, "id of '<pad>'");
    put_text("added_tokens.json", "{\"<pad>\": 511}");
    assert_open_fails("", KVAD_ERR_FORMAT, "id 511 of another token");
    put_text("added_tokens.json", "[]");
    assert_open_fails("", KVAD_ERR_FORMAT, "added_tokens.json");
}

static void test_the_end_token_is_what_the_files_beside_it_say(void **state) {
    (void)state;
    static const struct {
        const char *config, *special;
        int32_t eos;
    } cases[] = {
        {"{}", "{}", 0},
        {"{\"eos_token\": \"<pad>\"}", "{\"eos_token\": \"The\"}", 512},
        {"{\"eos_token\": {\"content\": \"<pad>\"}}", "{}", 512},
        {"{\"eos_token\": null}", "{\"eos_token\": {\"content\": \"<pad>\"}}", 512},
        {"{\"eos_token\": \"<not there>\"}", "{}", 0},
        {"{\"eos_token\": 7}", "{}", 0},
    };
    put_small_bpe();
    put_text("added_tokens.json", "{\"<pad>\": 512}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_text("tokenizer_config.json", cases[i].config);
        put_text("special_tokens_map.json", cases[i].special);
        struct kvad_tokenizer *t = open_ok("");
        assert_int_equal(kvad_tokenizer_eos(t), cases[i].eos);
        kvad_tokenizer_release(&t);
    }
    put_text("tokenizer_config.json", "{");
    assert_open_fails("", KVAD_ERR_FORMAT, "tokenizer_config.json");
}

static void test_add_prefix_space_of_the_configuration_is_obeyed(void **state) {
    (void)state;
    static const int32_t with[] = {268}, without[] = {84, 258};
    put_small_bpe();
    put_text("tokenizer_config.json", "{\"add_prefix_space\": true}");
    struct kvad_tokenizer *t = open_ok("");
    assert_ids(t, "the", 3, 0, with, 1);
    kvad_tokenizer_release(&t);
    put_text("tokenizer_config.json", "{\"add_prefix_space\": false}");
    t = open_ok("");
    assert_ids(t, "the", 3, 0, without, 2);
    kvad_tokenizer_release(&t);
    put_text("tokenizer_config.json", "{\"add_prefix_space\": 1}");
    assert_open_fails("", KVAD_ERR_FORMAT, "add_prefix_space");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, clean)
        IN_FOLDER(test_the_halves_of_a_vocabulary_find_each_other_by_every_pair_of_names),
        IN_FOLDER(test_errors_say_what_was_looked_for),
        IN_FOLDER(test_a_folder_prefers_tokenizer_json_then_halves_then_characters),
        IN_FOLDER(test_added_tokens_json_extends_a_vocabulary),
        IN_FOLDER(test_the_end_token_is_what_the_files_beside_it_say),
        IN_FOLDER(test_add_prefix_space_of_the_configuration_is_obeyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
