/* A measured run: every byte has an owner, and the cache is its formula. */
#include "lab/memory.h"

#include "base/error.h"
#include "test.h"
#include "tokenizer/tokenizer.h"

static const uint32_t every_policy[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                        KVAD_CACHE_PAGED};
static const uint32_t every_type[] = {KVAD_KV_F32, KVAD_KV_F16, KVAD_KV_BF16, KVAD_KV_Q8};

struct subject {
    const char *path;
    size_t leak;               /* bytes that the engine is made to ask for and nobody names */
    struct kvad_engine *leaky; /* that has them */
    void *leaked;
    uint64_t tokenizer_bytes;
    unsigned n_reports, cancel_at;
};

static enum kvad_status open_model(void *user, const struct kvad_allocator *allocator,
                                   struct kvad_model **out, struct kvad_error *err) {
    struct subject *subject = user;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.allocator = *allocator;
    KVAD_TRY(kvad_model_load(subject->path, &options, out, err));
    const struct kvad_tokenizer *t = kvad_model_tokenizer(*out);
    if (t) subject->tokenizer_bytes = t->heap.bytes + sizeof *t;
    return KVAD_OK;
}

static void engine_in_use(void *user, struct kvad_engine *engine) {
    struct subject *subject = user;
    if (!subject->leak) return;
    if (engine) {
        subject->leaky = engine;
        subject->leaked = kvad_alloc(&engine->heap, subject->leak);
    } else {
        kvad_free(&subject->leaky->heap, subject->leaked, subject->leak);
    }
}

static bool report(void *user, const char *what, double done) {
    struct subject *subject = user;
    assert_true(done >= 0 && done < 1 && *what);
    return ++subject->n_reports != subject->cancel_at;
}

static struct kvad_memory_options options_of(struct subject *subject) {
    return (struct kvad_memory_options){.open_model = open_model,
                                        .user = subject,
                                        .policies = {every_policy, 4},
                                        .kv = {every_type, 4},
                                        .n_threads = 2,
                                        .cpu = test_cpu(),
                                        .report = report,
                                        .engine_in_use = engine_in_use};
}

static void assert_checkpoint(const struct kvad_memory_run *run,
                              const struct kvad_memory_checkpoint *c, uint32_t n_ctx,
                              uint32_t block) {
    uint64_t text = (c->tokens + block - 1) / block * block * run->token_bytes;
    uint64_t context = (n_ctx + block - 1) / block * block * run->token_bytes;
    bool is_static = run->policy == KVAD_CACHE_STATIC;
    assert_int_equal(c->rows, c->tokens * run->token_bytes);
    assert_int_equal(c->rows + c->remainder, text);
    assert_int_equal(c->formula, is_static ? context : text);
    assert_int_equal(c->held, c->formula);
    assert_int_equal(c->residual, 0);
    assert_int_equal(c->reserved, run->policy == KVAD_CACHE_GROW ? text : context);
    assert_int_equal(c->reserved_residual, 0);

    uint64_t before = (c->tokens - 1 + block - 1) / block * block * run->token_bytes;
    assert_int_equal(c->peak, run->policy == KVAD_CACHE_GROW ? text + before : context);

    const struct kvad_memory_snapshot *s = &c->memory;
    uint64_t owned = 0, resident = 0;
    for (int o = 0; o < KVAD_MEMORY_OWNERS; o++) {
        owned += s->owners[o].requested;
        resident += s->owners[o].resident;
        assert_true(s->owners[o].allocated >= s->owners[o].requested);
    }
    assert_int_equal(s->unowned, 0);
    assert_int_equal(owned, s->requested);
    assert_int_equal(s->owners[KVAD_MEMORY_CACHE].requested, c->reserved);
    assert_int_equal((int64_t)(s->resident - resident), s->unexplained);
    assert_true(s->owners[KVAD_MEMORY_CACHE].resident <= c->reserved);
    if (s->resident) {
        /* What was written is there. */
        assert_true(s->owners[KVAD_MEMORY_CACHE].resident >= c->rows);
        assert_true(s->owners[KVAD_MEMORY_PROGRAM].resident > 0);
        assert_true(s->owners[KVAD_MEMORY_STACKS].resident > 0);
    }
}

