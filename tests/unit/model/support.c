#include "support.h"

#include "base/bytes.h"
#include "pickle_writer.h"
#include "test.h"
#include "zip_writer.h"

const struct sizes odd_sizes = {
    .n_layers = 3, .n_heads = 2, .d_model = 22, .d_ff = 37, .n_vocab = 45, .n_ctx = 19};

float element(enum kvad_parameter parameter, uint32_t layer, size_t row, size_t column) {
    uint64_t z = (uint64_t)parameter * 1000003u + layer;
    z = (z * 1000003u + row) * 1000003u + column;
    z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 32)) * 0x94d049bb133111ebu;
    return (float)((int)(z >> 40 & 255) - 127) / 8;
}

/* ---- tensors */

static struct file_tensor *add(struct model_file *file, const char *name, size_t n_dims,
                               const size_t *shape) {
    assert_true(file->n_tensors < sizeof file->tensors / sizeof *file->tensors);
    struct file_tensor *t = &file->tensors[file->n_tensors++];
    *t = (struct file_tensor){.dtype = "F32", .n_dims = n_dims, .n = 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (size_t i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        t->n *= shape[i];
    }
    t->values = calloc(t->n ? t->n : 1, sizeof *t->values);
    assert_non_null(t->values);
    return t;
}

void file_add_matrix(struct model_file *file, const char *name, enum kvad_parameter parameter,
                     uint32_t layer, size_t first, size_t n_rows, size_t n_columns,
                     bool transposed) {
    size_t shape[2] = {transposed ? n_columns : n_rows, transposed ? n_rows : n_columns};
    struct file_tensor *t = add(file, name, 2, shape);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_columns; c++)
            t->values[transposed ? c * n_rows + r : r * n_columns + c] =
                element(parameter, layer, first + r, c);
}

void file_add_vector(struct model_file *file, const char *name, enum kvad_parameter parameter,
                     uint32_t layer, size_t first, size_t n) {
    struct file_tensor *t = add(file, name, 1, &n);
    for (size_t i = 0; i < n; i++)
        t->values[i] = element(parameter, layer, 0, first + i);
}

struct file_tensor *file_add_other(struct model_file *file, const char *name, const char *dtype,
                                   size_t n_dims, const size_t *shape) {
    struct file_tensor *t = add(file, name, n_dims, shape);
    t->dtype = dtype;
    return t;
}

void file_free(struct model_file *file) {
    for (size_t i = 0; i < file->n_tensors; i++)
        free(file->tensors[i].values);
    file->n_tensors = 0;
}

struct file_tensor *file_find(struct model_file *file, const char *name) {
    for (size_t i = 0; i < file->n_tensors; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    fail_msg("the test's file has no tensor %s", name);
    return NULL;
}

void file_remove(struct model_file *file, const char *name) {
    struct file_tensor *t = file_find(file, name);
    free(t->values);
    memmove(t, t + 1, (size_t)(file->tensors + file->n_tensors - (t + 1)) * sizeof *t);
    file->n_tensors--;
}

void file_rename(struct model_file *file, const char *name, const char *other) {
    struct file_tensor *t = file_find(file, name);
    snprintf(t->name, sizeof t->name, "%s", other);
}

void file_prefix(struct model_file *file, const char *prefix) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        char name[96];
        memcpy(name, file->tensors[i].name, sizeof name);
        snprintf(file->tensors[i].name, sizeof name, "%s%.60s", prefix, name);
    }
}

void file_set_dtype(struct model_file *file, const char *dtype) {
    for (size_t i = 0; i < file->n_tensors; i++)
        file->tensors[i].dtype = dtype;
}

/* ---- safetensors */

static size_t put_value(struct byte_buffer *b, const char *dtype, float value) {
    uint32_t bits = kvad_bits_from_float(value);
    double wide = value;
    uint64_t wide_bits;
    memcpy(&wide_bits, &wide, sizeof wide_bits);
    if (strcmp(dtype, "F32") == 0) return put_number(b, bits, 4), 4;
    if (strcmp(dtype, "BF16") == 0) return put_number(b, bits >> 16, 2), 2;
    if (strcmp(dtype, "F64") == 0) return put_number(b, wide_bits, 8), 8;
    if (strcmp(dtype, "I64") == 0) return put_number(b, 0, 8), 8;
    if (strcmp(dtype, "F16") != 0) return put_number(b, 0, 1), 1;
    uint32_t half = value == 0 ? 0 : ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023);
    return put_number(b, half | (bits >> 16 & 0x8000), 2), 2;
}

struct byte_buffer file_safetensors(const struct model_file *file) {
    struct byte_buffer header = {0}, data = {0}, b = {0};
    char text[256];
    put_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct file_tensor *t = &file->tensors[i];
        size_t begin = data.size;
        for (size_t j = 0; j < t->n; j++)
            put_value(&data, t->dtype, t->values[j]);
        snprintf(text, sizeof text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        put_text(&header, text);
        for (size_t d = 0; d < t->n_dims; d++) {
            snprintf(text, sizeof text, "%s%zu", d ? "," : "", t->shape[d]);
            put_text(&header, text);
        }
        snprintf(text, sizeof text, "],\"data_offsets\":[%zu,%zu]}", begin, data.size);
        put_text(&header, text);
    }
    put_text(&header, "}");
    put_number(&b, header.size, 8);
    put_bytes(&b, header.data, header.size);
    put_bytes(&b, data.data, data.size);
    free_bytes(&header);
    free_bytes(&data);
    return b;
}

