/* Buffers, values and comparison of kvad-check. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

enum { MAX_REPORTED = 20 };

static const struct check *faulting_check; /* for the signal handler */

static void on_fault(int signal_number) {
    const struct check *c = faulting_check;
    printf("FAILED %s %s (%s, guard %s): signal %d: outside the given ranges, or an illegal "
           "instruction\n",
           c->level, c->op, c->case_text, c->side == SIDE_END ? "after" : "before", signal_number);
    fflush(stdout);
    _Exit(1);
}

void check_catch_faults(const struct check *c) {
    struct sigaction action = {.sa_handler = on_fault};
    faulting_check = c;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
}

void check_end(struct check *c) {
    for (size_t i = 0; i < c->n_buffers; i++)
        munmap(c->buffers[i].map, c->buffers[i].map_bytes);
    c->n_buffers = 0;
}

void check_case(struct check *c, const char *format, ...) {
    check_end(c);
    c->n_cases++;
    va_list args;
    va_start(args, format);
    vsnprintf(c->case_text, sizeof c->case_text, format, args);
    va_end(args);
}

void check_fail(struct check *c, const char *format, ...) {
    if (c->n_failures++ >= MAX_REPORTED) return;
    va_list args;
    va_start(args, format);
    printf("FAILED %s %s (%s, guard %s): ", c->level, c->op, c->case_text,
           c->side == SIDE_END ? "after" : "before");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* SplitMix64 (Steele, Lea and Flood, 2014) of a counter: the same values on every machine. */
uint32_t check_random(struct check *c) {
    uint64_t z = c->seed + ++c->n_values * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

size_t check_random_below(struct check *c, size_t n) {
    return (size_t)((uint64_t)check_random(c) * n >> 32);
}

static float random_exponent(struct check *c, int low, int high) {
    uint32_t exponent =
        (uint32_t)(low + 127) + (uint32_t)check_random_below(c, (size_t)(high - low));
    uint32_t bits = check_random(c);
    return kvad_float_from_bits((bits & 0x807fffffu) | exponent << 23);
}

float check_special(struct check *c) {
    static const float values[] = {INFINITY, -INFINITY, 0.0f,      -0.0f,      FLT_MIN,   -FLT_MIN,
                                   FLT_MAX,  -FLT_MAX,  0x1p-149f, -0x1p-149f, 0x1p-130f, 1e4f,
                                   -1e4f,    40.0f,     -40.0f,    11.0f,      -11.0f,    88.0f,
                                   -88.0f,   1e-8f,     -1e-8f};
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7fd5a5a5u, 0xffc00001u};
    size_t i = check_random_below(c, 24);
    return i < 4 ? kvad_float_from_bits(nans[i])
                 : values[check_random_below(c, sizeof values / sizeof *values)];
}

float check_float(struct check *c, enum check_pattern pattern) {
    if (pattern == PATTERN_WIDE) return random_exponent(c, -20, 20);
    if (pattern == PATTERN_TINY) return random_exponent(c, -78, -60);
    if (pattern == PATTERN_SPECIAL && check_random_below(c, 24) == 0) return check_special(c);
    return (float)((int32_t)check_random(c) >> 8) * 0x1p-23f;
}

/* A mapping of `bytes` with a page on each side that faults; data touches the page on c->side. */
static float *guarded(struct check *c, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = n * sizeof(float);
    size_t inner = (bytes + page - 1) / page * page;
    unsigned char *map = c->n_buffers < CHECK_MAX_BUFFERS
                             ? mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                             : MAP_FAILED;
    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) ||
        mprotect(map + page + inner, page, PROT_NONE)) {
        perror("guarded buffer");
        exit(2);
    }
    c->buffers[c->n_buffers++] = (struct check_buffer){map, inner + 2 * page};
    return (float *)(void *)(map + page + (c->side == SIDE_END ? inner - bytes : 0));
}

float *check_input(struct check *c, size_t n, enum check_pattern pattern) {
    float *data = guarded(c, n);
    for (size_t i = 0; i < n; i++)
        data[i] = check_float(c, pattern);
    return data;
}

void check_freeze(struct check *c) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < c->n_buffers; i++)
        mprotect((unsigned char *)c->buffers[i].map + page, c->buffers[i].map_bytes - 2 * page,
                 PROT_READ);
}

struct check_output check_output(struct check *c, size_t n) {
    struct check_output out = {.n = n};
    float *want = guarded(c, n + 2 * CHECK_CANARIES), *got = guarded(c, n + 2 * CHECK_CANARIES);
    for (size_t i = 0; i < n + 2 * CHECK_CANARIES; i++)
        want[i] = check_float(c, PATTERN_WIDE);
    memcpy(got, want, (n + 2 * CHECK_CANARIES) * sizeof *got);
    out.want = want + CHECK_CANARIES;
    out.got = got + CHECK_CANARIES;
    return out;
}

void check_output_set(struct check_output *out, const float *values, size_t n) {
    memcpy(out->want, values, n * sizeof *values);
    memcpy(out->got, values, n * sizeof *values);
}

bool same_bits(float a, float b) {
    return kvad_bits_from_float(a) == kvad_bits_from_float(b) || (isnan(a) && isnan(b));
}

void check_equal(struct check *c, const struct check_output *out) {
    const float *want = out->want - CHECK_CANARIES, *got = out->got - CHECK_CANARIES;
    size_t n = out->n + 2 * CHECK_CANARIES;
    if (memcmp(want, got, n * sizeof *want) == 0) return;
    for (size_t i = 0; i < n; i++) {
        if (same_bits(want[i], got[i])) continue;
        check_fail(c, "element %td of %zu is %a, must be %a", (ptrdiff_t)i - CHECK_CANARIES, out->n,
                   (double)got[i], (double)want[i]);
        return;
    }
}

size_t check_size(size_t index) {
    enum { LAST_SMALL = 129 };
    static const size_t large[] = {192, 255, 576, 768, 2304, 3072, 0};
    return index < LAST_SMALL ? index + 1 : large[index - LAST_SMALL];
}
