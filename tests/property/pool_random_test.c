/* Everything at once, at random, on small pools: submit, step, read, cancel, destroy, interrupt,
 * forget, pin, fork, cut. Whatever happens, each request's logits are those of a cold run alone,
 * all invariants hold after every operation, and nothing is left behind.
 *
 *   pool_random_test [OPERATIONS [SEED]]    a longer run, or a run again */
#include <math.h>
#include <stdlib.h>

#include "bits.h"
#include "engine/pin.h"
#include "random.h"
#include "reference.h"
#include "requests.h"
#include "test.h"

enum { N_VOCAB = 101, N_CTX = 61, N_KINDS = 14, N_SLOTS = 9, N_USERS = 2, MAX_OUTPUT = 75 };

/* A prompt and how to go on, with what it gives cold and alone. */
struct kind {
    int32_t prompt[N_CTX];
    size_t n_prompt;
    struct kvad_sampler_options sampler;
    bool is_sampled, slides;
    struct outcome wanted;
};

struct slot {
    struct kvad_request *request;
    const struct kind *kind;
    size_t max_tokens;
    bool is_cancelled;
    struct outcome got;
};

static struct {
    struct reference *text; /* of the sequences outside of requests */
    struct kind kinds[N_KINDS];
    struct kvad_engine *engine;
    struct slot slots[N_SLOTS];
    struct kvad_sequence *users[N_USERS];
    struct test_random random;
    size_t n_operations, n_done, n_cancelled;
} world;

/* How often everything happened, in all settings together. */
static struct {
    uint64_t n_cancels, n_forks, n_cuts, n_pins, n_unpins, n_interrupts;
    uint64_t n_preemptions, n_evictions, n_copies;
} happened;

static size_t below(size_t n) {
    return random_below(&world.random, n);
}

static struct kvad_request_options options_of(const struct kind *kind, size_t max_tokens) {
    struct kvad_request_options options = greedy_options(kind->prompt, kind->n_prompt, max_tokens);
    if (kind->is_sampled) options.sampler = &kind->sampler;
    options.on_overflow = kind->slides ? KVAD_OVERFLOW_RECOMPUTE : KVAD_OVERFLOW_STOP;
    return options;
}

/* Kinds begin alike for 0, 16, 20, 32 or 40 tokens. */
static void make_kind(struct kind *kind, size_t i, const int32_t *common,
                      struct kvad_engine *cold) {
    static const size_t n_common[] = {0, 16, 20, 32, 40};
    int32_t *own = tiny_tokens(N_VOCAB, N_CTX, 50 + i);
    kind->n_prompt = 1 + i * 17 % 50;
    memcpy(kind->prompt, own, sizeof kind->prompt);
    memcpy(kind->prompt, common, n_common[i % 5] * sizeof *common);
    kind->is_sampled = i % 3 == 1;
    kind->slides = i % 4 == 3;
    kvad_sampler_options_init(&kind->sampler);
    kind->sampler.seed = i;
    struct kvad_request_options options = options_of(kind, MAX_OUTPUT);
    outcome_init(&kind->wanted, N_VOCAB);
    run_request(cold, &options, &kind->wanted);
    free(own);
}

static int make_world(void **state) {
    (void)state;
    world.text = reference_create(&tiny_odd, 40);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_STATIC, 1);
    struct kvad_engine *cold = open_engine(world.text->model, &options);
    int32_t *common = tiny_tokens(N_VOCAB, N_CTX, 49);
    for (size_t i = 0; i < N_KINDS; i++)
        make_kind(&world.kinds[i], i, common, cold);
    free(common);
    close_engine(&cold);
    return 0;
}

static int free_world(void **state) {
    for (size_t i = 0; i < N_KINDS; i++)
        outcome_free(&world.kinds[i].wanted);
    reference_destroy(world.text);
    return release_test_threads(state);
}

/* ---------------------------------------------------------------- operations */

static void start_request(struct slot *slot) {
    static const char *const salts[] = {NULL, NULL, "a", ""};
    slot->kind = &world.kinds[below(N_KINDS)];
    slot->max_tokens = below(5) ? 1 + below(30) : below(MAX_OUTPUT + 1);
    slot->is_cancelled = false;
    struct kvad_request_options options = options_of(slot->kind, slot->max_tokens);
    options.priority = (int32_t)below(3) - 1;
    options.cache_salt = salts[below(4)];
    options.no_prefix_cache = below(8) == 0;
    outcome_init(&slot->got, N_VOCAB);
    slot->request = submit(world.engine, &options, &slot->got);
}

/* What the request has given so far, or in all, begins what it gives alone. */
static void check_slot(const struct slot *slot, size_t index) {
    struct outcome wanted = slot->kind->wanted;
    if (slot->got.finish == KVAD_FINISH_CANCELLED || slot->got.finish == KVAD_FINISH_NONE) {
        assert_true(slot->got.finish == KVAD_FINISH_NONE || slot->is_cancelled);
        assert_true(slot->got.n_rows <= wanted.n_rows);
        wanted.n_ids = slot->got.n_ids;
        wanted.n_rows = slot->got.n_rows;
        wanted.finish = slot->got.finish;
    } else if (slot->max_tokens < wanted.n_ids) {
        wanted.n_ids = wanted.n_rows = slot->max_tokens;
        wanted.finish = KVAD_FINISH_LENGTH;
    }
    assert_same_outcome(&slot->got, &wanted, label("slot %zu", index));
}

