/* Text to values: one parser for each kind of option. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/options.h"

struct value_parser {
    const struct cli_option *option;
    const char *text;
    char *why;
    size_t why_size;
};

static int refuse(const struct value_parser *parser, const char *rule) {
    snprintf(parser->why, parser->why_size, "'%.80s' %s", parser->text, rule);
    return CLI_EXIT_USAGE;
}

static int no_memory(const struct value_parser *parser) {
    snprintf(parser->why, parser->why_size, "out of memory");
    return CLI_EXIT_MEMORY;
}

/* strtod() also takes white space, hexadecimal, "nan" and "infinity": users mean decimal numbers.
 */
static bool number_at(const char *text, double *out, char **end) {
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits != '.' && (*digits < '0' || *digits > '9')) return false;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) return false;
    *out = strtod(text, end);
    return true;
}

static int in_range(const struct value_parser *parser, double value) {
    const struct cli_option *option = parser->option;
    if (value >= option->min && value <= option->max) return CLI_EXIT_OK;
    char rule[96];
    snprintf(rule, sizeof rule, "is outside %.17g to %.17g", option->min, option->max);
    return refuse(parser, rule);
}

static int parse_integer(const struct value_parser *parser, uint64_t *out) {
    size_t digits = strspn(parser->text, "0123456789");
    if (parser->text[0] == '-' && strspn(parser->text + 1, "0123456789") > 0)
        return in_range(parser, -1);
    if (digits == 0 || parser->text[digits]) return refuse(parser, "is not a whole number");
    errno = 0;
    unsigned long long value = strtoull(parser->text, NULL, 10);
    if (errno) return in_range(parser, HUGE_VAL);
    int status = in_range(parser, (double)value);
    if (status == CLI_EXIT_OK) *out = value;
    return status;
}

static int parse_number(const struct value_parser *parser, double *out) {
    double value;
    char *end;
    if (!number_at(parser->text, &value, &end) || *end) return refuse(parser, "is not a number");
    int status = in_range(parser, value);
    if (status == CLI_EXIT_OK) *out = value;
    return status;
}

/* K, KiB = 1024; KB = 1000; and so on. False for an unknown unit. */
static bool unit_factor(const char *unit, double *out) {
    static const char letters[] = "kmgt";
    *out = 1;
    if (!*unit || strcasecmp(unit, "b") == 0) return true;
    const char *letter = strchr(letters, *unit | 0x20);
    if (!letter) return false;
    bool is_decimal = strcasecmp(unit + 1, "b") == 0;
    if (unit[1] && !is_decimal && strcasecmp(unit + 1, "ib") != 0) return false;
    for (const char *l = letters; l <= letter; l++)
        *out *= is_decimal ? 1000 : 1024;
    return true;
}

static int parse_size(const struct value_parser *parser, uint64_t *out) {
    double value, factor;
    char *end;
    if (!number_at(parser->text, &value, &end) || !unit_factor(end, &factor))
        return refuse(parser, "is not a size such as 512M or 2GiB");
    int status = in_range(parser, value * factor);
    if (status == CLI_EXIT_OK) *out = (uint64_t)(value * factor);
    return status;
}

static const struct cli_choice *find_choice(const struct cli_choice *choices, const char *name,
                                            size_t size) {
    for (; choices->name; choices++)
        if (strlen(choices->name) == size && memcmp(choices->name, name, size) == 0) return choices;
    return NULL;
}

static int refuse_choice(const struct value_parser *parser) {
    char rule[256] = "is not one of";
    for (const struct cli_choice *c = parser->option->choices; c->name; c++) {
        size_t used = strlen(rule);
        snprintf(rule + used, sizeof rule - used, "%s %s", c == parser->option->choices ? "" : ",",
                 c->name);
    }
    return refuse(parser, rule);
}

static int parse_choice(const struct value_parser *parser, int *out) {
    const struct cli_choice *choice =
        find_choice(parser->option->choices, parser->text, strlen(parser->text));
    if (!choice) return refuse_choice(parser);
    *out = choice->value;
    return CLI_EXIT_OK;
}

static int parse_stages(const struct value_parser *parser, unsigned char *order) {
    unsigned char stages[KVAD_STAGE_COUNT] = {KVAD_STAGE_END};
    size_t n = 0;
    for (const char *at = parser->text;; at++) {
        size_t size = strcspn(at, ",");
        const struct cli_choice *stage = find_choice(parser->option->choices, at, size);
        if (!stage) return refuse_choice(parser);
        if (memchr(stages, stage->value, n)) return refuse(parser, "names a stage twice");
        stages[n++] = (unsigned char)stage->value;
        at += size;
        if (!*at) break;
    }
    memcpy(order, stages, sizeof stages);
    return CLI_EXIT_OK;
}

/* Bool words of variables; on the command line a flag is just there. */
static int parse_flag(const struct value_parser *parser, bool *out) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < CLI_COUNT_OF(words); i++) {
        if (strcasecmp(parser->text, words[i]) != 0) continue;
        *out = i % 2 != 0;
        return CLI_EXIT_OK;
    }
    return refuse(parser, "is neither 1 nor 0");
}

static int parse_texts(const struct value_parser *parser, struct cli_texts *texts) {
    if (!*parser->text) return refuse(parser, "is empty");
    const char **items = realloc(texts->items, (texts->n + 1) * sizeof *items);
    if (!items) return no_memory(parser);
    items[texts->n++] = parser->text;
    texts->items = items;
    return CLI_EXIT_OK;
}

