/* Checks of what happens to a sequence besides growing: going back, neighbours, forks, and memory
 * that holds anything. */
#include "lab/verify_internal.h"

/* ---------------------------------------------------------------- batches */

/* All sequences of the rig to their ends, in steps whose sizes and order are drawn. */
static bool run_batch(struct verify_rig *rig, unsigned round) {
    const struct kvad_verify *v = rig->run->v;
    static const size_t sizes[] = {1, 1, 3, 16, 1, 18, 2};
    static const size_t orders[][VERIFY_SEQUENCES] = {{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 3, 1, 0}};
    for (size_t step = 0;; step++) {
        size_t counts[VERIFY_SEQUENCES], total = 0;
        for (size_t i = 0; i < rig->n; i++) {
            size_t left = v->n - verify_rig_length(rig, i);
            /* Sometimes a sequence rests, so that they stand at different lengths. */
            size_t draw = verify_random(v, 100 + round, 8 * step + i, 8);
            counts[i] = draw < 7 ? kvad_min_size(sizes[draw], left) : 0;
            total += left;
        }
        if (total == 0) return true;
        if (!verify_rig_step(rig, counts, orders[(step + round) % 3])) return false;
    }
}

bool verify_batch(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    /* Texts of different beginnings, so that a row of another slot shows. */
    static const size_t texts[][VERIFY_SEQUENCES] = {{0, 4, 1, 5}, {5, 0, 4, 3}};
    unsigned n_rounds = v->is_large ? 1 : 2;
    for (size_t i = 0; i < VERIFY_TEXTS; i++)
        if (!verify_expect(run, i)) return false;
    for (unsigned round = 0; round < n_rounds; round++) {
        struct kvad_engine_options options =
            verify_engine_options(v, KVAD_CACHE_PAGED, VERIFY_SEQUENCES);
        struct verify_rig rig = {.run = run};
        bool ok = verify_case(run, "%d texts at once, round %u", VERIFY_SEQUENCES, round + 1) &&
                  verify_rig_open(run, &rig, &options, VERIFY_SEQUENCES);
        for (size_t i = 0; ok && i < VERIFY_SEQUENCES; i++)
            ok = verify_rig_restart(&rig, i, &v->texts[texts[round][i]]);
        ok = ok && run_batch(&rig, round);
        /* A slot that is used again holds nothing of the one before. */
        ok = ok && verify_case(run, "a slot used again") &&
             verify_rig_restart(&rig, 1, &v->texts[2]) && verify_rig_feed(&rig, 1, v->n);
        verify_rig_close(&rig);
        if (!ok) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- rollback */

/* From text 0 at `length`: some tokens of another text, back, and on as if nothing had been. */
static bool detour(struct verify_rig *rig, size_t length, size_t index) {
    const struct kvad_verify *v = rig->run->v;
    const struct verify_text *other = &v->texts[4];
    size_t left = v->n - length;
    size_t n_there = 1 + verify_random(v, 201, index, kvad_min_size(left, 34));
    size_t n_back = 1 + verify_random(v, 202, index, kvad_min_size(left, 4));
    return verify_rig_append(rig, 0, other, n_there, NULL) && verify_rig_truncate(rig, 0, length) &&
           verify_rig_feed(rig, 0, n_back);
}

static bool roll_back_to(struct verify_rig *rig, size_t length, size_t index) {
    const char *policy = kvad_cache_policy_name(rig->engine->cache);
    if (!verify_case(rig->run, "%s, back to %zu", policy, length)) return false;
    size_t now = verify_rig_length(rig, 0);
    bool ok = now > length ? verify_rig_truncate(rig, 0, length) : true;
    if (ok && now < length) ok = verify_rig_feed(rig, 0, length - now);
    return ok && detour(rig, length, index);
}

bool verify_rollback(struct verify_run *run) {
    const struct kvad_verify *v = run->v;
    static const enum kvad_cache_policy policies[] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                      KVAD_CACHE_GROW};
    static const size_t edges[] = {16, 15, 17, 1, 32, 0, 33, 31, 255, 256, 257};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    bool is_full = v->options.level == KVAD_VERIFY_FULL;
    size_t n_drawn = is_full && !v->is_large ? v->n : v->is_large ? 4 : 24;
    for (size_t p = 0; p < 3; p++) {
        struct kvad_engine_options options = verify_engine_options(v, policies[p], 1);
        struct verify_rig rig = {.run = run};
        bool ok = verify_rig_open(run, &rig, &options, 1);
        for (size_t i = 0; ok && i < N_EDGES; i++)
            if (edges[i] < v->n) ok = roll_back_to(&rig, edges[i], i);
        for (size_t i = 0; ok && i < n_drawn; i++) {
            /* All lengths, from both ends in turn. */
            size_t in_turn = i % 2 ? v->n - 1 - i / 2 : i / 2;
            size_t length = is_full ? in_turn : verify_random(v, 200, i, v->n);
            ok = roll_back_to(&rig, length, N_EDGES + i);
        }
        verify_rig_close(&rig);
        if (!ok) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- poison */

/* Another text fills the blocks that this one will get, and is gone. */
static bool use_and_free(struct verify_rig *rig, size_t text) {
    const struct kvad_verify *v = rig->run->v;
    return verify_rig_restart(rig, 0, &v->texts[text]) && verify_rig_feed(rig, 0, v->n) &&
           verify_rig_restart(rig, 0, &v->texts[0]);
}

/* Back to where another text parts from this one, and on with that. */
static bool part_ways(struct verify_rig *rig) {
    struct kvad_verify *v = rig->run->v;
    size_t length = kvad_min_size(v->texts[1].n_common, v->n / 3);
    rig->texts[0] = &v->texts[1];
    return verify_rig_truncate(rig, 0, length) &&
           verify_rig_walk(rig, verify_walk, VERIFY_WALK, kvad_min_size(v->n, length + 40));
}

bool verify_poison(struct verify_run *run) {
    const struct kvad_verify *v = run->v;
    static const enum kvad_cache_policy policies[] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                      KVAD_CACHE_GROW};
    if (!verify_expect(run, 1) || !verify_expect(run, 4)) return false;
    for (size_t p = 0; p < 3; p++) {
        const char *name = kvad_cache_policy_name(policies[p]);
        struct kvad_engine_options options = verify_engine_options(v, policies[p], 1);
        struct verify_rig rig = {.run = run};
        bool ok = verify_case(run, "%s, NaN in all that is unused", name) &&
                  verify_rig_open(run, &rig, &options, 1);
        rig.poisons = true;
        ok = ok && verify_rig_walk(&rig, verify_walk, VERIFY_WALK, v->n);
        ok = ok && verify_case(run, "%s, NaN behind a truncation", name) && part_ways(&rig);
        ok = ok && verify_case(run, "%s, memory of another text used again", name) &&
             use_and_free(&rig, 4);
        rig.poisons = false;
        ok = ok && verify_rig_walk(&rig, verify_walk, VERIFY_WALK, kvad_min_size(v->n, 60));
        verify_rig_close(&rig);
        if (!ok) return false;
    }
    return true;
}
