/* Engines that take the same step again and again. */
#include <xxhash.h>

#include "lab/bench_internal.h"

#include "base/error.h"
#include "sampling/philox.h"

/* Prompts are the same for every engine: sequence i of length n begins like any other length. */
static void fill_prompts(struct bench_rig *rig) {
    for (size_t i = 0; i < rig->n_sequences; i++)
        for (size_t t = 0; t < rig->n_ctx; t++)
            rig->prompts[i * rig->n_ctx + t] = (int32_t)(kvad_uniform(1, i, t) * rig->n_ids);
}

static enum kvad_status allocate(struct bench_rig *rig, struct kvad_error *err) {
    size_t n = rig->n_sequences;
    rig->sequences = kvad_alloc_zero(rig->heap, n, sizeof *rig->sequences);
    rig->items = kvad_alloc_zero(rig->heap, n, sizeof *rig->items);
    rig->tokens = kvad_alloc_zero(rig->heap, n, sizeof *rig->tokens);
    rig->prompts = kvad_alloc_zero(rig->heap, n * rig->n_ctx, sizeof *rig->prompts);
    rig->logits = kvad_alloc_zero(rig->heap, n * rig->n_vocab, sizeof *rig->logits);
    if (rig->sequences && rig->items && rig->tokens && rig->prompts && rig->logits) return KVAD_OK;
    return kvad_fail_memory(err, "logits of a bench", n * rig->n_vocab * sizeof *rig->logits);
}

enum kvad_status bench_rig_open(struct bench_rig *rig, struct kvad_model *model,
                                const struct kvad_engine_options *options, struct kvad_heap *heap,
                                struct kvad_error *err) {
    struct kvad_model_info info;
    kvad_model_get_info(model, &info);
    *rig = (struct bench_rig){.heap = heap,
                              .policy = options->cache,
                              .n_sequences = options->n_sequences,
                              .n_ctx = options->n_ctx,
                              .n_vocab = info.n_vocab,
                              .n_ids = info.n_tokens};
    struct kvad_sampler_options greedy;
    kvad_sampler_options_init(&greedy);
    greedy.temperature = 0;
    greedy.n_tokens = info.n_tokens;
    KVAD_TRY(allocate(rig, err));
    fill_prompts(rig);
    KVAD_TRY(kvad_sampler_create(&greedy, info.n_vocab, NULL, &rig->sampler, err));
    KVAD_TRY(kvad_engine_open(model, options, &rig->engine, err));
    for (size_t i = 0; i < rig->n_sequences; i++)
        KVAD_TRY(kvad_sequence_create(rig->engine, &rig->sequences[i], err));
    return KVAD_OK;
}

void bench_rig_close(struct bench_rig *rig) {
    size_t n = rig->n_sequences;
    if (!rig->heap) return;
    for (size_t i = 0; rig->sequences && i < n; i++)
        kvad_sequence_destroy(&rig->sequences[i]);
    kvad_engine_close(&rig->engine);
    kvad_sampler_destroy(&rig->sampler);
    kvad_free(rig->heap, rig->sequences, n * sizeof *rig->sequences);
    kvad_free(rig->heap, rig->items, n * sizeof *rig->items);
    kvad_free(rig->heap, rig->tokens, n * sizeof *rig->tokens);
    kvad_free(rig->heap, rig->prompts, n * rig->n_ctx * sizeof *rig->prompts);
    kvad_free(rig->heap, rig->logits, n * rig->n_vocab * sizeof *rig->logits);
    *rig = (struct bench_rig){0};
}

struct bench_step bench_decode_step(const struct bench_rig *rig, size_t context,
                                    size_t n_sequences) {
    if (rig->policy == KVAD_CACHE_NONE) return (struct bench_step){0, context + 1, n_sequences};
    return (struct bench_step){context, 1, n_sequences};
}

enum kvad_status bench_rig_fill(struct bench_rig *rig, const struct bench_step *step,
                                struct kvad_error *err) {
    size_t n_items = 0;
    for (size_t i = 0; i < step->n_sequences; i++) {
        struct kvad_sequence *sequence = rig->sequences[i];
        size_t length = kvad_min_size(kvad_sequence_length(sequence), step->position);
        KVAD_TRY(kvad_sequence_truncate(sequence, length, err));
        if (length == step->position) continue;
        rig->items[n_items++] =
            (struct kvad_eval_item){.sequence = sequence,
                                    .tokens = rig->prompts + i * rig->n_ctx + length,
                                    .n_tokens = step->position - length};
    }
    return n_items > 0 ? kvad_eval(rig->engine, rig->items, n_items, err) : KVAD_OK;
}

