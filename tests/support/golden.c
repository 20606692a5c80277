#include "golden.h"

#include "test.h"

const char *const golden_names[GOLDEN_NAMES] = {
    "hf-gpt2/bin-legacy",
    "hf-gpt2/bin-sharded",
    "hf-gpt2/bin-zip",
    "hf-gpt2/file-bf16",
    "hf-gpt2/file-f16",
    "hf-gpt2/inner-gelu-erf",
    "hf-gpt2/odd",
    "hf-gpt2/one-token-context",
    "hf-gpt2/plain-names",
    "hf-gpt2/relu-inverse-layer",
    "hf-gpt2/sharded",
    "hf-gpt2/silu-noscale-untied",
    "hf-gpt2/tanh",
    "hf-gpt2/upcast-fast-gelu",
    "hf-gpt2/wide-two-chunks",
    "nanogpt/bias",
    "nanogpt/compiled-padded",
    "nanogpt/ddp-legacy",
    "nanogpt/no-bias",
    "nanogpt/with-optimizer",
    "hand-written/article",
    "hand-written/article-no-head-bias",
    "hand-written/book",
    "hand-written/book-qkv-bias",
    "hand-written/lecture",
    "hand-written/lecture-wrapped",
    "hand-written/mingpt",
    "shakespeare-char",
};

static bool is_there(const char *folder) {
    char path[600];
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    return file != NULL;
}

const char *golden_folder(const char *name) {
    static char folder[512];
    const char *root = getenv("KVAD_FIXTURES");
    if (!root) root = "../shared/fixtures";
    const char *const places[][2] = {
        {"tests/data/models", ""}, {"models", ""}, {root, "/tiny"}, {root, ""}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(folder, sizeof folder, "%s%s/%s", places[i][0], places[i][1], name);
        if (is_there(folder)) return folder;
    }
    return NULL;
}

void golden_open(struct golden *golden, const char *folder) {
    *golden = (struct golden){0};
    snprintf(golden->folder, sizeof golden->folder, "%s", folder);
    kvad_heap_init(&golden->heap, NULL);
    char path[600];
    struct kvad_error err;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(kvad_file_map_open(&golden->map, path, &err), &err);
    assert_ok(kvad_safetensors_open(golden->map.data, golden->map.size, path, &golden->heap,
                                    &golden->file, &err),
              &err);
    snprintf(path, sizeof path, "%s/golden.json", folder);
    golden->info = json_load_file(path, 0, NULL);
    assert_non_null(golden->info);
}

void golden_close(struct golden *golden) {
    json_decref(golden->info);
    kvad_safetensors_close(&golden->file);
    kvad_file_map_close(&golden->map);
}

/* A bare state dict is a file; the rest are folders. */
static void model_path(const struct golden *golden, char *path, size_t size) {
    snprintf(path, size, "%s/model.pt", golden->folder);
    FILE *file = fopen(path, "rb");
    if (file)
        fclose(file);
    else
        snprintf(path, size, "%s", golden->folder);
}

struct kvad_model *golden_load(const struct golden *golden) {
    return golden_load_as(golden, KVAD_WEIGHTS_AUTO);
}

struct kvad_model *golden_load_as(const struct golden *golden, enum kvad_weight_type weights) {
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.weights = weights;
    options.no_tokenizer = true;
    options.n_heads = (uint32_t)golden_number(golden, "n_head", 0);
    const char *activation = json_string_value(json_object_get(golden->info, "activation"));
    if (activation && strcmp(activation, "gelu_new") == 0)
        options.activation = KVAD_ACTIVATION_GELU_TANH;
    char path[600];
    model_path(golden, path, sizeof path);
    struct kvad_model *model = NULL;
    struct kvad_error err;
    assert_ok(kvad_model_load(path, &options, &model, &err), &err);
    return model;
}

static const struct kvad_tensor *find(const struct golden *golden, const char *name) {
    for (size_t i = 0; i < kvad_safetensors_count(golden->file); i++) {
        const struct kvad_tensor *tensor = kvad_safetensors_tensor(golden->file, i);
        if (strcmp(tensor->name, name) == 0) return tensor;
    }
    return NULL;
}

static const struct kvad_tensor *need(const struct golden *golden, const char *name) {
    const struct kvad_tensor *tensor = find(golden, name);
    if (!tensor) print_error("%s: no tensor %s\n", golden->folder, name);
    assert_non_null(tensor);
    return tensor;
}

bool golden_has(const struct golden *golden, const char *name) {
    return find(golden, name) != NULL;
}

size_t golden_size(const struct golden *golden, const char *name, size_t *n_rows) {
    const struct kvad_tensor *tensor = need(golden, name);
    if (n_rows) *n_rows = tensor->shape[0];
    return tensor->n_elements;
}

double *golden_doubles(const struct golden *golden, const char *name, size_t *n) {
    const struct kvad_tensor *tensor = need(golden, name);
    double *values = malloc((tensor->n_elements + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < tensor->n_elements; i++) {
        float narrow;
        if (tensor->dtype == KVAD_DTYPE_F64) {
            memcpy(&values[i], tensor->data + i * sizeof *values, sizeof *values);
        } else {
            assert_int_equal(tensor->dtype, KVAD_DTYPE_F32);
            memcpy(&narrow, tensor->data + i * sizeof narrow, sizeof narrow);
            values[i] = (double)narrow;
        }
    }
    if (n) *n = tensor->n_elements;
    return values;
}

int32_t *golden_ids(const struct golden *golden, const char *name, size_t *n) {
    const struct kvad_tensor *tensor = need(golden, name);
    assert_int_equal(tensor->dtype, KVAD_DTYPE_I32);
    int32_t *ids = malloc((tensor->n_elements + 1) * sizeof *ids);
    assert_non_null(ids);
    memcpy(ids, tensor->data, tensor->n_elements * sizeof *ids);
    if (n) *n = tensor->n_elements;
    return ids;
}

double golden_number(const struct golden *golden, const char *field, double otherwise) {
    const json_t *value = json_object_get(golden->info, field);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}
