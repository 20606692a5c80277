/* The fixed list of classes and what calling them gives. Nothing outside this list is ever built.
 */
#include <string.h>

#include "base/error.h"
#include "formats/pickle_vm.h"

#define CLASS(module, name, kind)                                                                  \
    { module, name, KVAD_CLASS_##kind, KVAD_DTYPE_U8 }
#define STORAGE(name, dtype)                                                                       \
    { "torch", name, KVAD_CLASS_STORAGE, KVAD_DTYPE_##dtype }
#define DTYPE(name, dtype)                                                                         \
    { "torch", name, KVAD_CLASS_DTYPE, KVAD_DTYPE_##dtype }

/* Python writes "__builtin__" for "builtins" in protocol 2. The names of dtypes come with tensors
 * of types that have no storage class of their own (_rebuild_tensor_v3). */
static const struct kvad_pickle_class classes[] = {
    CLASS("collections", "OrderedDict", ORDERED_DICT),
    CLASS("collections", "Counter", COUNTER),
    CLASS("builtins", "set", SET),
    CLASS("__builtin__", "set", SET),
    CLASS("builtins", "bytearray", OPAQUE),
    CLASS("__builtin__", "bytearray", OPAQUE),
    CLASS("_codecs", "encode", OPAQUE),
    CLASS("torch._utils", "_rebuild_tensor", TENSOR),
    CLASS("torch._utils", "_rebuild_tensor_v2", TENSOR_V2),
    CLASS("torch._utils", "_rebuild_tensor_v3", TENSOR_V3),
    CLASS("torch._utils", "_rebuild_parameter", PARAMETER),
    CLASS("torch._utils", "_rebuild_parameter_with_state", PARAMETER),
    CLASS("torch.nn.parameter", "Parameter", PARAMETER),
    CLASS("torch", "Size", SIZE),
    CLASS("torch", "device", OPAQUE),
    CLASS("torch.serialization", "_get_layout", OPAQUE),
    {"torch.storage", "UntypedStorage", KVAD_CLASS_STORAGE, KVAD_DTYPE_U8},
    STORAGE("FloatStorage", F32),
    STORAGE("HalfStorage", F16),
    STORAGE("BFloat16Storage", BF16),
    STORAGE("DoubleStorage", F64),
    STORAGE("LongStorage", I64),
    STORAGE("IntStorage", I32),
    STORAGE("ShortStorage", I16),
    STORAGE("CharStorage", I8),
    STORAGE("ByteStorage", U8),
    STORAGE("BoolStorage", BOOL),
    DTYPE("float32", F32),
    DTYPE("float16", F16),
    DTYPE("bfloat16", BF16),
    DTYPE("float64", F64),
    DTYPE("int64", I64),
    DTYPE("int32", I32),
    DTYPE("int16", I16),
    DTYPE("int8", I8),
    DTYPE("uint8", U8),
    DTYPE("uint16", U16),
    DTYPE("uint32", U32),
    DTYPE("uint64", U64),
    DTYPE("bool", BOOL),
};

static bool is_text(const char *text, const char *bytes, size_t size) {
    return strlen(text) == size && memcmp(text, bytes, size) == 0;
}

static enum kvad_status fail_class(struct kvad_pickle_vm *vm, const char *module,
                                   size_t module_size, const char *name, size_t name_size) {
    int m = (int)kvad_min_size(module_size, 80), n = (int)kvad_min_size(name_size, 80);
    if (!vm->in.is_torch)
        return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                                "class %.*s.%.*s is not read: pickle plain dicts, lists, strings "
                                "and numbers",
                                m, module, n, name);
    if (!vm->seen_container)
        return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                                "the file holds a whole Python object of class %.*s.%.*s, not its "
                                "weights; save model.state_dict() instead: "
                                "torch.save(model.state_dict(), \"model.pt\")",
                                m, module, n, name);
    return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                            "class %.*s.%.*s is not read (nothing from a file is run); save the "
                            "weights alone: torch.save(model.state_dict(), \"model.pt\")",
                            m, module, n, name);
}

enum kvad_status kvad_pickle_find_class(struct kvad_pickle_vm *vm, const char *module,
                                        size_t module_size, const char *name, size_t name_size,
                                        struct kvad_pickle_node **out) {
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const struct kvad_pickle_class *class = &classes[i];
        if (!is_text(class->module, module, module_size) || !is_text(class->name, name, name_size))
            continue;
        if (!vm->in.is_torch && strncmp(class->module, "torch", 5) == 0) break;
        KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_CLASS, KVAD_PICKLE_OBJECT,
                                  sizeof(*out)->value.as.detail, out));
        (*out)->value.as.detail = class;
        return KVAD_OK;
    }
    return fail_class(vm, module, module_size, name, name_size);
}

static enum kvad_status fail_args(struct kvad_pickle_vm *vm, const struct kvad_pickle_class *class,
                                  const char *wanted) {
    return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "%s.%s needs %s", class->module, class->name,
                            wanted);
}

