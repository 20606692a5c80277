/* Opening a packed model: the header is checked, the weights are mapped. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/locate.h"
#include "model/config.h"
#include "model/fill.h"
#include "model/load_tokenizer.h"
#include "model/pack.h"
#include "tokenizer/tokenizer.h"

bool kvad_pack_probe(const char *path) {
    char magic[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    struct stat st;
    bool is_pack = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                   read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                   memcmp(magic, KVAD_PACK_MAGIC, sizeof magic) == 0;
    close(fd);
    return is_pack;
}

enum { N_ROLES = 5 };

struct reader {
    const char *path;
    const struct kvad_model_options *options;
    struct kvad_heap *heap;   /* of names, while it reads */
    struct kvad_file_map map; /* the model's too, unless the weights are copied */
    struct kvad_pack_header header;
    json_t *json;
    struct kvad_error *err;
};

static enum kvad_status read_header(struct reader *r) {
    const char *path = r->path;
    size_t size = r->map.size;
    struct kvad_pack_header *h = &r->header;
    if (size < KVAD_PACK_HEADER)
        return kvad_fail(r->err, KVAD_ERR_FORMAT, "%s: %zu bytes are no packed model: truncated",
                         path, size);
    memcpy(h, r->map.data, sizeof *h);
    if (h->order != KVAD_PACK_ORDER)
        return kvad_fail(r->err, KVAD_ERR_UNSUPPORTED,
                         "%s: was packed on a CPU of another byte order: pack it again here", path);
    if (h->version != KVAD_PACK_VERSION)
        return kvad_fail(r->err, KVAD_ERR_UNSUPPORTED,
                         "%s: packed format %u, this kvad reads %d: pack the model again", path,
                         h->version, KVAD_PACK_VERSION);
    uint64_t rest = size - KVAD_PACK_HEADER;
    if (h->json_bytes > rest || h->data_offset % KVAD_PACK_ALIGNMENT != 0 ||
        h->data_offset < KVAD_PACK_HEADER + h->json_bytes || h->data_offset > size ||
        h->data_bytes != size - h->data_offset)
        return kvad_fail(r->err, KVAD_ERR_FORMAT,
                         "%s: header and size contradict each other (weights at %llu, %llu bytes, "
                         "file of %zu): truncated or damaged",
                         path, (unsigned long long)h->data_offset,
                         (unsigned long long)h->data_bytes, size);
    const unsigned char *text = r->map.data + KVAD_PACK_HEADER;
    if (XXH64(text, (size_t)h->json_bytes, 0) != h->json_hash)
        return kvad_fail(r->err, KVAD_ERR_FORMAT, "%s: checksum of the header is wrong: damaged",
                         path);
    return kvad_json_parse_object((const char *)text, (size_t)h->json_bytes, path, &r->json,
                                  r->err);
}

