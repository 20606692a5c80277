#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

enum {
    END_SIZE = 22,
    END_COMMENT_MAX = 65535,
    LOCATOR_SIZE = 20,
    END64_SIZE = 56,
    CENTRAL_SIZE = 46,
    LOCAL_SIZE = 30,
    EXTRA_ZIP64 = 1
};

#define SIGNATURE_LOCAL   0x04034b50u
#define SIGNATURE_CENTRAL 0x02014b50u
#define SIGNATURE_END     0x06054b50u
#define SIGNATURE_END64   0x06064b50u
#define SIGNATURE_LOCATOR 0x07064b50u

/* Where the directory lies. */
struct directory {
    uint64_t offset, size, n_entries;
};

static enum kvad_status fail(const struct kvad_zip *zip, struct kvad_error *err, uint64_t offset,
                             const char *what) {
    return kvad_fail(err, KVAD_ERR_FORMAT, "%s: offset %llu: %s", zip->file,
                     (unsigned long long)offset, what);
}

static enum kvad_status fail_entry(const struct kvad_zip *zip, struct kvad_error *err,
                                   const struct kvad_zip_entry *entry, enum kvad_status status,
                                   const char *what) {
    return kvad_fail(err, status, "%s: zip entry %.*s (header at offset %llu): %s", zip->file,
                     (int)kvad_min_size(entry->name_size, 100), entry->name,
                     (unsigned long long)entry->header, what);
}

/* The end record, found from the back: its comment must end where the file ends. */
static bool find_end(const struct kvad_zip *zip, size_t *at) {
    if (zip->size < END_SIZE) return false;
    size_t last = zip->size - END_SIZE;
    size_t first = last > END_COMMENT_MAX ? last - END_COMMENT_MAX : 0;
    for (size_t i = last + 1; i-- > first;) {
        if (kvad_load_u32le(zip->data + i) != SIGNATURE_END) continue;
        if (i + END_SIZE + kvad_load_u16le(zip->data + i + 20) != zip->size) continue;
        *at = i;
        return true;
    }
    return false;
}

/* A 16- or 32-bit field of the end record either says the same as the zip64 record or is all ones,
 * which means "see there": two readers must not see two archives. */
static bool agrees(uint64_t narrow, uint64_t marker, uint64_t wide) {
    return narrow == marker || narrow == wide;
}

static enum kvad_status read_end64(const struct kvad_zip *zip, size_t end, size_t locator,
                                   struct directory *dir, size_t *dir_end, struct kvad_error *err) {
    const unsigned char *e = zip->data + end, *l = zip->data + locator;
    uint64_t at = kvad_load_u64le(l + 8);
    if (at > locator || locator - at < END64_SIZE ||
        kvad_load_u32le(zip->data + at) != SIGNATURE_END64)
        return fail(zip, err, locator, "zip64 locator does not point to a zip64 end record");
    const unsigned char *r = zip->data + at;
    if (kvad_load_u64le(r + 4) != locator - at - 12)
        return fail(zip, err, at, "zip64 end record does not end at its locator");
    if (kvad_load_u32le(l + 4) != 0 || kvad_load_u32le(l + 16) > 1 ||
        kvad_load_u32le(r + 16) != 0 || kvad_load_u32le(r + 20) != 0 ||
        kvad_load_u64le(r + 24) != kvad_load_u64le(r + 32))
        return fail(zip, err, at, "archive in several parts is not supported");
    dir->n_entries = kvad_load_u64le(r + 32);
    dir->size = kvad_load_u64le(r + 40);
    dir->offset = kvad_load_u64le(r + 48);
    if (!agrees(kvad_load_u16le(e + 10), 0xffff, dir->n_entries) ||
        !agrees(kvad_load_u32le(e + 12), 0xffffffffu, dir->size) ||
        !agrees(kvad_load_u32le(e + 16), 0xffffffffu, dir->offset))
        return fail(zip, err, end, "end record and zip64 end record contradict each other");
    *dir_end = (size_t)at;
    return KVAD_OK;
}

