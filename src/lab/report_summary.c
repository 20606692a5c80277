/* The main figures of a report, and whether a document is one. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "lab/report_internal.h"

enum kvad_status kvad_report_check(const json_t *report, const char *name, struct kvad_error *err) {
    static const char *const objects[] = {"model", "machine", "options", "parts"};
    const char *kind = kvad_table_string(report, "kind", NULL);
    const json_t *schema = json_object_get(report, "schema");
    if (!kind || strcmp(kind, KVAD_REPORT_KIND) != 0)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: not a report of kvad lab: \"kind\" must be \"" KVAD_REPORT_KIND "\"",
                         name);
    if (!json_is_integer(schema))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: \"schema\" must be a whole number", name);
    if (json_integer_value(schema) != KVAD_REPORT_SCHEMA)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: schema %lld, this version of kvad reads %d; make the report again",
                         name, (long long)json_integer_value(schema), KVAD_REPORT_SCHEMA);
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (!json_is_object(json_object_get(report, objects[i])))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: \"%s\" must be an object", name,
                             objects[i]);
    static const char *const parts[] = {"verify", "latency", "memory"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *part = json_object_get(json_object_get(report, "parts"), parts[i]);
        if (part && !json_is_object(part) && !json_is_null(part))
            return kvad_fail(err, KVAD_ERR_FORMAT, "%s: \"parts.%s\" must be an object", name,
                             parts[i]);
    }
    return KVAD_OK;
}

/* Adds a number where there is one; a member that is absent is no figure. */
static int set_number(json_t *object, const char *name, double value) {
    return isfinite(value) ? json_object_set_new(object, name, json_real(value)) : 0;
}

static int set_string(json_t *object, const char *name, const char *value) {
    return json_object_set_new(object, name, json_string(value));
}

static int set_bool(json_t *object, const char *name, const json_t *value) {
    if (!json_is_boolean(value)) return 0;
    return json_object_set_new(object, name, json_boolean(json_is_true(value)));
}

/* ---- correctness */

static double sum_of(const json_t *array, const char *name) {
    double sum = 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        double value = kvad_table_number(json_array_get(array, i), name);
        if (isfinite(value)) sum += value;
    }
    return sum;
}

static int add_first_failure(json_t *out, const json_t *checks) {
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        if (strcmp(kvad_table_string(check, "verdict", ""), "fail") != 0) continue;
        const char *where = kvad_table_string(check, "case", "");
        return json_object_set_new(out, "first_failure",
                                   json_sprintf("%s%s%s: %s", kvad_table_string(check, "name", "?"),
                                                *where ? ", " : "", where,
                                                kvad_table_string(check, "text", "")));
    }
    return 0;
}

static int add_correct(json_t *out, const json_t *verify) {
    const json_t *checks = kvad_table_get(verify, "checks");
    double failed = kvad_table_number(verify, "failed");
    double passed = kvad_table_number(verify, "passed");
    if (!isfinite(failed) || !isfinite(passed)) return 0;
    return set_string(out, "verdict", failed == 0 && passed > 0 ? "pass" : "fail") |
           set_number(out, "passed", passed) | set_number(out, "failed", failed) |
           set_number(out, "skipped", kvad_table_number(verify, "skipped")) |
           set_number(out, "compared", sum_of(checks, "compared")) |
           set_number(out, "max_error", kvad_table_number(verify, "reference.logits.max")) |
           set_number(out, "error_bound", kvad_table_number(verify, "reference.bound.max")) |
           add_first_failure(out, checks);
}

/* ---- latency */

static const json_t *with_text(const json_t *array, const char *name, const char *value) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(kvad_table_string(json_array_get(array, i), name, ""), value) == 0)
            return json_array_get(array, i);
    return NULL;
}

/* As many as the largest shares and owners that a summary holds: a document may have any number. */
enum { MAX_LISTED = 64 };

/* Put into an array of objects so that their numbers `key` fall. */
static int insert_by(json_t *array, const char *key, json_t *object) {
    size_t i = 0;
    while (i < json_array_size(array) &&
           kvad_table_number(json_array_get(array, i), key) >= kvad_table_number(object, key))
        i++;
    int failed = json_array_insert_new(array, i, object);
    if (json_array_size(array) > MAX_LISTED) json_array_remove(array, MAX_LISTED);
    return failed;
}

/* Shares of the cached step's time that are work, the largest first. */
static json_t *shares_of(const json_t *gap) {
    json_t *shares = json_array();
    json_t *all = (json_t *)(uintptr_t)kvad_table_get(gap, "shares_ms");
    double wall = kvad_table_number(gap, "wall_ms");
    for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
        double ms = json_number_value(json_object_iter_value(i));
        if (!isfinite(100 * ms / wall)) continue;
        insert_by(shares, "percent",
                  json_pack("{s:s, s:f, s:f}", "name", json_object_iter_key(i), "ms", ms, "percent",
                            100 * ms / wall));
    }
    return shares;
}

static size_t n_failed(const json_t *controls) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(controls); i++)
        n += strcmp(kvad_table_string(json_array_get(controls, i), "verdict", ""), "fails") == 0;
    return n;
}

static int add_controls(json_t *out, const json_t *controls) {
    if (!json_is_array(controls)) return 0;
    return set_number(out, "n_controls", (double)json_array_size(controls)) |
           set_number(out, "controls_failed", (double)n_failed(controls));
}

