#include "lab/verify.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "lab/verify_internal.h"

#define ENTRY(id, name, compares) {{#name, compares}, verify_##name},
static const struct entry {
    struct kvad_verify_check check;
    verify_fn *run;
} entries[KVAD_VERIFY_CHECKS] = {KVAD_VERIFY_CHECK_LIST(ENTRY)};

const struct kvad_verify_check *kvad_verify_check(unsigned index) {
    return index < KVAD_VERIFY_CHECKS ? &entries[index].check : NULL;
}

const struct kvad_verify_check *kvad_verify_find(const char *name) {
    for (size_t i = 0; i < KVAD_VERIFY_CHECKS; i++)
        if (strcmp(entries[i].check.name, name) == 0) return &entries[i].check;
    return NULL;
}

/* ---------------------------------------------------------------- open, close */

/* How long the texts are: as long as seconds (quick) or minutes (full) allow, across the chunk of
 * attention where that is cheap. A function of the model alone, never of the clock: what is checked
 * must not depend on how busy the machine is. */
static void set_sizes(struct kvad_verify *v) {
    const uint64_t small = 16u << 20, large = 64u << 20; /* parameters */
    bool is_full = v->options.level == KVAD_VERIFY_FULL;
    uint64_t n_parameters = v->model->n_parameters;
    size_t n = n_parameters > large ? 48 : n_parameters > small ? 96 : 280;
    if (is_full) n = n_parameters > large ? 280 : 560;
    v->is_large = n_parameters > small;
    v->n = kvad_min_size(n, v->model->description.n_ctx);
    v->n_reference = kvad_min_size(v->n, is_full || !v->is_large ? 280 : 24);
}

/* Lengths after which the texts part from text 0: in the second half of the second block, at its
 * edge, and inside the first. Text 4 has nothing in common; text 5 begins in another way and then
 * goes on like text 0. */
static const size_t common[VERIFY_TEXTS] = {SIZE_MAX, 27, 32, 7, 0, 0};
enum { SAME_END = 5 };

static enum kvad_status make_texts(struct kvad_verify *v, struct kvad_error *err) {
    for (size_t i = 0; i < VERIFY_TEXTS; i++) {
        struct verify_text *text = &v->texts[i];
        text->tokens = kvad_alloc_zero(&v->heap, v->n, sizeof *text->tokens);
        if (!text->tokens) return kvad_fail_memory(err, "texts", v->n * sizeof *text->tokens);
        text->n_common = kvad_min_size(common[i], v->n);
        for (size_t t = 0; t < v->n; t++) {
            bool is_first = (i > 0 && t < text->n_common) || (i == SAME_END && t >= KVAD_KV_TILE);
            text->tokens[t] = is_first
                                  ? v->texts[0].tokens[t]
                                  : (int32_t)verify_random(v, (unsigned)i, t, v->model->n_tokens);
        }
        /* They part where they should, whatever the draw. */
        if (i > 0 && text->n_common < v->n && v->model->n_tokens > 1 &&
            text->tokens[text->n_common] == v->texts[0].tokens[text->n_common])
            text->tokens[text->n_common] =
                (text->tokens[text->n_common] + 1) % (int32_t)v->model->n_tokens;
    }
    return KVAD_OK;
}

static enum kvad_status reserve_step(struct kvad_verify *v, struct kvad_error *err) {
    const struct kvad_description *d = &v->model->description;
    size_t n_rows = VERIFY_SEQUENCES * v->n, n_kv = (size_t)d->n_kv_heads * v->n * d->head_dim;
    size_t n_hidden = n_rows * ((size_t)d->n_layers + 1) * d->d_model;
    v->logits = kvad_alloc_zero(&v->heap, n_rows * d->n_vocab, sizeof *v->logits);
    v->hidden = kvad_alloc_zero(&v->heap, n_hidden, sizeof *v->hidden);
    v->k = kvad_alloc_zero(&v->heap, n_kv, sizeof *v->k);
    v->v = kvad_alloc_zero(&v->heap, n_kv, sizeof *v->v);
    if (v->logits && v->hidden && v->k && v->v) return KVAD_OK;
    return kvad_fail_memory(err, "logits of a check", n_rows * d->n_vocab * sizeof *v->logits);
}

/* The level that is used, and whether an engine opens at all. */
static enum kvad_status try_engine(struct kvad_verify *v, struct kvad_error *err) {
    struct kvad_engine_options options = verify_engine_options(v, KVAD_CACHE_PAGED, 1);
    struct kvad_engine *engine;
    KVAD_TRY(kvad_engine_open(v->model, &options, &engine, err));
    struct kvad_engine_info info;
    kvad_engine_get_info(engine, &info);
    memcpy(v->cpu, info.cpu, sizeof v->cpu);
    kvad_engine_close(&engine);
    return KVAD_OK;
}

enum kvad_status kvad_verify_open(struct kvad_model *model,
                                  const struct kvad_verify_options *options,
                                  struct kvad_verify **out, struct kvad_error *err) {
    struct kvad_heap heap;
    kvad_heap_init(&heap, &options->hook);
    struct kvad_verify *v = kvad_alloc_zero(&heap, 1, sizeof *v);
    if (!v) return kvad_fail_memory(err, "verify", sizeof *v);
    kvad_heap_init(&v->heap, &options->hook);
    v->model = model;
    v->options = *options;
    set_sizes(v);
    enum kvad_status status =
        kvad_threads_create(options->n_threads, &v->heap.hook, &v->threads, err);
    if (status == KVAD_OK) status = make_texts(v, err);
    if (status == KVAD_OK) status = reserve_step(v, err);
    if (status == KVAD_OK) status = try_engine(v, err);
    if (status == KVAD_OK)
        *out = v;
    else
        kvad_verify_close(&v);
    return status;
}

