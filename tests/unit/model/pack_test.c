/* Packed models: what comes back is what was packed; anything else in the file is refused. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "byte_buffer.h"
#include "model/pack.h"
#include "test.h"
#include "test_heap.h"
#include "tiny_model.h"

static char folder[] = "/tmp/kvad-pack-XXXXXX";
static char path[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/model.kvad", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct kvad_model *build(const struct tiny_sizes *sizes, enum kvad_weight_type weights) {
    struct tiny_model *tiny = tiny_model_create(sizes);
    struct kvad_model_options options;
    struct kvad_model *model;
    struct kvad_error err;
    kvad_model_options_init(&options);
    options.weights = weights;
    assert_ok(tiny_model_try_build(tiny, &options, &model, &err), &err);
    tiny_model_destroy(tiny);
    return model;
}

/* Field by field: the bytes between fields are nobody's. */
static void assert_same_description(const struct kvad_description *a,
                                    const struct kvad_description *b) {
    assert_string_equal(a->family, b->family);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->d_model, b->d_model);
    assert_int_equal(a->d_ff, b->d_ff);
    assert_int_equal(a->n_vocab, b->n_vocab);
    assert_int_equal(a->n_ctx, b->n_ctx);
    assert_int_equal(a->norm, b->norm);
    assert_int_equal(a->position, b->position);
    assert_int_equal(a->activation, b->activation);
    assert_memory_equal(&a->norm_eps, &b->norm_eps, sizeof a->norm_eps);
    assert_int_equal(a->scale_attn, b->scale_attn);
    assert_int_equal(a->scale_attn_by_layer, b->scale_attn_by_layer);
    assert_int_equal(a->head_tied, b->head_tied);
    assert_int_equal(a->eos, b->eos);
}

static void assert_same_model(const struct kvad_model *a, const struct kvad_model *b) {
    assert_same_description(&a->description, &b->description);
    assert_int_equal(a->weights, b->weights);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_parameters, b->n_parameters);
    assert_int_equal(a->has_bias, b->has_bias);
    assert_int_equal(a->area_bytes, b->area_bytes);
    assert_memory_equal(a->area, b->area, a->area_bytes);
    /* The arrays lie at the same places of both areas, and absent ones are absent in both. */
    for (uint32_t l = 0; l < a->description.n_layers; l++) {
        const struct kvad_layer_weights *x = &a->layers[l], *y = &b->layers[l];
        assert_int_equal(x->down.panels - (unsigned char *)a->area,
                         y->down.panels - (unsigned char *)b->area);
        assert_int_equal(x->qkv.bias == NULL, y->qkv.bias == NULL);
        assert_int_equal(x->norm2.bias == NULL, y->norm2.bias == NULL);
    }
    assert_int_equal(a->embedding == NULL, b->embedding == NULL);
}

static void test_every_type_and_shape_comes_back_byte_for_byte(void **state) {
    (void)state;
    struct tiny_sizes plain = tiny_odd;
    plain.no_bias = true;
    const struct tiny_sizes *sizes[] = {&tiny_odd, &tiny_gqa, &tiny_wide, &plain};
    for (size_t i = 0; i < 4; i++)
        for (int type = 0; type < KVAD_WEIGHT_TYPE_COUNT; type++) {
            struct kvad_model *model = build(sizes[i], (enum kvad_weight_type)type), *packed;
            struct kvad_model_options options;
            struct kvad_error err;
            kvad_model_options_init(&options);
            options.verify = true;
            assert_ok(kvad_model_pack(model, path, &err), &err);
            assert_true(kvad_pack_probe(path));
            assert_ok(kvad_model_load(path, &options, &packed, &err), &err);
            assert_same_model(model, packed);
            struct kvad_model_info info;
            assert_ok(kvad_model_inspect(path, NULL, &info, &err), &err);
            assert_int_equal(info.weights, type);
            kvad_model_release(&model);
            kvad_model_release(&packed);
        }
}

/* A packed q4 file of the smallest kind, for damaging. */
static struct byte_buffer packed_bytes(void) {
    struct kvad_model *model = build(&tiny_odd, KVAD_WEIGHTS_Q4);
    struct kvad_error err;
    assert_ok(kvad_model_pack(model, path, &err), &err);
    kvad_model_release(&model);
    return read_whole_file(path);
}

