/* The files of support.h, by family: names written out once more, so that a wrong name in the
 * loader's tables shows. */
#include "support.h"
#include "test.h"

#define P(name) KVAD_PARAMETER_##name

struct maker {
    struct model_file *file;
    const char *format; /* of a layer's names: "h.%u.%s" */
    uint32_t layer;
};

static const char *full_name(const struct maker *m, const char *name) {
    static char text[96];
    if (!m->format) return name;
    snprintf(text, sizeof text, "%s.%u.%s", m->format, m->layer, name);
    return text;
}

static void matrix(const struct maker *m, const char *name, enum kvad_parameter p, size_t n,
                   size_t k, bool transposed) {
    file_add_matrix(m->file, full_name(m, name), p, m->layer, 0, n, k, transposed);
}

static void vector(const struct maker *m, const char *name, enum kvad_parameter p, size_t n) {
    file_add_vector(m->file, full_name(m, name), p, m->layer, 0, n);
}

static struct maker start(struct model_file *file, const struct sizes *sizes, const char *wte,
                          const char *wpe) {
    *file = (struct model_file){.sizes = *sizes};
    struct maker m = {file, NULL, 0};
    matrix(&m, wte, P(EMBEDDING), sizes->n_vocab, sizes->d_model, false);
    matrix(&m, wpe, P(POSITIONS), sizes->n_ctx, sizes->d_model, false);
    return m;
}

static void gpt2_layers(struct maker m, const char *format, bool bias, bool conv1d) {
    const struct sizes *s = &m.file->sizes;
    size_t d = s->d_model;
    m.format = format;
    for (m.layer = 0; m.layer < s->n_layers; m.layer++) {
        vector(&m, "ln_1.weight", P(NORM1_WEIGHT), d);
        matrix(&m, "attn.c_attn.weight", P(QKV_WEIGHT), 3 * d, d, conv1d);
        matrix(&m, "attn.c_proj.weight", P(OUT_WEIGHT), d, d, conv1d);
        vector(&m, "ln_2.weight", P(NORM2_WEIGHT), d);
        matrix(&m, "mlp.c_fc.weight", P(UP_WEIGHT), s->d_ff, d, conv1d);
        matrix(&m, "mlp.c_proj.weight", P(DOWN_WEIGHT), d, s->d_ff, conv1d);
        if (!bias) continue;
        vector(&m, "ln_1.bias", P(NORM1_BIAS), d);
        vector(&m, "attn.c_attn.bias", P(QKV_BIAS), 3 * d);
        vector(&m, "attn.c_proj.bias", P(OUT_BIAS), d);
        vector(&m, "ln_2.bias", P(NORM2_BIAS), d);
        vector(&m, "mlp.c_fc.bias", P(UP_BIAS), s->d_ff);
        vector(&m, "mlp.c_proj.bias", P(DOWN_BIAS), d);
    }
}

static void final_norm(struct maker m, const char *weight, const char *bias) {
    m.format = NULL;
    m.layer = 0;
    vector(&m, weight, P(FINAL_NORM_WEIGHT), m.file->sizes.d_model);
    if (bias) vector(&m, bias, P(FINAL_NORM_BIAS), m.file->sizes.d_model);
}

void file_add_head(struct model_file *file, const char *name) {
    file_add_matrix(file, name, P(HEAD_WEIGHT), 0, 0, file->sizes.n_vocab, file->sizes.d_model,
                    false);
}

void make_gpt2(struct model_file *file, const struct sizes *sizes) {
    struct maker m = start(file, sizes, "wte.weight", "wpe.weight");
    gpt2_layers(m, "h", true, true);
    final_norm(m, "ln_f.weight", "ln_f.bias");
}

