/* What every test program includes: cmocka and a few checks in the project's own words. */
#ifndef KVAD_TEST_H
#define KVAD_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first. */
#include <cmocka.h>

#include "kvad/kvad.h"

/** Succeeds or stops the test, printing the error's text. */
#define assert_ok(expr, err)                                                                       \
    do {                                                                                           \
        enum kvad_status assert_status_ = (expr);                                                  \
        if (assert_status_ != KVAD_OK) {                                                           \
            print_error("%s: %s: %s\n", #expr, kvad_status_text(assert_status_), (err)->text);     \
            assert_int_equal(assert_status_, KVAD_OK);                                             \
        }                                                                                          \
    } while (0)

/** Fails with this status and a text that contains `part`. */
#define assert_fails(expr, wanted, err, part)                                                      \
    do {                                                                                           \
        enum kvad_status assert_status_ = (expr);                                                  \
        assert_int_equal(assert_status_, wanted);                                                  \
        if (!strstr((err)->text, part)) print_error("text is: %s\n", (err)->text);                 \
        assert_non_null(strstr((err)->text, part));                                                \
    } while (0)

/** Path of a fixture: in the repository ("tiny/..." in tests/data/models, "shakespeare-char/..." in
 * models), else in ../shared/fixtures or $KVAD_FIXTURES; NULL, with a clear message, where it is
 * nowhere: then call skip(). The string is static. */
static inline const char *test_fixture(const char *relative) {
    static char path[1024];
    bool is_tiny = strncmp(relative, "tiny/", 5) == 0;
    snprintf(path, sizeof path, "%s/%s", is_tiny ? "tests/data/models" : "models",
             relative + (is_tiny ? 5 : 0));
    FILE *file = fopen(path, "rb");
    if (!file) {
        const char *root = getenv("KVAD_FIXTURES");
        snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/fixtures", relative);
        file = fopen(path, "rb");
    }
    if (!file) {
        print_message("SKIPPED: fixture %s is absent\n", path);
        return NULL;
    }
    fclose(file);
    return path;
}

/** Kernel level that this run is about, for kvad_engine_options.cpu: the environment variable
 * KVAD_CPU, or NULL for the best. Tests with the label `levels` use it. */
static inline const char *test_cpu(void) {
    const char *cpu = getenv("KVAD_CPU");
    return cpu && *cpu ? cpu : NULL;
}

#endif