static enum kvad_status find_directory(const struct kvad_zip *zip, struct directory *dir,
                                       struct kvad_error *err) {
    size_t end = 0, dir_end = 0;
    if (!find_end(zip, &end))
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: no zip end record in the last %zu of %zu bytes: the file is cut "
                         "short (copy or download it again)",
                         zip->file, kvad_min_size(zip->size, END_SIZE + END_COMMENT_MAX),
                         zip->size);
    const unsigned char *e = zip->data + end;
    if (end >= LOCATOR_SIZE && kvad_load_u32le(e - LOCATOR_SIZE) == SIGNATURE_LOCATOR) {
        KVAD_TRY(read_end64(zip, end, end - LOCATOR_SIZE, dir, &dir_end, err));
    } else {
        if (kvad_load_u16le(e + 4) != 0 || kvad_load_u16le(e + 6) != 0 ||
            kvad_load_u16le(e + 8) != kvad_load_u16le(e + 10))
            return fail(zip, err, end, "archive in several parts is not supported");
        dir->n_entries = kvad_load_u16le(e + 10);
        dir->size = kvad_load_u32le(e + 12);
        dir->offset = kvad_load_u32le(e + 16);
        dir_end = end;
    }
    if (dir->size > dir_end || dir->offset > dir_end - dir->size)
        return fail(zip, err, end, "zip directory reaches outside the file");
    if (dir->offset != dir_end - dir->size)
        return kvad_fail(err, KVAD_ERR_FORMAT,
                         "%s: the zip directory lies %llu bytes behind its stated place: bytes "
                         "stand in front of the archive or were inserted; restore the original",
                         zip->file, (unsigned long long)(dir_end - dir->size - dir->offset));
    if (dir->n_entries > dir->size / CENTRAL_SIZE)
        return fail(zip, err, dir->offset, "zip directory is too small for its number of entries");
    return KVAD_OK;
}

/* The zip64 extra field holds 64-bit values for those fields alone that are all ones, in this
 * order: size, compressed size, header offset. */
static bool read_extra64(const unsigned char *extra, size_t extra_size, uint64_t *fields[3]) {
    bool wanted =
        *fields[0] == 0xffffffffu || *fields[1] == 0xffffffffu || *fields[2] == 0xffffffffu;
    for (size_t at = 0; extra_size - at >= 4;) {
        size_t id = kvad_load_u16le(extra + at), n = kvad_load_u16le(extra + at + 2);
        at += 4;
        if (n > extra_size - at) return false;
        if (id == EXTRA_ZIP64 && wanted) {
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != 0xffffffffu) continue;
                if (n < 8) return false;
                *fields[i] = kvad_load_u64le(extra + at);
                at += 8;
                n -= 8;
            }
            return true;
        }
        at += n;
    }
    return !wanted;
}

/* Check an entry against its local header and find its data. */
static enum kvad_status locate(const struct kvad_zip *zip, const struct directory *dir,
                               const unsigned char *central, struct kvad_zip_entry *entry,
                               struct kvad_error *err) {
    if (entry->header > dir->offset || dir->offset - entry->header < LOCAL_SIZE ||
        kvad_load_u32le(zip->data + entry->header) != SIGNATURE_LOCAL)
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT,
                          "no local header there, in front of the directory");
    const unsigned char *local = zip->data + entry->header;
    size_t name_size = kvad_load_u16le(local + 26), extra_size = kvad_load_u16le(local + 28);
    size_t before = LOCAL_SIZE + name_size + extra_size;
    if (dir->offset - entry->header < before || dir->offset - entry->header - before < entry->size)
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT,
                          "its bytes reach into the directory or past the end of the file");
    if (name_size != entry->name_size || memcmp(local + LOCAL_SIZE, entry->name, name_size) != 0)
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT, "local header has another name");
    if (kvad_load_u16le(local + 8) != kvad_load_u16le(central + 10))
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT,
                          "local header and directory differ on its compression");
    entry->offset = entry->header + before;
    return KVAD_OK;
}

static enum kvad_status read_entry(const struct kvad_zip *zip, const struct directory *dir,
                                   uint64_t *at, struct kvad_zip_entry *entry,
                                   struct kvad_error *err) {
    uint64_t left = dir->offset + dir->size - *at;
    const unsigned char *c = zip->data + *at;
    if (left < CENTRAL_SIZE || kvad_load_u32le(c) != SIGNATURE_CENTRAL)
        return fail(zip, err, *at, "malformed zip directory");
    size_t name_size = kvad_load_u16le(c + 28), extra_size = kvad_load_u16le(c + 30);
    size_t whole = CENTRAL_SIZE + name_size + extra_size + kvad_load_u16le(c + 32);
    if (whole > left) return fail(zip, err, *at, "zip directory entry is cut short");
    uint64_t size = kvad_load_u32le(c + 24), packed = kvad_load_u32le(c + 20);
    *entry = (struct kvad_zip_entry){.name = (const char *)c + CENTRAL_SIZE,
                                     .name_size = name_size,
                                     .header = kvad_load_u32le(c + 42),
                                     .crc = kvad_load_u32le(c + 16)};
    if (name_size == 0 || name_size > KVAD_ZIP_NAME_MAX || memchr(entry->name, 0, name_size))
        return fail(zip, err, *at, "zip entry's name is empty, too long or holds a NUL");
    uint64_t *fields[3] = {&size, &packed, &entry->header};
    if (!read_extra64(c + CENTRAL_SIZE + name_size, extra_size, fields))
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT, "malformed extra field");
    unsigned flags = kvad_load_u16le(c + 8), method = kvad_load_u16le(c + 10);
    if (flags & (1u | 1u << 6 | 1u << 13)) /* encrypted, strongly encrypted, masked headers */
        entry->problem = "encrypted; unpack it and zip it again with zip -0";
    else if (method != 0 || size != packed)
        entry->problem = "compressed; torch.save stores without compression: save the model again, "
                         "or zip its files with zip -0";
    if (kvad_load_u16le(c + 34) != 0)
        return fail(zip, err, *at, "archive in several parts is not supported");
    if (packed > zip->size)
        return fail_entry(zip, err, entry, KVAD_ERR_FORMAT, "larger than the whole file");
    entry->size = (size_t)packed;
    *at += whole;
    return locate(zip, dir, c, entry, err);
}

