/* What holds for any text: round trips, merging, the buffer, special text. On the repository's
 * small BPE. */
#include "support.h"

/* bugs.md TOK-3 TOK-18 */
static void test_every_prefix_and_suffix_of_a_nasty_text_round_trips(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    for (size_t n = 0; n < sizeof NASTY; n++) {
        char *exact = malloc(n ? n : 1); /* so that ASan sees a read past the end */
        memcpy(exact, NASTY, n);
        assert_round_trip(t, exact, n);
        free(exact);
        assert_round_trip(t, &NASTY[n], sizeof NASTY - n); /* the NUL at the end too */
    }
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-17 TOK-18 */
static void test_all_strings_of_0_to_2_bytes_and_many_of_3_round_trip(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    char text[3];
    assert_round_trip(t, text, 0);
    assert_ids(t, NULL, 0, KVAD_ENCODE_SPECIAL, NULL, 0);
    for (unsigned v = 0; v < 256; v++) {
        text[0] = (char)v;
        assert_round_trip(t, text, 1);
    }
    for (unsigned v = 0; v < 0x10000; v++) {
        text[0] = (char)(v >> 8);
        text[1] = (char)v;
        assert_round_trip(t, text, 2);
    }
    for (unsigned v = 0; v < 0x1000000; v += 251) {
        text[0] = (char)(v >> 16);
        text[1] = (char)(v >> 8);
        text[2] = (char)v;
        assert_round_trip(t, text, 3);
    }
    kvad_tokenizer_release(&t);
}

static void test_random_bytes_round_trip(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    uint32_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        char text[300];
        size_t n = next_random(&seed) % sizeof text;
        unsigned spread = round % 3 == 0 ? 256 : round % 3 == 1 ? 128 : 4;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(next_random(&seed) % spread + (spread == 4 ? 'a' : 0));
        assert_round_trip(t, text, n);
    }
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-24 */
static void test_all_code_points_round_trip(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    for (uint32_t first = 0; first < 0x110000; first += 64) {
        char text[64 * 4];
        size_t n = 0;
        if (first >= 0xd800 && first <= 0xdfff) continue;
        for (uint32_t c = first; c < first + 64; c++)
            n += put_utf8(text + n, c);
        assert_round_trip(t, text, n);
    }
    kvad_tokenizer_release(&t);
}

/* The merges of the small BPE as plain strings, and merging done in the plainest way. */
struct plain_merge {
    char left[32], right[32];
};

static size_t read_merges(struct plain_merge *merges, size_t max) {
    FILE *file = fopen("tests/data/small-bpe/merges.txt", "r");
    assert_non_null(file);
    char line[128];
    size_t n = 0;
    assert_non_null(fgets(line, sizeof line, file));
    while (n < max && fscanf(file, "%31s %31s", merges[n].left, merges[n].right) == 2)
        n++;
    fclose(file);
    return n;
}

/* Only for texts of ASCII letters: their bytes stand for themselves. Returns the tokens with a
 * space after each. */
static void merge_plainly(const struct plain_merge *merges, size_t n_merges, const char *text,
                          char tokens[][64], size_t *n) {
    *n = strlen(text);
    for (size_t i = 0; i < *n; i++)
        snprintf(tokens[i], 64, "%c", text[i]);
    for (;;) {
        size_t best = n_merges, at = 0;
        for (size_t i = 0; i + 1 < *n; i++)
            for (size_t m = 0; m < best; m++)
                if (strcmp(tokens[i], merges[m].left) == 0 &&
                    strcmp(tokens[i + 1], merges[m].right) == 0) {
                    best = m;
                    at = i;
                }
        if (best == n_merges) return;
        snprintf(tokens[at], sizeof tokens[at], "%s%s", merges[best].left, merges[best].right);
        memmove(tokens[at + 1], tokens[at + 2], (*n - at - 2) * sizeof tokens[0]);
        --*n;
    }
}

/* bugs.md TOK-8 TOK-10: pieces on both sides of the length where the heap takes over */
static void test_short_and_long_pieces_merge_as_the_plainest_code_does(void **state) {
    (void)state;
    static struct plain_merge merges[300];
    static char tokens[200][64];
    size_t n_merges = read_merges(merges, 300);
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    struct kvad_error err;
    assert_int_equal(n_merges, 255);
    uint32_t seed = 99;
    for (int round = 0; round < 1500; round++) {
        char text[160];
        size_t size = round < 150 ? (size_t)round + 1 : 1 + next_random(&seed) % 150, n;
        const char *letters = round % 2 ? "theroundsaiLAR" : "lo";
        for (size_t i = 0; i < size; i++)
            text[i] = letters[next_random(&seed) % strlen(letters)];
        text[size] = 0;
        merge_plainly(merges, n_merges, text, tokens, &n);
        struct ids ids = encode(t, text, size, 0);
        assert_int_equal(ids.n, n);
        for (size_t i = 0; i < n; i++) {
            const char *bytes;
            size_t length;
            assert_ok(kvad_tokenizer_piece(t, ids.ids[i], &bytes, &length, &err), &err);
            assert_int_equal(length, strlen(tokens[i]));
            assert_memory_equal(bytes, tokens[i], length);
        }
        free(ids.ids);
    }
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-15 TOK-17 */
static void test_a_buffer_that_is_too_short_gets_a_prefix_and_the_count(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    struct kvad_error err;
    struct ids all = encode(t, NASTY, strlen(NASTY), 0);
    for (size_t room = 0; room <= all.n; room++) {
        int32_t *ids = malloc((room + 1) * sizeof *ids);
        size_t n = 0;
        ids[room] = -5;
        assert_ok(kvad_tokenizer_encode(t, NASTY, strlen(NASTY), 0, ids, room, &n, &err), &err);
        assert_int_equal(n, all.n);
        assert_memory_equal(ids, all.ids, room * sizeof *ids);
        assert_int_equal(ids[room], -5);
        free(ids);
    }
    free(all.ids);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-6 TOK-7 */
static void test_special_text_is_plain_without_the_flag_and_one_id_with_it(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    static const char text[] = "x<|endoftext|>y<|endoftext|>";
    struct kvad_error err;
    size_t size, n;
    struct ids plain = encode(t, text, strlen(text), 0);
    struct ids special = encode(t, text, strlen(text), KVAD_ENCODE_SPECIAL);
    for (size_t i = 0; i < plain.n; i++)
        assert_int_not_equal(plain.ids[i], kvad_tokenizer_eos(t));
    assert_int_equal(special.n, 4);
    assert_int_equal(special.ids[1], kvad_tokenizer_eos(t));
    assert_int_equal(special.ids[3], kvad_tokenizer_eos(t));
    char *a = decode(t, plain, &size), *b = decode(t, special, &n);
    assert_string_equal(a, text); /* both ways decode to the same text */
    assert_string_equal(b, text);
    assert_fails(kvad_tokenizer_encode(t, "x", 1, 2, NULL, 0, &n, &err), KVAD_ERR_ARGUMENT, &err,
                 "flags 0x2");
    free(a);
    free(b);
    free(plain.ids);
    free(special.ids);
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-12 TOK-14 */
static void test_an_id_outside_of_the_vocabulary_is_refused_by_piece(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    static const int32_t bad[] = {-1, 512, 513, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 5; i++) {
        struct kvad_error err;
        const char *bytes = "untouched";
        size_t size = 9;
        assert_fails(kvad_tokenizer_piece(t, bad[i], &bytes, &size, &err), KVAD_ERR_ARGUMENT, &err,
                     "outside [0, 512)");
        assert_string_equal(bytes, "untouched");
        assert_int_equal(size, 9);
    }
    kvad_tokenizer_release(&t);
}

/* bugs.md TOK-13: the length alone; no memory is touched. */
static void test_lengths_that_cannot_be_merged_are_refused_before_any_byte_is_read(void **state) {
    (void)state;
    struct kvad_tokenizer *t = open_small_bpe(NULL);
    struct kvad_error err;
    size_t n = 123;
    struct kvad_bpe_scratch scratch = {0};
    struct kvad_id_sink sink = {0};
    assert_fails(kvad_tokenizer_encode(t, "x", SIZE_MAX, 0, NULL, 0, &n, &err), KVAD_ERR_ARGUMENT,
                 &err, "cannot exist");
    assert_int_equal(n, 123);
    assert_fails(kvad_bpe_encode(&t->bpe, "x", (size_t)INT32_MAX + 1, 40, &scratch, &sink, &err),
                 KVAD_ERR_ARGUMENT, &err, "2147483648 bytes without a cut at offset 40");
    kvad_tokenizer_release(&t);
}

static void test_no_tokenizer_is_an_error_and_not_a_crash(void **state) {
    (void)state;
    struct kvad_error err;
    int32_t id;
    size_t n;
    assert_fails(kvad_tokenizer_encode(NULL, "a", 1, 0, &id, 1, &n, &err), KVAD_ERR_ARGUMENT, &err,
                 "no tokenizer");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_tokenizer_is_an_error_and_not_a_crash),
        cmocka_unit_test(test_every_prefix_and_suffix_of_a_nasty_text_round_trips),
        cmocka_unit_test(test_all_strings_of_0_to_2_bytes_and_many_of_3_round_trip),
        cmocka_unit_test(test_random_bytes_round_trip),
        cmocka_unit_test(test_all_code_points_round_trip),
        cmocka_unit_test(test_short_and_long_pieces_merge_as_the_plainest_code_does),
        cmocka_unit_test(test_a_buffer_that_is_too_short_gets_a_prefix_and_the_count),
        cmocka_unit_test(test_special_text_is_plain_without_the_flag_and_one_id_with_it),
        cmocka_unit_test(test_an_id_outside_of_the_vocabulary_is_refused_by_piece),
        cmocka_unit_test(test_lengths_that_cannot_be_merged_are_refused_before_any_byte_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
