/* The tables of a report: where their rows are and how their columns are shown. Keys of columns are
 * the names in the CSV files: a promise to scripts (docs/lab.md). */
#include "lab/report_internal.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
#define TABLE(id, caption, path, columns, is_folded)                                               \
    { id, caption, path, columns, COUNT_OF(columns), is_folded }

static const struct kvad_column checks[] = {
    {"name", "check", KVAD_CELL_NAME, 0},
    {"verdict", "verdict", KVAD_CELL_VERDICT, 0},
    {"compares", "what it compares", KVAD_CELL_TEXT, 0},
    {"compared", "numbers", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"seconds", "s", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"case", "failed case", KVAD_CELL_TEXT, 0},
    {"text", "remark", KVAD_CELL_TEXT, 0},
};

static const struct kvad_column layers[] = {
    {"layer", "layer", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"rms", "RMS error", KVAD_CELL_FIGURE, KVAD_FIGURE_ERROR},
    {"max", "largest error", KVAD_CELL_FIGURE, KVAD_FIGURE_ERROR},
};

static const struct kvad_column curve[] = {
    {"context", "tokens before", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"ms.none", "none ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"ms.grow", "grow ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"ms.static", "static ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"ms.paged", "paged ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"spread_percent.none", "none ±%", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"spread_percent.paged", "paged ±%", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"time_ratio", "none / paged: time", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"flop_ratio", "operations", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"byte_ratio", "bytes", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column work[] = {
    {"context", "tokens before", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"naive.flops", "naive", KVAD_CELL_FIGURE, KVAD_FIGURE_FLOPS},
    {"naive.bytes", "naive", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"naive.flop_per_byte", "FLOP per byte", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"cached.flops", "cached", KVAD_CELL_FIGURE, KVAD_FIGURE_FLOPS},
    {"cached.bytes", "cached", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"cached.flop_per_byte", "FLOP per byte", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"thrown_away_percent", "thrown away %", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column prefill[] = {
    {"tokens", "tokens of the prompt", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"first_token_ms", "ms to the first token", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"flop_per_byte", "FLOP per byte", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"gflop_per_s", "GFLOP/s", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"gb_per_s", "GB/s", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"bound", "bound by", KVAD_CELL_TEXT, 0},
    {"percent_of_ceiling", "% of the ceiling", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column totals[] = {
    {"policy", "cache", KVAD_CELL_NAME, 0},
    {"seconds", "seconds", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"measured", "all measured", KVAD_CELL_TEXT, 0},
    {"measured_tokens", "measured tokens", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"measured_tokens_seconds", "seconds of these", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"difference_percent", "sum over the curve, ±%", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column gap[] = {
    {"name", "part", KVAD_CELL_TEXT, 0},
    {"ms", "ms", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"percent", "%", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column controls[] = {
    {"what", "control", KVAD_CELL_TEXT, 0},
    {"predicted", "predicted", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"measured", "measured", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
    {"unit", "unit", KVAD_CELL_TEXT, 0},
    {"verdict", "verdict", KVAD_CELL_TEXT, 0},
    {"why", "how it was predicted", KVAD_CELL_TEXT, 0},
};

static const struct kvad_column claims[] = {
    {"claim", "the article says", KVAD_CELL_TEXT, 0},
    {"verdict", "here", KVAD_CELL_TEXT, 0},
    {"ours", "this run", KVAD_CELL_TEXT, 0},
    {"when", "when it is true", KVAD_CELL_TEXT, 0},
};

static const struct kvad_column owners[] = {
    {"name", "owner", KVAD_CELL_TEXT, 0},
    {"requested", "requested", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"allocated", "allocated", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"resident", "resident", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
};

static const struct kvad_column checkpoints[] = {
    {"policy", "cache", KVAD_CELL_NAME, 0},
    {"kv", "type", KVAD_CELL_NAME, 0},
    {"tokens", "tokens", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"rows", "T × token", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"remainder", "rest of block", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"formula", "formula", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"requested", "requested", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"residual", "difference", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"reserved", "reserved", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"reserved_residual", "difference", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"allocated", "allocated", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"resident", "resident", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"process.resident", "process resident", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"process.explained_percent", "explained %", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column naive[] = {
    {"policy", "cache", KVAD_CELL_NAME, 0},
    {"kv", "type", KVAD_CELL_NAME, 0},
    {"tokens", "tokens", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"formula", "T × token", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"requested", "growth requested", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"offset", "offset", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"resident", "growth resident", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"resident_offset", "offset", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
};

static const struct kvad_column offset[] = {
    {"name", "owner", KVAD_CELL_TEXT, 0},
    {"requested", "requested", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"resident", "resident", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
};

static const struct kvad_column roads[] = {
    {"name", "road", KVAD_CELL_TEXT, 0},
    {"formula", "bytes per token", KVAD_CELL_NAME, 0},
    {"numbers", "in numbers", KVAD_CELL_NAME, 0},
    {"bytes_per_token", "bytes", KVAD_CELL_FIGURE, KVAD_FIGURE_COUNT},
    {"bytes", "whole cache", KVAD_CELL_FIGURE, KVAD_FIGURE_BYTES},
    {"times_smaller", "times smaller", KVAD_CELL_FIGURE, KVAD_FIGURE_NUMBER},
};

static const struct kvad_column named_values[] = {
    {"@", "what", KVAD_CELL_TEXT, 0},
    {".", "value", KVAD_CELL_VALUE, 0},
};

static const struct kvad_table tables[] = {
    TABLE("checks", "What each check compares, and its verdict", "parts.verify.checks", checks,
          false),
    TABLE("layers", "Error after each layer", "parts.verify.reference.layers", layers, true),
    TABLE("curve", "Time of one more token, and ratios", "parts.latency.points", curve, true),
    TABLE("work", "Operations and bytes of a step by formula", "parts.latency.points", work, true),
    TABLE("prefill", "Reading a prompt", "parts.latency.prefill", prefill, true),
    TABLE("totals", "The whole text", "parts.latency.text.totals", totals, false),
    TABLE("gap", "A cached step by parts", "summary.latency.shares", gap, true),
    TABLE("controls", "Controls of the attribution", "parts.latency.controls", controls, false),
    TABLE("claims", "What the articles claim", "parts.latency.claims", claims, false),
    TABLE("checkpoints", "Cache bytes at every checkpoint: formula, requested, allocated, resident",
          "parts.memory.measured.checkpoints", checkpoints, true),
    TABLE("naive", "The naive way: growth of the process, nothing warmed up",
          "parts.memory.measured.naive", naive, true),
    TABLE("offset", "The naive way's offset by owner, paged cache full", "summary.memory.offset",
          offset, true),
    TABLE("owners", "Memory of the process by owner, paged cache full", "summary.memory.owners",
          owners, true),
    TABLE("roads", "Roads to fewer bytes", "parts.memory.roads.roads", roads, false),
    TABLE("model", "Model", "model", named_values, true),
    TABLE("machine", "Machine", "machine", named_values, true),
    TABLE("options", "Options and seeds", "options", named_values, true),
};

const struct kvad_table *kvad_report_table(unsigned index) {
    return index < COUNT_OF(tables) ? &tables[index] : NULL;
}
