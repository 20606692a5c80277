/* Values in the making: nodes, growing lists and dicts, and the check of the finished tree. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/pickle_vm.h"

typedef const struct kvad_pickle_value *value_ref;

enum kvad_status kvad_pickle_fail(struct kvad_pickle_vm *vm, enum kvad_status status,
                                  const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kvad_fail(vm->err, status, "%s: %s, offset %llu: %s", vm->pickle->name, vm->in.what,
                     (unsigned long long)(vm->in.offset + vm->op_at), text);
}

enum kvad_status kvad_pickle_alloc(struct kvad_pickle_vm *vm, size_t size, void **out) {
    size_t used = vm->pickle->arena.used - vm->arena_before;
    size_t limit = vm->at * KVAD_PICKLE_MAX_GROWTH + 4096; /* at <= 256 MiB */
    if (size > limit || used > limit - size)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "its values need more than %d bytes of memory for each byte read",
                                KVAD_PICKLE_MAX_GROWTH);
    *out = kvad_arena_alloc(&vm->pickle->arena, size);
    return *out ? KVAD_OK : kvad_fail_memory(vm->err, "values of a pickle", size);
}

enum kvad_status kvad_pickle_node(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                  enum kvad_pickle_kind kind, size_t size,
                                  struct kvad_pickle_node **out) {
    void *memory = NULL;
    KVAD_TRY(kvad_pickle_alloc(vm, offsetof(struct kvad_pickle_node, value.as) + size, &memory));
    struct kvad_pickle_node *node = memory;
    node->role = (uint8_t)role;
    node->walked = node->height = 0;
    node->value.kind = kind;
    *out = node;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_new_list(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                      struct kvad_pickle_node **out) {
    KVAD_TRY(kvad_pickle_node(vm, role, KVAD_PICKLE_LIST, sizeof(*out)->value.as.list, out));
    (*out)->value.as.list.items = NULL;
    (*out)->value.as.list.n = 0;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_new_dict(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                      struct kvad_pickle_node **out) {
    KVAD_TRY(kvad_pickle_node(vm, role, KVAD_PICKLE_DICT, sizeof(*out)->value.as.dict, out));
    (*out)->value.as.dict.keys = (*out)->value.as.dict.values = NULL;
    (*out)->value.as.dict.n = 0;
    vm->seen_container = true;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_new_string(struct kvad_pickle_vm *vm, const unsigned char *bytes,
                                        size_t size, struct kvad_pickle_node **out) {
    void *copy = NULL;
    KVAD_TRY(kvad_pickle_alloc(vm, size + 1, &copy));
    memcpy(copy, bytes, size);
    ((char *)copy)[size] = 0;
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_STRING,
                              sizeof(*out)->value.as.string, out));
    (*out)->value.as.string.bytes = copy;
    (*out)->value.as.string.size = size;
    return KVAD_OK;
}

static value_ref as_value(const struct kvad_pickle_node *node) {
    return &node->value;
}
static struct kvad_pickle_node *as_node(value_ref value) {
    return (struct kvad_pickle_node *)((uintptr_t)value - offsetof(struct kvad_pickle_node, value));
}

struct kvad_pickle_node *kvad_pickle_item(const struct kvad_pickle_node *list, size_t i) {
    return as_node(list->value.as.list.items[i]);
}

/* The capacity of an array of n is the power of two from n up, so that it need not be stored. */
static size_t capacity_of(size_t n) {
    size_t capacity = 1;
    while (capacity < n)
        capacity *= 2;
    return n ? capacity : 0;
}

static enum kvad_status reserve(struct kvad_pickle_vm *vm, value_ref **array, size_t n,
                                size_t more) {
    if (n + more <= capacity_of(n)) return KVAD_OK;
    void *fresh = NULL;
    KVAD_TRY(kvad_pickle_alloc(vm, capacity_of(n + more) * sizeof **array, &fresh));
    if (n) memcpy(fresh, *array, n * sizeof **array);
    *array = fresh;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_append(struct kvad_pickle_vm *vm, struct kvad_pickle_node *list,
                                    struct kvad_pickle_node *const *items, size_t n) {
    value_ref **array = &list->value.as.list.items;
    size_t *count = &list->value.as.list.n;
    KVAD_TRY(reserve(vm, array, *count, n));
    for (size_t i = 0; i < n; i++)
        (*array)[*count + i] = as_value(items[i]);
    *count += n;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_set_items(struct kvad_pickle_vm *vm, struct kvad_pickle_node *dict,
                                       struct kvad_pickle_node *const *pairs, size_t n) {
    value_ref **keys = &dict->value.as.dict.keys, **values = &dict->value.as.dict.values;
    size_t *count = &dict->value.as.dict.n;
    for (size_t i = 0; i < n; i++) {
        enum kvad_pickle_role role = pairs[2 * i]->role;
        if (role == KVAD_ROLE_LIST || role == KVAD_ROLE_SET || role == KVAD_ROLE_DICT ||
            role == KVAD_ROLE_ORDERED)
            return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "a %s as key of a dict",
                                    kvad_pickle_node_text(pairs[2 * i]));
    }
    KVAD_TRY(reserve(vm, keys, *count, n));
    KVAD_TRY(reserve(vm, values, *count, n));
    for (size_t i = 0; i < n; i++) {
        (*keys)[*count + i] = as_value(pairs[2 * i]);
        (*values)[*count + i] = as_value(pairs[2 * i + 1]);
    }
    *count += n;
    return KVAD_OK;
}

const char *kvad_pickle_node_text(const struct kvad_pickle_node *node) {
    static const char *const roles[] = {[KVAD_ROLE_TUPLE] = "tuple",
                                        [KVAD_ROLE_LIST] = "list",
                                        [KVAD_ROLE_SET] = "set",
                                        [KVAD_ROLE_DICT] = "dict",
                                        [KVAD_ROLE_ORDERED] = "ordered dict",
                                        [KVAD_ROLE_TENSOR] = "tensor",
                                        [KVAD_ROLE_CLASS] = "class",
                                        [KVAD_ROLE_STORAGE] = "storage"};
    static const char *const kinds[] = {
        [KVAD_PICKLE_NONE] = "None",     [KVAD_PICKLE_BOOL] = "bool",
        [KVAD_PICKLE_INT] = "int",       [KVAD_PICKLE_FLOAT] = "float",
        [KVAD_PICKLE_STRING] = "string", [KVAD_PICKLE_OBJECT] = "object"};
    return node->role == KVAD_ROLE_PLAIN ? kinds[node->value.kind] : roles[node->role];
}

/* ---- the finished tree */

struct frame {
    struct kvad_pickle_node *node;
    size_t next; /* child to visit */
};

static size_t n_children(const struct kvad_pickle_node *node) {
    if (node->value.kind == KVAD_PICKLE_LIST) return node->value.as.list.n;
    return node->value.kind == KVAD_PICKLE_DICT ? 2 * node->value.as.dict.n : 0;
}

static struct kvad_pickle_node *child_of(const struct kvad_pickle_node *node, size_t i) {
    if (node->value.kind == KVAD_PICKLE_LIST) return as_node(node->value.as.list.items[i]);
    return as_node(i % 2 ? node->value.as.dict.values[i / 2] : node->value.as.dict.keys[i / 2]);
}

/* Depth first without recursion; every node is entered once, however often it is shared. */
enum kvad_status kvad_pickle_check_tree(struct kvad_pickle_vm *vm, struct kvad_pickle_node *root) {
    struct frame frames[KVAD_PICKLE_MAX_DEPTH];
    size_t depth = 1;
    frames[0] = (struct frame){root, 0};
    root->walked = 1;
    while (depth) {
        struct frame *top = &frames[depth - 1];
        if (top->next == n_children(top->node)) {
            top->node->walked = 2;
            if (--depth && frames[depth - 1].node->height <= top->node->height)
                frames[depth - 1].node->height = (uint8_t)(top->node->height + 1);
            continue;
        }
        struct kvad_pickle_node *child = child_of(top->node, top->next++);
        if (child->walked == 1)
            return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "a %s that contains itself",
                                    kvad_pickle_node_text(child));
        if (depth + child->height >= KVAD_PICKLE_MAX_DEPTH)
            return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "values nested deeper than %d levels",
                                    KVAD_PICKLE_MAX_DEPTH);
        if (child->walked == 2) {
            if (top->node->height <= child->height)
                top->node->height = (uint8_t)(child->height + 1);
            continue;
        }
        child->walked = 1;
        frames[depth++] = (struct frame){child, 0};
    }
    return KVAD_OK;
}