/* OrderedDict(), or with a list of [key, value] pairs as Python 2 wrote it. */
static enum kvad_status ordered_dict(struct kvad_pickle_vm *vm,
                                     const struct kvad_pickle_class *class,
                                     struct kvad_pickle_node *args, struct kvad_pickle_node **out) {
    size_t n = args->value.as.list.n;
    KVAD_TRY(kvad_pickle_new_dict(vm, KVAD_ROLE_ORDERED, out));
    if (n == 0) return KVAD_OK;
    struct kvad_pickle_node *pairs = kvad_pickle_item(args, 0);
    if (n != 1 || pairs->value.kind != KVAD_PICKLE_LIST)
        return fail_args(vm, class, "nothing or a list of pairs");
    for (size_t i = 0; i < pairs->value.as.list.n; i++) {
        const struct kvad_pickle_node *pair = kvad_pickle_item(pairs, i);
        if (pair->value.kind != KVAD_PICKLE_LIST || pair->value.as.list.n != 2)
            return fail_args(vm, class, "nothing or a list of pairs");
        struct kvad_pickle_node *items[2] = {kvad_pickle_item(pair, 0), kvad_pickle_item(pair, 1)};
        KVAD_TRY(kvad_pickle_set_items(vm, *out, items, 1));
    }
    return KVAD_OK;
}

/* A container made from another is that other: nobody can tell a copy in what is read later. */
static enum kvad_status wrap(struct kvad_pickle_vm *vm, const struct kvad_pickle_class *class,
                             struct kvad_pickle_node *args, enum kvad_pickle_kind kind,
                             struct kvad_pickle_node **out) {
    size_t n = args->value.as.list.n;
    if (n == 0 && kind == KVAD_PICKLE_DICT) return kvad_pickle_new_dict(vm, KVAD_ROLE_ORDERED, out);
    if (n == 0) return kvad_pickle_new_list(vm, KVAD_ROLE_SET, out);
    struct kvad_pickle_node *inner = kvad_pickle_item(args, 0);
    if (n != 1 || inner->value.kind != kind)
        return fail_args(vm, class, kind == KVAD_PICKLE_DICT ? "a dict" : "a list or tuple");
    *out = inner;
    return KVAD_OK;
}

static enum kvad_status parameter(struct kvad_pickle_vm *vm, const struct kvad_pickle_class *class,
                                  struct kvad_pickle_node *args, struct kvad_pickle_node **out) {
    if (args->value.as.list.n == 0 || kvad_pickle_item(args, 0)->role != KVAD_ROLE_TENSOR)
        return fail_args(vm, class, "a tensor");
    *out = kvad_pickle_item(args, 0);
    return KVAD_OK;
}

enum kvad_status kvad_pickle_reduce(struct kvad_pickle_vm *vm, struct kvad_pickle_node *callable,
                                    struct kvad_pickle_node *args, struct kvad_pickle_node **out) {
    if (callable->role != KVAD_ROLE_CLASS || args->role != KVAD_ROLE_TUPLE)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "call of a %s with a %s",
                                kvad_pickle_node_text(callable), kvad_pickle_node_text(args));
    const struct kvad_pickle_class *class = callable->value.as.detail;
    switch (class->kind) {
    case KVAD_CLASS_ORDERED_DICT: return ordered_dict(vm, class, args, out);
    case KVAD_CLASS_COUNTER: return wrap(vm, class, args, KVAD_PICKLE_DICT, out);
    case KVAD_CLASS_SET:
    case KVAD_CLASS_SIZE: return wrap(vm, class, args, KVAD_PICKLE_LIST, out);
    case KVAD_CLASS_PARAMETER: return parameter(vm, class, args, out);
    case KVAD_CLASS_TENSOR:
    case KVAD_CLASS_TENSOR_V2:
    case KVAD_CLASS_TENSOR_V3: return kvad_pickle_rebuild(vm, class, args, out);
    case KVAD_CLASS_OPAQUE:
        KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_OBJECT,
                                  sizeof(*out)->value.as.detail, out));
        (*out)->value.as.detail = NULL;
        return KVAD_OK;
    case KVAD_CLASS_STORAGE:
    case KVAD_CLASS_DTYPE: break;
    }
    return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "call of %s.%s, which is only a name",
                            class->module, class->name);
}

enum kvad_status kvad_pickle_build(struct kvad_pickle_vm *vm, struct kvad_pickle_node *object,
                                   struct kvad_pickle_node *state) {
    /* Attributes (a state_dict's _metadata: versions of its modules) change nothing here. A
     * tensor's state would be other bytes, so only attributes are let pass. */
    bool is_object = object->role == KVAD_ROLE_ORDERED ||
                     (object->role == KVAD_ROLE_PLAIN && object->value.kind == KVAD_PICKLE_OBJECT);
    bool has_attributes = state->value.kind == KVAD_PICKLE_DICT;
    if (is_object || (object->role == KVAD_ROLE_TENSOR && has_attributes)) return KVAD_OK;
    return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "attributes (a %s) given to a %s",
                            kvad_pickle_node_text(state), kvad_pickle_node_text(object));
}