void make_nanogpt(struct model_file *file, const struct sizes *sizes, bool bias) {
    struct maker m = start(file, sizes, "transformer.wte.weight", "transformer.wpe.weight");
    gpt2_layers(m, "transformer.h", bias, false);
    final_norm(m, "transformer.ln_f.weight", bias ? "transformer.ln_f.bias" : NULL);
    matrix(&m, "lm_head.weight", P(EMBEDDING), sizes->n_vocab, sizes->d_model, false);
    file->tensors[file->n_tensors - 1].same_as = 1;
}

void make_mingpt(struct model_file *file, const struct sizes *sizes) {
    make_nanogpt(file, sizes, true);
    file_remove(file, "lm_head.weight");
    file_add_head(file, "lm_head.weight");
}

void make_blocks(struct model_file *file, const struct sizes *sizes) {
    struct maker m = start(file, sizes, "tok_emb.weight", "pos_emb.weight");
    gpt2_layers(m, "blocks", true, false);
    final_norm(m, "ln_f.weight", "ln_f.bias");
    matrix(&m, "head.weight", P(EMBEDDING), sizes->n_vocab, sizes->d_model, false);
}

/* q, k and v apart: rows or elements of the merged one. */
static void split(const struct maker *m, const char *const names[3], bool bias) {
    size_t d = m->file->sizes.d_model;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.weight", names[i]);
        file_add_matrix(m->file, full_name(m, name), P(QKV_WEIGHT), m->layer, i * d, d, d, false);
        snprintf(name, sizeof name, "%s.bias", names[i]);
        if (bias) file_add_vector(m->file, full_name(m, name), P(QKV_BIAS), m->layer, i * d, d);
    }
}

/* Everything of a layer but qkv. */
struct layer_names {
    const char *norm1[2], *out[2], *norm2[2], *up[2], *down[2]; /* weight and bias; NULL: none */
};

static void rest_of_layer(const struct maker *m, const struct layer_names *names) {
    const struct sizes *s = &m->file->sizes;
    size_t d = s->d_model;
    vector(m, names->norm1[0], P(NORM1_WEIGHT), d);
    vector(m, names->norm1[1], P(NORM1_BIAS), d);
    matrix(m, names->out[0], P(OUT_WEIGHT), d, d, false);
    if (names->out[1]) vector(m, names->out[1], P(OUT_BIAS), d);
    vector(m, names->norm2[0], P(NORM2_WEIGHT), d);
    vector(m, names->norm2[1], P(NORM2_BIAS), d);
    matrix(m, names->up[0], P(UP_WEIGHT), s->d_ff, d, false);
    vector(m, names->up[1], P(UP_BIAS), s->d_ff);
    matrix(m, names->down[0], P(DOWN_WEIGHT), d, s->d_ff, false);
    vector(m, names->down[1], P(DOWN_BIAS), d);
}

void make_mingpt_2020(struct model_file *file, const struct sizes *sizes) {
    static const char *const qkv[3] = {"attn.query", "attn.key", "attn.value"};
    static const struct layer_names names = {
        {"ln1.weight", "ln1.bias"},     {"attn.proj.weight", "attn.proj.bias"},
        {"ln2.weight", "ln2.bias"},     {"mlp.0.weight", "mlp.0.bias"},
        {"mlp.2.weight", "mlp.2.bias"},
    };
    struct maker m = start(file, sizes, "tok_emb.weight", "pos_emb");
    struct file_tensor *table = file_find(file, "pos_emb");
    table->n_dims = 3; /* [1][n_ctx][d_model] */
    table->shape[2] = table->shape[1];
    table->shape[1] = table->shape[0];
    table->shape[0] = 1;
    m.format = "blocks";
    for (; m.layer < sizes->n_layers; m.layer++) {
        split(&m, qkv, true);
        rest_of_layer(&m, &names);
        file_add_other(file, full_name(&m, "attn.mask"), "F32", 4,
                       (size_t[]){1, 1, sizes->n_ctx, sizes->n_ctx});
    }
    final_norm(m, "ln_f.weight", "ln_f.bias");
    file_add_head(file, "head.weight");
}