/* One token for each sequence, or more; row of logits for the last one. */
static void set_items(struct bench_rig *rig, const struct bench_step *step) {
    for (size_t i = 0; i < step->n_sequences; i++)
        rig->items[i] =
            (struct kvad_eval_item){.sequence = rig->sequences[i],
                                    .tokens = rig->prompts + i * rig->n_ctx + step->position,
                                    .n_tokens = step->n_tokens,
                                    .n_rows = 1,
                                    .logits = rig->logits + i * rig->n_vocab};
}

static enum kvad_status timed_step(struct bench_rig *rig, const struct bench_step *step,
                                   const struct kvad_probe *probe, struct kvad_error *err) {
    kvad_probe_start(probe);
    KVAD_TRY(kvad_eval(rig->engine, rig->items, step->n_sequences, err));
    for (size_t i = 0; i < step->n_sequences; i++)
        KVAD_TRY(kvad_sampler_draw(rig->sampler, rig->items[i].logits, NULL, 0, NULL, 0, 0,
                                   &rig->tokens[i], err));
    kvad_probe_serial(probe, KVAD_PART_SAMPLING);
    return KVAD_OK;
}

enum kvad_status bench_rig_step(struct bench_rig *rig, const struct bench_step *step,
                                const struct kvad_probe *probe, uint64_t *ns,
                                struct kvad_error *err) {
    set_items(rig, step);
    kvad_engine_set_probe(rig->engine, probe);
    uint64_t start = kvad_clock_ns();
    enum kvad_status status = timed_step(rig, step, probe, err);
    *ns += kvad_clock_ns() - start;
    kvad_engine_set_probe(rig->engine, NULL);
    for (size_t i = 0; status == KVAD_OK && i < step->n_sequences; i++)
        status = kvad_sequence_truncate(rig->sequences[i], step->position, err);
    return status;
}

struct bench_answer bench_rig_answer(const struct bench_rig *rig) {
    return (struct bench_answer){true, rig->tokens[0],
                                 XXH3_64bits(rig->logits, rig->n_vocab * sizeof *rig->logits)};
}

enum kvad_status bench_rig_go_on(struct bench_rig *rig, const struct bench_step *step, uint64_t *ns,
                                 struct kvad_error *err) {
    size_t next = step->position + step->n_tokens;
    KVAD_TRY(kvad_sequence_truncate(rig->sequences[0], step->position, err));
    set_items(rig, step);
    uint64_t start = kvad_clock_ns();
    KVAD_TRY(timed_step(rig, step, NULL, err));
    *ns += kvad_clock_ns() - start;
    if (next < rig->n_ctx) rig->prompts[next] = rig->tokens[0];
    return KVAD_OK;
}

enum kvad_status bench_rig_forget(struct bench_rig *rig, size_t position, struct kvad_error *err) {
    fill_prompts(rig);
    return kvad_sequence_truncate(rig->sequences[0], position, err);
}

enum kvad_status bench_rig_chain(struct bench_rig *rig, size_t context, size_t n,
                                 struct bench_answer *answer, struct kvad_error *err) {
    struct bench_step start = bench_decode_step(rig, context, 1);
    KVAD_TRY(bench_rig_fill(rig, &start, err));
    uint64_t hash = 0, ns = 0;
    enum kvad_status status = KVAD_OK;
    for (size_t i = 0; i < n && status == KVAD_OK; i++) {
        struct bench_step step = bench_decode_step(rig, context + i, 1);
        status = bench_rig_go_on(rig, &step, &ns, err);
        hash = XXH3_64bits_withSeed(rig->logits, rig->n_vocab * sizeof *rig->logits, hash);
    }
    *answer = (struct bench_answer){true, rig->tokens[0], hash};
    struct kvad_error ignored;
    enum kvad_status forgotten = bench_rig_forget(rig, start.position, &ignored);
    if (status == KVAD_OK && forgotten != KVAD_OK && err) *err = ignored;
    return status != KVAD_OK ? status : forgotten;
}

bool bench_answer_agrees(struct bench_answer *kept, struct bench_answer got) {
    if (!kept->is_known) *kept = got;
    return kept->token == got.token && kept->bits == got.bits;
}