static bool is_separator(char c) {
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Reads one id of [0, 2^31) at `at`; NULL if there is none. */
static const char *id_at(const char *at, int32_t *id) {
    if (*at < '0' || *at > '9') return NULL;
    char *end;
    errno = 0;
    unsigned long value = strtoul(at, &end, 10);
    if (errno || value > INT32_MAX) return NULL;
    *id = (int32_t)value;
    return end;
}

static int parse_ids(const struct value_parser *parser, struct cli_ids *ids) {
    ids->is_given = true;
    size_t capacity = ids->n + strlen(parser->text) / 2 + 1;
    int32_t *items = realloc(ids->items, capacity * sizeof *items);
    if (!items) return no_memory(parser);
    ids->items = items;
    for (const char *at = parser->text; *at;) {
        if (is_separator(*at)) {
            at++;
            continue;
        }
        at = id_at(at, &items[ids->n]);
        if (!at || (*at && !is_separator(*at)))
            return refuse(parser, "is not a list of token ids such as 12,7,300");
        ids->n++;
    }
    return CLI_EXIT_OK;
}

/* Room for as many numbers as a text may hold. */
static uint32_t *new_numbers(const struct value_parser *parser, struct cli_numbers *numbers) {
    free(numbers->items);
    *numbers = (struct cli_numbers){.is_given = true};
    numbers->items = malloc((strlen(parser->text) / 2 + 1) * sizeof *numbers->items);
    return numbers->items;
}

/* Unlike other lists it does not grow: the last one given counts. */
static int parse_numbers(const struct value_parser *parser, struct cli_numbers *numbers) {
    uint32_t *items = new_numbers(parser, numbers);
    if (!items) return no_memory(parser);
    for (const char *at = parser->text; *at; at += *at == ',') {
        int32_t value;
        const char *end = id_at(at, &value);
        if (!end || (*end && (*end != ',' || !end[1])))
            return refuse(parser, "is not a list of numbers such as 16,128,512");
        int status = in_range(parser, value);
        if (status != CLI_EXIT_OK) return status;
        items[numbers->n++] = (uint32_t)value;
        at = end;
    }
    return CLI_EXIT_OK;
}

static int parse_choices(const struct value_parser *parser, struct cli_numbers *numbers) {
    uint32_t *items = new_numbers(parser, numbers);
    if (!items) return no_memory(parser);
    for (const char *at = parser->text;; at++) {
        size_t size = strcspn(at, ",");
        const struct cli_choice *choice = find_choice(parser->option->choices, at, size);
        if (!choice) return refuse_choice(parser);
        for (size_t i = 0; i < numbers->n; i++)
            if (items[i] == (uint32_t)choice->value) return refuse(parser, "names one twice");
        items[numbers->n++] = (uint32_t)choice->value;
        at += size;
        if (!*at) return CLI_EXIT_OK;
    }
}

/* A bias is a finite float, or -inf to exclude the id; a double beyond float's range is refused. */
static bool bias_at(const char *at, float *bias, char **end) {
    double value;
    if (strncasecmp(at, "-inf", 4) == 0) {
        *end = (char *)(uintptr_t)(at + 4);
        *bias = -INFINITY;
        return true;
    }
    if (!number_at(at, &value, end) || !(fabs(value) <= (double)FLT_MAX)) return false;
    *bias = (float)value;
    return true;
}

static int parse_biases(const struct value_parser *parser, struct cli_biases *biases) {
    for (const char *at = parser->text;; at++) {
        struct kvad_logit_bias bias;
        char *end;
        at = id_at(at, &bias.id);
        if (!at || *at != '=' || !bias_at(at + 1, &bias.bias, &end) || (*end && *end != ','))
            return refuse(parser, "is not ID=BIAS with an id and a number or -inf");
        struct kvad_logit_bias *items = realloc(biases->items, (biases->n + 1) * sizeof *items);
        if (!items) return no_memory(parser);
        items[biases->n++] = bias;
        biases->items = items;
        at = end;
        if (!*at) return CLI_EXIT_OK;
    }
}

int cli_value_parse(const struct cli_option *option, const char *text,
                    struct cli_settings *settings, char *why, size_t why_size) {
    struct value_parser parser = {option, text, why, why_size};
    void *value = (char *)settings + option->offset;
    switch (option->kind) {
    case CLI_FLAG: return parse_flag(&parser, value);
    case CLI_TEXT:
    case CLI_FILE: *(const char **)value = text; return CLI_EXIT_OK;
    case CLI_COUNT:
    case CLI_INTEGER: return parse_integer(&parser, value);
    case CLI_NUMBER: return parse_number(&parser, value);
    case CLI_SIZE: return parse_size(&parser, value);
    case CLI_CHOICE: return parse_choice(&parser, value);
    case CLI_TEXTS: return parse_texts(&parser, value);
    case CLI_IDS: return parse_ids(&parser, value);
    case CLI_NUMBERS: return parse_numbers(&parser, value);
    case CLI_CHOICES: return parse_choices(&parser, value);
    case CLI_BIASES: return parse_biases(&parser, value);
    case CLI_STAGES: return parse_stages(&parser, value);
    }
    return CLI_EXIT_USAGE;
}

void cli_settings_deinit(struct cli_settings *settings) {
    free(settings->arguments.items);
    free(settings->stop.items);
    free(settings->ids.items);
    free(settings->stop_ids.items);
    free(settings->logit_bias.items);
    free(settings->contexts.items);
    free(settings->prefills.items);
    free(settings->batches.items);
    free(settings->policies.items);
    free(settings->weight_types.items);
    free(settings->checks.items);
    free(settings->kv_types.items);
    *settings = (struct cli_settings){0};
}
