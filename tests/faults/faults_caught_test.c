/* Every seeded fault against a few kinds of check, as a table: which kind sees which fault. Each
 * check compares with the oracle in double precision, which knows no cache. Without a fault (and
 * in ordinary builds, which have none) every check must be content. */
#include <math.h>

#include "base/faults.h"
#include "bits.h"
#include "engines.h"
#include "oracle.h"
#include "test.h"

enum { N_TEXTS = 3, N_TOKENS = 40 };

/* Texts and what they must give; made once. */
static struct {
    struct tiny_model *tiny;
    struct kvad_model *model;
    int32_t *tokens[N_TEXTS];
    struct oracle *oracle[N_TEXTS];
} world;

static int make_world(void **state) {
    (void)state;
    world.tiny = tiny_model_create(&tiny_odd);
    world.model = tiny_model_build(world.tiny);
    for (size_t i = 0; i < N_TEXTS; i++) {
        world.tokens[i] = tiny_tokens(tiny_odd.n_vocab, N_TOKENS, i);
        world.oracle[i] = oracle_run(world.tiny, world.tokens[i], N_TOKENS);
    }
    return 0;
}

static int free_world(void **state) {
    for (size_t i = 0; i < N_TEXTS; i++) {
        free(world.tokens[i]);
        oracle_destroy(world.oracle[i]);
    }
    kvad_model_release(&world.model);
    tiny_model_destroy(world.tiny);
    return release_test_threads(state);
}

/* Whether values are within rounding of the oracle; NaN is not. */
static bool is_near(const float *got, const double *wanted, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= 1e-4)) return false;
    return true;
}

/* A sequence that follows text `text`; `is_right` until a step fails or a row is off. */
struct lane {
    size_t text, done;
    struct kvad_sequence *sequence;
    bool is_right;
};

static struct lane new_lane(struct kvad_engine *engine, size_t text) {
    return (struct lane){.text = text, .sequence = new_sequence(engine), .is_right = true};
}

/* One step: n more tokens in each of the lanes. */
static void step(struct lane *lanes, size_t n_lanes, size_t n) {
    struct kvad_eval_item items[N_TEXTS];
    float rows[N_TEXTS][N_TOKENS * 101];
    for (size_t i = 0; i < n_lanes; i++)
        items[i] = (struct kvad_eval_item){.sequence = lanes[i].sequence,
                                           .tokens = world.tokens[lanes[i].text] + lanes[i].done,
                                           .n_tokens = n,
                                           .n_rows = n,
                                           .logits = rows[i]};
    enum kvad_status status = kvad_eval(lanes[0].sequence->engine, items, n_lanes, NULL);
    for (size_t i = 0; i < n_lanes; i++) {
        const double *wanted = world.oracle[lanes[i].text]->logits + lanes[i].done * 101;
        lanes[i].is_right &= status == KVAD_OK && is_near(rows[i], wanted, n * 101);
        lanes[i].done += n;
    }
}

/* ---------------------------------------------------------------- the kinds of check */

static bool follow_in_chunks(enum kvad_cache_policy policy, const size_t *chunks, size_t n_chunks) {
    struct kvad_engine_options options = engine_options(policy, 1);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct lane lane = new_lane(engine, 0);
    for (size_t i = 0; i < n_chunks && lane.is_right; i++)
        step(&lane, 1, chunks[i]);
    kvad_sequence_destroy(&lane.sequence);
    close_engine(&engine);
    return lane.is_right;
}

/* The classic test of a cache: token after token against a full forward pass. */
static bool single_tokens_are_right(void) {
    static const size_t ones[N_TOKENS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return follow_in_chunks(KVAD_CACHE_PAGED, ones, 15);
}

static bool one_step_is_right(void) {
    static const size_t all[] = {N_TOKENS};
    return follow_in_chunks(KVAD_CACHE_PAGED, all, 1);
}

static bool chunks_are_right(void) {
    static const size_t chunks[] = {5, 1, 3, 17, 2, 1, 11};
    return follow_in_chunks(KVAD_CACHE_PAGED, chunks, 7);
}

static bool growing_is_right(void) {
    static const size_t chunks[] = {5, 1, 3, 17, 2, 1, 11};
    return follow_in_chunks(KVAD_CACHE_GROW, chunks, 7);
}

/* Texts of different lengths in one step. */
static bool batches_are_right(void) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_sequences = N_TEXTS;
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct lane lanes[N_TEXTS];
    bool is_right = true;
    for (size_t i = 0; i < N_TEXTS; i++) {
        lanes[i] = new_lane(engine, i);
        for (size_t j = 0; j < 2 + 3 * i; j++)
            step(&lanes[i], 1, 1);
    }
    for (size_t i = 0; i < 4; i++)
        step(lanes, N_TEXTS, 1);
    for (size_t i = 0; i < N_TEXTS; i++) {
        is_right &= lanes[i].is_right;
        kvad_sequence_destroy(&lanes[i].sequence);
    }
    close_engine(&engine);
    return is_right;
}

