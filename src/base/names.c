/* The names of the public enums, from the lists of kvad.h. */
#include "kvad/kvad.h"

#define NAME(id, name)  name,
#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *name_of(const char *const *names, size_t n, size_t value) {
    return value < n ? names[value] : "unknown";
}

const char *kvad_activation_name(enum kvad_activation activation) {
    static const char *const names[] = {"auto", KVAD_ACTIVATION_LIST(NAME)};
    return name_of(names, COUNT_OF(names), (size_t)activation);
}

const char *kvad_weight_type_name(enum kvad_weight_type type) {
    static const char *const names[] = {KVAD_WEIGHT_TYPE_LIST(NAME) "auto"};
    return name_of(names, COUNT_OF(names), (size_t)type);
}

const char *kvad_cache_policy_name(enum kvad_cache_policy policy) {
    static const char *const names[] = {KVAD_CACHE_POLICY_LIST(NAME)};
    return name_of(names, COUNT_OF(names), (size_t)policy);
}

const char *kvad_kv_type_name(enum kvad_kv_type type) {
    static const char *const names[] = {KVAD_KV_TYPE_LIST(NAME)};
    return name_of(names, COUNT_OF(names), (size_t)type);
}
