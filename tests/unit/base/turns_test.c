/* Turns: one at a time, and in the order in which they come. */
#include "base/turns.h"

#include <sched.h>

#include "test.h"

enum { N_WAITING = 3, N_ROUNDS = 200, N_THREADS = 4, N_ADDS = 20000 };

static struct kvad_turns turns;

static struct {
    pthread_t threads[N_WAITING];
    size_t order[N_WAITING + 1], n;
} line;

static void *wait_in_line(void *index) {
    kvad_turns_take(&turns);
    line.order[line.n++] = *(const size_t *)index;
    kvad_turns_end(&turns);
    return NULL;
}

static uint64_t n_tickets(void) {
    pthread_mutex_lock(&turns.lock);
    uint64_t n = turns.next;
    pthread_mutex_unlock(&turns.lock);
    return n;
}

/* Who takes it again at once comes after all who wait. */
static void test_who_came_first_goes_first(void **state) {
    (void)state;
    static const size_t indices[N_WAITING] = {0, 1, 2};
    kvad_turns_init(&turns);
    for (int round = 0; round < N_ROUNDS; round++) {
        line.n = 0;
        kvad_turns_take(&turns);
        for (size_t i = 0; i < N_WAITING; i++) {
            uint64_t n = n_tickets();
            void *index = (void *)(uintptr_t)&indices[i];
            assert_int_equal(pthread_create(&line.threads[i], NULL, wait_in_line, index), 0);
            while (n_tickets() == n)
                sched_yield();
        }
        kvad_turns_end(&turns);
        kvad_turns_take(&turns);
        line.order[line.n++] = N_WAITING;
        kvad_turns_end(&turns);
        for (size_t i = 0; i < N_WAITING; i++)
            pthread_join(line.threads[i], NULL);
        for (size_t i = 0; i <= N_WAITING; i++)
            assert_int_equal(line.order[i], i);
    }
    kvad_turns_deinit(&turns);
}

static size_t sum;

static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < N_ADDS; i++) {
        kvad_turns_take(&turns);
        sum++;
        kvad_turns_end(&turns);
    }
    return NULL;
}

static void test_only_one_has_its_turn(void **state) {
    (void)state;
    pthread_t threads[N_THREADS];
    kvad_turns_init(&turns);
    for (size_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add, NULL), 0);
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sum, (size_t)N_THREADS * N_ADDS);
    kvad_turns_deinit(&turns);
}

static void *ask_whose(void *is_mine) {
    *(bool *)is_mine = kvad_turns_is_mine(&turns);
    return NULL;
}

static void test_a_turn_is_that_of_the_thread_that_took_it_until_it_ends(void **state) {
    (void)state;
    pthread_t thread;
    bool is_others = true;
    kvad_turns_init(&turns);
    assert_false(kvad_turns_is_mine(&turns));
    for (int round = 0; round < 2; round++) {
        kvad_turns_take(&turns);
        assert_true(kvad_turns_is_mine(&turns));
        assert_int_equal(pthread_create(&thread, NULL, ask_whose, &is_others), 0);
        pthread_join(thread, NULL);
        assert_false(is_others);
        kvad_turns_end(&turns);
        assert_false(kvad_turns_is_mine(&turns));
    }
    kvad_turns_deinit(&turns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_came_first_goes_first),
        cmocka_unit_test(test_only_one_has_its_turn),
        cmocka_unit_test(test_a_turn_is_that_of_the_thread_that_took_it_until_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
