#include "base/json.h"

#include <pthread.h>

#include "base/error.h"
#include "base/utf8.h"

static void seed_hashes(void) {
    json_object_seed(0);
}

enum kvad_status kvad_json_parse_object(const char *text, size_t size, const char *name,
                                        json_t **out, struct kvad_error *err) {
    /* jansson seeds its hash on first use, which must not race. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, seed_hashes);
    json_error_t why;
    size_t mark = kvad_utf8_mark(text, size);
    json_t *root = json_loadb(text + mark, size - mark, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        /* Where its own memory fails, the library mostly returns without a word. */
        if (json_error_code(&why) == json_error_out_of_memory || why.text[0] == '\0')
            return kvad_fail(err, KVAD_ERR_NO_MEMORY, "%s: out of memory while reading JSON", name);
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: line %d column %d: %s", name, why.line,
                         why.column, why.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: the JSON must be an object", name);
    }
    *out = root;
    return KVAD_OK;
}

/* The field if it is there and not null. */
static const json_t *present(const json_t *object, const char *field) {
    const json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

static enum kvad_status wrong_type(const char *name, const char *field, const char *wanted,
                                   struct kvad_error *err) {
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: field \"%s\" must be %s", name, field, wanted);
}

enum kvad_status kvad_json_get_u32(const json_t *object, const char *name, const char *field,
                                   uint32_t min, uint32_t max, uint32_t *out,
                                   struct kvad_error *err) {
    const json_t *value = present(object, field);
    if (!value) return KVAD_OK;
    if (!json_is_integer(value)) return wrong_type(name, field, "a whole number", err);
    json_int_t number = json_integer_value(value);
    if (number < (json_int_t)min || number > (json_int_t)max)
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: field \"%s\" is %lld, must be %u to %u", name,
                         field, (long long)number, min, max);
    *out = (uint32_t)number;
    return KVAD_OK;
}

enum kvad_status kvad_json_get_double(const json_t *object, const char *name, const char *field,
                                      double min, double max, double *out, struct kvad_error *err) {
    const json_t *value = present(object, field);
    if (!value) return KVAD_OK;
    if (!json_is_number(value)) return wrong_type(name, field, "a number", err);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return kvad_fail(err, KVAD_ERR_FORMAT, "%s: field \"%s\" is %g, must be %g to %g", name,
                         field, number, min, max);
    *out = number;
    return KVAD_OK;
}

enum kvad_status kvad_json_get_bool(const json_t *object, const char *name, const char *field,
                                    bool *out, struct kvad_error *err) {
    const json_t *value = present(object, field);
    if (!value) return KVAD_OK;
    if (!json_is_boolean(value)) return wrong_type(name, field, "true or false", err);
    *out = json_is_true(value);
    return KVAD_OK;
}

enum kvad_status kvad_json_get_string(const json_t *object, const char *name, const char *field,
                                      const char **out, struct kvad_error *err) {
    const json_t *value = present(object, field);
    if (!value) return KVAD_OK;
    if (!json_is_string(value)) return wrong_type(name, field, "a string", err);
    *out = json_string_value(value);
    return KVAD_OK;
}
