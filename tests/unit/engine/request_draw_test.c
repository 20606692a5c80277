/* What a request draws: from its own last row, by its own seed, whatever else is asked for and
 * whoever runs beside it. */
#include <math.h>

#include "engines.h"
#include "sampling/logprob.h"
#include "test.h"
#include "tiny_model.h"

enum { MAX_OUTPUT = 24, N_PROMPT = 11 };

struct output {
    int32_t ids[MAX_OUTPUT];
    double logprobs[MAX_OUTPUT], expected_logprobs[MAX_OUTPUT];
    size_t n_ids, n_logits, n_empty_events;
    enum kvad_finish finish;
    int32_t best[MAX_OUTPUT]; /* arg-max of the rows given to on_logits */
};

struct setting {
    const int32_t *prompt;
    size_t n_prompt, max_tokens, min_tokens;
    struct kvad_sampler_options sampler;
    bool logprobs;
    int32_t stop_id; /* -1: none */
};

static struct setting setting_of(const int32_t *prompt, uint64_t seed) {
    struct setting setting = {
        .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = 8, .stop_id = -1};
    kvad_sampler_options_init(&setting.sampler);
    setting.sampler.temperature = 3; /* tiny models are flat enough to draw different ids */
    setting.sampler.seed = seed;
    return setting;
}

static void note_logits(void *user, size_t output_index, const float *logits, size_t n_vocab) {
    struct output *output = user;
    assert_int_equal(output_index, output->n_logits);
    size_t best = 0;
    for (size_t id = 1; id < n_vocab; ++id)
        if (logits[id] > logits[best]) best = id;
    output->best[output->n_logits] = (int32_t)best;
    output->expected_logprobs[output->n_logits++] = kvad_logprob(logits, n_vocab, (int32_t)best);
}

static struct kvad_request *submit(struct kvad_engine *engine, const struct setting *setting,
                                   struct output *output) {
    struct kvad_request_options options;
    struct kvad_request *request = NULL;
    struct kvad_error err;
    *output = (struct output){0};
    kvad_request_options_init(&options);
    options.prompt = setting->prompt;
    options.n_prompt = setting->n_prompt;
    options.max_tokens = setting->max_tokens;
    options.min_tokens = setting->min_tokens;
    options.logprobs = setting->logprobs;
    options.sampler = &setting->sampler;
    options.stop_ids = &setting->stop_id;
    options.n_stop_ids = setting->stop_id >= 0 ? 1 : 0;
    options.on_logits = note_logits;
    options.user = output;
    assert_ok(kvad_request_submit(engine, &options, &request, &err), &err);
    return request;
}

static void take_events(struct kvad_request *request, struct output *output) {
    struct kvad_event event;
    while (kvad_request_poll(request, &event)) {
        assert_int_equal(output->finish, KVAD_FINISH_NONE); /* nothing follows the last event */
        output->finish = event.finish;
        if (event.token < 0) {
            output->n_empty_events += event.finish == KVAD_FINISH_NONE;
            continue;
        }
        assert_true(output->n_ids < MAX_OUTPUT);
        output->logprobs[output->n_ids] = event.logprob;
        output->ids[output->n_ids++] = event.token;
    }
}

/* Run all requests to their ends. */
static void run(struct kvad_engine *engine, struct kvad_request **requests, struct output *outputs,
                size_t n) {
    struct kvad_error err;
    size_t n_active = 1;
    while (n_active > 0) {
        assert_ok(kvad_engine_step(engine, &n_active, &err), &err);
        for (size_t i = 0; i < n; ++i)
            take_events(requests[i], &outputs[i]);
    }
    for (size_t i = 0; i < n; ++i)
        kvad_request_destroy(&requests[i]);
}

static struct output run_one(struct kvad_engine *engine, const struct setting *setting) {
    struct output output;
    struct kvad_request *request = submit(engine, setting, &output);
    run(engine, &request, &output, 1);
    return output;
}

static void assert_same_ids(const struct output *a, const struct output *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof a->ids[0]);
    assert_int_equal(a->finish, b->finish);
}

/* ---------------------------------------------------------------- a model and an engine */

struct bench {
    struct tiny_model *tiny;
    struct kvad_model *model;
    struct kvad_engine *engine;
    int32_t *tokens; /* [3 * N_PROMPT] */
};

