/* A row's bits do not depend on its company: on how many texts share the step, on who they are, on
 * when they join and leave. */
#include <math.h>

#include "bits.h"
#include "random.h"
#include "reference.h"
#include "test.h"

enum { MAX_TEXTS = 16 };

/* The lanes of one engine: which text is in each, if any. */
struct lane {
    const struct reference *text;
    struct kvad_sequence *sequence;
    float *rows;
};

struct party {
    struct reference *texts[MAX_TEXTS];
    size_t n_texts;
    struct kvad_engine *engine;
    struct lane lanes[MAX_TEXTS];
};

static void open_party(struct party *party, const struct tiny_sizes *sizes, size_t n_texts,
                       const struct kvad_engine_options *options) {
    *party = (struct party){.n_texts = n_texts};
    for (size_t i = 0; i < n_texts; i++) {
        size_t n = sizes->n_ctx - 2 - i % 7 * 3;
        party->texts[i] = i ? reference_more(party->texts[0], n, i) : reference_create(sizes, n);
    }
    struct kvad_engine_options o = *options;
    o.n_sequences = MAX_TEXTS;
    party->engine = open_engine(party->texts[0]->model, &o);
}

static void join(struct party *party, struct lane *lane, const struct reference *text) {
    *lane = (struct lane){.text = text, .sequence = new_sequence(party->engine)};
    lane->rows = malloc(text->n * reference_vocab(text) * sizeof *lane->rows);
    assert_non_null(lane->rows);
}

static void leave(struct lane *lane) {
    kvad_sequence_destroy(&lane->sequence);
    free(lane->rows);
    *lane = (struct lane){0};
}

static void close_party(struct party *party) {
    for (size_t i = 0; i < MAX_TEXTS; i++)
        if (party->lanes[i].text) leave(&party->lanes[i]);
    close_engine(&party->engine);
    for (size_t i = party->n_texts; i-- > 0;)
        reference_destroy(party->texts[i]);
}

/* One step: `n_more[i]` tokens of the text in lane i (0: it rests); rows are compared. */
static void step(struct party *party, const size_t *n_more, const char *where) {
    struct kvad_eval_item items[MAX_TEXTS];
    struct lane *owners[MAX_TEXTS];
    size_t n_items = 0;
    for (size_t i = 0; i < MAX_TEXTS; i++) {
        struct lane *lane = &party->lanes[i];
        if (!lane->text || n_more[i] == 0) continue;
        poison(lane->rows, n_more[i] * reference_vocab(lane->text));
        owners[n_items] = lane;
        items[n_items++] = (struct kvad_eval_item){.sequence = lane->sequence,
                                                   .tokens = lane->text->tokens +
                                                             kvad_sequence_length(lane->sequence),
                                                   .n_tokens = n_more[i],
                                                   .n_rows = n_more[i],
                                                   .logits = lane->rows};
    }
    if (n_items == 0) return;
    struct kvad_error err;
    assert_ok(kvad_eval(party->engine, items, n_items, &err), &err);
    for (size_t i = 0; i < n_items; i++) {
        size_t n = items[i].n_tokens, end = kvad_sequence_length(owners[i]->sequence);
        assert_rows(owners[i]->text, end - n, n, owners[i]->rows, where);
    }
}

/* bugs.md DET-4, DET-5, MASK-15, BATCH-5, POS-2 */
static void test_rows_are_the_same_in_batches_of_every_size(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 7, 8, 16};
    for (size_t p = 0; p < N_POLICIES; p++) {
        struct party party;
        struct kvad_engine_options options = engine_options(policies[p], 1 + (unsigned)p % 3);
        open_party(&party, &tiny_odd, MAX_TEXTS, &options);
        for (size_t s = 0; s < 6; s++)
            for (size_t turn = 0; turn < 3; turn++) {
                /* The texts stand at other places, and begin at other times, in every turn. */
                for (size_t i = 0; i < sizes[s]; i++)
                    join(&party, &party.lanes[i], party.texts[(i + 5 * turn) % MAX_TEXTS]);
                for (size_t t = 0; t < 30; t++) {
                    size_t n_more[MAX_TEXTS] = {0};
                    for (size_t i = 0; i < sizes[s]; i++)
                        n_more[i] = t == i ? 3 + i % 4 : t > i;
                    step(&party, n_more, label("batch of %zu, turn %zu", sizes[s], turn));
                }
                for (size_t i = 0; i < sizes[s]; i++) {
                    assert_cache(party.lanes[i].text, party.lanes[i].sequence, "batch");
                    leave(&party.lanes[i]);
                }
            }
        close_party(&party);
    }
}

/* One lane's random fate in a step: join, grow by a few, go back, leave. */
static size_t fate(struct party *party, struct lane *lane, struct test_random *random) {
    if (!lane->text) {
        if (random_below(random, 3) > 0) return 0;
        join(party, lane, party->texts[random_below(random, party->n_texts)]);
    }
    size_t length = kvad_sequence_length(lane->sequence), left = lane->text->n - length;
    size_t dice = random_below(random, 12);
    if (left == 0 || dice == 0) {
        assert_cache(lane->text, lane->sequence, "at the end");
        leave(lane);
        return 0;
    }
    if (dice == 1) cut(lane->sequence, random_below(random, length + 1));
    if (dice == 2) return 0;
    size_t wanted = dice < 8 ? 1 : 1 + random_below(random, 20);
    return kvad_min_size(wanted, left);
}

