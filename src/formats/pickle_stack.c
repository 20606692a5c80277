/* What opcodes stand on: input, value stack, marks, memo. Every access is checked. */
#include <string.h>

#include "base/error.h"
#include "formats/pickle_stack.h"

enum kvad_status kvad_pickle_take(struct kvad_pickle_vm *vm, size_t n, const unsigned char **out) {
    if (n > vm->in.size - vm->at)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "needs %zu more bytes, %zu are left: the file is cut short or "
                                "damaged",
                                n, vm->in.size - vm->at);
    *out = vm->in.data + vm->at;
    vm->at += n;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_take_number(struct kvad_pickle_vm *vm, size_t bytes, uint64_t *out) {
    const unsigned char *p = NULL;
    KVAD_TRY(kvad_pickle_take(vm, bytes, &p));
    *out = 0;
    for (size_t i = bytes; i-- > 0;)
        *out = *out << 8 | p[i];
    return KVAD_OK;
}

static enum kvad_status grow(struct kvad_pickle_vm *vm, struct kvad_pickle_node ***array,
                             size_t *capacity, size_t wanted) {
    if (wanted <= *capacity) return KVAD_OK;
    size_t fresh_capacity = *capacity ? *capacity : 64;
    while (fresh_capacity < wanted)
        fresh_capacity *= 2;
    size_t old = *capacity * sizeof **array, bytes = fresh_capacity * sizeof **array;
    void *fresh = kvad_resize(vm->pickle->heap, *array, old, bytes);
    if (!fresh) return kvad_fail_memory(vm->err, "stack of a pickle", bytes);
    *array = fresh;
    memset((unsigned char *)fresh + old, 0, bytes - old);
    *capacity = fresh_capacity;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_push(struct kvad_pickle_vm *vm, struct kvad_pickle_node *node) {
    KVAD_TRY(grow(vm, &vm->stack, &vm->stack_capacity, vm->n_stack + 1));
    vm->stack[vm->n_stack++] = node;
    return KVAD_OK;
}

enum kvad_status kvad_pickle_need(struct kvad_pickle_vm *vm, size_t n) {
    size_t floor = vm->n_marks ? vm->marks[vm->n_marks - 1] : 0;
    if (vm->n_stack - floor >= n) return KVAD_OK;
    return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "stack underflow: needs %zu values, has %zu", n,
                            vm->n_stack - floor);
}

enum kvad_status kvad_pickle_pop_mark(struct kvad_pickle_vm *vm, size_t below, size_t *first) {
    if (vm->n_marks == 0) return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "no mark on the stack");
    *first = vm->marks[--vm->n_marks];
    size_t floor = vm->n_marks ? vm->marks[vm->n_marks - 1] : 0;
    if (*first - floor < below)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "stack underflow below the mark");
    return KVAD_OK;
}

struct kvad_pickle_node *kvad_pickle_top(const struct kvad_pickle_vm *vm, size_t depth) {
    return vm->stack[vm->n_stack - 1 - depth];
}

enum kvad_status kvad_pickle_memo_put(struct kvad_pickle_vm *vm, uint64_t index) {
    KVAD_TRY(kvad_pickle_need(vm, 1));
    /* Every entry takes at least a byte of the stream, and writers count from 0. */
    if (index >= KVAD_PICKLE_MAX_MEMO || index >= vm->at)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "memo index %llu after %zu bytes",
                                (unsigned long long)index, vm->at);
    KVAD_TRY(grow(vm, &vm->memo, &vm->memo_capacity, (size_t)index + 1));
    vm->memo[index] = kvad_pickle_top(vm, 0);
    if (vm->n_memo <= index) vm->n_memo = (size_t)index + 1;
    return KVAD_OK;
}
