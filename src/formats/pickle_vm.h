/* Inside of the unpickler: what its files and the torch readers share.
 *
 *     kvad_pickle      owns every value of one or more streams (one arena)
 *     kvad_pickle_vm   reads one stream: value stack, marks, memo
 *     node             a value with the reader's own marks in front of it
 *
 * Not thread-safe; a finished kvad_pickle is immutable. */
#ifndef KVAD_FORMATS_PICKLE_VM_H
#define KVAD_FORMATS_PICKLE_VM_H

#include "base/compiler.h"
#include "formats/pickle.h"
#include "formats/pickle_arena.h"

enum {
    KVAD_PICKLE_MAX_DEPTH = 64,
    KVAD_PICKLE_MAX_STRING = 16 << 20,
    KVAD_PICKLE_MAX_MEMO = 16 << 20,
    KVAD_PICKLE_MAX_BYTES = 256 << 20,
    /* Values may take this much memory for each byte of the stream: an empty list, one byte, takes
     * 32. Real checkpoints need 6. */
    KVAD_PICKLE_MAX_GROWTH = 64
};

enum kvad_pickle_role {
    KVAD_ROLE_PLAIN,
    KVAD_ROLE_TUPLE, /* never changes once made */
    KVAD_ROLE_LIST,
    KVAD_ROLE_SET,
    KVAD_ROLE_DICT,
    KVAD_ROLE_ORDERED, /* OrderedDict and Counter: a dict that may have attributes */
    KVAD_ROLE_TENSOR,
    KVAD_ROLE_CLASS,  /* detail: const struct kvad_pickle_class */
    KVAD_ROLE_STORAGE /* detail: struct kvad_pickle_storage */
};

/* Allocated only as far as the member of its kind reaches: never copy a node or a value. */
struct kvad_pickle_node {
    uint8_t role;   /* enum kvad_pickle_role */
    uint8_t walked; /* by kvad_pickle_check_tree(): 0 not yet, 1 being walked, 2 done */
    uint8_t height; /* levels of values below */
    struct kvad_pickle_value value;
};

enum kvad_pickle_class_kind {
    KVAD_CLASS_ORDERED_DICT,
    KVAD_CLASS_COUNTER,
    KVAD_CLASS_SET,
    KVAD_CLASS_SIZE,
    KVAD_CLASS_OPAQUE, /* a result whose content does not matter */
    KVAD_CLASS_TENSOR,
    KVAD_CLASS_TENSOR_V2,
    KVAD_CLASS_TENSOR_V3,
    KVAD_CLASS_PARAMETER,
    KVAD_CLASS_STORAGE,
    KVAD_CLASS_DTYPE
};
struct kvad_pickle_class {
    const char *module, *name;
    enum kvad_pickle_class_kind kind;
    enum kvad_dtype dtype; /* of STORAGE and DTYPE */
};

/* What a persistent id names. `data` is NULL until the container's reader has found it. */
struct kvad_pickle_storage {
    struct kvad_pickle_storage *next; /* all of one kvad_pickle, latest first */
    const char *key;                  /* NUL-terminated, without NULs inside */
    enum kvad_dtype dtype;            /* U8 for untyped */
    size_t n_elements, bytes;         /* of the whole storage */
    size_t view_begin, view_elements; /* the part that tensors see: all, but for legacy views */
    const unsigned char *data;        /* [bytes] */
    uint64_t offset;                  /* of `data` in the file */
};

struct kvad_pickle_tensor_link {
    struct kvad_pickle_tensor_link *next;
    struct kvad_tensor *tensor; /* its `offset` counts elements of the storage until bound */
    struct kvad_pickle_storage *storage;
};

struct kvad_pickle {
    struct kvad_heap *heap;
    struct kvad_arena arena;
    const char *name; /* file, for errors; in the arena */
    size_t file_size; /* bound on what a tensor may name */
    const struct kvad_pickle_value *root;
    struct kvad_pickle_storage *storages;
    struct kvad_pickle_tensor_link *tensors;
};

/* One stream to read. */
struct kvad_pickle_stream {
    const unsigned char *data;
    size_t size;      /* at most; the stream ends at STOP */
    uint64_t offset;  /* of `data` in the file */
    const char *what; /* which stream, for errors: "ckpt/data.pkl" */
    bool is_torch;    /* persistent ids and torch's classes are known */
};

