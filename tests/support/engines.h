/* Engines for tests: opened with a checking heap, closed only when nothing was left behind. */
#ifndef KVAD_TEST_ENGINES_H
#define KVAD_TEST_ENGINES_H

#include "engine/engine.h"
#include "engine/poison.h"
#include "test_heap.h"

enum { N_POLICIES = 4 };
extern const enum kvad_cache_policy policies[N_POLICIES];

/** Whether the level of test_cpu() emulates fma, some thirty times slower: large sweeps then do a
 * part. */
bool test_is_slow(void);

/** A pool of `n` threads (1 to 8), made on first use and shared by all tests of the program. */
struct kvad_threads *test_threads(unsigned n);
/** Ends the pools: a group teardown for cmocka_run_group_tests(). */
int release_test_threads(void **state);

/** Options of a test: kernel level of test_cpu(), a shared pool of threads, the checking heap. */
struct kvad_engine_options engine_options(enum kvad_cache_policy policy, unsigned n_threads);
/** The same for a paged cache, two threads and this many sequences. */
struct kvad_engine_options paged_options(uint32_t n_sequences);
/** Opens or fails the test. */
struct kvad_engine *open_engine(struct kvad_model *model,
                                const struct kvad_engine_options *options);
/** Fails the test unless nothing is alive, every block is free and no byte of cache is held. */
void assert_idle(const struct kvad_engine *engine);
/** assert_idle(), close, and nothing of the engine's memory may be left. */
void close_engine(struct kvad_engine **engine);

struct kvad_sequence *new_sequence(struct kvad_engine *engine);
/** One step of one sequence: appends `n` tokens; logits [n][n_vocab] and hidden (or NULL) are
 * filled with NaN before it, so that what the step forgets to write shows. */
void feed(struct kvad_sequence *sequence, const int32_t *tokens, size_t n, float *logits,
          float *hidden);
/** truncate() that must succeed. */
void cut(struct kvad_sequence *sequence, size_t length);

/** Fill with NaN. */
void poison(float *values, size_t n);

#endif
