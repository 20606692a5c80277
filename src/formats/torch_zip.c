/* TOP/data.pkl, TOP/byteorder, TOP/data/<key>: TOP is the file's name when it was saved ("ckpt"),
 * or "archive" for a stream. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/torch_file.h"
#include "formats/zip.h"

struct torch_zip {
    struct kvad_zip zip;
    const char *top; /* folder of everything, with its slash; inside the archive */
    size_t top_size;
    struct kvad_error *err;
};

/* The member TOP/<folder><name>, or NULL. */
static const struct kvad_zip_entry *find(const struct torch_zip *file, const char *folder,
                                         const char *name) {
    char path[KVAD_ZIP_NAME_MAX + 1];
    int n = snprintf(path, sizeof path, "%.*s%s%s", (int)file->top_size, file->top, folder, name);
    return n > 0 && n < (int)sizeof path ? kvad_zip_find(&file->zip, path, (size_t)n) : NULL;
}

static bool has_folder(const struct torch_zip *file, const char *folder) {
    size_t size = strlen(folder);
    for (size_t i = 0; i < file->zip.n_entries; i++) {
        const struct kvad_zip_entry *entry = &file->zip.entries[i];
        if (entry->name_size > file->top_size + size &&
            memcmp(entry->name, file->top, file->top_size) == 0 &&
            memcmp(entry->name + file->top_size, folder, size) == 0)
            return true;
    }
    return false;
}

static enum kvad_status find_top(struct torch_zip *file) {
    const char *slash = memchr(file->zip.first, '/', file->zip.first_size);
    if (!slash || slash == file->zip.first)
        return kvad_fail(file->err, KVAD_ERR_FORMAT,
                         "%s: zip archive without a top folder: not a file of torch.save",
                         file->zip.file);
    file->top = file->zip.first;
    file->top_size = (size_t)(slash - file->top) + 1;
    return KVAD_OK;
}

/* Absent in files of torch < 2.1, which are little-endian in practice. */
static enum kvad_status check_byte_order(const struct torch_zip *file) {
    const struct kvad_zip_entry *entry = find(file, "byteorder", "");
    if (!entry) return KVAD_OK;
    const char *text = (const char *)file->zip.data + entry->offset;
    if (entry->size == 6 && memcmp(text, "little", 6) == 0) return KVAD_OK;
    return kvad_fail(file->err, KVAD_ERR_UNSUPPORTED,
                     "%s: byte order is \"%.*s\"; only little is read: save the model again on a "
                     "little-endian machine",
                     file->zip.file, (int)kvad_min_size(entry->size, 20), text);
}

static enum kvad_status find_pickle(const struct torch_zip *file,
                                    const struct kvad_zip_entry **out) {
    const char *name = file->zip.file;
    if (find(file, "constants.pkl", "") || has_folder(file, "code/"))
        return kvad_fail(file->err, KVAD_ERR_UNSUPPORTED,
                         "%s: a TorchScript program (torch.jit.save), not weights; save them with "
                         "torch.save(model.state_dict(), \"model.pt\")",
                         name);
    KVAD_TRY(kvad_zip_check_stored(&file->zip, file->err));
    const struct kvad_zip_entry *entry = find(file, "data.pkl", "");
    if (!entry)
        return kvad_fail(file->err, KVAD_ERR_FORMAT,
                         "%s: zip archive without %.*sdata.pkl: not a file of torch.save", name,
                         (int)kvad_min_size(file->top_size, 100), file->top);
    if (entry->size > KVAD_PICKLE_MAX_BYTES)
        return kvad_fail(file->err, KVAD_ERR_UNSUPPORTED, "%s: data.pkl of %zu bytes (at most %d)",
                         name, entry->size, KVAD_PICKLE_MAX_BYTES);
    KVAD_TRY(kvad_zip_check(&file->zip, entry, file->err));
    *out = entry;
    return KVAD_OK;
}

/* Storages are found in the directory and their sizes compared; their bytes are not touched, so
 * that an optimizer's state costs nothing. */
static enum kvad_status locate_storages(const struct torch_zip *file, struct kvad_pickle *pickle) {
    for (struct kvad_pickle_storage *s = pickle->storages; s; s = s->next) {
        const struct kvad_zip_entry *entry = find(file, "data/", s->key);
        if (!entry)
            return kvad_fail(file->err, KVAD_ERR_FORMAT,
                             "%s: storage %.100s is not in the archive (no entry %.*sdata/%.100s)",
                             pickle->name, s->key, (int)kvad_min_size(file->top_size, 100),
                             file->top, s->key);
        if (entry->size != s->bytes)
            return kvad_fail(file->err, KVAD_ERR_FORMAT,
                             "%s: storage %.100s holds %zu bytes, but %zu elements of %s need %zu",
                             pickle->name, s->key, entry->size, s->n_elements,
                             kvad_dtype_name(s->dtype), s->bytes);
        s->data = file->zip.data + entry->offset;
        s->offset = entry->offset;
    }
    return KVAD_OK;
}

static enum kvad_status read_members(struct torch_zip *file, struct kvad_pickle *pickle) {
    const struct kvad_zip_entry *entry = NULL;
    KVAD_TRY(find_top(file));
    KVAD_TRY(find_pickle(file, &entry));
    KVAD_TRY(check_byte_order(file));
    struct kvad_pickle_stream in = {.data = file->zip.data + entry->offset,
                                    .size = entry->size,
                                    .offset = entry->offset,
                                    .what = "data.pkl",
                                    .is_torch = true};
    size_t used = 0;
    KVAD_TRY(kvad_pickle_read(pickle, &in, &pickle->root, &used, file->err));
    if (used != entry->size)
        return kvad_fail(file->err, KVAD_ERR_FORMAT,
                         "%s: data.pkl: %zu bytes follow the end of the pickle", pickle->name,
                         entry->size - used);
    KVAD_TRY(locate_storages(file, pickle));
    kvad_pickle_bind_tensors(pickle);
    return KVAD_OK;
}

enum kvad_status kvad_torch_read_zip(struct kvad_pickle *pickle, const unsigned char *data,
                                     size_t size, struct kvad_error *err) {
    struct torch_zip file = {.err = err};
    enum kvad_status status = kvad_zip_open(&file.zip, data, size, pickle->name, pickle->heap, err);
    if (status == KVAD_OK) status = read_members(&file, pickle);
    kvad_zip_close(&file.zip);
    return status;
}
