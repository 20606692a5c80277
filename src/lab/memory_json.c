/* What a measured run says, in numbers that follow from it and as JSON. */
#include "lab/memory.h"

static const char *const owner_names[] = {
    "cache",   "block_tables", "prefix_index",  "step_buffers", "logits",  "engine",
    "weights", "weights_file", "model",         "tokenizer",    "sampler", "threads",
    "lab",     "stacks",       "page_rounding", "c_library",    "program"};

const char *kvad_memory_owner_name(enum kvad_memory_owner owner) {
    return (unsigned)owner < KVAD_MEMORY_OWNERS ? owner_names[owner] : NULL;
}

bool kvad_memory_result_is_exact(const struct kvad_memory_result *result) {
    for (size_t i = 0; i < result->n_runs; i++)
        for (unsigned j = 0; j < result->runs[i].n_checkpoints; j++) {
            const struct kvad_memory_checkpoint *c = &result->runs[i].warmed[j];
            if (c->residual || c->reserved_residual || c->memory.unowned) return false;
        }
    return result->n_runs > 0;
}

double kvad_memory_snapshot_explained(const struct kvad_memory_snapshot *snapshot) {
    if (!snapshot->resident) return -1;
    double lost = (double)snapshot->unexplained / (double)snapshot->resident;
    return 100 * (1 - (lost < 0 ? -lost : lost));
}

double kvad_memory_result_explained(const struct kvad_memory_result *result) {
    double least = -1;
    for (size_t i = 0; i < result->n_runs && !result->no_resident_why; i++)
        for (unsigned j = 0; j < result->runs[i].n_checkpoints; j++) {
            double percent = kvad_memory_snapshot_explained(&result->runs[i].warmed[j].memory);
            if (least < 0 || percent < least) least = percent;
        }
    return least;
}

struct kvad_memory_offset
kvad_memory_offset_whole(const struct kvad_memory_run *run,
                         const struct kvad_memory_checkpoint *checkpoint) {
    const struct kvad_memory_snapshot *now = &checkpoint->memory, *before = &run->before;
    int64_t rows = (int64_t)checkpoint->rows;
    return (struct kvad_memory_offset){(int64_t)(now->requested - before->requested) - rows,
                                       (int64_t)(now->resident - before->resident) - rows};
}

struct kvad_memory_offset kvad_memory_offset_of(const struct kvad_memory_run *run,
                                                const struct kvad_memory_checkpoint *checkpoint,
                                                enum kvad_memory_owner owner) {
    const struct kvad_memory_bytes *now = &checkpoint->memory.owners[owner];
    const struct kvad_memory_bytes *before = &run->before.owners[owner];
    int64_t rows = owner == KVAD_MEMORY_CACHE ? (int64_t)checkpoint->rows : 0;
    return (struct kvad_memory_offset){(int64_t)(now->requested - before->requested) - rows,
                                       (int64_t)(now->resident - before->resident) - rows};
}

struct kvad_memory_offset
kvad_memory_offset_unexplained(const struct kvad_memory_run *run,
                               const struct kvad_memory_checkpoint *checkpoint) {
    return (struct kvad_memory_offset){(int64_t)(checkpoint->memory.unowned - run->before.unowned),
                                       checkpoint->memory.unexplained - run->before.unexplained};
}

/* ---------------------------------------------------------------- JSON */

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

/* null where pages cannot be seen. */
static json_t *resident(const struct kvad_memory_snapshot *snapshot, uint64_t value) {
    return snapshot->resident ? integer(value) : json_null();
}

static int append(json_t *array, json_t *item) {
    return json_array_append_new(array, item);
}

/* Gives the object back, or NULL when some member is missing. */
static json_t *whole(json_t *object, int failed) {
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static json_t *bytes_json(const struct kvad_memory_snapshot *s, enum kvad_memory_owner owner) {
    const struct kvad_memory_bytes *b = &s->owners[owner];
    return json_pack("{s:o, s:o, s:o}", "requested", integer(b->requested), "allocated",
                     integer(b->allocated), "resident", resident(s, b->resident));
}

static json_t *owners_json(const struct kvad_memory_snapshot *s) {
    json_t *object = json_object();
    int failed = !object;
    for (int o = 0; o < KVAD_MEMORY_OWNERS && !failed; o++)
        failed |=
            json_object_set_new(object, owner_names[o], bytes_json(s, (enum kvad_memory_owner)o));
    return whole(object, failed);
}

static json_t *snapshot_json(const struct kvad_memory_snapshot *s) {
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "requested", integer(s->requested), "unowned",
        integer(s->unowned), "resident", resident(s, s->resident), "unexplained",
        s->resident ? json_integer((json_int_t)s->unexplained) : json_null(), "explained_percent",
        s->resident ? json_real(kvad_memory_snapshot_explained(s)) : json_null(), "owners",
        owners_json(s));
}