static enum kvad_status load_bytes(const void *data, size_t size, bool verify,
                                   struct kvad_error *err) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    kvad_model_options_init(&options);
    options.verify = verify;
    enum kvad_status status = kvad_model_load(path, &options, &model, err);
    if (status == KVAD_OK) kvad_model_release(&model);
    return status;
}

static void test_every_truncation_is_refused(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    struct kvad_error err;
    for (size_t n = 8; n < bytes.size; n += n < 1000 ? 7 : 997)
        assert_int_equal(load_bytes(bytes.data, n, false, &err), KVAD_ERR_FORMAT);
    free_bytes(&bytes);
}

static void test_any_flipped_bit_of_the_header_or_the_json_is_refused(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    struct kvad_pack_header header;
    struct kvad_error err;
    memcpy(&header, bytes.data, sizeof header);
    size_t end = KVAD_PACK_HEADER + (size_t)header.json_bytes;
    for (size_t i = 8; i < end; i += i < KVAD_PACK_HEADER ? 1 : 5) {
        /* The checksum of the weights is compared on request, and the last field is unused. */
        if (i >= 48 && i < KVAD_PACK_HEADER) continue;
        for (int bit = 0; bit < 8; bit += 3) {
            bytes.data[i] ^= (unsigned char)(1 << bit);
            assert_int_not_equal(load_bytes(bytes.data, bytes.size, false, &err), KVAD_OK);
            bytes.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    free_bytes(&bytes);
}

static void test_a_changed_weight_is_found_when_asked(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    struct kvad_error err;
    bytes.data[bytes.size - 100] ^= 1;
    assert_int_equal(load_bytes(bytes.data, bytes.size, false, &err), KVAD_OK);
    assert_fails(load_bytes(bytes.data, bytes.size, true, &err), KVAD_ERR_FORMAT, &err, "checksum");
    free_bytes(&bytes);
}

static void set_field(struct byte_buffer *bytes, size_t at, uint64_t value, size_t n) {
    set_number(bytes, at, value, n);
}

static void test_versions_byte_orders_and_sizes_of_others_are_named(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0,          1,          1u << 31,       (1ull << 31) - 1,
                                     1ull << 32, 1ull << 62, UINT64_MAX - 1, UINT64_MAX};
    struct byte_buffer bytes = packed_bytes();
    struct kvad_error err;
    set_field(&bytes, 8, KVAD_PACK_VERSION + 1, 4);
    assert_fails(load_bytes(bytes.data, bytes.size, false, &err), KVAD_ERR_UNSUPPORTED, &err,
                 "pack the model again");
    set_field(&bytes, 8, KVAD_PACK_VERSION, 4);
    set_field(&bytes, 12, 0x04030201, 4);
    assert_fails(load_bytes(bytes.data, bytes.size, false, &err), KVAD_ERR_UNSUPPORTED, &err,
                 "byte order");
    set_field(&bytes, 12, KVAD_PACK_ORDER, 4);
    for (size_t field = 16; field < 40; field += 8) {
        struct byte_buffer copy = {0};
        put_bytes(&copy, bytes.data, bytes.size);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            set_field(&copy, field, sizes[i], 8);
            assert_int_equal(load_bytes(copy.data, copy.size, false, &err), KVAD_ERR_FORMAT);
        }
        free_bytes(&copy);
    }
    free_bytes(&bytes);
}

static void test_wishes_that_a_packed_file_cannot_fulfil_are_refused(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    struct kvad_error err;
    kvad_model_options_init(&options);
    for (int type = 0; type < KVAD_WEIGHT_TYPE_COUNT; type++) {
        options.weights = (enum kvad_weight_type)type;
        if (type == KVAD_WEIGHTS_Q4) continue;
        assert_fails(kvad_model_load(path, &options, &model, &err), KVAD_ERR_UNSUPPORTED, &err,
                     "packed in q4");
    }
    kvad_model_options_init(&options);
    options.n_heads = 1;
    assert_fails(kvad_model_load(path, &options, &model, &err), KVAD_ERR_ARGUMENT, &err, "heads");
    assert_ok(kvad_model_load(path, NULL, &model, &err), &err);
    assert_fails(kvad_model_pack(model, path, &err), KVAD_ERR_UNSUPPORTED, &err, "copy");
    kvad_model_release(&model);
    free_bytes(&bytes);
}

