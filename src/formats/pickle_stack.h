/* What opcodes stand on: input, value stack, marks, memo. */
#ifndef KVAD_FORMATS_PICKLE_STACK_H
#define KVAD_FORMATS_PICKLE_STACK_H

#include "formats/pickle_vm.h"

/** The next n bytes, or an error that says how many are left. */
enum kvad_status kvad_pickle_take(struct kvad_pickle_vm *vm, size_t n, const unsigned char **out);
/** A little-endian unsigned number of 1 to 8 bytes. */
enum kvad_status kvad_pickle_take_number(struct kvad_pickle_vm *vm, size_t bytes, uint64_t *out);
enum kvad_status kvad_pickle_push(struct kvad_pickle_vm *vm, struct kvad_pickle_node *node);
/** At least n values stand above the last mark: those may be taken. */
enum kvad_status kvad_pickle_need(struct kvad_pickle_vm *vm, size_t n);
/** Value `depth` below the top; kvad_pickle_need() came before. */
struct kvad_pickle_node *kvad_pickle_top(const struct kvad_pickle_vm *vm, size_t depth);
/** Close the last mark: values from *first up were pushed since. At least `below` values must lie
 * under it. */
enum kvad_status kvad_pickle_pop_mark(struct kvad_pickle_vm *vm, size_t below, size_t *first);
/** Remember the top value. */
enum kvad_status kvad_pickle_memo_put(struct kvad_pickle_vm *vm, uint64_t index);

#endif