/* The cache alone first, then the process. */
static json_t *checkpoint_json(const struct kvad_memory_run *run,
                               const struct kvad_memory_checkpoint *c) {
    const struct kvad_memory_snapshot *s = &c->memory;
    const struct kvad_memory_bytes *cache = &s->owners[KVAD_MEMORY_CACHE];
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:o, s:o, s:o}", "policy",
        kvad_cache_policy_name(run->policy), "kv", kvad_kv_type_name(run->kv), "tokens",
        (json_int_t)c->tokens, "bytes_per_token", integer(run->token_bytes), "rows",
        integer(c->rows), "remainder", integer(c->remainder), "formula", integer(c->formula),
        "requested", integer(c->held), "residual", (json_int_t)c->residual, "reserved_formula",
        integer(c->reserved_formula), "reserved", integer(c->reserved), "reserved_residual",
        (json_int_t)c->reserved_residual, "peak", integer(c->peak), "allocated",
        integer(cache->allocated), "resident", resident(s, cache->resident));
    return whole(object, json_object_set_new(object, "process", snapshot_json(s)));
}

static json_t *offset_json(const struct kvad_memory_snapshot *now,
                           struct kvad_memory_offset offset) {
    return json_pack("{s:I, s:o}", "requested", (json_int_t)offset.requested, "resident",
                     now->resident ? json_integer((json_int_t)offset.resident) : json_null());
}

static json_t *offsets_json(const struct kvad_memory_run *run,
                            const struct kvad_memory_checkpoint *c) {
    json_t *object = json_object();
    int failed = !object;
    for (int o = 0; o < KVAD_MEMORY_OWNERS && !failed; o++)
        failed |= json_object_set_new(
            object, owner_names[o],
            offset_json(&c->memory, kvad_memory_offset_of(run, c, (enum kvad_memory_owner)o)));
    failed |= json_object_set_new(object, "unexplained",
                                  offset_json(&c->memory, kvad_memory_offset_unexplained(run, c)));
    return whole(object, failed);
}

/* What the naive way sees: growth of the process, and how far it is from rows. */
static json_t *naive_json(const struct kvad_memory_run *run,
                          const struct kvad_memory_checkpoint *c) {
    struct kvad_memory_offset offset = kvad_memory_offset_whole(run, c);
    const struct kvad_memory_snapshot *now = &c->memory;
    json_int_t rows = (json_int_t)c->rows;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "policy",
        kvad_cache_policy_name(run->policy), "kv", kvad_kv_type_name(run->kv), "tokens",
        (json_int_t)c->tokens, "formula", rows, "requested", rows + (json_int_t)offset.requested,
        "offset", (json_int_t)offset.requested, "resident",
        now->resident ? json_integer(rows + (json_int_t)offset.resident) : json_null(),
        "resident_offset", now->resident ? json_integer((json_int_t)offset.resident) : json_null(),
        "offset_by_owner", offsets_json(run, c));
}

static json_t *head_json(const struct kvad_memory_result *r, json_t *checkpoints, json_t *naive) {
    double explained = kvad_memory_result_explained(r);
    return json_pack("{s:i, s:b, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "schema", 1,
                     "exact", (int)kvad_memory_result_is_exact(r), "explained_percent",
                     explained < 0 ? json_null() : json_real(explained), "resident_not_run",
                     r->no_resident_why ? json_string(r->no_resident_why) : json_null(), "cpu",
                     r->cpu, "threads", (json_int_t)r->n_threads, "ctx", (json_int_t)r->n_ctx,
                     "block", (json_int_t)r->block_tokens, "page_bytes", (json_int_t)r->page_bytes,
                     "bytes_per_token", integer(r->n_runs ? r->runs[0].token_bytes : 0),
                     "checkpoints", checkpoints, "naive", naive);
}

json_t *kvad_memory_result_json(const struct kvad_memory_result *result) {
    json_t *checkpoints = json_array(), *naive = json_array();
    int failed = !checkpoints || !naive;
    for (size_t i = 0; i < result->n_runs; i++) {
        const struct kvad_memory_run *run = &result->runs[i];
        for (unsigned j = 0; j < run->n_checkpoints && !failed; j++) {
            failed |= append(checkpoints, checkpoint_json(run, &run->warmed[j]));
            failed |= append(naive, naive_json(run, &run->naive[j]));
        }
    }
    return whole(head_json(result, checkpoints, naive), failed);
}