static void assert_naive(const struct kvad_memory_run *run,
                         const struct kvad_memory_checkpoint *c) {
    struct kvad_memory_offset whole = kvad_memory_offset_whole(run, c);
    struct kvad_memory_offset sum = kvad_memory_offset_unexplained(run, c);
    for (int o = 0; o < KVAD_MEMORY_OWNERS; o++) {
        struct kvad_memory_offset part = kvad_memory_offset_of(run, c, (enum kvad_memory_owner)o);
        sum.requested += part.requested;
        sum.resident += part.resident;
    }
    assert_int_equal(sum.requested, whole.requested);
    assert_int_equal(sum.resident, whole.resident);
    /* The article's surprise: the process grows by more than the cache. */
    assert_true(whole.requested > 0);
}

/* With every policy and type. */
static void measure_and_check(const char *path, uint32_t n_ctx, uint32_t block,
                              unsigned n_checkpoints) {
    struct subject subject = {.path = path};
    struct kvad_memory_options options = options_of(&subject);
    struct kvad_memory_result result;
    struct kvad_error err;
    options.n_ctx = n_ctx;
    options.block_tokens = block;
    assert_ok(kvad_memory_measure(&options, &result, &err), &err);
    assert_int_equal(result.n_runs, 16);
    assert_true(kvad_memory_result_is_exact(&result));
    for (size_t i = 0; i < result.n_runs; i++) {
        const struct kvad_memory_run *run = &result.runs[i];
        assert_int_equal(run->n_checkpoints, n_checkpoints);
        assert_int_equal(run->warmed[n_checkpoints - 1].tokens, result.n_ctx);
        for (unsigned j = 0; j < n_checkpoints; j++) {
            assert_checkpoint(run, &run->naive[j], result.n_ctx, block);
            assert_checkpoint(run, &run->warmed[j], result.n_ctx, block);
            assert_naive(run, &run->naive[j]);
        }
        const struct kvad_memory_snapshot *last = &run->warmed[n_checkpoints - 1].memory;
        /* An empty list asks for one byte, of which the tokenizer's own count knows nothing. */
        uint64_t tokenizer = last->owners[KVAD_MEMORY_TOKENIZER].requested;
        assert_in_range(tokenizer, subject.tokenizer_bytes, subject.tokenizer_bytes + 4);
        /* All of the engine's memory went back. */
        assert_int_equal(run->after.requested, run->before.requested);
    }
    assert_int_equal(subject.n_reports, 16 * 2 * n_checkpoints);
    if (result.no_resident_why) {
        print_message("NOT RUN: resident memory: %s\n", result.no_resident_why);
    } else {
        print_message("%s: %.3f %% explained\n", path, kvad_memory_result_explained(&result));
        assert_true(kvad_memory_result_explained(&result) >= 99);
    }
    kvad_memory_result_deinit(&result);
}

static void test_the_shipped_model_is_its_formula_to_the_byte(void **state) {
    (void)state;
    measure_and_check("models/shakespeare-char", 256, 16, 16);
}

/* Contexts that no block divides; blocks of two sizes. */
static void test_a_tiny_model_is_its_formula_to_the_byte(void **state) {
    (void)state;
    measure_and_check("tests/data/models/nanogpt/compiled-padded", 0, 16, 16);
    measure_and_check("tests/data/models/nanogpt/compiled-padded", 19, 32, 16);
}

static void test_a_context_of_one_token_has_one_checkpoint(void **state) {
    (void)state;
    measure_and_check("tests/data/models/hf-gpt2/one-token-context", 1, 16, 1);
}

/* The check can fail: memory that nobody names is a residual. */
static void test_memory_of_nobody_is_a_residual(void **state) {
    (void)state;
    struct subject subject = {.path = "tests/data/models/nanogpt/compiled-padded", .leak = 100};
    struct kvad_memory_options options = options_of(&subject);
    struct kvad_memory_result result;
    struct kvad_error err;
    options.kv.n = 1;
    assert_ok(kvad_memory_measure(&options, &result, &err), &err);
    assert_false(kvad_memory_result_is_exact(&result));
    for (size_t i = 0; i < result.n_runs; i++) {
        const struct kvad_memory_checkpoint *c = &result.runs[i].warmed[3];
        assert_int_equal(c->residual, 0);
        assert_int_equal(c->reserved_residual, 100);
        assert_int_equal(c->memory.unowned, 100);
    }
    kvad_memory_result_deinit(&result);
}

