#include "lab/memory_resident.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

enum { PAGEMAP_ENTRIES = 1 << 13, FIRST_TEXT = 1 << 18 };

/* Bits of an entry (Documentation/admin-guide/mm/pagemap.rst). An anonymous page that is present
 * but mapped more than once is the page of zeros, which nobody pays for. */
#define PAGE_PRESENT   (UINT64_C(1) << 63)
#define PAGE_FILE      (UINT64_C(1) << 61)
#define PAGE_EXCLUSIVE (UINT64_C(1) << 56)

/* Sanitizers keep shadows of memory, many times the program's own. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define HAS_SHADOW 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SHADOW 1
#endif
#ifndef HAS_SHADOW
#define HAS_SHADOW 0
#endif

enum kvad_status memory_resident_open(struct memory_resident *reader, struct kvad_heap *heap,
                                      const char **why, struct kvad_error *err) {
    *reader = (struct memory_resident){
        .heap = heap, .pagemap = -1, .page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    *why = NULL;
    if (HAS_SHADOW) {
        *why = "this build has a sanitizer, whose own memory hides the program's";
        return KVAD_OK;
    }
    reader->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (reader->pagemap < 0 || access("/proc/self/smaps", R_OK) != 0) {
        *why = "the kernel shows no /proc/self/pagemap and smaps";
        return KVAD_OK;
    }
    reader->capacity = FIRST_TEXT;
    reader->text = kvad_alloc(heap, reader->capacity);
    reader->entries = kvad_alloc(heap, PAGEMAP_ENTRIES * sizeof *reader->entries);
    if (reader->text && reader->entries) return KVAD_OK;
    return kvad_fail_memory(err, "a list of pages", PAGEMAP_ENTRIES * sizeof *reader->entries);
}

void memory_resident_close(struct memory_resident *reader) {
    if (!reader->heap) return;
    if (reader->pagemap >= 0) close(reader->pagemap);
    kvad_free(reader->heap, reader->text, reader->capacity);
    kvad_free(reader->heap, reader->entries, PAGEMAP_ENTRIES * sizeof *reader->entries);
    *reader = (struct memory_resident){0};
}

/* ---------------------------------------------------------------- smaps */

/* All of a file of unknown size, ended by NUL. */
static enum kvad_status read_smaps(struct memory_resident *r, struct kvad_error *err) {
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kvad_fail(err, KVAD_ERR_IO, "/proc/self/smaps: %s", strerror(errno));
    enum kvad_status status = KVAD_OK;
    ssize_t n = 1;
    for (r->size = 0; n > 0 && status == KVAD_OK;) {
        if (r->capacity - r->size < 8192) {
            char *text = kvad_resize(r->heap, r->text, r->capacity, 2 * r->capacity);
            if (!text) status = kvad_fail_memory(err, "smaps", 2 * r->capacity);
            if (!text) break;
            r->text = text;
            r->capacity *= 2;
        }
        n = read(fd, r->text + r->size, r->capacity - r->size - 1);
        if (n > 0) r->size += (size_t)n;
    }
    close(fd);
    r->text[r->size] = 0;
    if (status == KVAD_OK && n < 0)
        status = kvad_fail(err, KVAD_ERR_IO, "/proc/self/smaps: %s", strerror(errno));
    return status;
}

/* A range of addresses, and whose its pages are where no piece lies. */
struct range {
    uintptr_t start, end;
    enum kvad_memory_owner rest; /* KVAD_MEMORY_OWNERS: nobody's */
    bool is_program;             /* a file that is no piece, or zeros that belong to one */
    uint64_t resident;
};

static bool overlaps_piece(const struct memory_piece *pieces, size_t n, const struct range *range) {
    for (size_t i = 0; i < n; i++)
        if (pieces[i].start < range->end && pieces[i].start + pieces[i].bytes > range->start)
            return true;
    return false;
}

/* "start-end perms offset device inode   path". Variables without a first value lie directly behind
 * their file's range. */
static bool parse_head(const char *line, const struct range *before, struct range *range,
                       const char **path) {
    char *end;
    uintptr_t start = (uintptr_t)strtoull(line, &end, 16);
    if (end == line || *end != '-') return false;
    *range = (struct range){
        .start = start, .end = (uintptr_t)strtoull(end + 1, &end, 16), .rest = KVAD_MEMORY_OWNERS};
    for (int field = 0; field < 4; field++) {
        end += strspn(end, " ");
        end += strcspn(end, " \n");
    }
    end += strspn(end, " ");
    *path = end;
    range->is_program = *end == '/' || strncmp(end, "[v", 2) == 0 ||
                        (*end == '\n' && before->is_program && before->end == start);
    if (strncmp(end, "[heap]", 6) == 0) range->rest = KVAD_MEMORY_MALLOC;
    if (strncmp(end, "[stack]", 7) == 0) range->rest = KVAD_MEMORY_STACKS;
    return true;
}

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* ---------------------------------------------------------------- pages */

