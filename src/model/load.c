/* kvad_model_load(), kvad_model_load_memory(), kvad_model_inspect(). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "formats/locate.h"
#include "model/load_tokenizer.h"
#include "model/pack.h"
#include "model/weights.h"

/* One load from start to end. */
struct loader {
    struct kvad_model_options options;
    struct kvad_heap heap; /* of the files; the model has its own */
    const struct kvad_checkpoint *checkpoint;
    struct kvad_weights weights;
    struct kvad_tokenizer *tokenizer;
    char *tokenizer_path; /* on `heap` */
};

static enum kvad_status copy_options(const struct kvad_model_options *from,
                                     struct kvad_model_options *to, struct kvad_error *err) {
    kvad_model_options_init(to);
    if (!from) return KVAD_OK;
    KVAD_TRY(kvad_growing_take_options(to, sizeof *to, from, "model", err));
    if ((unsigned)to->activation >= KVAD_ACTIVATION_COUNT)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "options: activation is %u, must be 0 to %u",
                         (unsigned)to->activation, (unsigned)KVAD_ACTIVATION_COUNT - 1);
    return KVAD_OK;
}

static void say(const struct kvad_log *log, enum kvad_log_level level, const char *format, ...)
    KVAD_PRINTF(3, 4);
static void say(const struct kvad_log *log, enum kvad_log_level level, const char *format, ...) {
    char text[512];
    va_list args;
    if (!log->write) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->write(log->user, level, text);
}

static void say_what_is_odd(const struct loader *l) {
    const struct kvad_log *log = &l->options.log;
    const struct kvad_description *d = &l->weights.description;
    if (l->weights.was_untied)
        say(log, KVAD_LOG_WARNING,
            "%s: the head should be tied to the token embedding, but the file has two different "
            "tensors; both are used as they are",
            l->checkpoint->path);
    if (l->tokenizer && kvad_tokenizer_size(l->tokenizer) > d->n_vocab)
        say(log, KVAD_LOG_WARNING,
            "%s: the tokenizer has %u ids, the model only %u: is it the right one?",
            l->checkpoint->path, kvad_tokenizer_size(l->tokenizer), d->n_vocab);
}

static void say_what_it_is(const struct kvad_log *log, const char *path,
                           const struct kvad_model *model) {
    const struct kvad_description *d = &model->description;
    say(log, KVAD_LOG_INFO, "%s: %s, %u layers, %u heads, width %u, %llu parameters", path,
        d->family, d->n_layers, d->n_heads, d->d_model, (unsigned long long)model->n_parameters);
}

/* Everything up to the weights themselves. */
static enum kvad_status prepare(struct loader *l, struct kvad_error *err) {
    KVAD_TRY(kvad_weights_open(l->checkpoint, l->options.n_heads, l->options.activation, &l->heap,
                               &l->weights, err));
    KVAD_TRY(kvad_model_find_tokenizer(l->checkpoint, &l->options, l->weights.description.n_vocab,
                                       &l->heap, &l->tokenizer, &l->tokenizer_path, err));
    say_what_is_odd(l);
    return KVAD_OK;
}

static enum kvad_status build(struct loader *l, struct kvad_model **out, struct kvad_error *err) {
    struct kvad_model *model = NULL;
    KVAD_TRY(prepare(l, err));
    KVAD_TRY(
        kvad_model_build(&l->weights.description, &l->weights.source, &l->options, &model, err));
    kvad_model_decide_tokens(l->tokenizer, model);
    model->tokenizer = l->tokenizer;
    l->tokenizer = NULL;
    if (l->tokenizer_path) {
        model->tokenizer_path = kvad_path_format(&model->heap, "%s", l->tokenizer_path);
        if (!model->tokenizer_path) {
            kvad_model_release(&model);
            return kvad_fail_memory(err, "a path", strlen(l->tokenizer_path) + 1);
        }
    }
    say_what_it_is(&l->options.log, l->checkpoint->path, model);
    *out = model;
    return KVAD_OK;
}

static enum kvad_status measure(struct loader *l, struct kvad_model_info *info,
                                struct kvad_error *err) {
    KVAD_TRY(prepare(l, err));
    struct kvad_model model = {
        .description = l->weights.description,
        .weights = l->options.weights == KVAD_WEIGHTS_AUTO ? KVAD_WEIGHTS_F32 : l->options.weights};
    KVAD_TRY(kvad_model_measure(&model.description, l->weights.source.present, &model, err));
    kvad_model_decide_tokens(l->tokenizer, &model);
    model.tokenizer = l->tokenizer; /* lent */
    kvad_model_get_info(&model, info);
    return KVAD_OK;
}

static enum kvad_status start(struct loader *l, const struct kvad_model_options *options,
                              struct kvad_error *err) {
    memset(l, 0, sizeof *l);
    KVAD_TRY(copy_options(options, &l->options, err));
    kvad_heap_init(&l->heap, &l->options.allocator);
    l->weights.heap = &l->heap;
    return KVAD_OK;
}

static void finish(struct loader *l) {
    kvad_tokenizer_release(&l->tokenizer);
    kvad_path_free(&l->heap, l->tokenizer_path);
    kvad_weights_close(&l->weights);
    kvad_checkpoint_close(&l->checkpoint);
}

enum kvad_status kvad_model_load(const char *path, const struct kvad_model_options *options,
                                 struct kvad_model **out, struct kvad_error *err) {
    struct loader l;
    KVAD_TRY(start(&l, options, err));
    if (!path || !*path) return kvad_fail(err, KVAD_ERR_ARGUMENT, "the model's path is empty");
    if (kvad_pack_probe(path)) {
        KVAD_TRY(kvad_pack_load(path, &l.options, out, err));
        say_what_it_is(&l.options.log, path, *out);
        return KVAD_OK;
    }
    enum kvad_status status = kvad_checkpoint_open(path, &l.heap, &l.checkpoint, err);
    if (status == KVAD_OK) status = build(&l, out, err);
    finish(&l);
    return status;
}

enum kvad_status kvad_model_load_memory(const void *data, size_t size, const char *config_json,
                                        const struct kvad_model_options *options,
                                        struct kvad_model **out, struct kvad_error *err) {
    struct loader l;
    KVAD_TRY(start(&l, options, err));
    enum kvad_status status =
        kvad_checkpoint_open_memory(data, size, config_json, &l.heap, &l.checkpoint, err);
    if (status == KVAD_OK) status = build(&l, out, err);
    finish(&l);
    return status;
}

enum kvad_status kvad_model_inspect_sized(const char *path,
                                          const struct kvad_model_options *options,
                                          struct kvad_model_info *info, size_t size,
                                          struct kvad_error *err) {
    struct loader l;
    KVAD_TRY(start(&l, options, err));
    if (!path || !*path) return kvad_fail(err, KVAD_ERR_ARGUMENT, "the model's path is empty");
    if (kvad_pack_probe(path)) {
        struct kvad_model *model = NULL;
        l.options.no_map = false; /* a copy would read all weights */
        KVAD_TRY(kvad_pack_load(path, &l.options, &model, err));
        kvad_model_get_info_sized(model, info, size);
        kvad_model_release(&model);
        return KVAD_OK;
    }
    enum kvad_status status = kvad_checkpoint_open(path, &l.heap, &l.checkpoint, err);
    struct kvad_model_info ours;
    if (status == KVAD_OK) status = measure(&l, &ours, err);
    if (status == KVAD_OK) kvad_growing_give(info, size, &ours, sizeof ours);
    finish(&l);
    return status;
}
