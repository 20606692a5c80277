/* Opening engines and sequences: options, limits, what the engine says of itself. */
#include <stdio.h>

#include "bits.h"
#include "reference.h"
#include "test.h"

static struct tiny_model *tiny;
static struct kvad_model *model;

static int make_model(void **state) {
    (void)state;
    tiny = tiny_model_create(&tiny_odd);
    model = tiny_model_build(tiny);
    return 0;
}

static int free_model(void **state) {
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
    return release_test_threads(state);
}

static struct kvad_engine_options plain(void) {
    return engine_options(KVAD_CACHE_PAGED, 1);
}

static void refuse(const struct kvad_engine_options *options, enum kvad_status status,
                   const char *part) {
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    assert_fails(kvad_engine_open(model, options, &engine, &err), status, &err, part);
    assert_null(engine);
}

static void test_wrong_options_are_refused_by_name(void **state) {
    (void)state;
    struct kvad_engine_options o = plain();
    o.n_ctx = 62;
    refuse(&o, KVAD_ERR_ARGUMENT, "61 rows");
    o = plain();
    o.cache = (enum kvad_cache_policy)9;
    refuse(&o, KVAD_ERR_ARGUMENT, "policy 9");
    o = plain();
    o.n_sequences = 70000;
    refuse(&o, KVAD_ERR_ARGUMENT, "n_sequences");
    o = plain();
    o.block_tokens = 24;
    refuse(&o, KVAD_ERR_ARGUMENT, "block_tokens is 24");
    o = plain();
    o.kv_bytes = 100;
    refuse(&o, KVAD_ERR_NO_BLOCKS, "is 100 bytes");
    o = plain();
    o.cpu = "pentium";
    refuse(&o, KVAD_ERR_ARGUMENT, "pentium");
    o = plain();
    o.cpu = "neon";
    if (!kvad_cpu_level_supported(KVAD_CPU_NEON)) refuse(&o, KVAD_ERR_UNSUPPORTED, "neon");
    o = plain();
    o.struct_size = sizeof o + 8;
    refuse(&o, KVAD_ERR_ARGUMENT, "struct_size");
    o.struct_size = 3;
    refuse(&o, KVAD_ERR_ARGUMENT, "struct_size");
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    assert_fails(kvad_engine_open(NULL, NULL, &engine, &err), KVAD_ERR_ARGUMENT, &err, "no model");
}

/* A program built against an older header has a shorter struct: the rest has its default. */
static void test_a_shorter_struct_of_options_is_an_older_one(void **state) {
    (void)state;
    struct kvad_engine_options o = plain();
    o.n_sequences = 3;
    o.n_batch_tokens = 77; /* beyond what the old program knows */
    o.struct_size = offsetof(struct kvad_engine_options, n_batch_tokens);
    struct kvad_engine *engine = open_engine(model, &o);
    assert_int_equal(engine->n_sequences, 3);
    assert_int_equal(engine->n_batch_tokens, 3 * 61); /* 512, but no more than all contexts */
    close_engine(&engine);
}

static void test_without_options_everything_has_its_default(void **state) {
    (void)state;
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    assert_ok(kvad_engine_open(model, NULL, &engine, &err), &err);
    struct kvad_engine_info info;
    kvad_engine_get_info(engine, &info);
    assert_int_equal(info.n_ctx, 61);
    assert_int_equal(info.block_tokens, 16);
    assert_int_equal(info.n_blocks, 4);
    assert_true(info.n_threads >= 1);
    assert_int_equal(info.kv_bytes, 0);
    kvad_engine_close(&engine);
    kvad_engine_close(&engine); /* NULL is allowed */
}

static uint64_t kv_bytes(const struct kvad_engine *engine) {
    struct kvad_engine_info info;
    kvad_engine_get_info(engine, &info);
    assert_true(info.kv_bytes <= info.kv_bytes_peak);
    return info.kv_bytes;
}

/* Bytes of K and V for n tokens in all layers: the formula is the truth. */
static uint64_t formula(size_t n) {
    return (uint64_t)n * 2 * tiny_odd.n_layers * tiny_odd.n_kv_heads * tiny_odd.head_dim * 4;
}

/* bugs.md MEM-1 */
static void test_bytes_of_cache_follow_the_formula_with_every_policy(void **state) {
    (void)state;
    int32_t *tokens = tiny_tokens(101, 61, 1);
    for (size_t p = 0; p < N_POLICIES; p++)
        for (uint32_t block = 16; block <= 64; block *= 2) {
            struct kvad_engine_options o = engine_options(policies[p], 1);
            o.n_sequences = 2;
            o.block_tokens = block;
            struct kvad_engine *engine = open_engine(model, &o);
            assert_int_equal(kv_bytes(engine), 0);
            bool is_static = policies[p] == KVAD_CACHE_STATIC;
            uint64_t whole = formula((61 + block - 1) / block * block);
            struct kvad_sequence *a = new_sequence(engine), *b = new_sequence(engine);
            assert_int_equal(kv_bytes(engine), is_static ? 2 * whole : 0);
            for (size_t n = 1; n <= 61; n += 4) {
                cut(a, 0);
                feed(a, tokens, n, NULL, NULL);
                uint64_t held = is_static ? 2 * whole : formula((n + block - 1) / block * block);
                assert_int_equal(kv_bytes(engine), held);
            }
            cut(a, 0);
            assert_int_equal(kv_bytes(engine), is_static ? 2 * whole : 0);
            kvad_sequence_destroy(&a);
            kvad_sequence_destroy(&b);
            assert_int_equal(kv_bytes(engine), 0);
            struct kvad_engine_info info;
            kvad_engine_get_info(engine, &info);
            assert_int_equal(info.kv_bytes_peak, is_static ? 2 * whole : whole);
            close_engine(&engine);
        }
    free(tokens);
}

