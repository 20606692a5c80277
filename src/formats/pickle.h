/* A restricted unpickler: builds plain values and runs nothing.
 *
 * It knows the opcodes of protocols 2 to 4 that torch.save and pickle.dump write for dicts of
 * numbers, strings and tensors, and a fixed list of classes (docs/formats.md). Anything else is
 * refused by name. Sizes, depth and counts are capped, so that memory stays proportional to the
 * input. */
#ifndef KVAD_FORMATS_PICKLE_H
#define KVAD_FORMATS_PICKLE_H

#include "base/alloc.h"
#include "formats/tensor.h"

enum kvad_pickle_kind {
    KVAD_PICKLE_NONE,
    KVAD_PICKLE_BOOL,
    KVAD_PICKLE_INT,
    KVAD_PICKLE_FLOAT,
    KVAD_PICKLE_STRING,
    KVAD_PICKLE_LIST, /* also tuples and sets */
    KVAD_PICKLE_DICT, /* also OrderedDict: order kept */
    KVAD_PICKLE_TENSOR,
    KVAD_PICKLE_OBJECT /* a known class whose content does not matter here */
};

/* Borrowed and immutable. A value is stored only as far as the member of its kind reaches, so never
 * copy the struct. Values form a tree of at most 64 levels, but one value may hang in several
 * places (what the stream shares is shared): a walk of the whole tree needs a bound of its own. */
struct kvad_pickle_value {
    enum kvad_pickle_kind kind;
    union {
        bool boolean;
        int64_t integer; /* integers beyond 64 bits become OBJECT */
        double number;
        struct {
            const char *bytes; /* NUL-terminated copy; may hold NULs inside */
            size_t size;
        } string;
        struct {
            const struct kvad_pickle_value **items; /* [n] */
            size_t n;
        } list;
        struct {
            const struct kvad_pickle_value **keys;   /* [n] */
            const struct kvad_pickle_value **values; /* [n] */
            size_t n;
        } dict;
        struct kvad_tensor tensor;
        const void *detail; /* OBJECT: private to the reader */
    } as;
};

struct kvad_pickle; /* owns the values of one stream */

/** The value of a string key in a dict, or NULL (also when `dict` is NULL or no dict). The last one
 * of equal keys wins. */
const struct kvad_pickle_value *kvad_pickle_get(const struct kvad_pickle_value *dict,
                                                const char *key);

/** Parse one plain pickle (meta.pkl; no tensors). `name` is the file's name for errors. Close with
 * kvad_pickle_close(). */
enum kvad_status kvad_pickle_open(const void *data, size_t size, const char *name,
                                  struct kvad_heap *heap, struct kvad_pickle **out,
                                  struct kvad_error *err);
const struct kvad_pickle_value *kvad_pickle_root(const struct kvad_pickle *pickle);
void kvad_pickle_close(struct kvad_pickle **pickle);

#endif
