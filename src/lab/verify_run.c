/* Verdicts of a check that runs. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "lab/verify_internal.h"

static void format_text(char *out, size_t size, const char *format, va_list args) {
    vsnprintf(out, size, format, args);
}

bool verify_case(struct verify_run *run, const char *format, ...) {
    struct kvad_verify_result *result = run->result;
    const struct kvad_verify_options *options = &run->v->options;
    va_list args;
    va_start(args, format);
    format_text(result->where, sizeof result->where, format, args);
    va_end(args);
    if (!options->report || options->report(options->user, result->check, result->where))
        return true;
    run->status = kvad_fail(run->err, KVAD_ERR_CANCELLED, "interrupted");
    return false;
}

bool verify_fail(struct verify_run *run, const char *format, ...) {
    va_list args;
    va_start(args, format);
    format_text(run->result->text, sizeof run->result->text, format, args);
    va_end(args);
    run->result->verdict = KVAD_VERDICT_FAIL;
    return false;
}

bool verify_skip(struct verify_run *run, const char *format, ...) {
    va_list args;
    va_start(args, format);
    format_text(run->result->text, sizeof run->result->text, format, args);
    va_end(args);
    run->result->verdict = KVAD_VERDICT_SKIP;
    return false;
}

void verify_note(struct verify_run *run, const char *format, ...) {
    va_list args;
    va_start(args, format);
    format_text(run->result->text, sizeof run->result->text, format, args);
    va_end(args);
}

bool verify_ok(struct verify_run *run, enum kvad_status status, const struct kvad_error *err) {
    if (status == KVAD_OK) return true;
    if (status != KVAD_ERR_NO_MEMORY && status != KVAD_ERR_CANCELLED)
        return verify_fail(run, "the engine refuses: %s", err->text);
    if (run->err) *run->err = *err;
    run->status = status;
    return false;
}

bool verify_no_memory(struct verify_run *run, size_t bytes) {
    run->status = kvad_fail_memory(run->err, "a check", bytes);
    return false;
}

static bool is_same(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

bool verify_same(struct verify_run *run, struct kvad_verify_difference at, const float *got,
                 const float *wanted, size_t n) {
    run->result->n_compared += n;
    if (memcmp(got, wanted, n * sizeof *got) == 0) return true;
    size_t i = 0;
    while (i < n && is_same(got[i], wanted[i]))
        i++;
    if (i == n) return true;
    at.is_known = true;
    at.element = i;
    at.got = (double)got[i];
    at.wanted = (double)wanted[i];
    run->result->difference = at;
    return verify_fail(run, "%s", "");
}
