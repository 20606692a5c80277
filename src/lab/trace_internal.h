/* What the files of the trace share. */
#ifndef KVAD_LAB_TRACE_INTERNAL_H
#define KVAD_LAB_TRACE_INTERNAL_H

#include "engine/probe.h"
#include "engine/request.h"
#include "lab/trace.h"

/* All that one run has in common. */
struct trace_run {
    const struct kvad_trace_options *options;
    struct kvad_trace_result *result;
    struct kvad_heap heap;
    struct kvad_threads *threads;
    struct kvad_probe probe;
    int32_t *prompt; /* [n_ctx] of the request that is submitted */
    int32_t *tokens; /* [n_output_tokens] of the trace; the first policy's answers */
    size_t *first;   /* [n] where the answer of each request begins there */
};

/* A request that runs, and what it has given. */
struct trace_client {
    size_t index; /* in the trace */
    struct kvad_request *request;
    size_t n_tokens;
    uint64_t arrived_ns;
    size_t arrived, first; /* steps done when it came, and with the one of its first token */
};

/* Say what is being done; KVAD_ERR_CANCELLED: stop. */
enum kvad_status trace_report(const struct trace_run *run, const char *what, double done,
                              struct kvad_error *err);
void trace_engine_in_use(const struct trace_run *run, struct kvad_engine *engine);

struct kvad_engine_options trace_engine_options(const struct trace_run *run,
                                                enum kvad_cache_policy policy,
                                                uint32_t n_sequences);

/* The ids of request `index` of the trace into ids[n]: a function of (index, position). */
void trace_fill_prompt(const struct trace_run *run, size_t index, int32_t *ids, size_t n);

/* A greedy request of this prompt that draws `n_output` tokens, whatever they are. */
struct kvad_request_options trace_request_options(const int32_t *prompt, size_t n_prompt,
                                                  size_t n_output);

/* What every way of answering must give: the first one's tokens are kept, later ones must be equal,
 * or the run is void. `what` names the way. */
void trace_check_token(struct trace_run *run, const char *what, size_t index, size_t at,
                       int32_t token);

enum kvad_status trace_run_policy(struct trace_run *run, enum kvad_cache_policy policy,
                                  struct kvad_trace_policy *out, struct kvad_error *err);
enum kvad_status trace_run_padded(struct trace_run *run, struct kvad_error *err);
enum kvad_status trace_run_prefix(struct trace_run *run, struct kvad_error *err);
enum kvad_status trace_run_overheads(struct trace_run *run, struct kvad_error *err);

#endif
