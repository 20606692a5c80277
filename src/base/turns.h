/* A lock whose holders take turns: who came first goes first, so that a thread which takes it again
 * at once, step after step, keeps nobody waiting for longer than one of its turns.
 *
 * (A pthread mutex makes no such promise: whoever lets it go usually gets it again.) */
#ifndef KVAD_BASE_TURNS_H
#define KVAD_BASE_TURNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct kvad_turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next, now; /* the ticket that the next one gets; whose turn it is */
    bool is_taken;
    pthread_t holder; /* while it is taken */
};

void kvad_turns_init(struct kvad_turns *turns);
/** When nobody has a turn or waits for one. */
void kvad_turns_deinit(struct kvad_turns *turns);
/** Wait for one's turn. Not twice by one thread: it would wait for itself. Never allocates. */
void kvad_turns_take(struct kvad_turns *turns);
/** End one's turn: what was written in it is seen by those that come. */
void kvad_turns_end(struct kvad_turns *turns);
/** Whether the calling thread has its turn now. */
bool kvad_turns_is_mine(struct kvad_turns *turns);

#endif