void kvad_verify_close(struct kvad_verify **verify) {
    struct kvad_verify *v = *verify;
    if (!v) return;
    *verify = NULL;
    const struct kvad_description *d = &v->model->description;
    size_t n_hidden = v->n * ((size_t)d->n_layers + 1) * d->d_model;
    size_t n_kv = (size_t)d->n_kv_heads * v->n * d->head_dim;
    for (size_t i = 0; i < VERIFY_TEXTS; i++) {
        kvad_free(&v->heap, v->texts[i].tokens, v->n * sizeof *v->texts[i].tokens);
        kvad_free(&v->heap, v->texts[i].logits, v->n * d->n_vocab * sizeof *v->logits);
        kvad_free(&v->heap, v->texts[i].hidden, n_hidden * sizeof *v->hidden);
    }
    kvad_free(&v->heap, v->logits, VERIFY_SEQUENCES * v->n * d->n_vocab * sizeof *v->logits);
    kvad_free(&v->heap, v->hidden, VERIFY_SEQUENCES * n_hidden * sizeof *v->hidden);
    kvad_free(&v->heap, v->k, n_kv * sizeof *v->k);
    kvad_free(&v->heap, v->v, n_kv * sizeof *v->v);
    kvad_reference_deinit(&v->reference);
    kvad_threads_release(&v->threads);
    struct kvad_heap heap = v->heap;
    kvad_free(&heap, v, sizeof *v);
}

void kvad_verify_get_setup(const struct kvad_verify *verify, struct kvad_verify_setup *setup) {
    *setup = (struct kvad_verify_setup){.n_threads = kvad_threads_count(verify->threads),
                                        .kv = verify->options.kv,
                                        .n_tokens = verify->n,
                                        .seed = verify->options.seed};
    memcpy(setup->cpu, verify->cpu, sizeof setup->cpu);
}

/* ---------------------------------------------------------------- a check */

enum kvad_status kvad_verify_run(struct kvad_verify *verify, const struct kvad_verify_check *check,
                                 struct kvad_verify_result *result, struct kvad_error *err) {
    *result = (struct kvad_verify_result){.check = check, .heap = &verify->heap};
    struct verify_run run = {.v = verify, .result = result, .err = err};
    uint64_t start = kvad_clock_ns();
    bool passes = false;
    for (size_t i = 0; i < KVAD_VERIFY_CHECKS; i++)
        if (&entries[i].check == check && verify_case(&run, "%s", "without a cache"))
            passes = entries[i].run(&run);
    bool is_pass = run.status == KVAD_OK && result->verdict == KVAD_VERDICT_PASS;
    if (is_pass && (!passes || result->n_compared == 0)) verify_fail(&run, "nothing was compared");
    result->seconds = (double)(kvad_clock_ns() - start) * 1e-9;
    if (result->verdict != KVAD_VERDICT_FAIL) result->where[0] = '\0';
    return run.status;
}

void kvad_verify_result_deinit(struct kvad_verify_result *result) {
    if (result->heap)
        kvad_free(result->heap, result->layers, result->n_layers * sizeof *result->layers);
    *result = (struct kvad_verify_result){0};
}

const char *kvad_verdict_name(enum kvad_verdict verdict) {
    static const char *const names[] = {"pass", "fail", "skip"};
    return (unsigned)verdict < sizeof names / sizeof *names ? names[verdict] : "unknown";
}

const char *kvad_verify_place_name(enum kvad_verify_place place) {
    static const char *const names[] = {"hidden", "logits", "token", "k", "v"};
    return (unsigned)place < sizeof names / sizeof *names ? names[place] : "unknown";
}

static void describe_difference(const struct kvad_verify_difference *d, char *text, size_t size) {
    char place[64];
    switch (d->place) {
    case KVAD_VERIFY_TOKEN:
        snprintf(text, size, "position %zu: token %.0f instead of %.0f", d->position, d->got,
                 d->wanted);
        return;
    case KVAD_VERIFY_HIDDEN:
        if (d->layer == 0)
            snprintf(place, sizeof place, "embedding");
        else
            snprintf(place, sizeof place, "layer %u", d->layer);
        break;
    case KVAD_VERIFY_LOGITS: snprintf(place, sizeof place, "logits"); break;
    case KVAD_VERIFY_K:
    case KVAD_VERIFY_V:
        snprintf(place, sizeof place, "%s of layer %u", d->place == KVAD_VERIFY_K ? "K" : "V",
                 d->layer);
        break;
    }
    snprintf(text, size, "position %zu, %s, element %zu: %.9g instead of %.9g", d->position, place,
             d->element, d->got, d->wanted);
}

void kvad_verify_describe(const struct kvad_verify_result *result, char *text, size_t size) {
    char difference[200] = "";
    if (result->difference.is_known)
        describe_difference(&result->difference, difference, sizeof difference);
    snprintf(text, size, "%s%s%s%s%s", result->where,
             result->where[0] && (difference[0] || result->text[0]) ? ": " : "", difference,
             difference[0] && result->text[0] ? "; " : "", result->text);
}