void make_lecture(struct model_file *file, const struct sizes *sizes) {
    static const char *const sections[3] = {"query", "key", "value"};
    static const struct layer_names names = {
        {"ln1.weight", "ln1.bias"},
        {"sa.proj.weight", "sa.proj.bias"},
        {"ln2.weight", "ln2.bias"},
        {"ffwd.net.0.weight", "ffwd.net.0.bias"},
        {"ffwd.net.2.weight", "ffwd.net.2.bias"},
    };
    size_t head_dim = sizes->d_model / sizes->n_heads;
    struct maker m =
        start(file, sizes, "token_embedding_table.weight", "position_embedding_table.weight");
    m.format = "blocks";
    for (; m.layer < sizes->n_layers; m.layer++) {
        for (uint32_t h = 0; h < sizes->n_heads; h++) {
            char name[64];
            for (size_t i = 0; i < 3; i++) {
                snprintf(name, sizeof name, "sa.heads.%u.%s.weight", h, sections[i]);
                file_add_matrix(file, full_name(&m, name), P(QKV_WEIGHT), m.layer,
                                i * sizes->d_model + h * head_dim, head_dim, sizes->d_model, false);
            }
            snprintf(name, sizeof name, "sa.heads.%u.tril", h);
            file_add_other(file, full_name(&m, name), "F32", 2,
                           (size_t[]){sizes->n_ctx, sizes->n_ctx});
        }
        rest_of_layer(&m, &names);
    }
    final_norm(m, "ln_f.weight", "ln_f.bias");
    file_add_head(file, "lm_head.weight");
    file_add_vector(file, "lm_head.bias", P(HEAD_BIAS), 0, 0, sizes->n_vocab);
}

void make_article(struct model_file *file, const struct sizes *sizes) {
    static const struct layer_names names = {
        {"ln1.weight", "ln1.bias"},
        {"attn.proj.weight", NULL},
        {"ln2.weight", "ln2.bias"},
        {"ffn.net.0.weight", "ffn.net.0.bias"},
        {"ffn.net.2.weight", "ffn.net.2.bias"},
    };
    struct maker m = start(file, sizes, "tok_emb.weight", "pos_emb.weight");
    m.format = "blocks";
    for (; m.layer < sizes->n_layers; m.layer++) {
        matrix(&m, "attn.qkv.weight", P(QKV_WEIGHT), 3 * (size_t)sizes->d_model, sizes->d_model,
               false);
        rest_of_layer(&m, &names);
    }
    final_norm(m, "ln_f.weight", "ln_f.bias");
    file_add_head(file, "lm_head.weight");
    file_add_vector(file, "lm_head.bias", P(HEAD_BIAS), 0, 0, sizes->n_vocab);
}

void make_book(struct model_file *file, const struct sizes *sizes, bool qkv_bias) {
    static const char *const qkv[3] = {"att.W_query", "att.W_key", "att.W_value"};
    static const struct layer_names names = {
        {"norm1.scale", "norm1.shift"},
        {"att.out_proj.weight", "att.out_proj.bias"},
        {"norm2.scale", "norm2.shift"},
        {"ff.layers.0.weight", "ff.layers.0.bias"},
        {"ff.layers.2.weight", "ff.layers.2.bias"},
    };
    struct maker m = start(file, sizes, "tok_emb.weight", "pos_emb.weight");
    m.format = "trf_blocks";
    for (; m.layer < sizes->n_layers; m.layer++) {
        split(&m, qkv, qkv_bias);
        rest_of_layer(&m, &names);
        file_add_other(file, full_name(&m, "att.mask"), "F32", 2,
                       (size_t[]){sizes->n_ctx, sizes->n_ctx});
    }
    final_norm(m, "final_norm.scale", "final_norm.shift");
    file_add_head(file, "out_head.weight");
}
