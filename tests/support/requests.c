#include "requests.h"

#include <math.h>

#include "bits.h"
#include "test.h"

void outcome_init(struct outcome *outcome, size_t n_vocab) {
    *outcome = (struct outcome){.n_vocab = n_vocab};
}

void outcome_free(struct outcome *outcome) {
    free(outcome->ids);
    free(outcome->rows);
    free(outcome->logprobs);
    free(outcome->text);
    *outcome = (struct outcome){0};
}

/* Room for one more id and row, and `more_text` bytes of text with a NUL after them. */
static void make_room(struct outcome *outcome, size_t more_text) {
    size_t wanted = outcome->n_ids > outcome->n_rows ? outcome->n_ids : outcome->n_rows;
    wanted += 1;
    if (wanted + outcome->text_size + more_text < outcome->capacity) return;
    outcome->capacity = 2 * (wanted + outcome->text_size + more_text);
    size_t n = outcome->capacity;
    outcome->ids = realloc(outcome->ids, n * sizeof *outcome->ids);
    outcome->logprobs = realloc(outcome->logprobs, n * sizeof *outcome->logprobs);
    outcome->rows = realloc(outcome->rows, n * outcome->n_vocab * sizeof *outcome->rows);
    outcome->text = realloc(outcome->text, n);
    assert_true(outcome->ids && outcome->logprobs && outcome->rows && outcome->text);
}

void assert_same_outcome(const struct outcome *got, const struct outcome *wanted,
                         const char *where) {
    if (got->n_ids != wanted->n_ids || got->finish != wanted->finish)
        print_error("%s: %zu ids, end %d; wanted %zu, %d\n", where, got->n_ids, (int)got->finish,
                    wanted->n_ids, (int)wanted->finish);
    assert_int_equal(got->finish, wanted->finish);
    assert_int_equal(got->n_ids, wanted->n_ids);
    assert_int_equal(got->n_rows, wanted->n_rows);
    for (size_t i = 0; i < got->n_rows; i++)
        assert_same_bits(got->rows + i * got->n_vocab, wanted->rows + i * got->n_vocab,
                         got->n_vocab, label("%s: logits of output %zu", where, i));
    for (size_t i = 0; i < got->n_ids; i++)
        assert_int_equal(got->ids[i], wanted->ids[i]);
}

struct kvad_request_options greedy_options(const int32_t *prompt, size_t n_prompt,
                                           size_t max_tokens) {
    struct kvad_request_options options;
    kvad_request_options_init(&options);
    options.prompt = prompt;
    options.n_prompt = n_prompt;
    options.max_tokens = max_tokens;
    return options;
}

static void add_row(struct outcome *outcome, const float *logits) {
    make_room(outcome, 0);
    memcpy(outcome->rows + outcome->n_rows++ * outcome->n_vocab, logits,
           outcome->n_vocab * sizeof *logits);
}

static void note_logits(void *user, size_t output_index, const float *logits, size_t n_vocab) {
    struct outcome *outcome = user;
    assert_int_equal(output_index, outcome->n_rows);
    assert_int_equal(n_vocab, outcome->n_vocab);
    add_row(outcome, logits);
}

struct kvad_request *submit(struct kvad_engine *engine, const struct kvad_request_options *options,
                            struct outcome *outcome) {
    struct kvad_request_options o = *options;
    o.on_logits = note_logits;
    o.user = outcome;
    struct kvad_request *request = NULL;
    struct kvad_error err;
    assert_ok(kvad_request_submit(engine, &o, &request, &err), &err);
    return request;
}

