/* Programs whose header knows other sizes of the public structs than the library does. */
#include "reference.h"
#include "requests.h"
#include "test.h"

enum { ROOM = 1024, CANARY = 0xa5 };

static struct tiny_model *tiny;
static struct kvad_model *model;
static struct kvad_engine *engine;
static struct kvad_request *request;

static int set_up(void **state) {
    static const int32_t prompt[] = {1, 2, 3};
    (void)state;
    tiny = tiny_model_create(&tiny_odd);
    model = tiny_model_build(tiny);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    engine = open_engine(model, &options);
    struct kvad_request_options wanted = greedy_options(prompt, 3, 2);
    struct kvad_error err;
    assert_ok(kvad_request_submit(engine, &wanted, &request, &err), &err);
    step_engine(engine);
    return 0;
}

static int tear_down(void **state) {
    kvad_request_destroy(&request);
    close_engine(&engine);
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
    return release_test_threads(state);
}

/* One function that fills a struct of the caller, and how large ours is. */
struct filler {
    const char *name;
    void (*fill)(void *memory, size_t size);
    size_t size;
    bool is_options;
};

static void fill_model_options(void *memory, size_t size) {
    kvad_model_options_init_sized(memory, size);
}
static void fill_engine_options(void *memory, size_t size) {
    kvad_engine_options_init_sized(memory, size);
}
static void fill_sampler_options(void *memory, size_t size) {
    kvad_sampler_options_init_sized(memory, size);
}
static void fill_request_options(void *memory, size_t size) {
    kvad_request_options_init_sized(memory, size);
}
static void fill_model_info(void *memory, size_t size) {
    kvad_model_get_info_sized(model, memory, size);
}
static void fill_engine_info(void *memory, size_t size) {
    kvad_engine_get_info_sized(engine, memory, size);
}
static void fill_request_info(void *memory, size_t size) {
    kvad_request_get_info_sized(request, memory, size);
}
static void fill_miss_info(void *memory, size_t size) {
    kvad_request_get_miss_sized(request, memory, size);
}
static void fill_cache_stats(void *memory, size_t size) {
    kvad_cache_get_stats_sized(engine, memory, size);
}

static const struct filler fillers[] = {
    {"model options", fill_model_options, sizeof(struct kvad_model_options), true},
    {"engine options", fill_engine_options, sizeof(struct kvad_engine_options), true},
    {"sampler options", fill_sampler_options, sizeof(struct kvad_sampler_options), true},
    {"request options", fill_request_options, sizeof(struct kvad_request_options), true},
    {"model info", fill_model_info, sizeof(struct kvad_model_info), false},
    {"engine info", fill_engine_info, sizeof(struct kvad_engine_info), false},
    {"request info", fill_request_info, sizeof(struct kvad_request_info), false},
    {"miss info", fill_miss_info, sizeof(struct kvad_miss_info), false},
    {"cache stats", fill_cache_stats, sizeof(struct kvad_cache_stats), false},
};
enum { N_FILLERS = sizeof fillers / sizeof *fillers };

/* Bytes [first, end) all have this value. */
static void assert_bytes(const unsigned char *bytes, size_t first, size_t end, int value,
                         const char *name) {
    for (size_t i = first; i < end; i++) {
        if (bytes[i] != value) print_error("%s: byte %zu is %d\n", name, i, bytes[i]);
        assert_int_equal(bytes[i], value);
    }
}

static void test_an_older_program_gets_no_byte_beyond_its_struct(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FILLERS; i++) {
        const struct filler *f = &fillers[i];
        unsigned char whole[ROOM], part[ROOM];
        memset(whole, 0, sizeof whole);
        f->fill(whole, f->size);
        for (size_t size = sizeof(size_t); size < f->size; size += sizeof(size_t)) {
            memset(part, CANARY, sizeof part);
            f->fill(part, size);
            assert_bytes(part, size, sizeof part, CANARY, f->name);
            size_t first = f->is_options ? sizeof(size_t) : 0;
            assert_memory_equal(part + first, whole + first, size - first);
        }
    }
}

static void test_a_newer_program_gets_zero_in_fields_that_are_unknown_here(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FILLERS; i++) {
        const struct filler *f = &fillers[i];
        unsigned char bytes[ROOM];
        memset(bytes, CANARY, sizeof bytes);
        f->fill(bytes, f->size + 24);
        assert_bytes(bytes, f->size, f->size + 24, 0, f->name);
        assert_bytes(bytes, f->size + 24, sizeof bytes, CANARY, f->name);
    }
}

static void test_struct_size_of_options_is_that_of_the_program(void **state) {
    (void)state;
    static const size_t sizes[] = {sizeof(size_t), 4 * sizeof(size_t), ROOM};
    for (size_t i = 0; i < N_FILLERS; i++)
        for (size_t s = 0; fillers[i].is_options && s < 3; s++) {
            size_t memory[ROOM / sizeof(size_t)];
            fillers[i].fill(memory, sizes[s]);
            assert_int_equal(memory[0], sizes[s]);
        }
}