/* ---- torch */

static void put_state_dict(struct byte_buffer *b, const struct model_file *file) {
    put_ops(b, "}(");
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct file_tensor *t = &file->tensors[i];
        char key[24];
        snprintf(key, sizeof key, "%zu", t->same_as ? t->same_as - 1 : i);
        const struct file_tensor *owner = t->same_as ? &file->tensors[t->same_as - 1] : t;
        struct pickled_tensor p = {.key = key, .n_stored = (int64_t)owner->n, .n_dims = t->n_dims};
        int64_t stride = owner->n < t->n ? 0 : 1; /* expanded from one element */
        for (size_t d = t->n_dims; d-- > 0; stride *= (int64_t)t->shape[d]) {
            p.shape[d] = (int64_t)t->shape[d];
            p.stride[d] = stride;
        }
        put_string(b, t->name);
        put_tensor(b, &p);
    }
    put_ops(b, "u");
}

static void put_model_args(struct byte_buffer *b, const struct sizes *s, int bias) {
    put_string(b, "model_args");
    put_ops(b, "}(");
    put_string(b, "n_layer");
    put_int(b, s->n_layers);
    put_string(b, "n_head");
    put_int(b, s->n_heads);
    put_string(b, "n_embd");
    put_int(b, s->d_model);
    put_string(b, "block_size");
    put_int(b, s->n_ctx);
    put_string(b, "vocab_size");
    put_int(b, s->n_vocab);
    if (bias >= 0) {
        put_string(b, "bias");
        put_number(b, bias ? 0x88 : 0x89, 1); /* NEWTRUE, NEWFALSE */
    }
    put_ops(b, "u");
}

struct byte_buffer file_torch(const struct model_file *file, const struct torch_style *style) {
    struct byte_buffer pickle = {0}, storages[64] = {{0}};
    struct zip_member members[64] = {{"archive/data.pkl", NULL, 0}};
    char names[64][40];
    size_t n_members = 1;
    put_ops(&pickle, "\x80\x02");
    if (style->key) {
        put_ops(&pickle, "}(");
        put_string(&pickle, style->key);
    }
    put_state_dict(&pickle, file);
    if (style->key) {
        if (style->args) put_model_args(&pickle, &file->sizes, style->bias);
        if (style->dataset) {
            put_string(&pickle, "config");
            put_ops(&pickle, "}(");
            put_string(&pickle, "dataset");
            put_string(&pickle, style->dataset);
            put_ops(&pickle, "u");
        }
        put_ops(&pickle, "u");
    }
    put_ops(&pickle, ".");
    members[0].data = pickle.data;
    members[0].size = pickle.size;
    assert_true(file->n_tensors <= 60);
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (file->tensors[i].same_as) continue;
        for (size_t j = 0; j < file->tensors[i].n; j++)
            put_value(&storages[i], "F32", file->tensors[i].values[j]);
        snprintf(names[i], sizeof names[i], "archive/data/%zu", i);
        members[n_members++] = (struct zip_member){names[i], storages[i].data, storages[i].size};
    }
    struct zip_places at;
    struct byte_buffer b = write_zip(members, n_members, &(struct zip_style){0}, &at);
    for (size_t i = 0; i < 64; i++)
        free_bytes(&storages[i]);
    free_bytes(&pickle);
    return b;
}

const char *config_json(const struct sizes *s, const char *more) {
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"n_layer\": %u, \"n_head\": %u, \"n_embd\": %u, "
             "\"n_inner\": %u, \"n_positions\": %u, \"vocab_size\": %u%s}",
             s->n_layers, s->n_heads, s->d_model, s->d_ff, s->n_ctx, s->n_vocab, more);
    return text;
}

/* ---- loading and checking */

enum kvad_status load_bytes(const struct byte_buffer *bytes, const char *config,
                            const struct kvad_model_options *options, struct kvad_model **out,
                            struct kvad_error *err) {
    struct kvad_model_options quiet;
    kvad_model_options_init(&quiet);
    if (options) quiet = *options;
    quiet.no_tokenizer = true;
    unsigned char *copy = exact_copy(bytes->data, bytes->size);
    enum kvad_status status = kvad_model_load_memory(copy, bytes->size, config, &quiet, out, err);
    free(copy); /* the model needs nothing of it any more */
    return status;
}

enum kvad_status load_file(const struct model_file *file, const char *config, uint32_t n_heads,
                           struct kvad_model **out, struct kvad_error *err) {
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.n_heads = n_heads;
    struct byte_buffer bytes = file_safetensors(file);
    enum kvad_status status = load_bytes(&bytes, config, &options, out, err);
    free_bytes(&bytes);
    return status;
}

