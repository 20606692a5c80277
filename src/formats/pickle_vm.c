/* The opcodes. One function each; what has no function is refused by name. Meaning of opcodes:
 * CPython's Lib/pickletools.py. */
#include <string.h>

#include "base/error.h"
#include "formats/pickle_stack.h"
#include "formats/pickle_utf8.h"

typedef enum kvad_status op_fn(struct kvad_pickle_vm *vm);

static unsigned opcode(const struct kvad_pickle_vm *vm) {
    return vm->in.data[vm->op_at];
}

/* ---- framing */

static enum kvad_status op_proto(struct kvad_pickle_vm *vm) {
    uint64_t version = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, 1, &version));
    if (vm->op_at != 0) return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "PROTO inside the stream");
    if (version < 2 || version > 5)
        return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                                "pickle protocol %u; 2 to 5 are read: save with protocol=4",
                                (unsigned)version);
    return KVAD_OK;
}

static enum kvad_status op_frame(struct kvad_pickle_vm *vm) {
    uint64_t size = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, 8, &size));
    if (size > vm->in.size - vm->at)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "frame of %llu bytes, %zu are left: the file is cut short or "
                                "damaged",
                                (unsigned long long)size, vm->in.size - vm->at);
    return KVAD_OK;
}

/* ---- constants, numbers, strings */

static enum kvad_status op_none(struct kvad_pickle_vm *vm) {
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_NONE, 0, &node));
    return kvad_pickle_push(vm, node);
}

static enum kvad_status op_bool(struct kvad_pickle_vm *vm) {
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_BOOL, sizeof node->value.as.boolean,
                              &node));
    node->value.as.boolean = opcode(vm) == 0x88;
    return kvad_pickle_push(vm, node);
}

static enum kvad_status push_int(struct kvad_pickle_vm *vm, int64_t integer) {
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_INT, sizeof node->value.as.integer,
                              &node));
    node->value.as.integer = integer;
    return kvad_pickle_push(vm, node);
}

static enum kvad_status op_int(struct kvad_pickle_vm *vm) {
    size_t bytes = opcode(vm) == 'K' ? 1 : opcode(vm) == 'M' ? 2 : 4;
    uint64_t number = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, bytes, &number));
    return push_int(vm, bytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number);
}

static enum kvad_status op_long(struct kvad_pickle_vm *vm) {
    uint64_t size = 0, number = 0;
    const unsigned char *p = NULL;
    KVAD_TRY(kvad_pickle_take_number(vm, 1, &size));
    KVAD_TRY(kvad_pickle_take(vm, (size_t)size, &p));
    if (size > 8) { /* beyond 64 bits: a value, but not a number for us */
        struct kvad_pickle_node *node = NULL;
        KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_OBJECT,
                                  sizeof node->value.as.detail, &node));
        node->value.as.detail = NULL;
        return kvad_pickle_push(vm, node);
    }
    if (size && p[size - 1] & 0x80) number = UINT64_MAX; /* two's complement: extend the sign */
    for (size_t i = (size_t)size; i-- > 0;)
        number = number << 8 | p[i];
    return push_int(vm, (int64_t)number);
}

static enum kvad_status op_float(struct kvad_pickle_vm *vm) {
    const unsigned char *p = NULL;
    KVAD_TRY(kvad_pickle_take(vm, 8, &p));
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i]; /* big-endian, alone of all numbers */
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_PLAIN, KVAD_PICKLE_FLOAT, sizeof node->value.as.number,
                              &node));
    memcpy(&node->value.as.number, &bits, sizeof bits);
    return kvad_pickle_push(vm, node);
}

static enum kvad_status op_string(struct kvad_pickle_vm *vm) {
    unsigned op = opcode(vm); /* BINUNICODE, BINUNICODE8, SHORT_BINUNICODE and SHORT_BINSTRING */
    uint64_t size = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, op == 'X' ? 4 : op == 0x8d ? 8 : 1, &size));
    if (size > KVAD_PICKLE_MAX_STRING)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "string of %llu bytes (at most %d)",
                                (unsigned long long)size, KVAD_PICKLE_MAX_STRING);
    const unsigned char *bytes = NULL;
    KVAD_TRY(kvad_pickle_take(vm, (size_t)size, &bytes));
    if (!kvad_pickle_is_utf8(bytes, (size_t)size))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "string is not UTF-8");
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_new_string(vm, bytes, (size_t)size, &node));
    return kvad_pickle_push(vm, node);
}

/* ---- containers */

