/* A mixture of everything that can happen to sequences, in an order that nobody thought of. */
#include "lab/verify_internal.h"

enum {
    LONGEST = 5 * KVAD_KV_TILE - 3, /* of a sequence */
    SMALL_STEP = 24                 /* rows computed at once: larger steps are cut */
};

/* What is done next. */
enum action { STEP, DRAFT, GO_BACK, FORK, REORDER, RESTART };

struct mixture {
    struct verify_rig rig;
    size_t longest; /* of a sequence, in tokens */
    size_t n_drawn; /* random numbers so far */
};

static size_t draw(struct mixture *m, size_t n) {
    return verify_random(m->rig.run->v, 300, m->n_drawn++, n);
}

/* Tokens that two texts have in common at least. */
static size_t common_tokens(const struct verify_text *a, const struct verify_text *b) {
    return a == b ? SIZE_MAX : kvad_min_size(a->n_common, b->n_common);
}

/* Every sequence some tokens further, in any order. */
static bool step(struct mixture *m) {
    static const size_t sizes[] = {1, 1, 2, 0, 5, 1, 16, 18, 0, 3};
    size_t counts[VERIFY_SEQUENCES], order[VERIFY_SEQUENCES], turn = draw(m, VERIFY_SEQUENCES);
    for (size_t i = 0; i < VERIFY_SEQUENCES; i++) {
        size_t left = m->longest - verify_rig_length(&m->rig, i);
        counts[i] = kvad_min_size(sizes[draw(m, sizeof sizes / sizeof *sizes)], left);
        order[i] = (i * 3 + turn) % VERIFY_SEQUENCES;
    }
    return verify_rig_step(&m->rig, counts, order);
}

/* Tokens of another text are tried and taken back. */
static bool try_draft(struct mixture *m, size_t i) {
    const struct kvad_verify *v = m->rig.run->v;
    size_t length = verify_rig_length(&m->rig, i), left = m->longest - length;
    size_t n = kvad_min_size(1 + draw(m, 6), left), n_after = kvad_min_size(1 + draw(m, 3), left);
    if (n == 0) return true;
    return verify_rig_append(&m->rig, i, &v->texts[4], n, NULL) &&
           verify_rig_truncate(&m->rig, i, length) && verify_rig_feed(&m->rig, i, n_after);
}

/* Sequence `child` becomes a fork of `parent` and goes on with a text that begins like its own. */
static bool fork_to(struct mixture *m, size_t parent, size_t child) {
    struct verify_rig *rig = &m->rig;
    const struct verify_text *text = rig->texts[parent];
    const struct verify_text *other = &rig->run->v->texts[draw(m, VERIFY_SEQUENCES)];
    if (parent == child) return true;
    if (common_tokens(text, other) >= verify_rig_length(rig, parent)) text = other;
    struct kvad_error err;
    kvad_sequence_destroy(&rig->sequences[child]);
    rig->texts[child] = text;
    return verify_ok(rig->run,
                     kvad_sequence_fork(rig->sequences[parent], &rig->sequences[child], &err),
                     &err) &&
           verify_sound(rig->run, rig->engine);
}

static bool reorder(struct mixture *m) {
    struct verify_rig *rig = &m->rig;
    size_t sources[VERIFY_SEQUENCES];
    const struct verify_text *texts[VERIFY_SEQUENCES];
    for (size_t i = 0; i < VERIFY_SEQUENCES; i++) {
        sources[i] = draw(m, VERIFY_SEQUENCES);
        texts[i] = rig->texts[sources[i]];
    }
    memcpy(rig->texts, texts, sizeof texts);
    struct kvad_error err;
    return verify_ok(rig->run,
                     kvad_sequence_reorder(rig->sequences, sources, VERIFY_SEQUENCES, &err),
                     &err) &&
           verify_sound(rig->run, rig->engine);
}

static bool act(struct mixture *m) {
    static const enum action actions[] = {STEP, STEP, STEP,    STEP,  STEP,    DRAFT,
                                          FORK, FORK, GO_BACK, DRAFT, REORDER, RESTART};
    struct verify_rig *rig = &m->rig;
    size_t i = draw(m, VERIFY_SEQUENCES);
    switch (actions[draw(m, sizeof actions / sizeof *actions)]) {
    case DRAFT: return try_draft(m, i);
    case GO_BACK: return verify_rig_truncate(rig, i, draw(m, verify_rig_length(rig, i) + 1));
    case FORK: return fork_to(m, i, draw(m, VERIFY_SEQUENCES));
    case REORDER: return reorder(m);
    case RESTART: return verify_rig_restart(rig, i, &rig->run->v->texts[draw(m, 5)]);
    case STEP: break;
    }
    return step(m);
}

/* Nobody holds anything: nor does the pool. */
static bool is_idle(struct verify_rig *rig) {
    struct kvad_engine_info info;
    for (size_t i = 0; i < VERIFY_SEQUENCES; i++)
        kvad_sequence_destroy(&rig->sequences[i]);
    kvad_engine_get_info(rig->engine, &info);
    if (info.kv_bytes == 0) return true;
    return verify_fail(rig->run, "%llu bytes of the cache are held after the last sequence ended",
                       (unsigned long long)info.kv_bytes);
}

bool verify_mixture(struct verify_run *run) {
    struct kvad_verify *v = run->v;
    if (v->n < 2) return verify_skip(run, "the context of the model is one token");
    for (size_t i = 0; i < 5; i++)
        if (!verify_expect(run, i)) return false;
    struct mixture m = {.longest = kvad_min_size(v->n, LONGEST)};
    struct kvad_engine_options options =
        verify_engine_options(v, KVAD_CACHE_PAGED, VERIFY_SEQUENCES);
    options.n_batch_tokens = SMALL_STEP;
    /* What all sequences need at their longest, and a block each to copy into. */
    size_t n_blocks = VERIFY_SEQUENCES * ((m.longest + KVAD_KV_TILE - 1) / KVAD_KV_TILE + 1);
    options.kv_bytes = n_blocks * KVAD_KV_TILE * verify_token_bytes(v);
    size_t n_actions = v->is_large ? 20 : 120;
    if (v->options.level == KVAD_VERIFY_FULL) n_actions *= 5;
    bool ok = verify_rig_open(run, &m.rig, &options, VERIFY_SEQUENCES);
    for (size_t i = 0; ok && i < n_actions; i++)
        ok = verify_case(run, "action %zu of %zu", i + 1, n_actions) && act(&m);
    ok = ok && verify_case(run, "the end") && is_idle(&m.rig);
    verify_rig_close(&m.rig);
    if (ok) verify_note(run, "%zu actions, %zu blocks", n_actions, n_blocks);
    return ok;
}
