/* What kvad generate reports: JSON for programs, one line of times for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/groups.h"
#include "cli/json.h"
#include "cli/samples.h"
#include "cli/streams.h"

const char *cli_finish_name(enum kvad_finish finish) {
    switch (finish) {
    case KVAD_FINISH_LENGTH: return "length";
    case KVAD_FINISH_STOP: return "stop";
    case KVAD_FINISH_ERROR: return "error";
    case KVAD_FINISH_NONE:
    case KVAD_FINISH_CANCELLED: break;
    }
    return "cancelled";
}

static json_t *logprobs_json(const struct cli_sample *sample) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < sample->n_ids; i++)
        if (json_array_append_new(array, cli_json_number(sample->logprobs[i])) != 0) break;
    return array;
}

/* Adds what belongs to one sample; false when memory is out. */
static bool add_sample(json_t *object, const struct cli_sample *sample) {
    int failed = json_object_set_new(object, "ids", cli_json_ids(sample->ids, sample->n_ids));
    failed |=
        json_object_set_new(object, "text", cli_json_string(sample->text.bytes, sample->text.size));
    failed |=
        json_object_set_new(object, "finish_reason", json_string(cli_finish_name(sample->finish)));
    failed |= json_object_set_new(object, "logprobs", logprobs_json(sample));
    if (sample->finish == KVAD_FINISH_ERROR)
        failed |= json_object_set_new(
            object, "error", cli_json_string(sample->error.text, strlen(sample->error.text)));
    return !failed;
}

static json_t *samples_json(const struct cli_generation *generation) {
    json_t *array = json_array();
    uint64_t first = generation->session->settings->sample_index;
    for (size_t i = 0; array && i < generation->n_samples; i++) {
        json_t *sample = json_pack("{s:I}", "index", (json_int_t)(first + i));
        if (sample && !add_sample(sample, &generation->samples[i])) {
            json_decref(sample);
            sample = NULL;
        }
        if (json_array_append_new(array, sample) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

/* Clocks give no more than three digits after a millisecond. */
static double rounded(double value) {
    return round(value * 1e3) / 1e3;
}

static double per_second(size_t n, double ms) {
    return ms > 0 ? rounded((double)n * 1e3 / ms) : 0;
}

static double ms_per_token(const struct cli_generation *generation) {
    size_t n = generation->decode_tokens;
    return n ? rounded(generation->decode_ms / (double)n) : 0;
}

static json_t *timings_json(const struct cli_generation *generation) {
    return json_pack(
        "{s:f, s:f, s:I, s:f, s:f, s:I, s:f, s:f}", "load_ms",
        rounded(generation->session->load_ms), "prefill_ms", rounded(generation->prefill_ms),
        "prefill_tokens", (json_int_t)generation->prefill_tokens, "prefill_tokens_per_s",
        per_second(generation->prefill_tokens, generation->prefill_ms), "decode_ms",
        rounded(generation->decode_ms), "decode_tokens", (json_int_t)generation->decode_tokens,
        "decode_ms_per_token", ms_per_token(generation), "decode_tokens_per_s",
        per_second(generation->decode_tokens, generation->decode_ms));
}

static json_t *cache_json(const struct cli_generation *generation) {
    const struct cli_session *session = generation->session;
    struct kvad_engine_info info;
    kvad_engine_get_info(session->engine, &info);
    return json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:I, s:I}", "policy",
                     kvad_cache_policy_name((enum kvad_cache_policy)session->settings->cache),
                     "bytes", (json_int_t)info.kv_bytes_peak, "pool_bytes",
                     (json_int_t)info.kv_pool_bytes, "bytes_per_token",
                     (json_int_t)info.kv_bytes_per_token, "k_type", kvad_kv_type_name(info.k_type),
                     "v_type", kvad_kv_type_name(info.v_type), "block_tokens",
                     (json_int_t)info.block_tokens, "n_ctx", (json_int_t)info.n_ctx);
}

static json_t *machine_json(const struct cli_generation *generation) {
    struct kvad_engine_info info;
    kvad_engine_get_info(generation->session->engine, &info);
    return json_pack("{s:s, s:s, s:I}", "version", kvad_version(), "cpu", info.cpu, "threads",
                     (json_int_t)info.n_threads);
}

int cli_generation_print_json(const struct cli_generation *generation) {
    const struct cli_settings *settings = generation->session->settings;
    const struct cli_prompt *prompt = generation->prompt;
    json_t *object = json_pack("{s:i}", "schema", 1);
    if (!object) return cli_json_print(NULL);
    int failed = json_object_set_new(object, "prompt_ids", cli_json_ids(prompt->ids, prompt->n));
    if (settings->n_samples == 1)
        failed |= !add_sample(object, &generation->samples[0]);
    else
        failed |= json_object_set_new(object, "samples", samples_json(generation));
    failed |= json_object_set_new(object, "seed", json_integer((json_int_t)settings->seed));
    failed |= json_object_set_new(object, "timings", timings_json(generation));
    failed |= json_object_set_new(object, "cache", cache_json(generation));
    failed |= json_object_set_new(object, "engine", machine_json(generation));
    if (!failed) return cli_json_print(object);
    json_decref(object);
    return cli_json_print(NULL);
}

void cli_generation_print_timing(const struct cli_generation *generation) {
    const struct cli_session *session = generation->session;
    struct kvad_engine_info info;
    char cache[CLI_SIZE_TEXT], decode[96] = "";
    kvad_engine_get_info(session->engine, &info);
    cli_format_size(info.kv_bytes_peak, cache);
    if (generation->decode_tokens) /* the first token comes from the prefill */
        snprintf(decode, sizeof decode, "; decode %zu tokens, %.2f ms each (%.0f tokens/s)",
                 generation->decode_tokens, ms_per_token(generation),
                 per_second(generation->decode_tokens, generation->decode_ms));
    cli_say("load %.0f ms; prefill %zu tokens in %.1f ms (%.0f tokens/s)%s; cache %s %s/%s, %s; "
            "%u threads, %s",
            session->load_ms, generation->prefill_tokens, generation->prefill_ms,
            per_second(generation->prefill_tokens, generation->prefill_ms), decode,
            kvad_cache_policy_name((enum kvad_cache_policy)session->settings->cache),
            kvad_kv_type_name(info.k_type), kvad_kv_type_name(info.v_type), cache, info.n_threads,
            info.cpu);
}