static void end_request(struct slot *slot, size_t index) {
    check_slot(slot, index);
    kvad_request_destroy(&slot->request);
    outcome_free(&slot->got);
}

static void read_slot(size_t index) {
    struct slot *slot = &world.slots[index];
    if (!slot->request || !take_events(slot->request, &slot->got)) return;
    world.n_done++;
    world.n_cancelled += slot->got.finish == KVAD_FINISH_CANCELLED;
    end_request(slot, index);
}

static void step(void) {
    if (below(4) == 0) kvad_engine_poison_cache(world.engine, KVAD_POISON_KV, NAN);
    if (below(20) == 0) {
        kvad_engine_interrupt(world.engine);
        assert_int_equal(kvad_engine_step(world.engine, NULL, NULL), KVAD_ERR_CANCELLED);
        happened.n_interrupts++;
    }
    step_engine(world.engine);
}

/* A sequence outside of requests: at most two blocks, and what it holds is compared. */
static void use_sequence(size_t index) {
    struct kvad_sequence **user = &world.users[index], **other = &world.users[1 - index];
    size_t length = *user ? kvad_sequence_length(*user) : 0;
    if (!*user) {
        if (*other && below(2))
            happened.n_forks += kvad_sequence_fork(*other, user, NULL) == KVAD_OK &&
                                kvad_sequence_length(*other) > 0;
        else
            (void)kvad_sequence_create(world.engine, user, NULL);
        return;
    }
    switch (below(4)) {
    case 0: kvad_sequence_destroy(user); return;
    case 1:
        cut(*user, below(length + 1));
        happened.n_cuts += kvad_sequence_length(*user) < length;
        break;
    default: {
        size_t n = kvad_min_size(1 + below(9), 20 - length);
        struct kvad_eval_item item = {
            .sequence = *user, .tokens = world.text->tokens + length, .n_tokens = n};
        if (n > 0) (void)kvad_eval(world.engine, &item, 1, NULL); /* may find the pool full */
    }
    }
    assert_cache(world.text, *user, "outside");
}

static size_t count_pins(void) {
    size_t n = 0;
    for (const struct kvad_cache_pin *pin = world.engine->pins; pin; pin = pin->next)
        n++;
    return n;
}

static void pin_something(void) {
    const struct kind *kind = &world.kinds[below(N_KINDS)];
    uint64_t id;
    size_t n_pinned;
    struct kvad_error err;
    size_t n_before = count_pins();
    if (below(2)) kvad_cache_unpin(world.engine, 1 + below(world.engine->n_pins + 1));
    happened.n_unpins += count_pins() < n_before;
    assert_ok(kvad_cache_pin(world.engine, kind->prompt, kind->n_prompt, NULL, below(2), &id,
                             &n_pinned, &err),
              &err);
    happened.n_pins += n_pinned > 0;
}

static void do_something(bool has_users) {
    size_t index = below(N_SLOTS);
    struct slot *slot = &world.slots[index];
    switch (below(16)) {
    case 0:
    case 1:
    case 2:
        if (!slot->request) start_request(slot);
        break;
    case 3:
    case 4:
    case 5: read_slot(index); break;
    case 6:
        if (!slot->request || below(4)) break;
        kvad_request_cancel(slot->request);
        slot->is_cancelled = true;
        break;
    case 7:
        if (!slot->request || below(6)) break;
        kvad_request_destroy(&slot->request);
        outcome_free(&slot->got);
        break;
    case 8:
        if (below(12) == 0) kvad_cache_clear(world.engine);
        if (below(3) == 0) pin_something();
        break;
    case 9:
    case 10:
        if (has_users)
            use_sequence(below(N_USERS));
        else
            step();
        break;
    default: step();
    }
}

/* Every reference of a block has its holder. */
static void check_engine(void) {
    const struct kvad_engine *e = world.engine;
    uint32_t n_holders[64] = {0};
    assert_true(e->pool.n_blocks <= 64);
    for (const struct kvad_sequence *s = e->sequences; s; s = s->next)
        for (size_t i = 0; i < s->kv.n_blocks; i++)
            n_holders[s->kv.table[i]]++;
    for (const struct kvad_cache_pin *pin = e->pins; pin; pin = pin->next)
        for (size_t i = 0; i < pin->n_blocks; i++)
            n_holders[pin->blocks[i]]++;
    for (size_t i = 0; i < e->pool.n_blocks; i++)
        assert_int_equal(e->pool.states[i].references, n_holders[i]);
    assert_true(kvad_kv_pool_is_sound(&e->pool));
    if (e->prefix.heap) assert_true(kvad_prefix_is_sound(&e->prefix));
}

