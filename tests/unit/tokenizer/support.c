#include "support.h"

char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    assert_true(length >= 0);
    rewind(file);
    char *data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, file), length);
    fclose(file);
    data[length] = 0;
    *size = (size_t)length;
    return data;
}

struct kvad_tokenizer *open_small_bpe(const struct kvad_allocator *allocator) {
    struct kvad_error err;
    struct kvad_tokenizer *t = NULL;
    assert_ok(kvad_tokenizer_open("tests/data/small-bpe/vocab.json", allocator, &t, &err), &err);
    return t;
}

enum kvad_status open_texts(const char *json, const char *merges, struct kvad_tokenizer **out,
                            struct kvad_error *err) {
    struct kvad_tokenizer_files files = {
        .main = {"test.json", json, strlen(json)},
        .merges = {"merges.txt", merges, merges ? strlen(merges) : 0},
    };
    return kvad_tokenizer_open_memory(&files, NULL, out, err);
}

struct ids encode(const struct kvad_tokenizer *t, const char *text, size_t size, unsigned flags) {
    struct kvad_error err;
    struct ids ids = {NULL, 0};
    size_t n;
    assert_ok(kvad_tokenizer_encode(t, text, size, flags, NULL, 0, &ids.n, &err), &err);
    ids.ids = malloc((ids.n + 1) * sizeof *ids.ids);
    assert_non_null(ids.ids);
    ids.ids[ids.n] = -77;
    assert_ok(kvad_tokenizer_encode(t, text, size, flags, ids.ids, ids.n, &n, &err), &err);
    assert_int_equal(n, ids.n);
    assert_int_equal(ids.ids[ids.n], -77);
    return ids;
}

char *decode(const struct kvad_tokenizer *t, struct ids ids, size_t *size) {
    struct kvad_error err;
    char *text = malloc(ids.n * kvad_tokenizer_longest(t) + 1);
    assert_non_null(text);
    *size = 0;
    for (size_t i = 0; i < ids.n; i++) {
        const char *bytes;
        size_t n;
        assert_ok(kvad_tokenizer_piece(t, ids.ids[i], &bytes, &n, &err), &err);
        assert_true(n <= kvad_tokenizer_longest(t));
        memcpy(text + *size, bytes, n);
        *size += n;
    }
    text[*size] = 0;
    return text;
}

static void print_ids(const char *what, const int32_t *ids, size_t n) {
    print_error("%s:", what);
    for (size_t i = 0; i < n && i < 60; i++)
        print_error(" %d", ids[i]);
    print_error("\n");
}

void assert_ids(const struct kvad_tokenizer *t, const char *text, size_t size, unsigned flags,
                const int32_t *wanted, size_t n) {
    struct ids got = encode(t, text, size, flags);
    if (got.n != n || (n && memcmp(got.ids, wanted, n * sizeof *wanted) != 0)) {
        print_error("text: \"%.*s\"\n", (int)size, text);
        print_ids("wanted", wanted, n);
        print_ids("got", got.ids, got.n);
        fail();
    }
    free(got.ids);
}

void assert_round_trip(const struct kvad_tokenizer *t, const char *text, size_t size) {
    struct ids ids = encode(t, text, size, 0);
    size_t n;
    char *back = decode(t, ids, &n);
    assert_int_equal(n, size);
    if (size) assert_memory_equal(back, text, size);
    free(back);
    free(ids.ids);
}

struct ids ids_of_json(const json_t *array) {
    struct ids ids = {malloc((json_array_size(array) + 1) * sizeof(int32_t)),
                      json_array_size(array)};
    assert_non_null(ids.ids);
    for (size_t i = 0; i < ids.n; i++)
        ids.ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

size_t put_utf8(char *out, uint32_t code_point) {
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    size_t n = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code_point >>= 6)
        out[i] = (char)(0x80 | (code_point & 0x3f));
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | code_point);
    return n;
}