static int open_bench(void **state) {
    static struct bench bench;
    bench.tiny = tiny_model_create(&tiny_odd);
    bench.model = tiny_model_build(bench.tiny);
    bench.tokens = tiny_tokens(tiny_odd.n_vocab, 3 * N_PROMPT, 5);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = 4;
    options.n_batch_tokens = 4; /* every prompt takes several chunks */
    bench.engine = open_engine(bench.model, &options);
    *state = &bench;
    return 0;
}

static int close_bench(void **state) {
    struct bench *bench = *state;
    close_engine(&bench->engine);
    kvad_model_release(&bench->model);
    tiny_model_destroy(bench->tiny);
    free(bench->tokens);
    return release_test_threads(NULL);
}

/* ---------------------------------------------------------------- tests */

/* bugs.md SAMP-14 */
static void test_logprobs_on_or_off_change_no_token(void **state) {
    struct bench *bench = *state;
    for (int kind = 0; kind < 4; ++kind) {
        struct setting setting = setting_of(bench->tokens, 7);
        if (kind == 1) setting.sampler.repetition_penalty = 1.3;
        if (kind == 2) setting.sampler.top_p = 0.8;
        if (kind == 3) setting.sampler.temperature = 0;
        struct output without = run_one(bench->engine, &setting);
        setting.logprobs = true;
        struct output with = run_one(bench->engine, &setting);
        assert_same_ids(&without, &with);
        assert_int_equal(with.n_ids, 8);
        for (size_t i = 0; i < with.n_ids; ++i) {
            assert_true(without.logprobs[i] == 0);
            assert_true(with.logprobs[i] < 0);
            if (kind == 3) assert_true(with.logprobs[i] == with.expected_logprobs[i]);
        }
    }
}

/* The row that is sampled is the one after the last token: what kvad_eval() gives for the whole
 * text, where earlier rows have higher logits. bugs.md SAMP-22 */
static void test_tokens_come_from_the_last_row(void **state) {
    struct bench *bench = *state;
    uint32_t n_vocab = tiny_odd.n_vocab;
    float *rows = malloc((N_PROMPT + 8) * (size_t)n_vocab * sizeof *rows);
    assert_non_null(rows);
    bool earlier_row_was_higher = false;
    for (size_t start = 0; start < 2 * N_PROMPT; start += 3) {
        struct setting setting = setting_of(bench->tokens + start, 0);
        setting.sampler.temperature = 0;
        struct output output = run_one(bench->engine, &setting);
        int32_t text[N_PROMPT + 8];
        memcpy(text, setting.prompt, N_PROMPT * sizeof text[0]);
        memcpy(text + N_PROMPT, output.ids, 8 * sizeof text[0]);
        struct kvad_error err;
        struct kvad_sequence *sequence = NULL;
        assert_ok(kvad_sequence_create(bench->engine, &sequence, &err), &err);
        struct kvad_eval_item item = {.sequence = sequence,
                                      .tokens = text,
                                      .n_tokens = N_PROMPT + 7,
                                      .n_rows = N_PROMPT + 7,
                                      .logits = rows};
        assert_ok(kvad_eval(bench->engine, &item, 1, &err), &err);
        kvad_sequence_destroy(&sequence);
        float highest = -INFINITY;
        for (size_t row = 0; row < N_PROMPT + 7; ++row) {
            const float *logits = rows + row * n_vocab;
            size_t best = 0;
            for (size_t id = 1; id < n_vocab; ++id)
                if (logits[id] > logits[best]) best = id;
            if (row >= N_PROMPT - 1) {
                assert_int_equal(output.ids[row - (N_PROMPT - 1)], best);
                earlier_row_was_higher |= highest > logits[best];
            }
            highest = fmaxf(highest, logits[best]);
        }
    }
    free(rows);
    assert_true(earlier_row_was_higher); /* or the test would show nothing */
}

/* bugs.md STOP-9 */
static void test_events_are_as_many_as_tokens_and_none_before_the_prompt_ends(void **state) {
    struct bench *bench = *state;
    struct setting setting = setting_of(bench->tokens, 3);
    struct output output;
    kvad_cache_clear(bench->engine); /* other tests left this prompt there */
    struct kvad_request *request = submit(bench->engine, &setting, &output);
    struct kvad_error err;
    size_t n_active;
    for (int step = 0; step < 2; ++step) { /* 4 and 4 of 11 prompt tokens */
        assert_ok(kvad_engine_step(bench->engine, &n_active, &err), &err);
        struct kvad_event event;
        assert_false(kvad_request_poll(request, &event));
    }
    run(bench->engine, &request, &output, 1);
    assert_int_equal(output.n_ids, 8);
    assert_int_equal(output.n_logits, 8);
    assert_int_equal(output.n_empty_events, 0);
    assert_int_equal(output.finish, KVAD_FINISH_LENGTH);
}

