/* A load of a model from files of one's own: a folder that is also the home of this test alone. */
#ifndef KVAD_TESTS_LOAD_SUPPORT_H
#define KVAD_TESTS_LOAD_SUPPORT_H

#include "support.h"
#include "temp_folder.h"
#include "test.h"

extern struct temp_folder folder;
extern struct kvad_model_options options; /* whose log goes to `said` */
extern struct kvad_model *model;          /* NULL, or released after the test */
extern struct kvad_error err;
extern struct model_file file; /* freed after the test */

struct said {
    size_t n_none_found; /* that there is no tokenizer */
    char last[512];
};
extern struct said said;

/** A test that begins with an empty folder, no model and the usual options. */
#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_set_up, load_tear_down)
int load_set_up(void **state);
int load_tear_down(void **state);

/** Into a file of the folder; frees the bytes. */
void write_bytes(const char *relative, struct byte_buffer bytes);
/** A path in the folder into `model`, or its error into `err`. */
enum kvad_status load_here(const char *relative);

#endif