static void test_an_older_program_takes_events(void **state) {
    (void)state;
    struct kvad_event event, whole = {.token = -7, .finish = KVAD_FINISH_ERROR};
    memset(&event, CANARY, sizeof event);
    event.finish = KVAD_FINISH_ERROR;
    assert_true(kvad_request_poll_sized(request, &event, offsetof(struct kvad_event, finish)));
    assert_int_equal(event.finish, KVAD_FINISH_ERROR);
    assert_true(event.token >= 0);
    assert_non_null(event.text);
    step_engine(engine);
    assert_true(kvad_request_poll(request, &whole));
    assert_true(whole.token >= 0 && whole.finish != KVAD_FINISH_ERROR);
}

static void test_inspect_of_an_older_program_writes_its_size(void **state) {
    (void)state;
    const char *path = "models/shakespeare-char";
    struct kvad_model_info whole;
    struct kvad_error err;
    unsigned char part[ROOM];
    assert_ok(kvad_model_inspect(path, NULL, &whole, &err), &err);
    memset(part, CANARY, sizeof part);
    assert_ok(
        kvad_model_inspect_sized(path, NULL, (struct kvad_model_info *)(void *)part, 48, &err),
        &err);
    assert_memory_equal(part, &whole, 48);
    assert_bytes(part, 48, sizeof part, CANARY, "inspect");
}

/* All four, at every size from none to one too large. */
static void test_options_of_no_version_are_refused_by_kind(void **state) {
    (void)state;
    struct kvad_error err;
    struct kvad_model *m = NULL;
    struct kvad_sampler *sampler = NULL;
    struct kvad_request *r = NULL;
    struct kvad_model_options model_options;
    struct kvad_sampler_options sampler_options;
    struct kvad_request_options request_options;
    kvad_model_options_init(&model_options);
    kvad_sampler_options_init(&sampler_options);
    kvad_request_options_init(&request_options);
    for (int too_large = 0; too_large < 2; too_large++) {
        size_t extra = too_large ? 1 : 0, none = too_large ? 1 : 0;
        model_options.struct_size = none * sizeof model_options + extra;
        sampler_options.struct_size = none * sizeof sampler_options + extra;
        request_options.struct_size = none * sizeof request_options + extra;
        assert_fails(kvad_model_load("x", &model_options, &m, &err), KVAD_ERR_ARGUMENT, &err,
                     "kvad_model_options_init()");
        assert_fails(kvad_sampler_create(&sampler_options, 8, NULL, &sampler, &err),
                     KVAD_ERR_ARGUMENT, &err, "kvad_sampler_options_init()");
        assert_fails(kvad_request_submit(engine, &request_options, &r, &err), KVAD_ERR_ARGUMENT,
                     &err, "kvad_request_options_init()");
    }
    assert_true(!m && !sampler && !r);
}

static void test_names_are_those_of_the_lists(void **state) {
    (void)state;
    assert_string_equal(kvad_activation_name(KVAD_ACTIVATION_AUTO), "auto");
    assert_string_equal(kvad_activation_name(KVAD_ACTIVATION_GELU_TANH), "gelu-tanh");
    assert_string_equal(kvad_activation_name(KVAD_ACTIVATION_LINEAR), "linear");
    assert_string_equal(kvad_activation_name(KVAD_ACTIVATION_COUNT), "unknown");
    assert_string_equal(kvad_weight_type_name(KVAD_WEIGHTS_Q4), "q4");
    assert_string_equal(kvad_weight_type_name(KVAD_WEIGHTS_AUTO), "auto");
    assert_string_equal(kvad_cache_policy_name(KVAD_CACHE_NONE), "none");
    assert_string_equal(kvad_cache_policy_name(KVAD_CACHE_POLICY_COUNT), "unknown");
    assert_string_equal(kvad_kv_type_name(KVAD_KV_BF16), "bf16");
    assert_string_equal(kvad_kv_type_name(KVAD_KV_TYPE_COUNT), "unknown");
    assert_string_equal(kvad_kv_type_name((enum kvad_kv_type) - 1), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_older_program_gets_no_byte_beyond_its_struct),
        cmocka_unit_test(test_a_newer_program_gets_zero_in_fields_that_are_unknown_here),
        cmocka_unit_test(test_struct_size_of_options_is_that_of_the_program),
        cmocka_unit_test(test_an_older_program_takes_events),
        cmocka_unit_test(test_inspect_of_an_older_program_writes_its_size),
        cmocka_unit_test(test_options_of_no_version_are_refused_by_kind),
        cmocka_unit_test(test_names_are_those_of_the_lists),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
