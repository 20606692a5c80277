#include "formats/torch.h"

#include <string.h>

#include "base/error.h"
#include "formats/torch_file.h"

enum torch_kind { NOT_TORCH, ZIP, LEGACY, TAR, BARE_PICKLE };

static enum torch_kind kind_of(const unsigned char *data, size_t size) {
    if (size >= 4 && memcmp(data, "PK\3\4", 4) == 0) return ZIP;
    if (size >= KVAD_TORCH_LEGACY_MAGIC_SIZE &&
        memcmp(data, KVAD_TORCH_LEGACY_MAGIC, KVAD_TORCH_LEGACY_MAGIC_SIZE) == 0)
        return LEGACY;
    if (size >= 262 && memcmp(data + 257, "ustar", 5) == 0) return TAR;
    return size >= 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5 ? BARE_PICKLE : NOT_TORCH;
}

bool kvad_torch_probe(const unsigned char *data, size_t size) {
    return kind_of(data, size) != NOT_TORCH;
}

/* A struct kvad_torch is the pickle alone: the tensors keep the rest alive by pointing into the
 * caller's bytes. */
static struct kvad_pickle *as_pickle(const struct kvad_torch *torch) {
    return (struct kvad_pickle *)(uintptr_t)torch;
}

static enum kvad_status read_file(struct kvad_pickle *pickle, const unsigned char *data,
                                  size_t size, struct kvad_error *err) {
    switch (kind_of(data, size)) {
    case ZIP: return kvad_torch_read_zip(pickle, data, size, err);
    case LEGACY: return kvad_torch_read_legacy(pickle, data, size, err);
    case TAR:
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: tar file of torch 0.1; load it with torch < 2.0 and torch.save it "
                         "again",
                         pickle->name);
    case BARE_PICKLE:
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "%s: a pickle, but not a file of torch.save (or its first bytes are "
                         "damaged); write it with torch.save(model.state_dict(), \"model.pt\")",
                         pickle->name);
    case NOT_TORCH: break;
    }
    return kvad_fail(err, KVAD_ERR_FORMAT,
                     "%s: not a file of torch.save: %zu bytes, neither zip nor pickle in front",
                     pickle->name, size);
}

enum kvad_status kvad_torch_open(const unsigned char *data, size_t size, const char *name,
                                 struct kvad_heap *heap, struct kvad_torch **out,
                                 struct kvad_error *err) {
    struct kvad_pickle *pickle = kvad_pickle_create(name, size, heap);
    if (!pickle) return kvad_fail_memory(err, "a torch file", sizeof *pickle + strlen(name) + 1);
    enum kvad_status status = read_file(pickle, data, size, err);
    if (status != KVAD_OK)
        kvad_pickle_close(&pickle);
    else
        *out = (struct kvad_torch *)pickle;
    return status;
}

const struct kvad_pickle_value *kvad_torch_root(const struct kvad_torch *torch) {
    return kvad_pickle_root(as_pickle(torch));
}

void kvad_torch_close(struct kvad_torch **torch) {
    struct kvad_pickle *pickle = as_pickle(*torch);
    kvad_pickle_close(&pickle);
    *torch = NULL;
}