static bool going_back_is_right(void) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct lane lane = new_lane(engine, 0);
    for (size_t i = 0; i < 6; i++)
        step(&lane, 1, 1);
    struct lane other = lane;
    other.text = 1;
    step(&other, 1, 1); /* of no account: the wrong text's row is right nowhere */
    (void)kvad_sequence_truncate(lane.sequence, 6, NULL);
    for (size_t i = 0; i < 6; i++)
        step(&lane, 1, 1);
    kvad_sequence_destroy(&lane.sequence);
    close_engine(&engine);
    return lane.is_right;
}

/* What lies in the cache, whatever the logits say. */
static bool cache_is_right(void) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine = open_engine(world.model, &options);
    struct lane lane = new_lane(engine, 0);
    static const size_t chunks[] = {5, 1, 3, 17, 2, 1, 11};
    for (size_t i = 0; i < 7; i++)
        step(&lane, 1, chunks[i]);
    enum { N_LAYER = 5 * N_TOKENS * 7 };
    float k[N_LAYER], v[N_LAYER];
    bool is_right = kvad_sequence_length(lane.sequence) == N_TOKENS;
    for (uint32_t layer = 0; is_right && layer < tiny_odd.n_layers; layer++) {
        is_right = kvad_sequence_read_kv(lane.sequence, layer, 0, N_TOKENS, k, v, NULL) == KVAD_OK;
        is_right &= is_near(k, world.oracle[0]->k + layer * N_LAYER, N_LAYER) &&
                    is_near(v, world.oracle[0]->v + layer * N_LAYER, N_LAYER);
    }
    kvad_sequence_destroy(&lane.sequence);
    close_engine(&engine);
    return is_right;
}

static const struct {
    const char *name;
    bool (*is_right)(void);
} checks[] = {
    {"single", single_tokens_are_right}, {"one-step", one_step_is_right},
    {"chunks", chunks_are_right},        {"batch", batches_are_right},
    {"back", going_back_is_right},       {"grow", growing_is_right},
    {"k-and-v", cache_is_right},
};
enum { N_CHECKS = sizeof checks / sizeof checks[0], SINGLE = 0 };

/* ---------------------------------------------------------------- tests */

static void test_no_check_complains_without_a_fault(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CHECKS; i++) {
        if (!checks[i].is_right()) print_error("%s complains\n", checks[i].name);
        assert_true(checks[i].is_right());
    }
}

#ifdef KVAD_FAULTS

/* The faults of rows. Those of sharing that follow need forks and requests, and may crash:
 * scripts/check_faults runs their tests in programs of their own. */
enum { LAST_OF_ROWS = KVAD_FAULT_K_OF_ONE_HEAD };

static bool is_caught[KVAD_FAULT_COUNT][N_CHECKS];

/* Try every check on every fault; prints the table. */
static void fill_table(void) {
    print_message("%-22s", "fault");
    for (size_t i = 0; i < N_CHECKS; i++)
        print_message(" %8s", checks[i].name);
    print_message("   reached\n");
    for (int f = KVAD_FAULT_NONE + 1; f <= LAST_OF_ROWS; f++) {
        kvad_fault_set((enum kvad_fault)f);
        print_message("%-22s", kvad_fault_name((enum kvad_fault)f));
        for (size_t i = 0; i < N_CHECKS; i++) {
            is_caught[f][i] = !checks[i].is_right();
            print_message(" %8s", is_caught[f][i] ? "caught" : "-");
        }
        print_message(" %9llu\n", (unsigned long long)kvad_fault_reached((enum kvad_fault)f));
    }
}

static void test_every_fault_is_reached_and_caught(void **state) {
    (void)state;
    fill_table();
    for (int f = KVAD_FAULT_NONE + 1; f <= LAST_OF_ROWS; f++) {
        bool by_any = false;
        for (size_t i = 0; i < N_CHECKS; i++)
            by_any |= is_caught[f][i];
        if (!by_any) print_error("%s is not caught\n", kvad_fault_name((enum kvad_fault)f));
        assert_true(by_any);
        kvad_fault_set((enum kvad_fault)f);
        for (size_t i = 0; i < N_CHECKS; i++)
            (void)checks[i].is_right();
        assert_true(kvad_fault_reached((enum kvad_fault)f) > 0);
    }
    kvad_fault_set(KVAD_FAULT_NONE);
}

/* Why this table is needed: one token at a time, a reversed append is no append error at all, and
 * the test that everyone writes for a cache passes. */
static void test_the_classic_test_of_single_tokens_misses_the_reversed_append(void **state) {
    (void)state;
    assert_false(is_caught[KVAD_FAULT_REVERSED_APPEND][SINGLE]);
    assert_false(is_caught[KVAD_FAULT_MASK_DROPPED][SINGLE]);
    size_t n_caught = 0;
    for (size_t i = 0; i < N_CHECKS; i++)
        n_caught += is_caught[KVAD_FAULT_REVERSED_APPEND][i];
    assert_true(n_caught >= 4);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_check_complains_without_a_fault),
#ifdef KVAD_FAULTS
        cmocka_unit_test(test_every_fault_is_reached_and_caught),
        cmocka_unit_test(test_the_classic_test_of_single_tokens_misses_the_reversed_append),
        cmocka_unit_test(test_no_check_complains_without_a_fault),
#endif
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
