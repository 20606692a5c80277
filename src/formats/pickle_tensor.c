/* Tensors of a torch pickle: storages named by persistent ids, and views of them. */
#include <string.h>

#include "base/error.h"
#include "formats/pickle_vm.h"

static bool is_int(const struct kvad_pickle_node *node) {
    return node->value.kind == KVAD_PICKLE_INT;
}
static bool is_string(const struct kvad_pickle_node *node) {
    return node->value.kind == KVAD_PICKLE_STRING;
}

/* A count or index from the stream: an int that is not negative. */
static bool read_size(const struct kvad_pickle_node *node, size_t *out) {
    if (!is_int(node) || node->value.as.integer < 0) return false;
    *out = (size_t)node->value.as.integer;
    return true;
}

/* The sixth field of old files: None, or (view key, first element, elements). */
static bool read_view(const struct kvad_pickle_node *view, struct kvad_pickle_storage *storage) {
    if (view->value.kind == KVAD_PICKLE_NONE) return true;
    if (view->role != KVAD_ROLE_TUPLE || view->value.as.list.n != 3) return false;
    return read_size(kvad_pickle_item(view, 1), &storage->view_begin) &&
           read_size(kvad_pickle_item(view, 2), &storage->view_elements) &&
           storage->view_begin <= storage->n_elements &&
           storage->view_elements <= storage->n_elements - storage->view_begin;
}

static enum kvad_status new_storage(struct kvad_pickle_vm *vm,
                                    const struct kvad_pickle_storage *storage,
                                    struct kvad_pickle_node **out) {
    void *memory = NULL;
    KVAD_TRY(kvad_pickle_alloc(vm, sizeof *storage, &memory));
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_STORAGE, KVAD_PICKLE_OBJECT,
                              sizeof(*out)->value.as.detail, out));
    struct kvad_pickle_storage *kept = memory;
    *kept = *storage;
    kept->next = vm->pickle->storages;
    vm->pickle->storages = kept;
    (*out)->value.as.detail = kept;
    return KVAD_OK;
}

/* ("storage", class, key, location, elements[, view]); the location ("cuda:0") does not matter. */
enum kvad_status kvad_pickle_persistent(struct kvad_pickle_vm *vm, struct kvad_pickle_node *id,
                                        struct kvad_pickle_node **out) {
    if (!vm->in.is_torch)
        return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED, "persistent id in a plain pickle");
    size_t n = id->role == KVAD_ROLE_TUPLE ? id->value.as.list.n : 0;
    if (n < 5 || n > 6 || !is_string(kvad_pickle_item(id, 0)) ||
        strcmp(kvad_pickle_item(id, 0)->value.as.string.bytes, "storage") != 0)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "persistent id is not (\"storage\", class, key, location, "
                                "elements)");
    const struct kvad_pickle_node *type = kvad_pickle_item(id, 1), *key = kvad_pickle_item(id, 2);
    const struct kvad_pickle_class *class =
        type->role == KVAD_ROLE_CLASS ? type->value.as.detail : NULL;
    struct kvad_pickle_storage storage = {0};
    if (!class || class->kind != KVAD_CLASS_STORAGE || !is_string(key) ||
        !is_string(kvad_pickle_item(id, 3)) ||
        !read_size(kvad_pickle_item(id, 4), &storage.n_elements))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "persistent id has a field of the wrong type or a negative size");
    storage.key = key->value.as.string.bytes;
    if (key->value.as.string.size == 0 || strlen(storage.key) != key->value.as.string.size)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "storage key is empty or holds a NUL");
    storage.dtype = class->dtype;
    if (!kvad_mul_size(storage.n_elements, kvad_dtype_bytes(class->dtype), &storage.bytes))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "storage %s of %zu elements is too large",
                                storage.key, storage.n_elements);
    storage.view_elements = storage.n_elements;
    if (n == 6 && !read_view(kvad_pickle_item(id, 5), &storage))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "storage %s: malformed view", storage.key);
    return new_storage(vm, &storage, out);
}

/* Shape, strides and offset against the storage: every element that they name lies in it. */
static enum kvad_status check_view(struct kvad_pickle_vm *vm, struct kvad_tensor *tensor,
                                   const struct kvad_pickle_storage *storage) {
    size_t elements = storage->view_elements;
    size_t bytes = kvad_dtype_bytes(tensor->dtype), stored = kvad_dtype_bytes(storage->dtype);
    if (stored != bytes) elements = elements * stored / bytes; /* untyped storage: stored is 1 */
    size_t first = (size_t)tensor->offset, last = first, outer = 1;
    bool fits = true, is_empty = false;
    for (uint32_t d = 0; d < tensor->n_dims && fits; d++) {
        size_t length = tensor->shape[d], reach;
        is_empty |= length == 0;
        if (length > 1)
            fits = kvad_mul_size(length - 1, tensor->stride[d], &reach) &&
                   kvad_add_size(last, reach, &last) && kvad_mul_size(outer, length, &outer);
    }
    char shape[160];
    /* A stride of 0 repeats elements, so a shape alone could ask for any amount of memory and time;
     * so could [huge, 0]. */
    if (fits && outer > vm->pickle->file_size)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "tensor of shape %s has more elements than the file has bytes",
                                kvad_tensor_shape_text(tensor, shape, sizeof shape));
    if (!fits || (is_empty ? first > elements : last >= elements))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "tensor of shape %s from element %zu on reaches outside its "
                                "storage %s of %zu elements",
                                kvad_tensor_shape_text(tensor, shape, sizeof shape), first,
                                storage->key, elements);
    tensor->n_elements = is_empty ? 0 : outer;
    return KVAD_OK;
}

