#include "cli/json.h"

#include <math.h>
#include <stdio.h>

#include "cli/options.h"
#include "cli/session.h"
#include "cli/streams.h"

json_t *cli_json_string(const char *bytes, size_t size) {
    struct cli_text text = {0};
    json_t *string = NULL;
    if (cli_text_append_utf8(&text, bytes, size))
        string = json_stringn(text.bytes ? text.bytes : "", text.size);
    cli_text_deinit(&text);
    return string;
}

json_t *cli_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_json_ids(const int32_t *ids, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        if (json_array_append_new(array, json_integer(ids[i])) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

int cli_json_print(json_t *object) {
    if (!object) return cli_fail_memory("the JSON result");
    bool ok = json_dumpf(object, stdout, JSON_COMPACT) == 0;
    json_decref(object);
    putchar('\n');
    int status = cli_flush_output();
    return ok || status != CLI_EXIT_OK ? status : cli_fail_memory("the JSON result");
}
