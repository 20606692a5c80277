#include "cli/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/samples.h"
#include "cli/show_cache.h"
#include "cli/streams.h"

struct entry {
    size_t line; /* in the file, from 1 */
    struct kvad_request *request;
    int32_t *ids; /* [n] of the prompt */
    size_t n, max_tokens;
    uint64_t seed;
    int32_t priority;
    char *salt; /* NULL: none */
    int32_t *output;
    size_t n_output, capacity;
    struct cli_text text;
    enum kvad_finish finish;
    struct kvad_error error;
};

struct batch {
    struct cli_session *session;
    struct entry *entries; /* [n] in the order of the lines */
    size_t n, capacity;
    size_t front; /* entries before it are written */
};

/* ---------------------------------------------------------------- reading */

/* What is wrong with an entry, by its place in the file; returns the exit code. */
static int fail_entry(const struct batch *batch, const struct entry *entry,
                      const struct kvad_error *err) {
    cli_say("%s, line %zu: %s", batch->session->settings->batch, entry->line, err->text);
    return cli_exit_code(err->status);
}

static int bad_line(const struct batch *batch, const struct entry *entry, const char *why) {
    cli_say("%s, line %zu: %s", batch->session->settings->batch, entry->line, why);
    return CLI_EXIT_USAGE;
}

static enum kvad_status read_ids(json_t *list, struct entry *entry, struct kvad_error *err) {
    size_t n = json_array_size(list);
    bool ok = json_is_array(list);
    entry->ids = malloc((n + 1) * sizeof *entry->ids);
    if (!entry->ids)
        return cli_error(err, KVAD_ERR_NO_MEMORY, "out of memory: the ids of a prompt");
    for (; ok && entry->n < n; entry->n += ok) {
        json_t *id = json_array_get(list, entry->n);
        json_int_t value = json_integer_value(id);
        ok = json_is_integer(id) && value >= 0 && value <= INT32_MAX;
        if (ok) entry->ids[entry->n] = (int32_t)value;
    }
    if (ok) return KVAD_OK;
    return cli_error(err, KVAD_ERR_ARGUMENT, "\"ids\" is no list of token ids");
}

/* A whole number of the object, if it is there, in [low, high]. */
static bool read_integer(json_t *object, const char *name, json_int_t low, json_int_t high,
                         json_int_t *value) {
    json_t *field = json_object_get(object, name);
    if (!field) return true;
    *value = json_integer_value(field);
    return json_is_integer(field) && *value >= low && *value <= high;
}

/* A field that is none of ours, or NULL. */
static const char *unknown_field(json_t *object) {
    static const char *const known[] = {"prompt", "ids", "max_tokens", "seed", "priority", "salt"};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (i < CLI_COUNT_OF(known) && strcmp(key, known[i]) != 0)
            i++;
        if (i == CLI_COUNT_OF(known)) return key;
    }
    return NULL;
}

/* The salt is a string of C in the interface. */
static int read_salt(const struct batch *batch, json_t *object, struct entry *entry) {
    json_t *salt = json_object_get(object, "salt");
    if (!salt) return CLI_EXIT_OK;
    const char *text = json_string_value(salt);
    if (!text || strlen(text) != json_string_length(salt))
        return bad_line(batch, entry, "salt is not a string without a NUL");
    entry->salt = strdup(text);
    return entry->salt ? CLI_EXIT_OK : cli_fail_memory("a salt");
}

static int read_fields(const struct batch *batch, json_t *object, struct entry *entry) {
    const struct cli_settings *settings = batch->session->settings;
    json_int_t max_tokens = (json_int_t)settings->n_tokens, seed = (json_int_t)settings->seed;
    json_int_t priority = 0;
    const char *unknown = unknown_field(object);
    if (unknown) {
        cli_say("%s, line %zu: \"%.80s\" is unknown: the fields are prompt, ids, max_tokens, seed, "
                "priority and salt",
                settings->batch, entry->line, unknown);
        return CLI_EXIT_USAGE;
    }
    if (!read_integer(object, "max_tokens", 0, INT32_MAX, &max_tokens) ||
        !read_integer(object, "seed", 0, (json_int_t)0x1p53, &seed) ||
        !read_integer(object, "priority", -1000, 1000, &priority))
        return bad_line(batch, entry,
                        "max_tokens and seed are whole numbers, priority is one in [-1000, 1000]");
    entry->max_tokens = (size_t)max_tokens;
    entry->seed = (uint64_t)seed;
    entry->priority = (int32_t)priority;
    return read_salt(batch, object, entry);
}

