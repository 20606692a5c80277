/* An allocator that remembers every piece of memory it gave, under the account it was asked on.
 * Any thread. */
#ifndef KVAD_LAB_MEMORY_LEDGER_H
#define KVAD_LAB_MEMORY_LEDGER_H

#include <pthread.h>

#include "engine/memory.h"

/* Live memory, or a range that is not from the allocator. */
struct memory_piece {
    uintptr_t start;
    size_t bytes, allocated;
    enum kvad_memory_owner owner; /* KVAD_MEMORY_OWNERS: of nobody yet */
    bool is_claimed;              /* somebody named it as his, besides the account */
};

struct memory_ledger {
    pthread_mutex_t lock;
    struct kvad_heap heap;       /* where memory really comes from: what engines use by default */
    struct memory_piece *pieces; /* [n], in no order; a piece itself, of the lab */
    size_t n, capacity;
    uint64_t bytes, peak; /* live now; the most since it was last taken */
};

/* Somebody who asks for memory. */
struct memory_account {
    struct memory_ledger *ledger;
    enum kvad_memory_owner owner; /* of what is asked for here */
};

/** KVAD_ERR_NO_MEMORY; memory_ledger_deinit() follows in any case. */
enum kvad_status memory_ledger_init(struct memory_ledger *ledger, struct kvad_error *err);
/** Everything has been given back. A zeroed ledger is allowed. */
void memory_ledger_deinit(struct memory_ledger *ledger);

/** The allocator of an account, which outlives all that it gives. */
struct kvad_allocator memory_account_allocator(struct memory_account *account);

/** The most bytes that were live at once since the last call. */
uint64_t memory_ledger_take_peak(struct memory_ledger *ledger);

/** Copy all live pieces, sorted by address, into out[capacity]; returns how many there are, perhaps
 * more than fit. */
size_t memory_ledger_copy(struct memory_ledger *ledger, struct memory_piece *out, size_t capacity);
/** By address, for kvad's own ranges too. */
void memory_pieces_sort(struct memory_piece *pieces, size_t n);

#endif
