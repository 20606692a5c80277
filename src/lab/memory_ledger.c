#include "lab/memory_ledger.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/error.h"

enum { FIRST_CAPACITY = 256 };

static struct memory_piece piece_of(void *memory, size_t bytes, enum kvad_memory_owner owner) {
    return (struct memory_piece){.start = (uintptr_t)memory,
                                 .bytes = bytes,
                                 .allocated = malloc_usable_size(memory),
                                 .owner = owner};
}

/* The list of pieces is itself one, so that the lab's own memory is counted too. */
static bool grow(struct memory_ledger *ledger) {
    size_t capacity = ledger->capacity ? 2 * ledger->capacity : FIRST_CAPACITY;
    size_t bytes = capacity * sizeof *ledger->pieces;
    struct memory_piece *pieces =
        kvad_resize(&ledger->heap, ledger->pieces, ledger->capacity * sizeof *pieces, bytes);
    if (!pieces) return false;
    ledger->bytes += bytes - ledger->capacity * sizeof *pieces;
    ledger->pieces = pieces;
    ledger->capacity = capacity;
    ledger->pieces[0] = piece_of(pieces, bytes, KVAD_MEMORY_LAB);
    return true;
}

enum kvad_status memory_ledger_init(struct memory_ledger *ledger, struct kvad_error *err) {
    *ledger = (struct memory_ledger){0};
    pthread_mutex_init(&ledger->lock, NULL);
    kvad_heap_init(&ledger->heap, NULL);
    if (!grow(ledger))
        return kvad_fail_memory(err, "a ledger", FIRST_CAPACITY * sizeof *ledger->pieces);
    ledger->n = 1;
    return KVAD_OK;
}

void memory_ledger_deinit(struct memory_ledger *ledger) {
    if (!ledger->capacity) return;
    kvad_free(&ledger->heap, ledger->pieces, ledger->capacity * sizeof *ledger->pieces);
    pthread_mutex_destroy(&ledger->lock);
    *ledger = (struct memory_ledger){0};
}

static void *allocate(void *user, size_t size, size_t alignment) {
    const struct memory_account *account = user;
    struct memory_ledger *ledger = account->ledger;
    const struct kvad_allocator *hook = &ledger->heap.hook;
    void *memory = hook->allocate(hook->user, size, alignment);
    if (!memory) return NULL;
    pthread_mutex_lock(&ledger->lock);
    bool has_room = ledger->n < ledger->capacity || grow(ledger);
    if (has_room) {
        ledger->pieces[ledger->n++] = piece_of(memory, size, account->owner);
        ledger->bytes += size;
        if (ledger->bytes > ledger->peak) ledger->peak = ledger->bytes;
    }
    pthread_mutex_unlock(&ledger->lock);
    if (has_room) return memory;
    hook->release(hook->user, memory, size);
    return NULL;
}

static void release(void *user, void *memory, size_t size) {
    const struct memory_account *account = user;
    struct memory_ledger *ledger = account->ledger;
    pthread_mutex_lock(&ledger->lock);
    size_t i = ledger->n;
    while (i > 1 && ledger->pieces[i - 1].start != (uintptr_t)memory)
        i--;
    if (i > 1) {
        ledger->bytes -= ledger->pieces[i - 1].bytes;
        ledger->pieces[i - 1] = ledger->pieces[--ledger->n];
    }
    pthread_mutex_unlock(&ledger->lock);
    ledger->heap.hook.release(ledger->heap.hook.user, memory, size);
}

struct kvad_allocator memory_account_allocator(struct memory_account *account) {
    return (struct kvad_allocator){allocate, release, account};
}

uint64_t memory_ledger_take_peak(struct memory_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    uint64_t peak = ledger->peak;
    ledger->peak = ledger->bytes;
    pthread_mutex_unlock(&ledger->lock);
    return peak;
}

static int by_start(const void *a, const void *b) {
    uintptr_t x = ((const struct memory_piece *)a)->start;
    uintptr_t y = ((const struct memory_piece *)b)->start;
    return (x > y) - (x < y);
}

void memory_pieces_sort(struct memory_piece *pieces, size_t n) {
    qsort(pieces, n, sizeof *pieces, by_start);
}

size_t memory_ledger_copy(struct memory_ledger *ledger, struct memory_piece *out, size_t capacity) {
    pthread_mutex_lock(&ledger->lock);
    size_t n = ledger->n;
    for (size_t i = 0; i < n && i < capacity; i++)
        out[i] = ledger->pieces[i];
    pthread_mutex_unlock(&ledger->lock);
    if (n <= capacity) memory_pieces_sort(out, n);
    return n;
}