/* An empty prompt is the default one, as it is without --batch. */
static enum kvad_status read_prompt(const struct cli_session *session, json_t *prompt, json_t *ids,
                                    struct entry *entry, struct kvad_error *err) {
    bool is_empty =
        prompt ? json_string_length(prompt) == 0 : json_is_array(ids) && json_array_size(ids) == 0;
    if (is_empty) return cli_default_ids(session, &entry->ids, &entry->n, err);
    if (ids) return read_ids(ids, entry, err);
    if (!session->tokenizer)
        return cli_error(err, KVAD_ERR_ARGUMENT, "the model has no tokenizer: give \"ids\"");
    return cli_encode(session->tokenizer, json_string_value(prompt), json_string_length(prompt),
                      session->settings->special, &entry->ids, &entry->n, err);
}

static int read_entry(const struct batch *batch, json_t *object, struct entry *entry) {
    json_t *prompt = json_is_string(object) ? object : json_object_get(object, "prompt");
    json_t *ids = json_object_get(object, "ids");
    struct kvad_error err = {0};
    int status = read_fields(batch, object, entry);
    if (status != CLI_EXIT_OK) return status;
    if ((prompt != NULL) == (ids != NULL) || (prompt && !json_is_string(prompt)))
        return bad_line(batch, entry, "wanted a string, or an object with \"prompt\" or \"ids\"");
    return read_prompt(batch->session, prompt, ids, entry, &err) == KVAD_OK
               ? CLI_EXIT_OK
               : fail_entry(batch, entry, &err);
}

static int read_line(struct batch *batch, const char *bytes, size_t size, size_t line) {
    if (batch->n == batch->capacity) {
        size_t capacity = batch->capacity ? 2 * batch->capacity : 16;
        struct entry *entries = realloc(batch->entries, capacity * sizeof *entries);
        if (!entries) return cli_fail_memory("the batch");
        batch->entries = entries;
        batch->capacity = capacity;
    }
    struct entry *entry = &batch->entries[batch->n++];
    *entry = (struct entry){.line = line};
    size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_error_t why;
    json_t *object = json_loadb(bytes, size, flags, &why);
    if (!object) return bad_line(batch, entry, why.text);
    int status = read_entry(batch, object, entry);
    json_decref(object);
    return status;
}

static int read_batch(struct batch *batch) {
    struct cli_text text = {0};
    int status = cli_read_file(batch->session->settings->batch, &text);
    size_t line = 1;
    for (size_t at = 0; at < text.size && status == CLI_EXIT_OK; line++) {
        const char *start = text.bytes + at, *end = memchr(start, '\n', text.size - at);
        size_t size = end ? (size_t)(end - start) : text.size - at;
        at += size + 1;
        if (strspn(start, " \t\r") < size) status = read_line(batch, start, size, line);
    }
    if (status == CLI_EXIT_OK && batch->n == 0) {
        cli_say("%s: holds no prompt; each line is a JSON string or object",
                batch->session->settings->batch);
        status = CLI_EXIT_USAGE;
    }
    cli_text_deinit(&text);
    return status;
}

/* ---------------------------------------------------------------- running */

static int submit(const struct batch *batch, struct entry *entry) {
    const struct cli_settings *settings = batch->session->settings;
    struct kvad_sampler_options sampler;
    struct kvad_request_options options;
    struct kvad_error err = {0};
    cli_sampler_options(batch->session, 0, &sampler);
    sampler.seed = entry->seed;
    cli_request_options(batch->session, &options);
    options.prompt = entry->ids;
    options.n_prompt = entry->n;
    options.max_tokens = entry->max_tokens;
    options.logprobs = false;
    options.sampler = &sampler;
    options.priority = entry->priority;
    options.cache_salt = entry->salt;
    options.no_prefix_cache = settings->no_prefix_cache;
    if (kvad_request_submit(batch->session->engine, &options, &entry->request, &err) != KVAD_OK)
        return fail_entry(batch, entry, &err);
    return CLI_EXIT_OK;
}

static bool collect(struct entry *entry) {
    struct kvad_event event;
    while (entry->finish == KVAD_FINISH_NONE && kvad_request_poll(entry->request, &event)) {
        if (entry->n_output == entry->capacity) {
            size_t capacity = entry->capacity ? 2 * entry->capacity : 64;
            int32_t *output = realloc(entry->output, capacity * sizeof *output);
            if (!output) return false;
            entry->output = output;
            entry->capacity = capacity;
        }
        if (event.token >= 0) entry->output[entry->n_output++] = event.token;
        if (!cli_text_append(&entry->text, event.text, event.text_size)) return false;
        entry->finish = event.finish;
        if (event.finish == KVAD_FINISH_ERROR) kvad_request_error(entry->request, &entry->error);
    }
    return true;
}