static enum kvad_status op_mark(struct kvad_pickle_vm *vm) {
    if (vm->n_marks == sizeof vm->marks / sizeof vm->marks[0])
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "values nested deeper than %d levels",
                                KVAD_PICKLE_MAX_DEPTH);
    vm->marks[vm->n_marks++] = vm->n_stack;
    return KVAD_OK;
}

static enum kvad_status op_empty(struct kvad_pickle_vm *vm) {
    struct kvad_pickle_node *node = NULL;
    if (opcode(vm) == '}')
        KVAD_TRY(kvad_pickle_new_dict(vm, KVAD_ROLE_DICT, &node));
    else
        KVAD_TRY(kvad_pickle_new_list(vm,
                                      opcode(vm) == ')'   ? KVAD_ROLE_TUPLE
                                      : opcode(vm) == ']' ? KVAD_ROLE_LIST
                                                          : KVAD_ROLE_SET,
                                      &node));
    return kvad_pickle_push(vm, node);
}

static enum kvad_status make_tuple(struct kvad_pickle_vm *vm, size_t first) {
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(kvad_pickle_new_list(vm, KVAD_ROLE_TUPLE, &node));
    size_t n = vm->n_stack - first;
    if (n) KVAD_TRY(kvad_pickle_append(vm, node, vm->stack + first, n)); /* else perhaps no stack */
    vm->n_stack = first;
    return kvad_pickle_push(vm, node);
}
static enum kvad_status op_tuple(struct kvad_pickle_vm *vm) {
    size_t first = 0;
    KVAD_TRY(kvad_pickle_pop_mark(vm, 0, &first));
    return make_tuple(vm, first);
}
static enum kvad_status op_tuple_n(struct kvad_pickle_vm *vm) {
    size_t n = opcode(vm) - 0x84; /* TUPLE1, TUPLE2, TUPLE3 */
    KVAD_TRY(kvad_pickle_need(vm, n));
    return make_tuple(vm, vm->n_stack - n);
}

/* Values from `first` up go into the list below them. */
static enum kvad_status append(struct kvad_pickle_vm *vm, size_t first) {
    struct kvad_pickle_node *list = vm->stack[first - 1];
    if (list->role != KVAD_ROLE_LIST)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "append to a %s", kvad_pickle_node_text(list));
    KVAD_TRY(kvad_pickle_append(vm, list, vm->stack + first, vm->n_stack - first));
    vm->n_stack = first;
    return KVAD_OK;
}
static enum kvad_status op_append(struct kvad_pickle_vm *vm) {
    KVAD_TRY(kvad_pickle_need(vm, 2));
    return append(vm, vm->n_stack - 1);
}
static enum kvad_status op_appends(struct kvad_pickle_vm *vm) {
    size_t first = 0;
    KVAD_TRY(kvad_pickle_pop_mark(vm, 1, &first));
    return append(vm, first);
}

static enum kvad_status set_items(struct kvad_pickle_vm *vm, size_t first) {
    struct kvad_pickle_node *dict = vm->stack[first - 1];
    if (dict->role != KVAD_ROLE_DICT && dict->role != KVAD_ROLE_ORDERED)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "items set in a %s",
                                kvad_pickle_node_text(dict));
    size_t n = vm->n_stack - first;
    if (n % 2) return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "a key without a value");
    KVAD_TRY(kvad_pickle_set_items(vm, dict, vm->stack + first, n / 2));
    vm->n_stack = first;
    return KVAD_OK;
}
static enum kvad_status op_setitem(struct kvad_pickle_vm *vm) {
    KVAD_TRY(kvad_pickle_need(vm, 3));
    return set_items(vm, vm->n_stack - 2);
}
static enum kvad_status op_setitems(struct kvad_pickle_vm *vm) {
    size_t first = 0;
    KVAD_TRY(kvad_pickle_pop_mark(vm, 1, &first));
    return set_items(vm, first);
}

/* ---- memo */

static enum kvad_status op_memoize(struct kvad_pickle_vm *vm) {
    return kvad_pickle_memo_put(vm, vm->n_memo);
}
static enum kvad_status op_put(struct kvad_pickle_vm *vm) {
    uint64_t index = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, opcode(vm) == 'q' ? 1 : 4, &index));
    return kvad_pickle_memo_put(vm, index);
}
static enum kvad_status op_get(struct kvad_pickle_vm *vm) {
    uint64_t index = 0;
    KVAD_TRY(kvad_pickle_take_number(vm, opcode(vm) == 'h' ? 1 : 4, &index));
    if (index >= vm->n_memo || !vm->memo[index])
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "memo has no entry %llu",
                                (unsigned long long)index);
    return kvad_pickle_push(vm, vm->memo[index]);
}

