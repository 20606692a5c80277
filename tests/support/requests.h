/* Requests for tests: what one gives, and what it must give. */
#ifndef KVAD_TEST_REQUESTS_H
#define KVAD_TEST_REQUESTS_H

#include "engines.h"

/* What a continuation is: ids, the logits that each was chosen from, how it ended. */
struct outcome {
    size_t n_vocab;
    int32_t *ids;
    float *rows; /* [n_rows][n_vocab] */
    double *logprobs;
    char *text; /* [text_size], then a NUL; NULL before the first event */
    size_t n_ids, n_rows, text_size, capacity;
    enum kvad_finish finish;
};

void outcome_init(struct outcome *outcome, size_t n_vocab);
void outcome_free(struct outcome *outcome);
/** The same ids, ends and bits of logits. */
void assert_same_outcome(const struct outcome *got, const struct outcome *wanted,
                         const char *where);

/** Options for a greedy request of `max_tokens`. */
struct kvad_request_options greedy_options(const int32_t *prompt, size_t n_prompt,
                                           size_t max_tokens);
/** Submit so that `outcome` notes the logits; fails the test on an error. */
struct kvad_request *submit(struct kvad_engine *engine, const struct kvad_request_options *options,
                            struct outcome *outcome);
/** Take all events that are ready into `outcome`; true once the last one came. Fails the test if
 * anything follows the last event. */
bool take_events(struct kvad_request *request, struct outcome *outcome);
/** One step that must succeed; requests still active after it. */
size_t step_engine(struct kvad_engine *engine);
/** Submit, run to the end in an engine of its own or beside others, destroy. */
void run_request(struct kvad_engine *engine, const struct kvad_request_options *options,
                 struct outcome *outcome);

/** The greedy continuation computed from scratch for every token, by a fresh sequence over the last
 * n_ctx ids, as nanoGPT's generate() does. With `slides` false it ends when the context is full. */
void expect_greedy(struct kvad_model *model, const int32_t *prompt, size_t n_prompt,
                   size_t max_tokens, bool slides, struct outcome *outcome);

/** Run a greedy request to its end, with NaN in all that is free before each step and a sound cache
 * after it; it must give what it gives cold and alone. What it got from the cache. */
struct kvad_request_info check_options(struct kvad_engine *engine,
                                       const struct kvad_request_options *options);
/** The same; `salt` may be NULL. */
struct kvad_request_info check_request(struct kvad_engine *engine, const int32_t *prompt,
                                       size_t n_prompt, size_t max_tokens, const char *salt);

#endif
