/* Random numbers and draws: known answers, distribution, independence of everything but the seed,
 * the sample and the output index, and the same bits everywhere. */
#include <math.h>

#include "base/compiler.h"
#include "base/fp_state.h"
#include "random.h"
#include "sampling.h"
#include "sampling/philox.h"

static void test_philox_gives_its_authors_known_answers(void **state) {
    (void)state;
    static const struct {
        struct kvad_philox counter;
        uint64_t key;
        struct kvad_philox wanted;
    } cases[] = {
        {{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         UINT64_MAX,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         UINT64_C(0x299f31d0a4093822),
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct kvad_philox got = kvad_philox4x32(cases[i].counter, cases[i].key);
        assert_memory_equal(&got, &cases[i].wanted, sizeof got);
    }
}

static void test_uniform_numbers_fill_the_interval(void **state) {
    (void)state;
    enum { BINS = 64, DRAWS = 64000 };
    size_t bins[BINS] = {0};
    for (uint64_t i = 0; i < DRAWS; ++i) {
        double u = kvad_uniform(1, 0, i);
        assert_true(u >= 0 && u < 1);
        ++bins[(size_t)(u * BINS)];
    }
    double chi = 0;
    for (int i = 0; i < BINS; ++i)
        chi += pow((double)bins[i] - DRAWS / BINS, 2) / (DRAWS / BINS);
    assert_true(chi < 104); /* 63 degrees of freedom: exceeded once in a thousand seeds */
}

static void test_draws_follow_the_probabilities(void **state) {
    (void)state;
    enum { N = 12, DRAWS = 60000 };
    const float logits[N] = {0, -1, 2, 1.5f, -3, 0.2f, 1, -0.7f, 2.2f, -2, 0.9f, 1.1f};
    struct kvad_sampler_options options = neutral();
    options.temperature = 0.9;
    options.top_p = 0.97;
    options.seed = 11;
    double p[N];
    probabilities_of(&options, logits, N, p);
    struct kvad_sampler *sampler = make_sampler(&options, N);
    size_t seen[N] = {0};
    for (uint64_t i = 0; i < DRAWS; ++i)
        ++seen[draw_at(sampler, logits, i)];
    kvad_sampler_destroy(&sampler);
    double chi = 0;
    for (int i = 0; i < N; ++i) {
        if (p[i] == 0) assert_int_equal(seen[i], 0);
        if (p[i] > 0) chi += pow((double)seen[i] - p[i] * DRAWS, 2) / (p[i] * DRAWS);
    }
    assert_true(chi < 31.3); /* 11 degrees of freedom, once in a thousand seeds */
}

static void fill_row(float *logits, size_t n, uint64_t seed) {
    struct test_random random = {seed};
    for (size_t i = 0; i < n; ++i)
        logits[i] = (float)(random_unit(&random) * 4);
}

/* The same sampler asked out of turn, twice, and beside others, draws the same. bugs.md DET-1,
 * DET-2 */
static void test_draw_depends_on_seed_sample_and_index_alone(void **state) {
    (void)state;
    enum { N = 100, STEPS = 50 };
    float rows[STEPS][N], noise[N];
    for (size_t s = 0; s < STEPS; ++s)
        fill_row(rows[s], N, s + 1);
    fill_row(noise, N, 999);
    struct kvad_sampler_options options = neutral(), other = neutral();
    options.seed = 42;
    other.temperature = 2;
    struct kvad_sampler *sampler = make_sampler(&options, N);
    struct kvad_sampler *neighbour = make_sampler(&other, N);
    int32_t alone[STEPS];
    for (size_t s = 0; s < STEPS; ++s)
        alone[s] = draw_at(sampler, rows[s], s);
    for (size_t s = STEPS; s-- > 0;) { /* backwards, with other draws between */
        (void)draw_at(neighbour, noise, s);
        (void)draw_at(sampler, noise, s * 7);
        assert_int_equal(draw_at(sampler, rows[s], s), alone[s]);
    }
    struct kvad_sampler *again = make_sampler(&options, N); /* a second request, the same seed */
    for (size_t s = 0; s < STEPS; ++s)
        assert_int_equal(draw_at(again, rows[s], s), alone[s]);
    kvad_sampler_destroy(&again);
    kvad_sampler_destroy(&neighbour);
    kvad_sampler_destroy(&sampler);
}

/* bugs.md SAMP-15 */
static void test_samples_of_one_seed_are_different_streams(void **state) {
    (void)state;
    enum { N = 50, STEPS = 40, SAMPLES = 4 };
    float logits[N];
    fill_row(logits, N, 3);
    int32_t ids[SAMPLES][STEPS];
    for (size_t i = 0; i < SAMPLES; ++i) {
        size_t sample = SAMPLES - 1 - i; /* the order of creation does not matter */
        struct kvad_sampler_options options = neutral();
        options.seed = 1;
        options.sample_index = sample;
        struct kvad_sampler *sampler = make_sampler(&options, N);
        for (uint64_t s = 0; s < STEPS; ++s)
            ids[sample][s] = draw_at(sampler, logits, s);
        kvad_sampler_destroy(&sampler);
    }
    for (size_t a = 0; a < SAMPLES; ++a)
        for (size_t b = a + 1; b < SAMPLES; ++b)
            assert_memory_not_equal(ids[a], ids[b], sizeof ids[a]);
    struct kvad_sampler_options options = neutral();
    options.seed = 1;
    struct kvad_sampler *sampler = make_sampler(&options, N); /* sample 0 alone, as in n = 1 */
    for (uint64_t s = 0; s < STEPS; ++s)
        assert_int_equal(draw_at(sampler, logits, s), ids[0][s]);
    kvad_sampler_destroy(&sampler);
}

/* ---------------------------------------------------------------- the same bits everywhere */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) /* FNV-1a */
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

enum { N_SETTINGS = 64, HASH_VOCAB = 777 };
static float hash_logits[N_SETTINGS][HASH_VOCAB];
static int32_t hash_history[100];

static int fill_hash_input(void **state) {
    (void)state;
    struct test_random random = {5};
    for (int i = 0; i < 100; ++i)
        hash_history[i] = (int32_t)random_below(&random, HASH_VOCAB);
    for (int s = 0; s < N_SETTINGS; ++s)
        for (int i = 0; i < HASH_VOCAB; ++i)
            hash_logits[s][i] = (float)(random_unit(&random) * 20);
    return 0;
}

/* Probabilities and draws of many settings, as one number. */
static uint64_t hash_of_many(void) {
    double p[HASH_VOCAB];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (unsigned setting = 0; setting < N_SETTINGS; ++setting) {
        const float *logits = hash_logits[setting];
        struct kvad_sampler_options options = neutral();
        options.seed = setting;
        if (setting & 1) options.temperature = 0.8;
        if (setting & 2) options.top_k = 200;
        if (setting & 4) options.top_p = 0.92;
        if (setting & 8) options.repetition_penalty = 1.15;
        if (setting & 16) options.typical_p = 0.85;
        if (setting & 32) options.min_p = 0.0005;
        struct kvad_sampler *sampler = make_sampler(&options, HASH_VOCAB);
        struct kvad_error err;
        assert_ok(kvad_sampler_probabilities(sampler, logits, hash_history, 100, NULL, 0, p, &err),
                  &err);
        hash = hash_bytes(hash, p, sizeof p);
        for (uint64_t i = 0; i < 20; ++i) {
            int32_t token;
            assert_ok(
                kvad_sampler_draw(sampler, logits, hash_history, 100, NULL, 0, i, &token, &err),
                &err);
            hash = hash_bytes(hash, &token, sizeof token);
        }
        kvad_sampler_destroy(&sampler);
    }
    return hash;
}

/* A constant, so that compilers, C libraries and CPUs are compared with each other. Every byte
 * order that kvad runs on is little-endian. */
static const uint64_t hash_everywhere = UINT64_C(0x883d5daa9b6738a7);

static void test_bits_are_those_of_every_other_machine(void **state) {
    (void)state;
    uint64_t hash = hash_of_many();
    if (hash != hash_everywhere) print_error("hash is 0x%016llx\n", (unsigned long long)hash);
    assert_true(hash == hash_everywhere);
}

static void test_bits_do_not_depend_on_the_hosts_rounding(void **state) {
    (void)state;
    struct kvad_fp_state host = kvad_fp_enter();
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0xc040u | 0x2000u); /* FTZ, DAZ, round up or down */
#elif defined(__aarch64__)
    kvad_fpcr_write(kvad_fpcr_read() | UINT64_C(1) << 24 | UINT64_C(1) << 22);
#endif
    uint64_t hash = hash_of_many();
    kvad_fp_leave(host);
    assert_true(hash == hash_everywhere);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_its_authors_known_answers),
        cmocka_unit_test(test_uniform_numbers_fill_the_interval),
        cmocka_unit_test(test_draws_follow_the_probabilities),
        cmocka_unit_test(test_draw_depends_on_seed_sample_and_index_alone),
        cmocka_unit_test(test_samples_of_one_seed_are_different_streams),
        cmocka_unit_test(test_bits_are_those_of_every_other_machine),
        cmocka_unit_test(test_bits_do_not_depend_on_the_hosts_rounding),
    };
    return cmocka_run_group_tests(tests, fill_hash_input, NULL);
}