/* ---- classes and objects */

/* A line without its end. */
static enum kvad_status take_line(struct kvad_pickle_vm *vm, const char **line, size_t *size) {
    enum { LINE_MAX_BYTES = 512 };
    size_t left = vm->in.size - vm->at;
    if (left > LINE_MAX_BYTES) left = LINE_MAX_BYTES;
    const unsigned char *start = vm->in.data + vm->at, *end = memchr(start, '\n', left);
    if (!end)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "name of a class is too long or cut short");
    *line = (const char *)start;
    *size = (size_t)(end - start);
    vm->at += *size + 1;
    return KVAD_OK;
}

static enum kvad_status op_global(struct kvad_pickle_vm *vm) {
    const char *module = NULL, *name = NULL;
    size_t module_size = 0, name_size = 0;
    struct kvad_pickle_node *node = NULL;
    KVAD_TRY(take_line(vm, &module, &module_size));
    KVAD_TRY(take_line(vm, &name, &name_size));
    KVAD_TRY(kvad_pickle_find_class(vm, module, module_size, name, name_size, &node));
    return kvad_pickle_push(vm, node);
}

/* Protocol 4 names classes this way. Nothing that is read needs it, so it only names the class. */
static enum kvad_status op_stack_global(struct kvad_pickle_vm *vm) {
    KVAD_TRY(kvad_pickle_need(vm, 2));
    const struct kvad_pickle_value *name = &kvad_pickle_top(vm, 0)->value,
                                   *module = &kvad_pickle_top(vm, 1)->value;
    if (name->kind != KVAD_PICKLE_STRING || module->kind != KVAD_PICKLE_STRING)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "STACK_GLOBAL without two strings");
    return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                            "class %.80s.%.80s in a pickle of protocol 4 is not read; %s",
                            module->as.string.bytes, name->as.string.bytes,
                            vm->in.is_torch ? "save with torch.save's own protocol, 2"
                                            : "pickle plain dicts, lists, strings and numbers");
}

static enum kvad_status op_reduce(struct kvad_pickle_vm *vm) {
    struct kvad_pickle_node *result = NULL;
    KVAD_TRY(kvad_pickle_need(vm, 2));
    KVAD_TRY(kvad_pickle_reduce(vm, kvad_pickle_top(vm, 1), kvad_pickle_top(vm, 0), &result));
    vm->n_stack -= 2;
    return kvad_pickle_push(vm, result);
}

static enum kvad_status op_build(struct kvad_pickle_vm *vm) {
    KVAD_TRY(kvad_pickle_need(vm, 2));
    KVAD_TRY(kvad_pickle_build(vm, kvad_pickle_top(vm, 1), kvad_pickle_top(vm, 0)));
    vm->n_stack--;
    return KVAD_OK;
}

static enum kvad_status op_persistent(struct kvad_pickle_vm *vm) {
    struct kvad_pickle_node *result = NULL;
    KVAD_TRY(kvad_pickle_need(vm, 1));
    KVAD_TRY(kvad_pickle_persistent(vm, kvad_pickle_top(vm, 0), &result));
    vm->n_stack--;
    return kvad_pickle_push(vm, result);
}

/* ---- the machine */