static void test_a_failed_write_leaves_the_old_file_and_nothing_else(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    struct kvad_model *model = build(&tiny_odd, KVAD_WEIGHTS_F32);
    struct kvad_error err;
    char missing[96];
    snprintf(missing, sizeof missing, "%s/no/model.kvad", folder);
    assert_fails(kvad_model_pack(model, missing, &err), KVAD_ERR_IO, &err, missing);
    assert_fails(kvad_model_pack(model, folder, &err), KVAD_ERR_IO, &err, "not a regular file");
    assert_fails(kvad_model_pack(model, "", &err), KVAD_ERR_ARGUMENT, &err, "empty");
    kvad_model_release(&model);
    struct byte_buffer after = read_whole_file(path);
    assert_int_equal(after.size, bytes.size);
    assert_memory_equal(after.data, bytes.data, bytes.size);
    free_bytes(&after);
    free_bytes(&bytes);
}

static void test_memory_that_is_refused_at_any_place_leaves_nothing(void **state) {
    (void)state;
    struct byte_buffer bytes = packed_bytes();
    bool finished = false;
    for (size_t k = 1; !finished; k++) {
        struct test_heap heap = {0};
        struct kvad_model_options options;
        struct kvad_model *model = NULL;
        struct kvad_error err;
        kvad_model_options_init(&options);
        options.allocator = test_heap_hook(&heap);
        test_heap_fail(&heap, k, SIZE_MAX);
        enum kvad_status status = kvad_model_load(path, &options, &model, &err);
        finished = status == KVAD_OK;
        if (!finished) assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        kvad_model_release(&model);
        assert_int_equal(heap.n_live, 0);
    }
    free_bytes(&bytes);
}

static void test_the_tokenizer_travels_with_the_model(void **state) {
    (void)state;
    struct kvad_model *model, *packed;
    struct kvad_error err;
    assert_ok(kvad_model_load("models/shakespeare-char", NULL, &model, &err), &err);
    assert_ok(kvad_model_pack(model, path, &err), &err);
    assert_ok(kvad_model_load(path, NULL, &packed, &err), &err);
    assert_same_model(model, packed);
    struct kvad_tokenizer *a = kvad_model_tokenizer(model), *b = kvad_model_tokenizer(packed);
    assert_non_null(b);
    assert_int_equal(kvad_tokenizer_size(a), kvad_tokenizer_size(b));
    for (uint32_t id = 0; id < kvad_tokenizer_size(a); id++) {
        const char *x, *y;
        size_t n, m;
        assert_ok(kvad_tokenizer_piece(a, (int32_t)id, &x, &n, &err), &err);
        assert_ok(kvad_tokenizer_piece(b, (int32_t)id, &y, &m, &err), &err);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
    }
    kvad_model_release(&model);
    kvad_model_release(&packed);
}

/* A file in somebody else's hands: mapped weights would end the process (SIGBUS). */
static void test_without_a_map_the_file_may_shrink_under_the_model(void **state) {
    (void)state;
    struct kvad_model *model, *packed;
    struct kvad_model_options options;
    struct kvad_model_info info;
    struct kvad_error err;
    assert_ok(kvad_model_load("models/shakespeare-char", NULL, &model, &err), &err);
    assert_ok(kvad_model_pack(model, path, &err), &err);
    kvad_model_options_init(&options);
    options.no_map = options.verify = true;
    options.n_threads = 3;
    assert_ok(kvad_model_load(path, &options, &packed, &err), &err);
    assert_int_equal(truncate(path, 0), 0);
    assert_same_model(model, packed);
    kvad_model_get_info(packed, &info);
    assert_true(info.is_packed && info.has_tokenizer);
    assert_fails(kvad_model_pack(packed, path, &err), KVAD_ERR_UNSUPPORTED, &err, "copy that");
    kvad_model_release(&model);
    kvad_model_release(&packed);
}