static void test_any_residual_is_not_exact(void **state) {
    (void)state;
    struct kvad_memory_run run = {.n_checkpoints = 2};
    struct kvad_memory_result result = {.runs = &run, .n_runs = 1};
    struct kvad_memory_checkpoint *last = &run.warmed[1];
    assert_true(kvad_memory_result_is_exact(&result));
    run.naive[1].residual = run.warmed[2].residual = 1; /* neither counts */
    assert_true(kvad_memory_result_is_exact(&result));
    *last = (struct kvad_memory_checkpoint){.residual = -1};
    assert_false(kvad_memory_result_is_exact(&result));
    *last = (struct kvad_memory_checkpoint){.reserved_residual = 1};
    assert_false(kvad_memory_result_is_exact(&result));
    *last = (struct kvad_memory_checkpoint){.memory = {.unowned = 1}};
    assert_false(kvad_memory_result_is_exact(&result));
    result.n_runs = 0; /* nothing was measured */
    assert_false(kvad_memory_result_is_exact(&result));
}

static void test_a_run_can_be_cancelled(void **state) {
    (void)state;
    struct subject subject = {.path = "tests/data/models/nanogpt/compiled-padded", .cancel_at = 20};
    struct kvad_memory_options options = options_of(&subject);
    struct kvad_memory_result result;
    struct kvad_error err;
    assert_int_equal(kvad_memory_measure(&options, &result, &err), KVAD_ERR_CANCELLED);
    kvad_memory_result_deinit(&result);
}

static void test_what_cannot_be_measured_is_refused(void **state) {
    (void)state;
    struct subject subject = {.path = "tests/data/models/nanogpt/compiled-padded"};
    struct kvad_memory_options options = options_of(&subject);
    struct kvad_memory_result result;
    struct kvad_error err;
    options.n_ctx = 100000;
    assert_fails(kvad_memory_measure(&options, &result, &err), KVAD_ERR_CONTEXT_FULL, &err,
                 "100000");
    kvad_memory_result_deinit(&result);
    options.n_ctx = 0;
    options.policies.n = 0;
    assert_fails(kvad_memory_measure(&options, &result, &err), KVAD_ERR_ARGUMENT, &err, "policy");
    kvad_memory_result_deinit(&result);
    options = options_of(&subject);
    subject.path = "no/such/model";
    assert_int_equal(kvad_memory_measure(&options, &result, &err), KVAD_ERR_NOT_FOUND);
    kvad_memory_result_deinit(&result);
}

static void test_json_holds_what_was_measured(void **state) {
    (void)state;
    struct subject subject = {.path = "tests/data/models/nanogpt/compiled-padded"};
    struct kvad_memory_options options = options_of(&subject);
    struct kvad_memory_result result;
    struct kvad_error err;
    options.kv.n = 1;
    assert_ok(kvad_memory_measure(&options, &result, &err), &err);
    json_t *json = kvad_memory_result_json(&result);
    assert_non_null(json);
    const json_t *checkpoints = json_object_get(json, "checkpoints");
    assert_int_equal(json_array_size(checkpoints), 64);
    assert_int_equal(json_array_size(json_object_get(json, "naive")), 64);
    const json_t *last = json_array_get(checkpoints, 63);
    assert_string_equal(json_string_value(json_object_get(last, "policy")), "paged");
    assert_int_equal(json_integer_value(json_object_get(last, "requested")),
                     result.runs[3].warmed[15].held);
    json_decref(json);
    kvad_memory_result_deinit(&result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_shipped_model_is_its_formula_to_the_byte),
        cmocka_unit_test(test_a_tiny_model_is_its_formula_to_the_byte),
        cmocka_unit_test(test_a_context_of_one_token_has_one_checkpoint),
        cmocka_unit_test(test_memory_of_nobody_is_a_residual),
        cmocka_unit_test(test_any_residual_is_not_exact),
        cmocka_unit_test(test_a_run_can_be_cancelled),
        cmocka_unit_test(test_what_cannot_be_measured_is_refused),
        cmocka_unit_test(test_json_holds_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
