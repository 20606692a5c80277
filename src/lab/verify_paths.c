/* Checks that walk one text in different ways: how it is cut, where its rows lie, who computes. */
#include <stdio.h>

#include "lab/verify_internal.h"

static bool walk(struct verify_run *run, const struct kvad_engine_options *options,
                 const size_t *sizes, size_t n_sizes, size_t length) {
    struct verify_rig rig = {.run = run};
    bool ok = verify_rig_open(run, &rig, options, 1) &&
              verify_rig_walk(&rig, sizes, n_sizes, kvad_min_size(length, run->v->n));
    verify_rig_close(&rig);
    return ok;
}

/* ---------------------------------------------------------------- with the cache and without */

/* The last row of the window of `length` tokens, computed anew. */
static bool check_window(struct verify_rig *rig, size_t length) {
    if (!verify_case(rig->run, "a window of %zu tokens without a cache", length)) return false;
    return verify_rig_truncate(rig, 0, 0) && verify_rig_feed(rig, 0, length);
}

static bool check_windows(struct verify_run *run, struct verify_rig *rig) {
    const struct kvad_verify *v = run->v;
    static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 64, 255, 256, 257};
    bool is_full = v->options.level == KVAD_VERIFY_FULL && !v->is_large;
    for (size_t n = 1; n < v->n; n++) {
        bool is_listed = is_full;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            is_listed |= n == lengths[i];
        if (is_listed && !check_window(rig, n)) return false;
    }
    return true;
}

bool verify_cached(struct verify_run *run) {
    static const size_t one[] = {1};
    struct kvad_engine_options options = verify_engine_options(run->v, KVAD_CACHE_PAGED, 1);
    if (!verify_case(run, "one token at a time with the cache") ||
        !walk(run, &options, one, 1, run->v->n))
        return false;
    struct verify_rig rig = {.run = run};
    options = verify_engine_options(run->v, KVAD_CACHE_NONE, 1);
    bool ok = verify_rig_open(run, &rig, &options, 1) && check_windows(run, &rig);
    verify_rig_close(&rig);
    return ok;
}

/* ---------------------------------------------------------------- chunks */

bool verify_chunks(struct verify_run *run) {
    const struct kvad_verify *v = run->v;
    const size_t sizes[] = {1, 2, 3, 7, 16, 17, v->n};
    if (v->n < 2) return verify_skip(run, "the context of the model is one token");
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_PAGED, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!verify_case(run, "chunks of %zu", sizes[i]) ||
            !walk(run, &options, &sizes[i], 1, v->n))
            return false;
    }
    /* The same text in slices of a step that holds fewer rows than the chunk has. */
    options.n_batch_tokens = 7;
    return verify_case(run, "all at once in steps of 7 rows") &&
           walk(run, &options, &v->n, 1, v->n) && verify_case(run, "mixed chunks in steps of 7") &&
           walk(run, &options, verify_walk, VERIFY_WALK, v->n);
}

/* ---------------------------------------------------------------- policies, blocks */

bool verify_policies(struct verify_run *run) {
    static const enum kvad_cache_policy policies[] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                      KVAD_CACHE_GROW, KVAD_CACHE_NONE};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        struct kvad_engine_options options = verify_engine_options(run->v, policies[i], 1);
        if (!verify_case(run, "%s", kvad_cache_policy_name(policies[i])) ||
            !walk(run, &options, verify_walk, VERIFY_WALK, run->v->n))
            return false;
    }
    return true;
}

bool verify_blocks(struct verify_run *run) {
    static const uint32_t sizes[] = {16, 32, 64, 128, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kvad_engine_options options = verify_engine_options(run->v, KVAD_CACHE_PAGED, 1);
        options.block_tokens = sizes[i];
        if (!verify_case(run, "blocks of %u", sizes[i]) ||
            !walk(run, &options, verify_walk, VERIFY_WALK, run->v->n))
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- threads, kernel levels */

/* Steps of one row, where the work is cut finest, near the start and at the end; the rest in large
 * ones. Many threads on few CPUs are slow: they wait for each other at every layer. */
static bool walk_ends(struct verify_run *run, const struct kvad_engine_options *options,
                      size_t length) {
    const size_t end = length > 13 ? length - 13 : 1;
    const size_t sizes[] = {1, 1, 3, end, 1, 2, 5};
    return walk(run, options, sizes, sizeof sizes / sizeof *sizes, length);
}

bool verify_threads(struct verify_run *run) {
    static const unsigned counts[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct kvad_engine_options options = verify_engine_options(run->v, KVAD_CACHE_PAGED, 1);
        options.threads = NULL;
        options.n_threads = counts[i];
        if (!verify_case(run, "%u thread%s", counts[i], counts[i] > 1 ? "s" : "") ||
            !walk_ends(run, &options, run->v->n))
            return false;
    }
    return true;
}

bool verify_levels(struct verify_run *run) {
    if (!kvad_cpu_supported(1))
        return verify_skip(run, "this CPU has one kernel level, %s", run->v->cpu);
    char names[96] = "";
    const char *name;
    for (unsigned i = 0; (name = kvad_cpu_supported(i)); i++) {
        struct kvad_engine_options options = verify_engine_options(run->v, KVAD_CACHE_PAGED, 1);
        options.cpu = name;
        /* The lowest level emulates fma, some thirty times slower. */
        size_t length = i > 0 ? run->v->n : kvad_min_size(run->v->n, 18);
        if (!verify_case(run, "level %s", name) || !walk_ends(run, &options, length)) return false;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
    }
    verify_note(run, "%s", names);
    return true;
}