static void finish_all(void) {
    for (size_t i = 0; i < N_USERS; i++)
        kvad_sequence_destroy(&world.users[i]);
    size_t n_steps = 0, n_active = 1;
    while (n_active > 0) {
        n_active = step_engine(world.engine);
        for (size_t i = 0; i < N_SLOTS; i++)
            read_slot(i);
        assert_true(n_steps++ < N_SLOTS * (MAX_OUTPUT + N_CTX));
    }
    for (size_t i = 0; i < N_SLOTS; i++)
        assert_null(world.slots[i].request);
}

static uint64_t constant_hash(const void *data, size_t size, uint64_t seed) {
    (void)data;
    (void)size;
    (void)seed;
    return 3;
}

struct setting {
    size_t n_blocks;
    uint32_t block_tokens, n_sequences, n_batch_tokens;
    unsigned n_threads;
    bool has_users, has_constant_hash;
};

static void run(const struct setting *setting, size_t n_operations, uint64_t seed) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, setting->n_threads);
    options.n_sequences = setting->n_sequences;
    options.n_batch_tokens = setting->n_batch_tokens;
    options.block_tokens = setting->block_tokens;
    options.kv_bytes = setting->n_blocks * setting->block_tokens * tiny_token_bytes(&tiny_odd);
    world.engine = open_engine(world.text->model, &options);
    if (setting->has_constant_hash) world.engine->prefix.hash = constant_hash;
    world.random = (struct test_random){seed};
    world.n_done = world.n_cancelled = 0;
    for (size_t i = 0; i < n_operations; i++) {
        do_something(setting->has_users);
        check_engine();
    }
    finish_all();
    const struct kvad_cache_counters *c = &world.engine->counters;
    print_message("seed %llu, %zu blocks: %zu requests, %zu cancelled, %llu of %llu prompt tokens "
                  "found, %llu preemptions, %llu evictions, %llu copies\n",
                  (unsigned long long)seed, setting->n_blocks, world.n_done, world.n_cancelled,
                  (unsigned long long)c->n_hit_tokens, (unsigned long long)c->n_prompt_tokens,
                  (unsigned long long)c->n_preemptions,
                  (unsigned long long)world.engine->pool.n_evictions,
                  (unsigned long long)world.engine->pool.n_copies);
    assert_true(world.n_done > n_operations / 100 && c->n_hit_tokens > 0);
    happened.n_cancels += world.n_cancelled;
    happened.n_preemptions += c->n_preemptions;
    happened.n_evictions += world.engine->pool.n_evictions;
    happened.n_copies += world.engine->pool.n_copies;
    while (world.engine->pins)
        kvad_cache_unpin(world.engine, world.engine->pins->id);
    kvad_cache_clear(world.engine);
    assert_int_equal(world.engine->pool.n_free, world.engine->pool.n_blocks);
    close_engine(&world.engine);
}

static const struct setting settings[] = {
    {.n_blocks = 4, .block_tokens = 16, .n_sequences = 3, .n_batch_tokens = 8, .n_threads = 1},
    {.n_blocks = 5, .block_tokens = 16, .n_sequences = 9, .n_batch_tokens = 64, .n_threads = 2},
    {.n_blocks = 10,
     .block_tokens = 16,
     .n_sequences = 7,
     .n_batch_tokens = 16,
     .n_threads = 1,
     .has_users = true},
    {.n_blocks = 24,
     .block_tokens = 16,
     .n_sequences = 6,
     .n_batch_tokens = 512,
     .n_threads = 3,
     .has_users = true},
    {.n_blocks = 12,
     .block_tokens = 16,
     .n_sequences = 5,
     .n_batch_tokens = 32,
     .n_threads = 1,
     .has_constant_hash = true},
    {.n_blocks = 5,
     .block_tokens = 32,
     .n_sequences = 6,
     .n_batch_tokens = 24,
     .n_threads = 2,
     .has_users = true},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static size_t n_operations = 7200;
static uint64_t first_seed = 1;

/* bugs.md MEM-1, MEM-2, MEM-3, SHARE-1, SHARE-7, SHARE-8, SHARE-19, SHARE-20, EVICT-1, EVICT-9,
 * EVICT-10, BATCH-1, BATCH-4, BATCH-7, DET-1, DET-2 */
static void test_random_operations_change_no_answer_and_lose_no_block(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SETTINGS; i++)
        run(&settings[i], n_operations / N_SETTINGS + 1, first_seed + i);
    print_message("in all: %llu forks and %llu cuts outside of requests, %llu pins, %llu unpins\n",
                  (unsigned long long)happened.n_forks, (unsigned long long)happened.n_cuts,
                  (unsigned long long)happened.n_pins, (unsigned long long)happened.n_unpins);
    /* A run in which something never happens says nothing about it. */
    assert_true(happened.n_cancels > 0 && happened.n_interrupts > 0);
    assert_true(happened.n_forks > 0 && happened.n_cuts > 0 && happened.n_copies > 0);
    assert_true(happened.n_pins > 0 && happened.n_unpins > 0);
    assert_true(happened.n_preemptions > 0 && happened.n_evictions > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) n_operations = strtoull(argv[1], NULL, 10);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_change_no_answer_and_lose_no_block),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
