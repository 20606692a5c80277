/* Would 64 cores have work? Counts the units of each part of a decode step of GPT-2 124M for 1 to
 * 64 workers: the busiest worker's share against an even one. (Whether the cuts change a bit is
 * tested with real threads in tests/property.) */
#include "model/forward_internal.h"
#include "test.h"

struct part {
    const char *name;
    size_t n_outputs, n_inputs; /* of a linear; n_inputs 0: attention */
};

static const struct part parts[] = {{"qkv", 2304, 768},  {"out", 768, 768},    {"up", 3072, 768},
                                    {"down", 768, 3072}, {"head", 50257, 768}, {"attention", 0, 0}};
enum { N_PARTS = 6, N_HEADS = 12, N_CHUNKS = 4 };

static size_t largest_part(size_t n, unsigned count) {
    size_t largest = 0, first, last;
    for (unsigned i = 0; i < count; i++) {
        forward_part(n, i, count, &first, &last);
        if (last - first > largest) largest = last - first;
    }
    return largest;
}

/* Units that the part is cut into for so many workers. */
static size_t units_of(const struct part *part, unsigned count) {
    if (part->n_inputs == 0) {
        bool splits = forward_splits_attention(1, N_HEADS, N_CHUNKS, count);
        return splits ? N_HEADS * N_CHUNKS : N_HEADS;
    }
    size_t n_panels = (part->n_outputs + KVAD_PANEL - 1) / KVAD_PANEL;
    bool splits = forward_splits_linear(1, n_panels, part->n_inputs, count);
    return splits ? n_panels * (part->n_inputs / KVAD_SEGMENT) : n_panels;
}

/* 1: all workers have the same; 2: the busiest has twice its share. */
static double imbalance(const struct part *part, unsigned count) {
    size_t n = units_of(part, count);
    return (double)largest_part(n, count) * count / (double)n;
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

/* Each linear alone is even. Attention has 48 units at 1000 tokens, so with 33 and more workers
 * some have two and others one or none: it is an eighth of the bytes. */
static void test_up_to_64_workers_have_an_even_share_of_a_decode_step(void **state) {
    (void)state;
    print_message("workers  units and imbalance of qkv, out, up, down, head, attention at 1000\n");
    for (unsigned count = 1; count <= 64; count++) {
        double busiest = 0, even = 0;
        bool is_printed = (count & (count - 1)) == 0;
        if (is_printed) print_message("%7u ", count);
        for (size_t i = 0; i < N_PARTS; i++) {
            const struct part *part = &parts[i];
            double bytes = part->n_inputs ? (double)part->n_outputs * (double)part->n_inputs * 4
                                          : 1000.0 * 768 * 2 * 4;
            if (i != 4) bytes *= 12; /* layers */
            busiest += bytes * imbalance(part, count);
            even += bytes;
            if (part->n_inputs) assert_true(imbalance(part, count) <= 1.2);
            if (is_printed)
                print_message(" %5zu %.2f", units_of(part, count), imbalance(part, count));
        }
        if (is_printed) print_message("   whole step %.3f\n", busiest / even);
        assert_true(busiest / even <= 1.2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_cover_everything_once),
        cmocka_unit_test(test_up_to_64_workers_have_an_even_share_of_a_decode_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