/* bugs.md DET-1, DET-2 */
static void test_seeded_request_is_as_alone_whatever_runs_beside_it(void **state) {
    struct bench *bench = *state;
    struct setting mine = setting_of(bench->tokens, 42), other = setting_of(bench->tokens + 5, 9);
    struct output alone = run_one(bench->engine, &mine);
    struct output again = run_one(bench->engine, &mine);
    assert_same_ids(&alone, &again);
    other.max_tokens = 5;
    other.sampler.temperature = 0; /* and no seed that matters */
    struct output other_alone = run_one(bench->engine, &other);
    for (size_t place = 0; place < 3; ++place) {
        struct kvad_request *requests[3];
        struct output outputs[3];
        for (size_t i = 0; i < 3; ++i)
            requests[i] = submit(bench->engine, i == place ? &mine : &other, &outputs[i]);
        run(bench->engine, requests, outputs, 3);
        for (size_t i = 0; i < 3; ++i)
            assert_same_ids(&outputs[i], i == place ? &alone : &other_alone);
    }
    struct setting different = setting_of(bench->tokens, 43);
    struct output elsewhere = run_one(bench->engine, &different);
    assert_memory_not_equal(elsewhere.ids, alone.ids, sizeof alone.ids);
}

/* Four samples together: different, each as alone, and one that ends early ends no other.
 * bugs.md SAMP-15 */
static void test_samples_of_one_prompt_end_each_for_itself(void **state) {
    struct bench *bench = *state;
    enum { SAMPLES = 4 };
    struct setting settings[SAMPLES];
    struct output alone[SAMPLES], together[SAMPLES];
    struct kvad_request *requests[SAMPLES];
    for (size_t i = 0; i < SAMPLES; ++i) {
        settings[i] = setting_of(bench->tokens, 1);
        settings[i].sampler.sample_index = i;
        alone[i] = run_one(bench->engine, &settings[i]);
        for (size_t j = 0; j < i; ++j)
            assert_memory_not_equal(alone[i].ids, alone[j].ids, sizeof alone[i].ids);
    }
    settings[0].stop_id = alone[0].ids[2]; /* the first sample ends at its third token at latest */
    alone[0] = run_one(bench->engine, &settings[0]);
    assert_true(alone[0].n_ids < 3);
    for (size_t i = SAMPLES; i-- > 0;)
        requests[i] = submit(bench->engine, &settings[i], &together[i]);
    run(bench->engine, requests, together, SAMPLES);
    for (size_t i = 0; i < SAMPLES; ++i) {
        assert_same_ids(&together[i], &alone[i]);
        assert_int_equal(together[i].finish, i == 0 ? KVAD_FINISH_STOP : KVAD_FINISH_LENGTH);
    }
}

/* bugs.md SAMP-18 */
static void test_min_tokens_hold_the_end_back_up_to_max_tokens(void **state) {
    struct bench *bench = *state;
    struct setting setting = setting_of(bench->tokens, 0);
    setting.sampler.temperature = 0;
    setting.max_tokens = 5;
    setting.stop_id = run_one(bench->engine, &setting).ids[0]; /* wanted at once */
    static const size_t minimums[] = {0, 1, 3, 5, 6};
    for (size_t i = 0; i < sizeof minimums / sizeof minimums[0]; ++i) {
        setting.min_tokens = minimums[i];
        struct output output = run_one(bench->engine, &setting);
        assert_true(output.n_ids >= minimums[i] || output.n_ids == 5);
        assert_true(output.finish == KVAD_FINISH_STOP || output.n_ids == 5);
        for (size_t j = 0; j < output.n_ids; ++j)
            assert_int_not_equal(output.ids[j], setting.stop_id);
        if (minimums[i] == 0) assert_int_equal(output.n_ids, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs_on_or_off_change_no_token),
        cmocka_unit_test(test_tokens_come_from_the_last_row),
        cmocka_unit_test(test_events_are_as_many_as_tokens_and_none_before_the_prompt_ends),
        cmocka_unit_test(test_seeded_request_is_as_alone_whatever_runs_beside_it),
        cmocka_unit_test(test_samples_of_one_prompt_end_each_for_itself),
        cmocka_unit_test(test_min_tokens_hold_the_end_back_up_to_max_tokens),
    };
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
