/* Comparing floats bit by bit, element by element (never by sums or means, which do not see a
 * permutation). */
#ifndef KVAD_TEST_BITS_H
#define KVAD_TEST_BITS_H

#include <stdbool.h>
#include <stddef.h>

/** Index of the first element that differs, all NaNs being equal, or `n`. */
size_t bits_first_difference(const float *a, const float *b, size_t n);
bool bits_are_finite(const float *values, size_t n);

/** A text made like printf, for the messages of checks; valid until the eighth next call. */
const char *label(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Fails the test unless both are finite (a NaN that equals a NaN proves nothing) and have the
 * same bits. `where` says what was compared. */
#define assert_same_bits(got, wanted, n, where)                                                    \
    assert_same_bits_at(got, wanted, n, where, __FILE__, __LINE__)
void assert_same_bits_at(const float *got, const float *wanted, size_t n, const char *where,
                         const char *file, int line);

/** Fails the test unless both are finite and |got - wanted| <= bound * (1 + max |wanted|). */
#define assert_close(got, wanted, n, bound, where)                                                 \
    assert_close_at(got, wanted, n, bound, where, __FILE__, __LINE__)
void assert_close_at(const float *got, const double *wanted, size_t n, double bound,
                     const char *where, const char *file, int line);

#endif