/* Pieces are passed in the order of pages: `at` is the first that may reach into the next page. */
struct walk {
    const struct memory_piece *pieces;
    size_t n, at;
    uint64_t *owners; /* [KVAD_MEMORY_OWNERS] */
};

static void count_page(struct walk *walk, const struct range *range, uintptr_t page,
                       size_t page_bytes) {
    uintptr_t end = page + page_bytes;
    size_t covered = 0, i;
    while (walk->at < walk->n &&
           walk->pieces[walk->at].start + walk->pieces[walk->at].bytes <= page)
        walk->at++;
    for (i = walk->at; i < walk->n && walk->pieces[i].start < end; i++) {
        const struct memory_piece *p = &walk->pieces[i];
        uintptr_t first = p->start > page ? p->start : page;
        uintptr_t last = p->start + p->bytes < end ? p->start + p->bytes : end;
        if (last > first) walk->owners[p->owner] += last - first;
        if (last > first) covered += last - first;
    }
    if (covered == page_bytes) return;
    /* The C library writes headers before each piece: at the end of the page before, where it is
     * aligned, and where its mapping begins. */
    uintptr_t next = i < walk->n ? walk->pieces[i].start : UINTPTR_MAX;
    bool is_beside = covered > 0 || next == end || (page == range->start && next <= range->end);
    enum kvad_memory_owner rest = range->rest;
    if (rest == KVAD_MEMORY_OWNERS && is_beside) rest = KVAD_MEMORY_ROUNDING;
    if (rest == KVAD_MEMORY_OWNERS && range->is_program) rest = KVAD_MEMORY_PROGRAM;
    if (rest != KVAD_MEMORY_OWNERS) walk->owners[rest] += page_bytes - covered;
}

static bool is_resident(uint64_t entry) {
    return (entry & PAGE_PRESENT) && (entry & (PAGE_FILE | PAGE_EXCLUSIVE));
}

static enum kvad_status count_range(struct memory_resident *r, struct walk *walk,
                                    const struct range *range, struct kvad_error *err) {
    size_t n_pages = (range->end - range->start) / r->page_bytes;
    for (size_t done = 0; done < n_pages;) {
        size_t n = kvad_min_size(n_pages - done, PAGEMAP_ENTRIES);
        uintptr_t start = range->start + done * r->page_bytes;
        ssize_t got = pread(r->pagemap, r->entries, n * sizeof *r->entries,
                            (off_t)(start / r->page_bytes * sizeof *r->entries));
        if (got < (ssize_t)sizeof *r->entries)
            return kvad_fail(err, KVAD_ERR_IO, "/proc/self/pagemap: %s",
                             got < 0 ? strerror(errno) : "it ends early");
        n = (size_t)got / sizeof *r->entries;
        for (size_t i = 0; i < n; i++)
            if (is_resident(r->entries[i]))
                count_page(walk, range, start + i * r->page_bytes, r->page_bytes);
        done += n;
    }
    return KVAD_OK;
}

enum kvad_status memory_resident_read(struct memory_resident *reader,
                                      const struct memory_piece *pieces, size_t n,
                                      uint64_t owners[KVAD_MEMORY_OWNERS], uint64_t *resident,
                                      struct kvad_error *err) {
    KVAD_TRY(read_smaps(reader, err));
    struct walk walk = {.pieces = pieces, .n = n, .owners = owners};
    struct range range = {0};
    *resident = 0;
    for (const char *line = reader->text; *line; line = next_line(line)) {
        struct range next;
        const char *path;
        unsigned long long kib;
        if (parse_head(line, &range, &next, &path)) {
            if (*path == '/' && overlaps_piece(pieces, n, &next)) next.is_program = false;
            range = next;
        } else if (sscanf(line, "Rss: %llu kB", &kib) == 1 && kib > 0) {
            *resident += (uint64_t)kib << 10;
            KVAD_TRY(count_range(reader, &walk, &range, err));
        }
    }
    return KVAD_OK;
}
