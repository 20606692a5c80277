#include "base/turns.h"

void kvad_turns_init(struct kvad_turns *turns) {
    pthread_mutex_init(&turns->lock, NULL);
    pthread_cond_init(&turns->changed, NULL);
    turns->next = turns->now = 0;
    turns->is_taken = false;
}

void kvad_turns_deinit(struct kvad_turns *turns) {
    pthread_cond_destroy(&turns->changed);
    pthread_mutex_destroy(&turns->lock);
}

void kvad_turns_take(struct kvad_turns *turns) {
    pthread_mutex_lock(&turns->lock);
    uint64_t mine = turns->next++;
    while (turns->now != mine)
        pthread_cond_wait(&turns->changed, &turns->lock);
    turns->is_taken = true;
    turns->holder = pthread_self();
    pthread_mutex_unlock(&turns->lock);
}

void kvad_turns_end(struct kvad_turns *turns) {
    pthread_mutex_lock(&turns->lock);
    turns->is_taken = false;
    turns->now++;
    if (turns->now != turns->next) pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->lock);
}

bool kvad_turns_is_mine(struct kvad_turns *turns) {
    pthread_mutex_lock(&turns->lock);
    bool is_mine = turns->is_taken && pthread_equal(turns->holder, pthread_self());
    pthread_mutex_unlock(&turns->lock);
    return is_mine;
}
