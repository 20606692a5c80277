#include "load_support.h"

struct temp_folder folder;
struct kvad_model_options options;
struct kvad_model *model;
struct kvad_error err;
struct model_file file;
struct said said;

static void listen(void *user, enum kvad_log_level level, const char *text) {
    struct said *s = user;
    if (level == KVAD_LOG_INFO && strstr(text, "no tokenizer found")) s->n_none_found++;
    snprintf(s->last, sizeof s->last, "%s", text);
}

int load_set_up(void **state) {
    (void)state;
    static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                            "XDG_CACHE_HOME", "DATA_GYM_CACHE_DIR"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    folder = temp_folder_create();
    setenv("HOME", folder.path, 1);
    setenv("TIKTOKEN_CACHE_DIR", temp_path(&folder, "tiktoken"), 1);
    err = (struct kvad_error){0};
    said = (struct said){0};
    model = NULL;
    kvad_model_options_init(&options);
    options.log = (struct kvad_log){listen, &said};
    return 0;
}

int load_tear_down(void **state) {
    (void)state;
    kvad_model_release(&model);
    file_free(&file);
    temp_folder_destroy(&folder);
    return 0;
}

void write_bytes(const char *relative, struct byte_buffer bytes) {
    temp_write(&folder, relative, bytes.data, bytes.size);
    free_bytes(&bytes);
}

enum kvad_status load_here(const char *relative) {
    return kvad_model_load(temp_path(&folder, relative), &options, &model, &err);
}
