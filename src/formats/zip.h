/* Stored zip archives, read in place: what torch.save writes.
 *
 *     [local header, name, padding, data]... [central directory] [zip64 record, locator] [end]
 *
 * Sizes come from the central directory alone, since torch leaves zeros in the local headers; data
 * begins after the LOCAL name and extra field, which carries the padding. No byte of data is copied
 * or read. Source of the layout: APPNOTE.TXT 6.3.10. */
#ifndef KVAD_FORMATS_ZIP_H
#define KVAD_FORMATS_ZIP_H

#include "base/alloc.h"

/* Longer member names are refused: torch's are short, and callers build them in fixed buffers. */
enum { KVAD_ZIP_NAME_MAX = 1024 };

struct kvad_zip_entry {
    const char *name; /* in the archive, not NUL-terminated */
    size_t name_size;
    uint64_t header;     /* offset of the local header */
    uint64_t offset;     /* of the data */
    size_t size;         /* in the archive */
    uint32_t crc;        /* 0 where the writer did not compute it */
    const char *problem; /* why its bytes are not its content ("compressed ..."), or NULL */
};

/* All borrowed from the archive's bytes, except `entries`. */
struct kvad_zip {
    struct kvad_heap *heap;
    const unsigned char *data;
    size_t size;
    const char *file;               /* for errors */
    struct kvad_zip_entry *entries; /* [n_entries], sorted by name */
    size_t n_entries;
    const char *first; /* name of the first entry in the directory's own order */
    size_t first_size;
};

/** Read the directory of an archive into a zeroed `zip`. Refused: several disks, duplicate names,
 * entries that overlap or reach outside the file or into the directory, directory and local headers
 * that differ, bytes in front of the archive. Close in every case. */
enum kvad_status kvad_zip_open(struct kvad_zip *zip, const unsigned char *data, size_t size,
                               const char *file, struct kvad_heap *heap, struct kvad_error *err);
/** KVAD_ERR_UNSUPPORTED unless every entry is stored plainly. Apart from opening, so that a caller
 * may first tell a foreign kind of archive by its names. Call it before reading any data. */
enum kvad_status kvad_zip_check_stored(const struct kvad_zip *zip, struct kvad_error *err);
/** The entry of this exact name, or NULL. O(log n). */
const struct kvad_zip_entry *kvad_zip_find(const struct kvad_zip *zip, const char *name,
                                           size_t name_size);
/** CRC-32 of an entry's data against the directory, where the writer computed one (not 0). */
enum kvad_status kvad_zip_check(const struct kvad_zip *zip, const struct kvad_zip_entry *entry,
                                struct kvad_error *err);
void kvad_zip_close(struct kvad_zip *zip);

#endif