static enum kvad_status read_dims(struct kvad_pickle_vm *vm, const struct kvad_pickle_node *shape,
                                  const struct kvad_pickle_node *stride,
                                  struct kvad_tensor *tensor) {
    if (shape->role != KVAD_ROLE_TUPLE || stride->role != KVAD_ROLE_TUPLE ||
        shape->value.as.list.n != stride->value.as.list.n)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                "tensor's size and stride are not tuples of one length");
    size_t n = shape->value.as.list.n;
    if (n > KVAD_MAX_DIMS)
        return kvad_pickle_fail(vm, KVAD_ERR_UNSUPPORTED, "tensor of %zu dimensions (at most %d)",
                                n, KVAD_MAX_DIMS);
    tensor->n_dims = (uint32_t)n;
    for (size_t d = 0; d < n; d++)
        if (!read_size(kvad_pickle_item(shape, d), &tensor->shape[d]) ||
            !read_size(kvad_pickle_item(stride, d), &tensor->stride[d]))
            return kvad_pickle_fail(vm, KVAD_ERR_FORMAT,
                                    "tensor's size or stride holds something else than counts");
    return KVAD_OK;
}

/* {"neg": True} would mean that the stored numbers are the negated ones. */
static enum kvad_status check_metadata(struct kvad_pickle_vm *vm,
                                       const struct kvad_pickle_node *metadata) {
    static const char *const bits[] = {"neg", "conj"};
    for (size_t i = 0; i < 2; i++) {
        const struct kvad_pickle_value *bit = kvad_pickle_get(&metadata->value, bits[i]);
        if (bit && !(bit->kind == KVAD_PICKLE_BOOL && !bit->as.boolean))
            return kvad_pickle_fail(
                vm, KVAD_ERR_UNSUPPORTED,
                "tensor is a lazy \"%s\" view; call .resolve_%s() before saving", bits[i], bits[i]);
    }
    return KVAD_OK;
}

/* v1 (storage, offset, size, stride), v2 (..., requires_grad, hooks[, metadata]),
 * v3 (..., requires_grad, hooks, dtype[, metadata]). */
enum kvad_status kvad_pickle_rebuild(struct kvad_pickle_vm *vm,
                                     const struct kvad_pickle_class *class,
                                     struct kvad_pickle_node *args, struct kvad_pickle_node **out) {
    bool is_v1 = class->kind == KVAD_CLASS_TENSOR, is_v3 = class->kind == KVAD_CLASS_TENSOR_V3;
    size_t n = args->value.as.list.n, least = is_v1 ? 4 : is_v3 ? 7 : 6;
    if (n < least || n > least + !is_v1)
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "%s with %zu arguments", class->name, n);
    const struct kvad_pickle_node *source = kvad_pickle_item(args, 0);
    size_t offset;
    if (source->role != KVAD_ROLE_STORAGE || !read_size(kvad_pickle_item(args, 1), &offset) ||
        (!is_v1 && kvad_pickle_item(args, 4)->value.kind != KVAD_PICKLE_BOOL))
        return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "%s with arguments of the wrong type",
                                class->name);
    struct kvad_pickle_storage *storage =
        (struct kvad_pickle_storage *)(uintptr_t)source->value.as.detail;
    struct kvad_tensor tensor = {
        .name = "", .dtype = storage->dtype, .file = vm->pickle->name, .offset = offset};
    if (is_v3) {
        const struct kvad_pickle_node *type = kvad_pickle_item(args, 6);
        const struct kvad_pickle_class *dtype =
            type->role == KVAD_ROLE_CLASS ? type->value.as.detail : NULL;
        if (!dtype || dtype->kind != KVAD_CLASS_DTYPE || storage->dtype != KVAD_DTYPE_U8)
            return kvad_pickle_fail(vm, KVAD_ERR_FORMAT, "%s without untyped storage and dtype",
                                    class->name);
        tensor.dtype = dtype->dtype;
    }
    if (n > least) KVAD_TRY(check_metadata(vm, kvad_pickle_item(args, least)));
    KVAD_TRY(read_dims(vm, kvad_pickle_item(args, 2), kvad_pickle_item(args, 3), &tensor));
    KVAD_TRY(check_view(vm, &tensor, storage));
    void *memory = NULL;
    KVAD_TRY(kvad_pickle_alloc(vm, sizeof(struct kvad_pickle_tensor_link), &memory));
    KVAD_TRY(kvad_pickle_node(vm, KVAD_ROLE_TENSOR, KVAD_PICKLE_TENSOR, sizeof tensor, out));
    struct kvad_pickle_tensor_link *link = memory;
    (*out)->value.as.tensor = tensor;
    *link =
        (struct kvad_pickle_tensor_link){vm->pickle->tensors, &(*out)->value.as.tensor, storage};
    vm->pickle->tensors = link;
    return KVAD_OK;
}

void kvad_pickle_bind_tensors(struct kvad_pickle *pickle) {
    for (struct kvad_pickle_tensor_link *link = pickle->tensors; link; link = link->next) {
        const struct kvad_pickle_storage *storage = link->storage;
        struct kvad_tensor *tensor = link->tensor;
        size_t bytes = storage->view_begin * kvad_dtype_bytes(storage->dtype) +
                       (size_t)tensor->offset * kvad_dtype_bytes(tensor->dtype);
        tensor->data = storage->data + bytes;
        tensor->offset = storage->offset + bytes;
    }
}