static int add_latency(json_t *out, const json_t *latency) {
    const json_t *totals = kvad_table_get(latency, "text.totals");
    const json_t *naive = with_text(totals, "policy", "none");
    const json_t *cached = with_text(totals, "policy", "paged");
    const json_t *points = kvad_table_get(latency, "points");
    const json_t *last = json_array_get(points, json_array_size(points) - 1);
    double naive_ms = 1e3 * kvad_table_number(naive, "seconds");
    double cached_ms = 1e3 * kvad_table_number(cached, "seconds");
    return set_number(out, "times_faster", naive_ms / cached_ms) |
           set_number(out, "naive_ms", naive_ms) | set_number(out, "cached_ms", cached_ms) |
           set_bool(out, "naive_is_measured", kvad_table_get(naive, "measured")) |
           set_number(out, "n_tokens", kvad_table_number(latency, "text.tokens")) |
           set_number(out, "context", kvad_table_number(last, "context")) |
           set_number(out, "step_time_ratio", kvad_table_number(last, "time_ratio")) |
           set_number(out, "flop_ratio", kvad_table_number(last, "flop_ratio")) |
           set_number(out, "byte_ratio", kvad_table_number(last, "byte_ratio")) |
           set_number(out, "step_ms", kvad_table_number(latency, "gap.wall_ms")) |
           set_number(out, "ideal_ms", kvad_table_number(latency, "gap.ideal_ms")) |
           set_number(out, "named_percent", kvad_table_number(latency, "gap.named_percent")) |
           add_controls(out, kvad_table_get(latency, "controls")) |
           json_object_set_new(out, "shares", shares_of(kvad_table_get(latency, "gap")));
}

/* ---- memory */

/* "step_buffers" is "step buffers" for people. */
static json_t *spaced(const char *name) {
    char text[64];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof text; n++)
        text[n] = name[n] == '_' ? ' ' : name[n];
    text[n] = 0;
    return json_string(text);
}

/* Of one checkpoint, the largest first; those with nothing are left out. */
static json_t *owners_of(const json_t *by_name) {
    json_t *owners = json_array();
    json_t *all = (json_t *)(uintptr_t)by_name;
    for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
        const json_t *bytes = json_object_iter_value(i);
        double requested = kvad_table_number(bytes, "requested");
        double resident = kvad_table_number(bytes, "resident");
        if (!(fabs(requested) > 0) && !(fabs(resident) > 0)) continue;
        json_t *owner = json_object();
        json_object_set_new(owner, "name", spaced(json_object_iter_key(i)));
        set_number(owner, "requested", requested);
        set_number(owner, "allocated", kvad_table_number(bytes, "allocated"));
        set_number(owner, "resident", resident);
        insert_by(owners, isfinite(resident) ? "resident" : "requested", owner);
    }
    return owners;
}

/* The one with the longest text of the paged policy, in the first type of cache. */
static const json_t *main_checkpoint(const json_t *points) {
    const json_t *best = NULL;
    const char *kv = kvad_table_string(json_array_get(points, 0), "kv", "");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        if (strcmp(kvad_table_string(point, "policy", ""), "paged") != 0 ||
            strcmp(kvad_table_string(point, "kv", ""), kv) != 0)
            continue;
        if (!best || kvad_table_number(point, "tokens") >= kvad_table_number(best, "tokens"))
            best = point;
    }
    return best;
}

static int add_memory(json_t *out, const json_t *measured) {
    const json_t *points = kvad_table_get(measured, "checkpoints");
    const json_t *last = main_checkpoint(points);
    const json_t *naive = main_checkpoint(kvad_table_get(measured, "naive"));
    size_t n_exact = 0;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        n_exact += kvad_table_number(point, "residual") == 0 &&
                   kvad_table_number(point, "reserved_residual") == 0;
    }
    return set_number(out, "token_bytes", kvad_table_number(measured, "bytes_per_token")) |
           set_number(out, "n_tokens", kvad_table_number(last, "tokens")) |
           set_number(out, "cache_bytes", kvad_table_number(last, "requested")) |
           set_number(out, "n_checkpoints", (double)json_array_size(points)) |
           set_number(out, "n_exact", (double)n_exact) |
           set_number(out, "explained_percent", kvad_table_number(measured, "explained_percent")) |
           json_object_set_new(out, "owners", owners_of(kvad_table_get(last, "process.owners"))) |
           json_object_set_new(out, "offset", owners_of(kvad_table_get(naive, "offset_by_owner")));
}

enum kvad_status kvad_report_summarise(json_t *report, struct kvad_error *err) {
    const json_t *verify = kvad_table_get(report, "parts.verify");
    const json_t *latency = kvad_table_get(report, "parts.latency");
    const json_t *memory = kvad_table_get(report, "parts.memory.measured");
    json_t *correct = json_object(), *faster = json_object(), *bytes = json_object();
    int failed = !correct || !faster || !bytes;
    if (json_is_object(verify) && !failed) failed |= add_correct(correct, verify);
    if (json_is_object(latency) && !failed) failed |= add_latency(faster, latency);
    if (json_is_object(memory) && !failed) failed |= add_memory(bytes, memory);
    json_t *summary =
        json_pack("{s:o, s:o, s:o}", "correct", correct, "latency", faster, "memory", bytes);
    failed |= json_object_set_new(report, "summary", summary);
    return failed ? kvad_fail_memory(err, "the summary of a report", 4096) : KVAD_OK;
}