/* Memory for names, not for weights. */
static void *allocate_little(void *user, size_t size, size_t alignment) {
    void *memory = NULL;
    (void)user;
    return size < 64 << 10 && posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}
static void release_little(void *user, void *memory, size_t size) {
    (void)user, (void)size;
    free(memory);
}

static void test_inspection_copies_no_weights_even_without_a_map(void **state) {
    (void)state;
    struct kvad_model *model;
    struct kvad_model_options options;
    struct kvad_model_info info;
    struct kvad_error err;
    assert_ok(kvad_model_load("models/shakespeare-char", NULL, &model, &err), &err);
    assert_ok(kvad_model_pack(model, path, &err), &err);
    kvad_model_release(&model);
    kvad_model_options_init(&options);
    options.no_map = true;
    options.allocator = (struct kvad_allocator){allocate_little, release_little, NULL};
    assert_fails(kvad_model_load(path, &options, &model, &err), KVAD_ERR_NO_MEMORY, &err,
                 "weights");
    assert_ok(kvad_model_inspect(path, &options, &info, &err), &err);
    assert_true(info.is_packed);
}

static void test_damage_of_the_tokenizer_is_said_of_the_packed_file(void **state) {
    (void)state;
    struct kvad_model *model;
    struct kvad_error err;
    char wanted[128];
    assert_ok(kvad_model_load("models/shakespeare-char", NULL, &model, &err), &err);
    assert_ok(kvad_model_pack(model, path, &err), &err);
    kvad_model_release(&model);
    struct byte_buffer bytes = read_whole_file(path);
    struct kvad_pack_header header;
    memcpy(&header, bytes.data, sizeof header);
    bytes.data[KVAD_PACK_HEADER + header.json_bytes] = 'x'; /* the first byte of meta.pkl */
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(bytes.data, 1, bytes.size, file), bytes.size);
    fclose(file);
    free_bytes(&bytes);
    snprintf(wanted, sizeof wanted, "%s: meta.pkl: ", path);
    assert_fails(kvad_model_load(path, NULL, &model, &err), KVAD_ERR_FORMAT, &err, wanted);
    assert_memory_equal(err.text, wanted, strlen(wanted));
}

static void test_another_tokenizer_decides_which_ids_may_be_sampled(void **state) {
    (void)state;
    struct kvad_model_options options;
    struct kvad_model *model;
    struct kvad_error err;
    char vocabulary[80];
    assert_ok(kvad_model_load("models/shakespeare-char", NULL, &model, &err), &err);
    assert_ok(kvad_model_pack(model, path, &err), &err);
    kvad_model_release(&model);
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.json", folder);
    FILE *file = fopen(vocabulary, "w");
    assert_non_null(file);
    fputs("{\"stoi\": {\"a\": 0, \"b\": 1, \"c\": 2}}", file);
    fclose(file);
    kvad_model_options_init(&options);
    options.tokenizer_path = vocabulary;
    assert_ok(kvad_model_load(path, &options, &model, &err), &err);
    struct kvad_model_info info;
    kvad_model_get_info(model, &info);
    assert_int_equal(info.n_tokens, 3);
    assert_int_equal(info.n_vocab, 65);
    kvad_model_release(&model);
    unlink(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_shape_comes_back_byte_for_byte),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_any_flipped_bit_of_the_header_or_the_json_is_refused),
        cmocka_unit_test(test_a_changed_weight_is_found_when_asked),
        cmocka_unit_test(test_versions_byte_orders_and_sizes_of_others_are_named),
        cmocka_unit_test(test_wishes_that_a_packed_file_cannot_fulfil_are_refused),
        cmocka_unit_test(test_a_failed_write_leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(test_memory_that_is_refused_at_any_place_leaves_nothing),
        cmocka_unit_test(test_the_tokenizer_travels_with_the_model),
        cmocka_unit_test(test_without_a_map_the_file_may_shrink_under_the_model),
        cmocka_unit_test(test_inspection_copies_no_weights_even_without_a_map),
        cmocka_unit_test(test_damage_of_the_tokenizer_is_said_of_the_packed_file),
        cmocka_unit_test(test_another_tokenizer_decides_which_ids_may_be_sampled),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