/* bugs.md BATCH-1, BATCH-4, MEM-1, MEM-3, POS-4 */
static void test_texts_that_join_leave_and_go_back_at_any_time_keep_their_bits(void **state) {
    (void)state;
    static const enum kvad_cache_policy kinds[] = {KVAD_CACHE_PAGED, KVAD_CACHE_PAGED,
                                                   KVAD_CACHE_STATIC, KVAD_CACHE_GROW};
    for (size_t p = 0; p < 4; p++) {
        struct party party;
        struct kvad_engine_options options = engine_options(kinds[p], 1 + (unsigned)p % 3);
        options.n_batch_tokens = p == 1 ? 16 : 0;
        open_party(&party, &tiny_gqa, 9, &options);
        struct test_random random = {p};
        for (size_t t = 0; t < 300; t++) {
            size_t n_more[MAX_TEXTS];
            for (size_t i = 0; i < MAX_TEXTS; i++)
                n_more[i] = fate(&party, &party.lanes[i], &random);
            step(&party, n_more, label("seed %zu, step %zu", p, t));
            if (party.engine->pool.heap) assert_true(kvad_kv_pool_is_sound(&party.engine->pool));
        }
        close_party(&party);
    }
}

/* ---------------------------------------------------------------- a near tie */

/* Distance in units of the last place of two logits. */
static uint32_t ulps_between(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x > y ? x - y : y - x;
}

static size_t arg_max(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* Move the best logit's head bias until the second one is one unit of the last place behind: a
 * difference of a rounding would turn the two around. */
static size_t make_near_tie(struct tiny_model *tiny, const int32_t *tokens, size_t n) {
    float *bias = tiny->parameters[0][KVAD_PARAMETER_HEAD_BIAS];
    size_t n_vocab = tiny->description.n_vocab, best = 0;
    for (int i = 0; i < 60; i++) {
        struct kvad_model *model = tiny_model_build(tiny);
        struct reference *r = reference_of(tiny, model, tokens, n);
        const float *row = r->logits + (n - 1) * n_vocab;
        best = arg_max(row, n_vocab);
        size_t second = best == 0;
        for (size_t j = 0; j < n_vocab; j++)
            if (j != best && row[j] > row[second]) second = j;
        bool is_near = ulps_between(row[best], row[second]) == 1;
        float gap = row[best] - row[second], one = nextafterf(row[best], INFINITY) - row[best];
        if (!is_near) bias[best] += gap > 0 ? one - gap : one;
        reference_destroy(r);
        kvad_model_release(&model);
        if (is_near) return best;
    }
    fail_msg("no near tie found");
    return best;
}

/* bugs.md DET-6 */
static void test_a_near_tie_falls_the_same_way_in_any_company(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    sizes.untied = true;
    struct tiny_model *tiny = tiny_model_create(&sizes);
    int32_t *tokens = tiny_tokens(sizes.n_vocab, 59, sizes.seed);
    size_t best = make_near_tie(tiny, tokens, 30);
    struct kvad_model *model = tiny_model_build(tiny);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.n_sequences = MAX_TEXTS;
    struct kvad_engine *engine = open_engine(model, &options);
    float row[101];
    for (size_t n = 1; n <= MAX_TEXTS; n++)
        for (size_t place = 0; place < n; place++) {
            struct kvad_eval_item items[MAX_TEXTS];
            for (size_t i = 0; i < n; i++)
                items[i] = (struct kvad_eval_item){.sequence = new_sequence(engine),
                                                   .tokens = tokens + (i == place ? 0 : 1 + i),
                                                   .n_tokens = i == place ? 30 : 1 + i,
                                                   .n_rows = i == place,
                                                   .logits = row};
            struct kvad_error err;
            assert_ok(kvad_eval(engine, items, n, &err), &err);
            assert_int_equal(arg_max(row, sizes.n_vocab), best);
            for (size_t i = 0; i < n; i++)
                kvad_sequence_destroy(&items[i].sequence);
        }
    close_engine(&engine);
    kvad_model_release(&model);
    free(tokens);
    tiny_model_destroy(tiny);
}

/* ---------------------------------------------------------------- threads */

/* bugs.md DET-5, DET-7 */
static void test_eight_threads_give_the_bits_of_one(void **state) {
    (void)state;
    struct party party;
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 8);
    open_party(&party, &tiny_odd, 3, &options);
    for (size_t i = 0; i < 3; i++)
        join(&party, &party.lanes[i], party.texts[i]);
    static const size_t steps[][MAX_TEXTS] = {
        {17, 1, 5}, {1, 1, 1}, {3, 0, 2}, {1, 20, 1}, {0, 1, 1}};
    for (size_t s = 0; s < 5; s++)
        step(&party, steps[s], "eight threads");
    close_party(&party);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_the_same_in_batches_of_every_size),
        cmocka_unit_test(test_texts_that_join_leave_and_go_back_at_any_time_keep_their_bits),
        cmocka_unit_test(test_a_near_tie_falls_the_same_way_in_any_company),
        cmocka_unit_test(test_eight_threads_give_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, release_test_threads);
}