static int compare_names(const char *a, size_t a_size, const char *b, size_t b_size) {
    int order = memcmp(a, b, kvad_min_size(a_size, b_size));
    return order ? order : (a_size > b_size) - (a_size < b_size);
}
static int by_name(const void *left, const void *right) {
    const struct kvad_zip_entry *a = left, *b = right;
    return compare_names(a->name, a->name_size, b->name, b->name_size);
}
static int by_offset(const void *left, const void *right) {
    const struct kvad_zip_entry *a = left, *b = right;
    return (a->header > b->header) - (a->header < b->header);
}

static enum kvad_status check_entries(struct kvad_zip *zip, struct kvad_error *err) {
    struct kvad_zip_entry *e = zip->entries;
    qsort(e, zip->n_entries, sizeof *e, by_offset);
    for (size_t i = 1; i < zip->n_entries; i++)
        if (e[i].header < e[i - 1].offset + e[i - 1].size)
            return fail_entry(zip, err, &e[i], KVAD_ERR_FORMAT, "overlaps the entry before it");
    qsort(e, zip->n_entries, sizeof *e, by_name);
    for (size_t i = 1; i < zip->n_entries; i++)
        if (by_name(&e[i - 1], &e[i]) == 0)
            return fail_entry(zip, err, &e[i], KVAD_ERR_FORMAT, "its name occurs twice");
    return KVAD_OK;
}

enum kvad_status kvad_zip_open(struct kvad_zip *zip, const unsigned char *data, size_t size,
                               const char *file, struct kvad_heap *heap, struct kvad_error *err) {
    *zip = (struct kvad_zip){.heap = heap, .data = data, .size = size, .file = file};
    struct directory dir = {0};
    KVAD_TRY(find_directory(zip, &dir, err));
    if (dir.n_entries == 0) return fail(zip, err, dir.offset, "the zip archive is empty");
    size_t n = (size_t)dir.n_entries;
    zip->entries = kvad_alloc_zero(heap, n, sizeof *zip->entries);
    if (!zip->entries) return kvad_fail_memory(err, "zip directory", n * sizeof *zip->entries);
    zip->n_entries = n;
    uint64_t at = dir.offset;
    for (size_t i = 0; i < n; i++)
        KVAD_TRY(read_entry(zip, &dir, &at, &zip->entries[i], err));
    if (at != dir.offset + dir.size)
        return fail(zip, err, at, "zip directory holds more than its stated number of entries");
    zip->first = zip->entries[0].name;
    zip->first_size = zip->entries[0].name_size;
    return check_entries(zip, err);
}

enum kvad_status kvad_zip_check_stored(const struct kvad_zip *zip, struct kvad_error *err) {
    for (size_t i = 0; i < zip->n_entries; i++)
        if (zip->entries[i].problem)
            return fail_entry(zip, err, &zip->entries[i], KVAD_ERR_UNSUPPORTED,
                              zip->entries[i].problem);
    return KVAD_OK;
}

const struct kvad_zip_entry *kvad_zip_find(const struct kvad_zip *zip, const char *name,
                                           size_t name_size) {
    size_t low = 0, high = zip->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct kvad_zip_entry *entry = &zip->entries[middle];
        int order = compare_names(name, name_size, entry->name, entry->name_size);
        if (order == 0) return entry;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Polynomial 0xedb88320, four bits at a time: 16 words of table, fast enough for a few megabytes.
 */
static uint32_t crc32_of(const unsigned char *data, size_t size) {
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

enum kvad_status kvad_zip_check(const struct kvad_zip *zip, const struct kvad_zip_entry *entry,
                                struct kvad_error *err) {
    if (entry->crc == 0) return KVAD_OK;
    if (crc32_of(zip->data + entry->offset, entry->size) == entry->crc) return KVAD_OK;
    return fail_entry(zip, err, entry, KVAD_ERR_FORMAT,
                      "CRC-32 does not fit: the file is damaged (copy or download it again)");
}

void kvad_zip_close(struct kvad_zip *zip) {
    kvad_free(zip->heap, zip->entries, zip->n_entries * sizeof *zip->entries);
    *zip = (struct kvad_zip){0};
}
