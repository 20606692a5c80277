/* Model files of every family, built in memory. Each element has a value that follows from what it
 * is (parameter, layer, row, column of y = W x), so that a loaded model can be checked element by
 * element, whatever the file called it and however it lay there. */
#ifndef KVAD_TEST_MODEL_SUPPORT_H
#define KVAD_TEST_MODEL_SUPPORT_H

#include "byte_buffer.h"
#include "model/build.h"

struct sizes {
    uint32_t n_layers, n_heads, d_model, d_ff, n_vocab, n_ctx;
};

/* Odd on purpose; no two equal where a mix-up could hide. */
extern const struct sizes odd_sizes;

/** The value of an element: a multiple of 1/8 below 16, exact in float16 and bfloat16. */
float element(enum kvad_parameter parameter, uint32_t layer, size_t row, size_t column);

struct file_tensor {
    char name[96];
    const char *dtype; /* "F32", "F16", "BF16", "F64", "U8", ... */
    size_t n_dims, shape[4], n;
    float *values;
    /* 1 + index of the tensor whose storage this one is a view of (torch); 0: its own */
    size_t same_as;
};

struct model_file {
    struct sizes sizes;
    struct file_tensor tensors[128];
    size_t n_tensors;
};

void file_free(struct model_file *file);
/** The tensor of this name; fails the test if there is none. */
struct file_tensor *file_find(struct model_file *file, const char *name);
void file_remove(struct model_file *file, const char *name);
void file_rename(struct model_file *file, const char *name, const char *other);
/** Put `prefix` before every name. */
void file_prefix(struct model_file *file, const char *prefix);
/** All elements of one dtype from now on. */
void file_set_dtype(struct model_file *file, const char *dtype);

/** A parameter's rows [first, first + n_rows) as a matrix, as it is or [columns][rows]. */
void file_add_matrix(struct model_file *file, const char *name, enum kvad_parameter parameter,
                     uint32_t layer, size_t first, size_t n_rows, size_t n_columns,
                     bool transposed);
/** Elements [first, first + n) of a bias or norm. */
void file_add_vector(struct model_file *file, const char *name, enum kvad_parameter parameter,
                     uint32_t layer, size_t first, size_t n);
/** Zeros: masks and the like. */
struct file_tensor *file_add_other(struct model_file *file, const char *name, const char *dtype,
                                   size_t n_dims, const size_t *shape);

/** The families; heads are tied unless said. */
void make_gpt2(struct model_file *file, const struct sizes *sizes); /* Hugging Face, no prefix */
void make_nanogpt(struct model_file *file, const struct sizes *sizes, bool bias);
void make_mingpt(struct model_file *file, const struct sizes *sizes); /* untied */
void make_mingpt_2020(struct model_file *file, const struct sizes *sizes);
void make_blocks(struct model_file *file, const struct sizes *sizes);
void make_lecture(struct model_file *file, const struct sizes *sizes);
void make_article(struct model_file *file, const struct sizes *sizes);
void make_book(struct model_file *file, const struct sizes *sizes, bool qkv_bias);
/** An untied head with its own values. */
void file_add_head(struct model_file *file, const char *name);

/** Bytes of a file; free_bytes() them. */
struct byte_buffer file_safetensors(const struct model_file *file);
/** A torch zip: the state_dict at the top, or under `key`; nanoGPT's model_args if `args` (bias: 0
 * and 1, or -1 for a file that does not say). At most 60 tensors. */
struct torch_style {
    const char *key;
    bool args;
    int bias;
    const char *dataset; /* config.dataset */
};
struct byte_buffer file_torch(const struct model_file *file, const struct torch_style *style);
/** config.json of the sizes; `more` is put behind (", \"key\": 1") and may repeat no key. */
const char *config_json(const struct sizes *sizes, const char *more);

/** Fails the test unless every weight of the model has its value and exactly the biases of
 * `present` are there. */
void check_model(const struct kvad_model *model, const struct sizes *sizes, bool tied,
                 const bool present[KVAD_PARAMETER_COUNT]);
/** All biases but the head's; all but qkv's and the head's; none. */
void all_biases(bool present[KVAD_PARAMETER_COUNT]);
void no_biases(bool present[KVAD_PARAMETER_COUNT]);

/** kvad_model_load_memory() of a copy of exact size, with no tokenizer. */
enum kvad_status load_bytes(const struct byte_buffer *bytes, const char *config,
                            const struct kvad_model_options *options, struct kvad_model **out,
                            struct kvad_error *err);
/** The same of the file as safetensors. */
enum kvad_status load_file(const struct model_file *file, const char *config, uint32_t n_heads,
                           struct kvad_model **out, struct kvad_error *err);

#endif
