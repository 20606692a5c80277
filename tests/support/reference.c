#include "reference.h"

#include "bits.h"
#include "oracle.h"
#include "test.h"

/* Rounding of binary32 in these models stays below this, relative to the largest value. */
static const double ORACLE_BOUND = 1e-5;

static float *new_floats(size_t n) {
    float *values = malloc((n ? n : 1) * sizeof *values);
    assert_non_null(values);
    poison(values, n);
    return values;
}

static void read_cache(const struct kvad_sequence *sequence, size_t n, float *k, float *v) {
    const struct kvad_description *d = &sequence->engine->model->description;
    size_t n_layer = (size_t)d->n_kv_heads * n * d->head_dim;
    struct kvad_error err;
    for (uint32_t layer = 0; layer < d->n_layers; layer++)
        assert_ok(kvad_sequence_read_kv(sequence, layer, 0, n, k + layer * n_layer,
                                        v + layer * n_layer, &err),
                  &err);
}

static void compare_with_oracle(const struct reference *r) {
    const struct kvad_description *d = &r->tiny->description;
    struct oracle *oracle = oracle_run(r->tiny, r->tokens, r->n);
    size_t n_kv = (size_t)d->n_layers * d->n_kv_heads * r->n * d->head_dim;
    size_t n_hidden = (d->n_layers + 1) * r->n * d->d_model;
    assert_close(r->hidden, oracle->hidden, n_hidden, ORACLE_BOUND, "hidden and oracle");
    assert_close(r->k, oracle->k, n_kv, ORACLE_BOUND, "K and oracle");
    assert_close(r->v, oracle->v, n_kv, ORACLE_BOUND, "V and oracle");
    assert_close(r->logits, oracle->logits, r->n * d->n_vocab, ORACLE_BOUND, "logits and oracle");
    oracle_destroy(oracle);
}

struct reference *reference_of(struct tiny_model *tiny, struct kvad_model *model,
                               const int32_t *tokens, size_t n) {
    const struct kvad_description *d = &tiny->description;
    size_t n_kv = (size_t)d->n_layers * d->n_kv_heads * n * d->head_dim;
    struct reference *r = calloc(1, sizeof *r);
    assert_non_null(r);
    *r = (struct reference){.tiny = tiny,
                            .model = model,
                            .n = n,
                            .tokens = malloc(n * sizeof *tokens),
                            .logits = new_floats(n * d->n_vocab),
                            .hidden = new_floats((d->n_layers + 1) * n * d->d_model),
                            .k = new_floats(n_kv),
                            .v = new_floats(n_kv)};
    assert_non_null(r->tokens);
    memcpy(r->tokens, tokens, n * sizeof *tokens);
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 1);
    options.n_batch_tokens = (uint32_t)n;
    struct kvad_engine *engine = open_engine(model, &options);
    struct kvad_sequence *sequence = new_sequence(engine);
    feed(sequence, tokens, n, r->logits, r->hidden);
    read_cache(sequence, n, r->k, r->v);
    kvad_sequence_destroy(&sequence);
    close_engine(&engine);
    compare_with_oracle(r);
    return r;
}

struct reference *reference_create(const struct tiny_sizes *sizes, size_t n) {
    struct tiny_model *tiny = tiny_model_create(sizes);
    int32_t *tokens = tiny_tokens(sizes->n_vocab, n, sizes->seed);
    struct reference *r = reference_of(tiny, tiny_model_build(tiny), tokens, n);
    r->owns_model = true;
    free(tokens);
    return r;
}

struct reference *reference_more(const struct reference *first, size_t n, uint64_t seed) {
    int32_t *tokens = tiny_tokens(first->tiny->description.n_vocab, n, seed);
    struct reference *r = reference_of(first->tiny, first->model, tokens, n);
    free(tokens);
    return r;
}

void reference_destroy(struct reference *reference) {
    if (!reference) return;
    if (reference->owns_model) {
        kvad_model_release(&reference->model);
        tiny_model_destroy(reference->tiny);
    }
    free(reference->tokens);
    free(reference->logits);
    free(reference->hidden);
    free(reference->k);
    free(reference->v);
    free(reference);
}

void assert_rows(const struct reference *reference, size_t first, size_t n, const float *logits,
                 const char *where) {
    size_t n_vocab = reference_vocab(reference);
    assert_true(first + n <= reference->n);
    for (size_t i = 0; i < n; i++)
        assert_same_bits(logits + i * n_vocab, reference->logits + (first + i) * n_vocab, n_vocab,
                         label("%s: logits at position %zu", where, first + i));
}

void assert_hidden(const struct reference *reference, size_t first, size_t n, const float *hidden,
                   const char *where) {
    const struct kvad_description *d = &reference->tiny->description;
    for (size_t level = 0; level <= d->n_layers; level++)
        assert_same_bits(hidden + level * n * d->d_model,
                         reference->hidden + (level * reference->n + first) * d->d_model,
                         n * d->d_model,
                         label("%s: hidden %zu from position %zu", where, level, first));
}

void assert_cache(const struct reference *reference, const struct kvad_sequence *sequence,
                  const char *where) {
    const struct kvad_description *d = &reference->tiny->description;
    size_t n = kvad_sequence_length(sequence), n_rows = n * d->head_dim;
    size_t n_all = (size_t)d->n_layers * d->n_kv_heads * n_rows;
    float *k = new_floats(n_all), *v = new_floats(n_all);
    read_cache(sequence, n, k, v);
    for (size_t i = 0; i < (size_t)d->n_layers * d->n_kv_heads; i++) {
        size_t layer = i / d->n_kv_heads, head = i % d->n_kv_heads;
        size_t wanted = i * reference->n * d->head_dim;
        assert_same_bits(k + i * n_rows, reference->k + wanted, n_rows,
                         label("%s: K of layer %zu, head %zu", where, layer, head));
        assert_same_bits(v + i * n_rows, reference->v + wanted, n_rows,
                         label("%s: V of layer %zu, head %zu", where, layer, head));
    }
    free(k);
    free(v);
}

void follow(const struct reference *reference, struct kvad_sequence *sequence, size_t n,
            const char *where) {
    size_t first = kvad_sequence_length(sequence);
    float *rows = new_floats(n * reference_vocab(reference));
    feed(sequence, reference->tokens + first, n, rows, NULL);
    assert_rows(reference, first, n, rows, where);
    assert_cache(reference, sequence, where);
    free(rows);
}