static void check_value(float got, enum kvad_parameter parameter, uint32_t layer, size_t row,
                        size_t column) {
    if (got != element(parameter, layer, row, column))
        fail_msg("%s, layer %u, row %zu, column %zu is %g, should be %g",
                 kvad_parameter_name(parameter), layer, row, column, (double)got,
                 (double)element(parameter, layer, row, column));
}

static void check_vector(const float *got, bool present, enum kvad_parameter parameter,
                         uint32_t layer, size_t n) {
    assert_true((got != NULL) == present);
    for (size_t i = 0; present && i < n; i++)
        check_value(got[i], parameter, layer, 0, i);
}

static void check_linear(const struct kvad_linear_weights *linear, enum kvad_parameter weight,
                         enum kvad_parameter bias, bool has_bias, uint32_t layer, size_t n,
                         size_t k) {
    assert_int_equal(linear->type, KVAD_WEIGHTS_F32);
    assert_int_equal(linear->n, n);
    assert_int_equal(linear->k, k);
    assert_int_equal(linear->panel_bytes, k * 16 * sizeof(float));
    const float *panels = (const float *)(const void *)linear->panels; /* [n / 16][k][16] */
    for (size_t row = 0; row < n; row++)
        for (size_t i = 0; i < k; i++)
            check_value(panels[(row / 16 * k + i) * 16 + row % 16], weight, layer, row, i);
    check_vector(linear->bias, has_bias, bias, layer, n);
    for (size_t row = n; row < (n + 15) / 16 * 16; row++) {
        for (size_t i = 0; i < k; i++)
            assert_true(panels[(row / 16 * k + i) * 16 + row % 16] == 0);
        if (has_bias) assert_true(linear->bias[row] == 0);
    }
}

static void check_layer(const struct kvad_layer_weights *layer, const struct sizes *s,
                        const bool *present, uint32_t l) {
    size_t d = s->d_model;
#define P(name) KVAD_PARAMETER_##name
    check_vector(layer->norm1.weight, true, P(NORM1_WEIGHT), l, d);
    check_vector(layer->norm1.bias, present[P(NORM1_BIAS)], P(NORM1_BIAS), l, d);
    check_linear(&layer->qkv, P(QKV_WEIGHT), P(QKV_BIAS), present[P(QKV_BIAS)], l, 3 * d, d);
    check_linear(&layer->out, P(OUT_WEIGHT), P(OUT_BIAS), present[P(OUT_BIAS)], l, d, d);
    check_vector(layer->norm2.weight, true, P(NORM2_WEIGHT), l, d);
    check_vector(layer->norm2.bias, present[P(NORM2_BIAS)], P(NORM2_BIAS), l, d);
    check_linear(&layer->up, P(UP_WEIGHT), P(UP_BIAS), present[P(UP_BIAS)], l, s->d_ff, d);
    check_linear(&layer->down, P(DOWN_WEIGHT), P(DOWN_BIAS), present[P(DOWN_BIAS)], l, d, s->d_ff);
}

void check_model(const struct kvad_model *model, const struct sizes *s, bool tied,
                 const bool present[KVAD_PARAMETER_COUNT]) {
    size_t d = s->d_model;
    assert_int_equal(model->description.n_layers, s->n_layers);
    assert_int_equal(model->description.n_heads, s->n_heads);
    assert_int_equal(model->description.n_kv_heads, s->n_heads);
    assert_int_equal(model->description.head_dim, d / s->n_heads);
    assert_true(model->description.head_tied == tied);
    assert_true((model->embedding == NULL) == tied);
    float *row = calloc(d, sizeof *row);
    for (size_t token = 0; token < s->n_vocab; token++) {
        kvad_model_embed(model, token, row);
        for (size_t i = 0; i < d; i++)
            check_value(row[i], P(EMBEDDING), 0, token, i);
    }
    free(row);
    for (size_t t = 0; t < s->n_ctx; t++)
        for (size_t i = 0; i < d; i++)
            check_value(model->positions[t * d + i], P(POSITIONS), 0, t, i);
    for (uint32_t l = 0; l < s->n_layers; l++)
        check_layer(&model->layers[l], s, present, l);
    check_vector(model->final_norm.weight, true, P(FINAL_NORM_WEIGHT), 0, d);
    check_vector(model->final_norm.bias, present[P(FINAL_NORM_BIAS)], P(FINAL_NORM_BIAS), 0, d);
    check_linear(&model->head, tied ? P(EMBEDDING) : P(HEAD_WEIGHT), P(HEAD_BIAS),
                 present[P(HEAD_BIAS)], 0, s->n_vocab, d);
}

void no_biases(bool present[KVAD_PARAMETER_COUNT]) {
    for (size_t i = 0; i < KVAD_PARAMETER_COUNT; i++)
        present[i] = false;
}

void all_biases(bool present[KVAD_PARAMETER_COUNT]) {
    for (size_t i = 0; i < KVAD_PARAMETER_COUNT; i++)
        present[i] = i != P(HEAD_BIAS);
}
