/* Traces: made up, or read from lines of JSON. */
#include "lab/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "sampling/philox.h"

enum { N_OCTAVES = 5, SHORTEST = 64 /* the shortest length is n_ctx over this */, MAX_GAP = 8 };

static const char *const names[KVAD_TRACE_PLACES] = {
#define PLACE_NAME(suffix, name) name,
    KVAD_TRACE_LIST(PLACE_NAME)
#undef PLACE_NAME
};

const char *kvad_trace_place_name(enum kvad_trace_place place) {
    return (unsigned)place < KVAD_TRACE_PLACES ? names[place] : "unknown";
}

/* Two random numbers in [0, 1): which octave, and where in it. */
static uint32_t draw_length(double octave, double within, uint32_t n_ctx) {
    double lowest = (double)(n_ctx / SHORTEST) * (double)(1u << (unsigned)(octave * N_OCTAVES));
    return (uint32_t)(lowest * (1 + within));
}

enum kvad_status kvad_trace_make(struct kvad_trace *trace, size_t n, uint64_t seed, uint32_t n_ctx,
                                 struct kvad_error *err) {
    *trace = (struct kvad_trace){0};
    if (n == 0 || n_ctx < SHORTEST)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "a trace of %zu requests in a context of %u tokens: at least 1 and %d", n,
                         n_ctx, SHORTEST);
    trace->items = calloc(n, sizeof *trace->items);
    if (!trace->items) return kvad_fail_memory(err, "trace", n * sizeof *trace->items);
    trace->n = n;
    uint32_t arrival = 0;
    for (size_t i = 0; i < n; i++) {
        double random[5];
        for (uint64_t k = 0; k < 5; k++)
            random[k] = kvad_uniform(seed, i, k);
        if (i > 0) arrival += (uint32_t)(random[4] * (MAX_GAP + 1));
        trace->items[i] =
            (struct kvad_trace_item){arrival, draw_length(random[0], random[1], n_ctx),
                                     draw_length(random[2], random[3], n_ctx)};
    }
    return KVAD_OK;
}

/* ---- from a file */

static enum kvad_status read_item(const char *line, size_t size, const char *where, uint32_t n_ctx,
                                  struct kvad_trace_item *item, struct kvad_error *err) {
    json_t *object = NULL;
    KVAD_TRY(kvad_json_parse_object(line, size, where, &object, err));
    enum kvad_status status =
        kvad_json_get_u32(object, where, "prompt_tokens", 1, UINT32_MAX / 2, &item->n_prompt, err);
    if (status == KVAD_OK)
        status = kvad_json_get_u32(object, where, "output_tokens", 1, UINT32_MAX / 2,
                                   &item->n_output, err);
    if (status == KVAD_OK)
        status = kvad_json_get_u32(object, where, "arrival", 0, UINT32_MAX, &item->arrival, err);
    json_decref(object);
    KVAD_TRY(status);
    if (item->n_prompt == 0 || item->n_output == 0)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: prompt_tokens and output_tokens are both needed", where);
    if (item->n_prompt + item->n_output > n_ctx)
        return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                         "%s: %u and %u tokens are more than the context of %u", where,
                         item->n_prompt, item->n_output, n_ctx);
    return KVAD_OK;
}

static enum kvad_status add_line(struct kvad_trace *trace, const char *line, size_t size,
                                 const char *where, uint32_t n_ctx, struct kvad_error *err) {
    struct kvad_trace_item item = {0};
    KVAD_TRY(read_item(line, size, where, n_ctx, &item, err));
    if (trace->n > 0 && item.arrival < trace->items[trace->n - 1].arrival)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: arrival is %u after %u: it must not fall",
                         where, item.arrival, trace->items[trace->n - 1].arrival);
    trace->items[trace->n++] = item;
    return KVAD_OK;
}

static size_t count_lines(const char *text, size_t size) {
    size_t n = 1;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    return n;
}

enum kvad_status kvad_trace_read(struct kvad_trace *trace, const char *text, size_t size,
                                 const char *name, uint32_t n_ctx, struct kvad_error *err) {
    size_t n_lines = count_lines(text, size);
    *trace = (struct kvad_trace){.items = calloc(n_lines, sizeof *trace->items)};
    if (!trace->items) return kvad_fail_memory(err, "trace", n_lines * sizeof *trace->items);
    for (size_t at = 0, line = 1; at < size; line++) {
        const char *start = text + at, *end = memchr(start, '\n', size - at);
        size_t length = end ? (size_t)(end - start) : size - at, i = 0;
        char where[256];
        at += length + 1;
        while (i < length && strchr(" \t\r", start[i]) && start[i])
            i++;
        if (i == length) continue;
        snprintf(where, sizeof where, "%.200s, line %zu", name, line);
        enum kvad_status status = add_line(trace, start, length, where, n_ctx, err);
        if (status == KVAD_OK) continue;
        kvad_trace_deinit(trace);
        return status;
    }
    if (trace->n > 0) return KVAD_OK;
    kvad_trace_deinit(trace);
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: no requests", name);
}

void kvad_trace_deinit(struct kvad_trace *trace) {
    free(trace->items);
    *trace = (struct kvad_trace){0};
}