static enum kvad_status read_sizes(struct reader *r, struct kvad_description *d) {
    const struct {
        const char *field;
        uint32_t *out;
    } sizes[] = {{"n_layers", &d->n_layers},     {"n_heads", &d->n_heads},
                 {"n_kv_heads", &d->n_kv_heads}, {"head_dim", &d->head_dim},
                 {"d_model", &d->d_model},       {"d_ff", &d->d_ff},
                 {"n_vocab", &d->n_vocab},       {"n_ctx", &d->n_ctx}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        KVAD_TRY(kvad_json_get_u32(r->json, r->path, sizes[i].field, 1, UINT32_MAX, sizes[i].out,
                                   r->err));
    return KVAD_OK;
}

static enum kvad_status read_description(struct reader *r, struct kvad_model *model) {
    struct kvad_description *d = &model->description;
    uint32_t eos = UINT32_MAX;
    double eps = 1e-5;
    const char *family = "", *weights = "", *activation = "";
    KVAD_TRY(read_sizes(r, d));
    KVAD_TRY(kvad_json_get_string(r->json, r->path, "activation", &activation, r->err));
    KVAD_TRY(
        kvad_json_get_u32(r->json, r->path, "n_tokens", 1, UINT32_MAX, &model->n_tokens, r->err));
    KVAD_TRY(kvad_json_get_double(r->json, r->path, "norm_eps", 0, 1, &eps, r->err));
    KVAD_TRY(kvad_json_get_bool(r->json, r->path, "scale_attn", &d->scale_attn, r->err));
    KVAD_TRY(kvad_json_get_bool(r->json, r->path, "scale_attn_by_layer", &d->scale_attn_by_layer,
                                r->err));
    KVAD_TRY(kvad_json_get_bool(r->json, r->path, "head_tied", &d->head_tied, r->err));
    KVAD_TRY(kvad_json_get_string(r->json, r->path, "family", &family, r->err));
    KVAD_TRY(kvad_json_get_string(r->json, r->path, "weights", &weights, r->err));
    const json_t *end = json_object_get(r->json, "eos");
    if (json_is_integer(end) && json_integer_value(end) >= 0)
        KVAD_TRY(kvad_json_get_u32(r->json, r->path, "eos", 0, INT32_MAX, &eos, r->err));
    d->eos = eos == UINT32_MAX ? -1 : (int32_t)eos;
    d->norm_eps = (float)eps;
    d->activation = kvad_activation_from_config_name(activation);
    if (r->options->activation != KVAD_ACTIVATION_AUTO) d->activation = r->options->activation;
    memcpy(d->family, family, kvad_min_size(strlen(family), sizeof d->family - 1));
    for (unsigned i = 0; i < KVAD_WEIGHT_TYPE_COUNT; i++)
        if (strcmp(weights, kvad_weight_type_name((enum kvad_weight_type)i)) == 0) {
            model->weights = (enum kvad_weight_type)i;
            return kvad_description_check(d, r->path, r->err);
        }
    return kvad_fail(r->err, KVAD_ERR_UNSUPPORTED, "%s: weights of type \"%s\" are unknown",
                     r->path, weights);
}

static enum kvad_status check_wishes(const struct reader *r, const struct kvad_model *model) {
    const struct kvad_model_options *o = r->options;
    if (o->weights != KVAD_WEIGHTS_AUTO && o->weights != model->weights)
        return kvad_fail(r->err, KVAD_ERR_UNSUPPORTED,
                         "%s: is packed in %s; pack the original again to have %s", r->path,
                         kvad_weight_type_name(model->weights), kvad_weight_type_name(o->weights));
    if (o->n_heads && o->n_heads != model->description.n_heads)
        return kvad_fail(r->err, KVAD_ERR_ARGUMENT, "%s: has %u heads, not %u", r->path,
                         model->description.n_heads, o->n_heads);
    return KVAD_OK;
}

static enum kvad_status read_biases(struct reader *r, bool present[KVAD_PARAMETER_COUNT]) {
    const struct {
        const char *field;
        enum kvad_parameter parameter;
    } biases[] = {{"norm1", KVAD_PARAMETER_NORM1_BIAS},
                  {"qkv", KVAD_PARAMETER_QKV_BIAS},
                  {"out", KVAD_PARAMETER_OUT_BIAS},
                  {"norm2", KVAD_PARAMETER_NORM2_BIAS},
                  {"up", KVAD_PARAMETER_UP_BIAS},
                  {"down", KVAD_PARAMETER_DOWN_BIAS},
                  {"final_norm", KVAD_PARAMETER_FINAL_NORM_BIAS},
                  {"head", KVAD_PARAMETER_HEAD_BIAS}};
    const json_t *list = json_object_get(r->json, "biases");
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        KVAD_TRY(kvad_json_get_bool(list, r->path, biases[i].field, &present[biases[i].parameter],
                                    r->err));
    return KVAD_OK;
}

/* The tokenizer's files lie one after the other behind the JSON. `names` is what messages call
 * them: the packed file, then the file it was made from. */
static enum kvad_status find_files(struct reader *r, struct kvad_tokenizer_files *files,
                                   char *names[N_ROLES]) {
    struct kvad_tokenizer_file *slots[N_ROLES] = {&files->main, &files->merges, &files->added,
                                                  &files->config, &files->special};
    const json_t *list = json_object_get(r->json, "tokenizer"), *file;
    size_t at = KVAD_PACK_HEADER + (size_t)r->header.json_bytes, i;
    json_array_foreach(list, i, file) {
        const char *role = json_string_value(json_object_get(file, "role"));
        const char *name = json_string_value(json_object_get(file, "name"));
        json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
        size_t slot = 0;
        while (role && slot < N_ROLES && strcmp(role, kvad_pack_roles[slot]) != 0)
            slot++;
        if (!role || !name || slot == N_ROLES || names[slot] || bytes < 0 ||
            (uint64_t)bytes > r->header.data_offset - at)
            return kvad_fail(r->err, KVAD_ERR_FORMAT, "%s: tokenizer file %zu is described wrongly",
                             r->path, i);
        names[slot] = kvad_path_format(r->heap, "%s: %s", r->path, name);
        if (!names[slot]) return kvad_fail_memory(r->err, "the name of a file", strlen(name));
        *slots[slot] = (struct kvad_tokenizer_file){names[slot], r->map.data + at, (size_t)bytes};
        at += (size_t)bytes;
    }
    return KVAD_OK;
}

static enum kvad_status read_tokenizer(struct reader *r, struct kvad_model *model) {
    const struct kvad_model_options *o = r->options;
    struct kvad_tokenizer_files files = {0};
    if (o->no_tokenizer) return KVAD_OK;
    if (o->tokenizer_path)
        return kvad_tokenizer_open(o->tokenizer_path, &o->allocator, &model->tokenizer, r->err);
    char *names[N_ROLES] = {NULL};
    enum kvad_status status = find_files(r, &files, names);
    if (status == KVAD_OK && files.main.data)
        status = kvad_tokenizer_open_memory(&files, &o->allocator, &model->tokenizer, r->err);
    for (size_t i = 0; i < N_ROLES; i++)
        kvad_path_free(r->heap, names[i]);
    return status;
}

static enum kvad_status copy_weights(struct reader *r, struct kvad_model *model,
                                     const bool present[KVAD_PARAMETER_COUNT]) {
    struct kvad_threads *threads;
    KVAD_TRY(kvad_model_allocate(model, present, r->err));
    KVAD_TRY(kvad_model_threads(r->options, &threads, r->err));
    kvad_model_fill_copy(model, r->map.data + r->header.data_offset, threads);
    kvad_threads_release(&threads);
    return KVAD_OK;
}

/* The weights where they are, or a copy of them; and their checksum, if wanted. */
static enum kvad_status take_weights(struct reader *r, struct kvad_model *model,
                                     const bool present[KVAD_PARAMETER_COUNT]) {
    if (r->options->no_map) {
        KVAD_TRY(copy_weights(r, model, present));
    } else {
        /* Mapped read-only: nobody writes to a model's weights. */
        model->area = (void *)(uintptr_t)(r->map.data + r->header.data_offset);
        model->map = r->map;
        KVAD_TRY(kvad_model_place(model, present, r->err));
    }
    if (r->options->verify && XXH64(model->area, model->area_bytes, 0) != r->header.data_hash)
        return kvad_fail(r->err, KVAD_ERR_FORMAT, "%s: checksum of the weights is wrong: damaged",
                         r->path);
    return KVAD_OK;
}

static enum kvad_status read_model(struct reader *r, struct kvad_model *model) {
    bool present[KVAD_PARAMETER_COUNT] = {0};
    KVAD_TRY(read_header(r));
    KVAD_TRY(read_description(r, model));
    KVAD_TRY(check_wishes(r, model));
    KVAD_TRY(read_biases(r, present));
    KVAD_TRY(kvad_model_measure(&model->description, present, model, r->err));
    if (model->area_bytes != r->header.data_bytes)
        return kvad_fail(r->err, KVAD_ERR_FORMAT,
                         "%s: %llu bytes of weights, its description needs %zu: damaged", r->path,
                         (unsigned long long)r->header.data_bytes, model->area_bytes);
    KVAD_TRY(take_weights(r, model, present));
    KVAD_TRY(read_tokenizer(r, model));
    if (model->tokenizer) kvad_model_decide_tokens(model->tokenizer, model);
    if (model->n_tokens > model->description.n_vocab) model->n_tokens = model->description.n_vocab;
    return KVAD_OK;
}

enum kvad_status kvad_pack_load(const char *path, const struct kvad_model_options *options,
                                struct kvad_model **out, struct kvad_error *err) {
    struct kvad_heap outer;
    struct reader r = {.path = path, .options = options, .heap = &outer, .err = err};
    kvad_heap_init(&outer, &options->allocator);
    KVAD_TRY(kvad_file_map_open(&r.map, path, err));
    struct kvad_model *model = kvad_alloc_zero(&outer, 1, sizeof *model);
    if (!model) {
        kvad_file_map_close(&r.map);
        return kvad_fail_memory(err, "a model", sizeof *model);
    }
    kvad_heap_init(&model->heap, &outer.hook);
    atomic_init(&model->n_references, 1);
    model->log = options->log;
    model->is_packed = true;
    enum kvad_status status = read_model(&r, model);
    json_decref(r.json);
    if (!model->map.data) kvad_file_map_close(&r.map);
    if (status != KVAD_OK) {
        kvad_model_release(&model);
        return status;
    }
    *out = model;
    return KVAD_OK;
}