static const struct {
    const char *name;
    op_fn *run; /* NULL: known, but not read */
} opcodes[256] = {
    [0x80] = {"PROTO", op_proto},
    [0x95] = {"FRAME", op_frame},
    ['N'] = {"NONE", op_none},
    [0x88] = {"NEWTRUE", op_bool},
    [0x89] = {"NEWFALSE", op_bool},
    ['J'] = {"BININT", op_int},
    ['K'] = {"BININT1", op_int},
    ['M'] = {"BININT2", op_int},
    [0x8a] = {"LONG1", op_long},
    ['G'] = {"BINFLOAT", op_float},
    ['X'] = {"BINUNICODE", op_string},
    [0x8c] = {"SHORT_BINUNICODE", op_string},
    [0x8d] = {"BINUNICODE8", op_string},
    ['U'] = {"SHORT_BINSTRING", op_string},
    ['('] = {"MARK", op_mark},
    [')'] = {"EMPTY_TUPLE", op_empty},
    [']'] = {"EMPTY_LIST", op_empty},
    ['}'] = {"EMPTY_DICT", op_empty},
    [0x8f] = {"EMPTY_SET", op_empty},
    ['t'] = {"TUPLE", op_tuple},
    [0x85] = {"TUPLE1", op_tuple_n},
    [0x86] = {"TUPLE2", op_tuple_n},
    [0x87] = {"TUPLE3", op_tuple_n},
    ['a'] = {"APPEND", op_append},
    ['e'] = {"APPENDS", op_appends},
    ['s'] = {"SETITEM", op_setitem},
    ['u'] = {"SETITEMS", op_setitems},
    [0x94] = {"MEMOIZE", op_memoize},
    ['q'] = {"BINPUT", op_put},
    ['r'] = {"LONG_BINPUT", op_put},
    ['h'] = {"BINGET", op_get},
    ['j'] = {"LONG_BINGET", op_get},
    ['c'] = {"GLOBAL", op_global},
    [0x93] = {"STACK_GLOBAL", op_stack_global},
    ['R'] = {"REDUCE", op_reduce},
    [0x81] = {"NEWOBJ", op_reduce},
    ['b'] = {"BUILD", op_build},
    ['Q'] = {"BINPERSID", op_persistent},
    ['0'] = {"POP", NULL},
    ['1'] = {"POP_MARK", NULL},
    ['2'] = {"DUP", NULL},
    ['F'] = {"FLOAT", NULL},
    ['I'] = {"INT", NULL},
    ['L'] = {"LONG", NULL},
    ['P'] = {"PERSID", NULL},
    ['S'] = {"STRING", NULL},
    ['T'] = {"BINSTRING", NULL},
    ['V'] = {"UNICODE", NULL},
    ['d'] = {"DICT", NULL},
    ['g'] = {"GET", NULL},
    ['i'] = {"INST", NULL},
    ['l'] = {"LIST", NULL},
    ['o'] = {"OBJ", NULL},
    ['p'] = {"PUT", NULL},
    [0x82] = {"EXT1", NULL},
    [0x83] = {"EXT2", NULL},
    [0x84] = {"EXT4", NULL},
    [0x8b] = {"LONG4", NULL},
    ['B'] = {"BINBYTES", NULL},
    ['C'] = {"SHORT_BINBYTES", NULL},
    [0x8e] = {"BINBYTES8", NULL},
    [0x90] = {"ADDITEMS", NULL},
    [0x91] = {"FROZENSET", NULL},
    [0x92] = {"NEWOBJ_EX", NULL},
    [0x96] = {"BYTEARRAY8", NULL},
    [0x97] = {"NEXT_BUFFER", NULL},
    [0x98] = {"READONLY_BUFFER", NULL},
};

static enum kvad_status run(struct kvad_pickle_vm *vm, const struct kvad_pickle_value **root) {
    if (vm->in.size < 2 || vm->in.data[0] != 0x80)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "not a pickle of protocol 2 or later (its first byte is not 0x80)");
    for (;;) {
        const unsigned char *op = NULL;
        vm->op_at = vm->at;
        KVAD_TRY(kvad_pickle_take(vm, 1, &op));
        if (*op == '.') break; /* STOP */
        if (opcodes[*op].run)
            KVAD_TRY(opcodes[*op].run(vm));
        else
            return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED,
                                    "opcode 0x%02x%s%s is not among those that plain data needs",
                                    *op, opcodes[*op].name ? " " : "",
                                    opcodes[*op].name ? opcodes[*op].name : "");
    }
    if (vm->n_stack != 1 || vm->n_marks)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "stream ends with %zu values instead of one",
                                vm->n_stack);
    KVAD_TRY(kvad_pickle_check_tree(vm, vm->stack[0]));
    *root = &vm->stack[0]->value;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_read(struct kvad_pickle *pickle, const struct kvad_pickle_stream *in,
                                  const struct kvad_pickle_value **root, size_t *used,
                                  struct kvad_error *err) {
    struct kvad_pickle_vm vm = {
        .pickle = pickle, .in = *in, .err = err, .arena_before = pickle->arena.used};
    if (vm.in.size > KVAD_PICKLE_MAX_BYTES) vm.in.size = KVAD_PICKLE_MAX_BYTES;
    enum kvad_status status = run(&vm, root);
    if (status == KVAD_OK && used) *used = vm.at;
    kvad_free(pickle->heap, vm.stack, vm.stack_capacity * sizeof *vm.stack);
    kvad_free(pickle->heap, vm.memo, vm.memo_capacity * sizeof *vm.memo);
    return status;
}
