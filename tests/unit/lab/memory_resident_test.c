/* Whose a resident page is: the piece's in which it lies, else what the kernel calls its range. */
#define _GNU_SOURCE /* pthread_getattr_np(), which musl has too */
#include "lab/memory_resident.h"

#include <pthread.h>
#include <sys/mman.h>

#include "test.h"

enum { N_PAGES = 64, FIRST = 8, N_PIECE = 16, STACK_BYTES = 512 << 10, THREAD_BYTES = 128 << 10 };

struct fixture {
    struct kvad_heap heap;
    struct memory_resident reader;
    size_t page;
};

static struct fixture fixture;

static int set_up(void **state) {
    struct kvad_error err;
    const char *why;
    kvad_heap_init(&fixture.heap, NULL);
    assert_ok(memory_resident_open(&fixture.reader, &fixture.heap, &why, &err), &err);
    fixture.page = fixture.reader.page_bytes;
    *state = why ? NULL : &fixture;
    if (why) print_message("NOT RUN: %s\n", why);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    memory_resident_close(&fixture.reader);
    return 0;
}

struct owners {
    uint64_t bytes[KVAD_MEMORY_OWNERS], resident;
};

static struct owners look(struct fixture *f, const struct memory_piece *piece) {
    struct owners owners = {{0}, 0};
    struct kvad_error err;
    assert_ok(memory_resident_read(&f->reader, piece, piece != NULL, owners.bytes, &owners.resident,
                                   &err),
              &err);
    return owners;
}

static void touch(volatile unsigned char *memory, size_t n) {
    for (size_t i = 0; i < n; i += 1024)
        memory[i] = 1;
}

static void test_touched_pages_are_those_of_the_piece_they_lie_in(void **state) {
    struct fixture *f = *state;
    if (!f) skip();
    /* Pages that may not be read on either side: a range of its own. */
    unsigned char *guarded =
        mmap(NULL, (N_PAGES + 2) * f->page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guarded != MAP_FAILED);
    unsigned char *area = guarded + f->page;
    assert_int_equal(mprotect(area, N_PAGES * f->page, PROT_READ | PROT_WRITE), 0);
    struct memory_piece piece = {.start = (uintptr_t)(area + FIRST * f->page),
                                 .bytes = N_PIECE * f->page,
                                 .owner = KVAD_MEMORY_STEP};
    touch(area + FIRST * f->page, f->page);
    struct owners before = look(f, &piece);
    assert_int_equal(before.bytes[KVAD_MEMORY_STEP], f->page);
    assert_int_equal(before.bytes[KVAD_MEMORY_ROUNDING], 0);
    touch(area, N_PAGES * f->page);
    struct owners after = look(f, &piece);
    assert_int_equal(after.bytes[KVAD_MEMORY_STEP], N_PIECE * f->page);
    /* Headers may lie in the page before it, and in the first of its range. */
    assert_int_equal(after.bytes[KVAD_MEMORY_ROUNDING], 2 * f->page);
    assert_true(after.resident >= before.resident + (N_PAGES - 1) * f->page);
    uint64_t owned = 0;
    for (int i = 0; i < KVAD_MEMORY_OWNERS; i++)
        owned += after.bytes[i];
    assert_true(owned + (N_PAGES - N_PIECE - 2) * f->page <= after.resident); /* nobody's */
    munmap(guarded, (N_PAGES + 2) * f->page);
}

static void touch_stack(void) {
    volatile unsigned char memory[STACK_BYTES];
    touch(memory, sizeof memory);
}

static void test_the_first_threads_stack_needs_no_piece(void **state) {
    struct fixture *f = *state;
    if (!f) skip();
    void (*volatile deeper)(void) = touch_stack; /* not inlined: its frame comes and goes */
    struct owners before = look(f, NULL);
    deeper();
    struct owners after = look(f, NULL);
    assert_in_range(after.bytes[KVAD_MEMORY_STACKS] - before.bytes[KVAD_MEMORY_STACKS],
                    STACK_BYTES - 64 * f->page, STACK_BYTES + f->page);
    assert_true(after.bytes[KVAD_MEMORY_PROGRAM] > 0);
}

struct other {
    pthread_barrier_t barrier;
    struct memory_piece stack;
};

static void *wait_with_a_stack(void *argument) {
    struct other *other = argument;
    volatile unsigned char memory[THREAD_BYTES];
    touch(memory, sizeof memory);
    pthread_attr_t attributes;
    void *start = NULL;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstack(&attributes, &start, &other->stack.bytes);
    pthread_attr_destroy(&attributes);
    other->stack.start = (uintptr_t)start;
    pthread_barrier_wait(&other->barrier);
    pthread_barrier_wait(&other->barrier);
    return NULL;
}

/* The kernel knows one stack by name; others are mapped like any memory. */
static void test_other_threads_stacks_are_pieces(void **state) {
    struct fixture *f = *state;
    if (!f) skip();
    struct other other = {.stack = {.owner = KVAD_MEMORY_STACKS}};
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&other.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_with_a_stack, &other), 0);
    pthread_barrier_wait(&other.barrier);
    struct owners unnamed = look(f, NULL), named = look(f, &other.stack);
    pthread_barrier_wait(&other.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&other.barrier);
    assert_in_range(named.bytes[KVAD_MEMORY_STACKS] - unnamed.bytes[KVAD_MEMORY_STACKS],
                    THREAD_BYTES, other.stack.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_touched_pages_are_those_of_the_piece_they_lie_in),
        cmocka_unit_test(test_the_first_threads_stack_needs_no_piece),
        cmocka_unit_test(test_other_threads_stacks_are_pieces),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