/* Why its prompt found no more of itself in the cache; null where it found all. */
static json_t *miss_json(const struct entry *entry) {
    static const char *const reasons[] = {[KVAD_MISS_OFF] = "off",
                                          [KVAD_MISS_COLD] = "cold",
                                          [KVAD_MISS_DIFFERS] = "differs",
                                          [KVAD_MISS_EVICTED] = "evicted",
                                          [KVAD_MISS_SALT] = "salt"};
    struct kvad_miss_info info;
    kvad_request_get_miss(entry->request, &info);
    if (info.miss == KVAD_MISS_NONE) return json_null();
    json_t *object = json_pack("{s:s, s:I}", "reason", reasons[info.miss], "position",
                               (json_int_t)info.position);
    int failed = !object;
    if (info.wanted >= 0) failed |= json_object_set_new(object, "token", json_integer(info.wanted));
    if (info.cached >= 0)
        failed |= json_object_set_new(object, "cached_token", json_integer(info.cached));
    if (info.miss == KVAD_MISS_EVICTED) {
        failed |= json_object_set_new(object, "evicted_steps",
                                      json_integer((json_int_t)info.evicted_steps));
        failed |= json_object_set_new(object, "evicted_for",
                                      info.evicted_for == KVAD_NO_REQUEST
                                          ? json_null()
                                          : json_integer((json_int_t)info.evicted_for));
    }
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static json_t *entry_json(const struct batch *batch, size_t index) {
    const struct entry *entry = &batch->entries[index];
    struct kvad_request_info info;
    kvad_request_get_info(entry->request, &info);
    json_t *object = json_pack(
        "{s:i, s:I, s:o, s:s, s:I, s:I, s:o, s:I, s:I}", "schema", 1, "index", (json_int_t)index,
        "ids", cli_json_ids(entry->output, entry->n_output), "finish_reason",
        cli_finish_name(entry->finish), "prompt_tokens", (json_int_t)entry->n, "cached_tokens",
        (json_int_t)info.n_cached_tokens, "miss", miss_json(entry), "preemptions",
        (json_int_t)info.n_preemptions, "recomputed_tokens", (json_int_t)info.n_recomputed_tokens);
    if (object && batch->session->tokenizer)
        json_object_set_new(object, "text", cli_json_string(entry->text.bytes, entry->text.size));
    if (object && entry->finish == KVAD_FINISH_ERROR)
        json_object_set_new(object, "error", json_string(entry->error.text));
    return object;
}

/* Take what is ready, and write the entries that have ended and before which all have. */
static int collect_all(struct batch *batch) {
    for (size_t i = batch->front; i < batch->n; i++)
        if (!collect(&batch->entries[i])) return cli_fail_memory("the generated text");
    for (; batch->front < batch->n; batch->front++) {
        if (batch->entries[batch->front].finish == KVAD_FINISH_NONE) break;
        int status = cli_json_print(entry_json(batch, batch->front));
        if (status != CLI_EXIT_OK) return status;
    }
    return CLI_EXIT_OK;
}

static int run_steps(struct batch *batch) {
    struct cli_cache_view view = {0};
    struct kvad_error err = {0};
    size_t n_active = batch->n;
    int status = CLI_EXIT_OK;
    while (n_active > 0 && status == CLI_EXIT_OK) {
        enum kvad_status step = kvad_engine_step(batch->session->engine, &n_active, &err);
        if (step == KVAD_ERR_CANCELLED)
            for (size_t i = batch->front; i < batch->n; i++)
                kvad_request_cancel(batch->entries[i].request);
        else if (step != KVAD_OK)
            status = cli_fail(&err);
        if (status == CLI_EXIT_OK) status = collect_all(batch);
        if (batch->session->settings->show_cache)
            cli_cache_view_draw(&view, batch->session->engine);
    }
    if (batch->session->settings->show_cache) cli_cache_view_end(&view, batch->session->engine);
    return status;
}

/* The first that failed decides. */
static int verdict(const struct batch *batch) {
    if (cli_is_interrupted()) return CLI_EXIT_INTERRUPTED;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->entries[i].finish == KVAD_FINISH_ERROR)
            return fail_entry(batch, &batch->entries[i], &batch->entries[i].error);
    return CLI_EXIT_OK;
}

static int run(struct batch *batch) {
    uint64_t n_parallel = batch->session->settings->n_parallel;
    uint32_t n = (uint32_t)(batch->n < n_parallel ? batch->n : n_parallel);
    int status = cli_session_open_engine(batch->session, n, 0);
    for (size_t i = 0; i < batch->n && status == CLI_EXIT_OK; i++)
        status = submit(batch, &batch->entries[i]);
    if (status == CLI_EXIT_OK) status = run_steps(batch);
    return status == CLI_EXIT_OK ? verdict(batch) : status;
}

int cli_batch_run(struct cli_session *session) {
    struct batch batch = {.session = session};
    int status = read_batch(&batch);
    if (status == CLI_EXIT_OK) status = run(&batch);
    for (size_t i = 0; i < batch.n; i++) {
        struct entry *entry = &batch.entries[i];
        kvad_request_destroy(&entry->request);
        cli_text_deinit(&entry->text);
        free(entry->ids);
        free(entry->output);
        free(entry->salt);
    }
    free(batch.entries);
    return status;
}