bool take_events(struct kvad_request *request, struct outcome *outcome) {
    struct kvad_event event;
    while (kvad_request_poll(request, &event)) {
        assert_int_equal(outcome->finish, KVAD_FINISH_NONE);
        make_room(outcome, event.text_size);
        if (event.text_size > 0)
            memcpy(outcome->text + outcome->text_size, event.text, event.text_size);
        outcome->text_size += event.text_size;
        outcome->text[outcome->text_size] = '\0';
        if (event.token >= 0) {
            outcome->logprobs[outcome->n_ids] = event.logprob;
            outcome->ids[outcome->n_ids++] = event.token;
        }
        outcome->finish = event.finish;
    }
    return outcome->finish != KVAD_FINISH_NONE;
}

size_t step_engine(struct kvad_engine *engine) {
    size_t n_active = SIZE_MAX;
    struct kvad_error err;
    assert_ok(kvad_engine_step(engine, &n_active, &err), &err);
    assert_true(engine->n_steps < 1000000); /* a request that never ends fails, and does not hang */
    return n_active;
}

void run_request(struct kvad_engine *engine, const struct kvad_request_options *options,
                 struct outcome *outcome) {
    struct kvad_request *request = submit(engine, options, outcome);
    do
        step_engine(engine);
    while (!take_events(request, outcome));
    kvad_request_destroy(&request);
}

static int32_t arg_max(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return (int32_t)best;
}

void expect_greedy(struct kvad_model *model, const int32_t *prompt, size_t n_prompt,
                   size_t max_tokens, bool slides, struct outcome *outcome) {
    size_t n_ctx = model->description.n_ctx, n = n_prompt;
    size_t n_vocab = model->description.n_vocab;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine = open_engine(model, &options);
    int32_t *ids = malloc((n_prompt + max_tokens) * sizeof *ids);
    float *row = malloc(n_vocab * sizeof *row);
    assert_true(ids && row);
    memcpy(ids, prompt, n_prompt * sizeof *ids);
    outcome_init(outcome, n_vocab);
    while (n < n_prompt + max_tokens && (slides || n < n_ctx)) {
        size_t first = n > n_ctx ? n - n_ctx : 0;
        struct kvad_sequence *sequence = new_sequence(engine);
        struct kvad_eval_item item = {.sequence = sequence,
                                      .tokens = ids + first,
                                      .n_tokens = n - first,
                                      .n_rows = 1,
                                      .logits = row};
        struct kvad_error err;
        assert_ok(kvad_eval(engine, &item, 1, &err), &err);
        kvad_sequence_destroy(&sequence);
        add_row(outcome, row);
        ids[n] = outcome->ids[outcome->n_ids++] = arg_max(row, model->n_tokens);
        n++;
    }
    outcome->finish = KVAD_FINISH_LENGTH;
    close_engine(&engine);
    free(ids);
    free(row);
}

struct kvad_request_info check_options(struct kvad_engine *engine,
                                       const struct kvad_request_options *options) {
    struct kvad_request_info info;
    struct outcome got, wanted;
    outcome_init(&got, engine->model->description.n_vocab);
    expect_greedy(engine->model, options->prompt, options->n_prompt, options->max_tokens, false,
                  &wanted);
    struct kvad_request *request = submit(engine, options, &got);
    for (int i = 0; i < 200 && !take_events(request, &got); i++) {
        kvad_engine_poison_cache(engine, KVAD_POISON_KV, NAN);
        step_engine(engine);
        assert_true(kvad_kv_pool_is_sound(&engine->pool));
        if (engine->prefix.heap) assert_true(kvad_prefix_is_sound(&engine->prefix));
    }
    assert_same_outcome(&got, &wanted, label("prompt of %zu", options->n_prompt));
    kvad_request_get_info(request, &info);
    kvad_request_destroy(&request);
    outcome_free(&got);
    outcome_free(&wanted);
    return info;
}

struct kvad_request_info check_request(struct kvad_engine *engine, const int32_t *prompt,
                                       size_t n_prompt, size_t max_tokens, const char *salt) {
    struct kvad_request_options options = greedy_options(prompt, n_prompt, max_tokens);
    options.cache_salt = salt;
    return check_options(engine, &options);
}
