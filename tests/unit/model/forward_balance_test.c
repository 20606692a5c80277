/* Would 64 cores have work? Counts the units of each part of a step of the GPT-2 sizes for 1 to 64
 * workers: the busiest worker's share against an even one. (Whether the cuts change a bit is tested
 * with real threads in tests/property.) */
#include <string.h>

#include "model/forward_internal.h"
#include "test.h"

static const struct size {
    const char *name;
    size_t n_layers, n_heads, d;
} sizes[] = {{"gpt2", 12, 12, 768},
             {"gpt2-medium", 24, 16, 1024},
             {"gpt2-large", 36, 20, 1280},
             {"gpt2-xl", 48, 25, 1600}};
enum { N_SIZES = 4, N_PARTS = 6, N_VOCAB = 50257, CONTEXT = 1000, PROMPT = 512, MAX_WORKERS = 64 };

/* A part of a step, in one layer; `times` in the whole step. */
struct part {
    const char *name;
    size_t n_outputs, n_inputs; /* of a linear; n_inputs 0: attention */
    size_t times, n_rows;
};

static void parts_of(const struct size *size, size_t n_rows, struct part parts[N_PARTS]) {
    size_t d = size->d, n = size->n_layers;
    const struct part all[N_PARTS] = {{"qkv", 3 * d, d, n, n_rows},
                                      {"out", d, d, n, n_rows},
                                      {"up", 4 * d, d, n, n_rows},
                                      {"down", d, 4 * d, n, n_rows},
                                      {"head", N_VOCAB, d, 1, 1 /* the last row's */},
                                      {"attention", 0, 0, n, n_rows}};
    memcpy(parts, all, sizeof all);
}

static size_t largest_part(size_t n, unsigned count) {
    size_t largest = 0, first, last;
    for (unsigned i = 0; i < count; i++) {
        forward_part(n, i, count, &first, &last);
        if (last - first > largest) largest = last - first;
    }
    return largest;
}

/* Units that the part is cut into for so many workers. */
static size_t units_of(const struct size *size, const struct part *part, unsigned count) {
    if (part->n_inputs == 0) {
        size_t n = size->n_heads * ((part->n_rows + KVAD_KV_TILE - 1) / KVAD_KV_TILE);
        size_t n_chunks = (CONTEXT + KVAD_CHUNK - 1) / KVAD_CHUNK;
        return forward_splits_attention(part->n_rows, n, n_chunks, count) ? n * n_chunks : n;
    }
    size_t n_panels = (part->n_outputs + KVAD_PANEL - 1) / KVAD_PANEL;
    bool splits = forward_splits_linear(part->n_rows, n_panels, part->n_inputs, count);
    return splits ? n_panels * ((part->n_inputs + KVAD_SEGMENT - 1) / KVAD_SEGMENT) : n_panels;
}

/* 1: all workers have the same; 2: the busiest has twice its share. */
static double imbalance(const struct size *size, const struct part *part, unsigned count) {
    size_t n = units_of(size, part, count);
    return (double)largest_part(n, count) * count / (double)n;
}

/* Bytes of a step of one row, operations of one of many: what its parts take. */
static double cost_of(const struct size *size, const struct part *part) {
    double n_rows = (double)part->n_rows, d = (double)size->d;
    double seen = part->n_rows == 1 ? CONTEXT : n_rows / 2; /* tokens that a row sees */
    double one = part->n_inputs ? (double)part->n_outputs * (double)part->n_inputs : 2 * seen * d;
    return one * n_rows * (double)part->times;
}

/* Of a step of `n_rows`, for so many workers. */
static double step_imbalance(const struct size *size, size_t n_rows, unsigned count) {
    struct part parts[N_PARTS];
    double busiest = 0, even = 0;
    parts_of(size, n_rows, parts);
    for (size_t i = 0; i < N_PARTS; i++) {
        busiest += cost_of(size, &parts[i]) * imbalance(size, &parts[i], count);
        even += cost_of(size, &parts[i]);
    }
    return busiest / even;
}

static void print_units(const struct size *size, size_t n_rows) {
    struct part parts[N_PARTS];
    parts_of(size, n_rows, parts);
    print_message("%s, %zu rows: units and imbalance of qkv, out, up, down, head, attention\n",
                  size->name, n_rows);
    for (unsigned count = 1; count <= MAX_WORKERS; count *= 2) {
        print_message("%7u ", count);
        for (size_t i = 0; i < N_PARTS; i++)
            print_message(" %5zu %.2f", units_of(size, &parts[i], count),
                          imbalance(size, &parts[i], count));
        print_message("   whole step %.3f\n", step_imbalance(size, n_rows, count));
    }
}

/* The largest of 1 to 64 workers, and whose it is. */
static double worst(const struct size *size, size_t n_rows, unsigned *at) {
    double most = 0;
    for (unsigned count = 1; count <= MAX_WORKERS; count++) {
        double here = step_imbalance(size, n_rows, count);
        if (here <= most) continue;
        most = here;
        *at = count;
    }
    return most;
}

static void test_parts_cover_everything_once(void **state) {
    (void)state;
    for (size_t n = 0; n < 70; n++)
        for (unsigned count = 1; count <= 64; count++) {
            size_t expected = 0, first, last;
            for (unsigned i = 0; i < count; i++) {
                forward_part(n, i, count, &first, &last);
                assert_int_equal(first, expected);
                assert_true(last >= first);
                expected = last;
            }
            assert_int_equal(expected, n);
        }
}

/* Each linear alone is even. Attention of GPT-2 124M has 48 units at 1000 tokens, so with 33 and
 * more workers some have two and others one or none: it is an eighth of the bytes. */
static void test_up_to_64_workers_have_an_even_share_of_a_decode_step(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        struct part parts[N_PARTS];
        unsigned at = 0;
        parts_of(&sizes[i], 1, parts);
        for (unsigned count = 1; count <= MAX_WORKERS; count++)
            for (size_t p = 0; p < N_PARTS; p++)
                if (parts[p].n_inputs) assert_true(imbalance(&sizes[i], &parts[p], count) <= 1.2);
        print_units(&sizes[i], 1);
        double most = worst(&sizes[i], 1, &at);
        print_message("at most %.3f, with %u workers\n", most, at);
        assert_true(most <= 1.2);
    }
}

/* Linears of many rows are cut into panels alone. GPT-2 124M has 48 of them in out and down: 16
 * workers and fewer have nearly the same; 47 have one or two, so that some wait for a third of the
 * step. */
static void test_up_to_16_workers_have_an_even_share_of_a_prompt(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        unsigned at = 0;
        for (unsigned count = 1; count <= 16; count++)
            assert_true(step_imbalance(&sizes[i], PROMPT, count) <= 1.2);
        print_units(&sizes[i], PROMPT);
        double most = worst(&sizes[i], PROMPT, &at);
        print_message("at most %.3f, with %u workers\n", most, at);
        assert_true(most <= 1.6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_cover_everything_once),
        cmocka_unit_test(test_up_to_64_workers_have_an_even_share_of_a_decode_step),
        cmocka_unit_test(test_up_to_16_workers_have_an_even_share_of_a_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