static void test_no_more_sequences_than_asked_for(void **state) {
    (void)state;
    struct kvad_engine_options o = plain();
    o.n_sequences = 2;
    struct kvad_engine *engine = open_engine(model, &o);
    struct kvad_sequence *a = new_sequence(engine), *b = new_sequence(engine), *c = NULL;
    struct kvad_error err;
    for (int round = 0; round < 3; round++) {
        assert_fails(kvad_sequence_create(engine, &c, &err), KVAD_ERR_ARGUMENT, &err,
                     "2 sequences");
        assert_null(c);
        kvad_sequence_destroy(&a);
        a = new_sequence(engine);
    }
    float k[35], v[35];
    int32_t token = 1;
    feed(a, &token, 1, NULL, NULL);
    assert_fails(kvad_sequence_read_kv(a, 3, 0, 1, k, v, &err), KVAD_ERR_ARGUMENT, &err, "layer");
    assert_fails(kvad_sequence_read_kv(a, 0, 0, 2, k, v, &err), KVAD_ERR_ARGUMENT, &err, "has 1");
    assert_fails(kvad_sequence_read_kv(a, 0, 1, SIZE_MAX, k, v, &err), KVAD_ERR_ARGUMENT, &err,
                 "has 1");
    assert_fails(kvad_sequence_read_kv(a, 0, 2, 0, k, v, &err), KVAD_ERR_ARGUMENT, &err, "has 1");
    kvad_sequence_destroy(&a);
    kvad_sequence_destroy(&b);
    close_engine(&engine);
}

/* A sequence of one engine has no business in another's step. */
static void test_sequences_of_other_engines_are_refused(void **state) {
    (void)state;
    struct kvad_engine_options o = plain();
    struct kvad_engine *one = open_engine(model, &o), *other = open_engine(model, &o);
    struct kvad_sequence *sequence = new_sequence(one);
    int32_t token = 1;
    struct kvad_eval_item item = {.sequence = sequence, .tokens = &token, .n_tokens = 1};
    struct kvad_error err;
    assert_fails(kvad_eval(other, &item, 1, &err), KVAD_ERR_ARGUMENT, &err, "this engine");
    assert_ok(kvad_eval(one, &item, 1, &err), &err);
    kvad_sequence_destroy(&sequence);
    close_engine(&one);
    close_engine(&other);
}

/* Two engines on one model and one pool of threads. */
static void test_engines_share_a_model_and_threads_without_touching_each_other(void **state) {
    (void)state;
    struct reference *first = reference_create(&tiny_odd, 30);
    struct reference *second = reference_more(first, 30, 8);
    struct kvad_engine_options o = engine_options(KVAD_CACHE_PAGED, 2);
    struct kvad_engine *one = open_engine(first->model, &o), *other = open_engine(first->model, &o);
    struct kvad_sequence *a = new_sequence(one), *b = new_sequence(other);
    for (size_t i = 0; i < 10; i++) {
        follow(first, a, 3, "one");
        follow(second, b, 1 + i % 3, "other");
    }
    kvad_sequence_destroy(&a);
    kvad_sequence_destroy(&b);
    close_engine(&one);
    close_engine(&other);
    reference_destroy(second);
    reference_destroy(first);
}

static void test_levels_are_listed_lowest_first_and_all_can_be_opened(void **state) {
    (void)state;
    unsigned n = 0;
    assert_string_equal(kvad_cpu_supported(0), "baseline");
    for (; kvad_cpu_supported(n); n++) {
        struct kvad_engine_options o = plain();
        o.cpu = kvad_cpu_supported(n);
        struct kvad_engine *engine = open_engine(model, &o);
        struct kvad_engine_info info;
        kvad_engine_get_info(engine, &info);
        assert_string_equal(info.cpu, kvad_cpu_supported(n));
        close_engine(&engine);
    }
    assert_true(n >= 1 && n <= KVAD_CPU_LEVEL_COUNT);
    assert_null(kvad_cpu_supported(n + 1));
}

/* The version of the library is that of its header. */
static void test_version_and_texts_are_there(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", KVAD_VERSION_MAJOR, KVAD_VERSION_MINOR,
             KVAD_VERSION_PATCH);
    assert_string_equal(kvad_version(), version);
    assert_string_equal(kvad_status_text(KVAD_ERR_NO_BLOCKS), "no free KV blocks");
    assert_non_null(kvad_status_text((enum kvad_status)999));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_options_are_refused_by_name),
        cmocka_unit_test(test_a_shorter_struct_of_options_is_an_older_one),
        cmocka_unit_test(test_without_options_everything_has_its_default),
        cmocka_unit_test(test_bytes_of_cache_follow_the_formula_with_every_policy),
        cmocka_unit_test(test_no_more_sequences_than_asked_for),
        cmocka_unit_test(test_sequences_of_other_engines_are_refused),
        cmocka_unit_test(test_engines_share_a_model_and_threads_without_touching_each_other),
        cmocka_unit_test(test_levels_are_listed_lowest_first_and_all_can_be_opened),
        cmocka_unit_test(test_version_and_texts_are_there),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
