/* Forks and beams: texts that begin alike share memory until they part. */
#include "lab/verify_internal.h"

/* Sequence `i` of the rig becomes a fork of sequence 0 that goes on with another text. */
static bool fork_to(struct verify_rig *rig, size_t i, size_t text) {
    struct kvad_error err;
    kvad_sequence_destroy(&rig->sequences[i]);
    rig->texts[i] = &rig->run->v->texts[text];
    return verify_ok(rig->run, kvad_sequence_fork(rig->sequences[0], &rig->sequences[i], &err),
                     &err) &&
           verify_sound(rig->run, rig->engine);
}

/* All sequences `n` tokens further (or to the end), `step` at once. */
static bool advance(struct verify_rig *rig, size_t n, size_t step, const size_t *order) {
    for (size_t done = 0; done < n; done += step) {
        size_t counts[VERIFY_SEQUENCES];
        for (size_t i = 0; i < rig->n; i++)
            counts[i] = kvad_min_size(step, rig->run->v->n - verify_rig_length(rig, i));
        if (!verify_rig_step(rig, counts, order)) return false;
    }
    return true;
}

/* A fork where the texts part; then one of both ends and the other goes on. */
static bool fork_once(struct verify_rig *rig, size_t text, bool is_parent_last) {
    struct kvad_verify *v = rig->run->v;
    static const size_t child_first[VERIFY_SEQUENCES] = {1, 0, 2, 3};
    size_t length = kvad_min_size(v->texts[text].n_common, v->n - 1);
    if (!verify_case(rig->run, "a fork at %zu, the %s goes on", length,
                     is_parent_last ? "first" : "second"))
        return false;
    rig->n = 1;
    if (!verify_rig_restart(rig, 0, &v->texts[0]) ||
        !verify_rig_walk(rig, verify_walk, VERIFY_WALK, length) || !fork_to(rig, 1, text))
        return false;
    rig->n = 2;
    if (!advance(rig, 3, 1, is_parent_last ? child_first : NULL)) return false;
    size_t gone = is_parent_last ? 1 : 0, left = 1 - gone;
    kvad_sequence_destroy(&rig->sequences[gone]);
    /* Somebody else takes what it held. */
    if (!verify_rig_restart(rig, gone, &v->texts[4])) return false;
    size_t counts[VERIFY_SEQUENCES] = {0};
    counts[gone] = kvad_min_size(20, v->n);
    counts[left] = kvad_min_size(18, v->n - verify_rig_length(rig, left));
    return verify_rig_step(rig, counts, NULL);
}

/* Four continuations of one beginning at once, then beams: each goes on from any of them. */
static bool fork_many(struct verify_rig *rig) {
    struct kvad_verify *v = rig->run->v;
    static const size_t sources[VERIFY_SEQUENCES] = {1, 1, 0, 2};
    size_t length = kvad_min_size(v->texts[3].n_common, v->n - 1);
    if (!verify_case(rig->run, "four continuations from %zu", length)) return false;
    rig->n = 1;
    if (!verify_rig_restart(rig, 0, &v->texts[0]) || !verify_rig_feed(rig, 0, length)) return false;
    for (size_t i = 1; i < VERIFY_SEQUENCES; i++)
        if (!fork_to(rig, i, i)) return false;
    rig->n = VERIFY_SEQUENCES;
    if (!advance(rig, 4, 1, NULL) || !advance(rig, 28, 7, NULL)) return false;
    if (!verify_case(rig->run, "beams that change places")) return false;
    const struct verify_text *texts[VERIFY_SEQUENCES];
    for (size_t i = 0; i < VERIFY_SEQUENCES; i++)
        texts[i] = rig->texts[sources[i]];
    memcpy(rig->texts, texts, sizeof texts);
    struct kvad_error err;
    if (!verify_ok(rig->run, kvad_sequence_reorder(rig->sequences, sources, VERIFY_SEQUENCES, &err),
                   &err) ||
        !verify_sound(rig->run, rig->engine))
        return false;
    return advance(rig, 3, 1, NULL) && advance(rig, 17, 17, NULL);
}

bool verify_fork(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    if (v->n < 2) return verify_skip(run, "the context of the model is one token");
    for (size_t i = 0; i < VERIFY_TEXTS; i++)
        if (!verify_expect(run, i)) return false;
    struct kvad_engine_options options =
        verify_engine_options(v, KVAD_CACHE_PAGED, VERIFY_SEQUENCES);
    struct verify_rig rig = {.run = run};
    bool ok = verify_rig_open(run, &rig, &options, 1);
    rig.poisons = true;
    for (size_t text = 1; ok && text <= 3; text++)
        ok = fork_once(&rig, text, true) && fork_once(&rig, text, false);
    for (size_t i = 1; ok && i < VERIFY_SEQUENCES; i++)
        kvad_sequence_destroy(&rig.sequences[i]);
    ok = ok && fork_many(&rig);
    verify_rig_close(&rig);
    return ok;
}