struct kvad_pickle_vm {
    struct kvad_pickle *pickle;
    struct kvad_pickle_stream in;
    struct kvad_error *err;
    size_t at, op_at; /* next byte; the current opcode */
    struct kvad_pickle_node **stack, **memo;
    size_t n_stack, stack_capacity, n_memo, memo_capacity; /* n_memo: highest index + 1 */
    size_t marks[KVAD_PICKLE_MAX_DEPTH + 1], n_marks;
    size_t arena_before;
    bool seen_container;
};

/** A pickle without values; NULL if memory is out. */
struct kvad_pickle *kvad_pickle_create(const char *name, size_t file_size, struct kvad_heap *heap);
/** Read one stream into `pickle`; *used (may be NULL) is its length. */
enum kvad_status kvad_pickle_read(struct kvad_pickle *pickle, const struct kvad_pickle_stream *in,
                                  const struct kvad_pickle_value **root, size_t *used,
                                  struct kvad_error *err);
/** Point all tensors into their storages, which are all found by now. */
void kvad_pickle_bind_tensors(struct kvad_pickle *pickle);

/* ---- for the files of the unpickler */

/** kvad_fail() with file, stream and offset in front. */
enum kvad_status kvad_pickle_fail(struct kvad_pickle_vm *vm, enum kvad_status status,
                                  const char *format, ...) KVAD_PRINTF(3, 4);
/** Arena memory, within KVAD_PICKLE_MAX_GROWTH. */
enum kvad_status kvad_pickle_alloc(struct kvad_pickle_vm *vm, size_t size, void **out);
/** A node with room for a member of `size` bytes. */
enum kvad_status kvad_pickle_node(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                  enum kvad_pickle_kind kind, size_t size,
                                  struct kvad_pickle_node **out);
/** Nodes of containers; a copy of the string with a NUL behind. */
enum kvad_status kvad_pickle_new_list(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                      struct kvad_pickle_node **out);
enum kvad_status kvad_pickle_new_dict(struct kvad_pickle_vm *vm, enum kvad_pickle_role role,
                                      struct kvad_pickle_node **out);
enum kvad_status kvad_pickle_new_string(struct kvad_pickle_vm *vm, const unsigned char *bytes,
                                        size_t size, struct kvad_pickle_node **out);
/** Append n values to a list, n pairs to a dict (key, value, key, value ...). Amortised O(n). */
enum kvad_status kvad_pickle_append(struct kvad_pickle_vm *vm, struct kvad_pickle_node *list,
                                    struct kvad_pickle_node *const *items, size_t n);
enum kvad_status kvad_pickle_set_items(struct kvad_pickle_vm *vm, struct kvad_pickle_node *dict,
                                       struct kvad_pickle_node *const *pairs, size_t n);
/** Item i of a list. */
struct kvad_pickle_node *kvad_pickle_item(const struct kvad_pickle_node *list, size_t i);
/** "dict", "tuple", "class torch.FloatStorage": for errors. */
const char *kvad_pickle_node_text(const struct kvad_pickle_node *node);

/** The class on the fixed list, or an error that names it. */
enum kvad_status kvad_pickle_find_class(struct kvad_pickle_vm *vm, const char *module,
                                        size_t module_size, const char *name, size_t name_size,
                                        struct kvad_pickle_node **out);
/** callable(*args) for a class on the list; attributes given to an object. */
enum kvad_status kvad_pickle_reduce(struct kvad_pickle_vm *vm, struct kvad_pickle_node *callable,
                                    struct kvad_pickle_node *args, struct kvad_pickle_node **out);
enum kvad_status kvad_pickle_build(struct kvad_pickle_vm *vm, struct kvad_pickle_node *object,
                                   struct kvad_pickle_node *state);
/** The storage that a persistent id names. */
enum kvad_status kvad_pickle_persistent(struct kvad_pickle_vm *vm, struct kvad_pickle_node *id,
                                        struct kvad_pickle_node **out);
/** _rebuild_tensor, _v2, _v3. */
enum kvad_status kvad_pickle_rebuild(struct kvad_pickle_vm *vm,
                                     const struct kvad_pickle_class *class,
                                     struct kvad_pickle_node *args, struct kvad_pickle_node **out);
/** No value contains itself, none is nested deeper than KVAD_PICKLE_MAX_DEPTH. */
enum kvad_status kvad_pickle_check_tree(struct kvad_pickle_vm *vm, struct kvad_pickle_node *root);

#endif
