#include "lab/work.h"

#include "model/build.h"

static double linear_bytes(const struct kvad_linear_weights *linear) {
    double n_panels = (double)kvad_panel_count(linear->n);
    double bytes = n_panels * (double)linear->panel_bytes;
    return linear->bias ? bytes + n_panels * KVAD_PANEL * sizeof(float) : bytes;
}

static double norm_bytes(const struct kvad_norm_weights *norm, size_t d_model) {
    return (double)d_model * sizeof(float) * (norm->bias ? 2 : 1);
}

double kvad_work_weight_bytes(const struct kvad_model *model, bool with_head) {
    size_t d_model = model->description.d_model;
    double bytes = 0;
    for (size_t l = 0; l < model->description.n_layers; l++) {
        const struct kvad_layer_weights *layer = &model->layers[l];
        bytes += norm_bytes(&layer->norm1, d_model) + norm_bytes(&layer->norm2, d_model);
        bytes += linear_bytes(&layer->qkv) + linear_bytes(&layer->out);
        bytes += linear_bytes(&layer->up) + linear_bytes(&layer->down);
    }
    if (with_head) bytes += norm_bytes(&model->final_norm, d_model) + linear_bytes(&model->head);
    return bytes;
}

/* Bytes of one row of the embedding, wherever it lies, and of the position table. */
static double embedding_bytes(const struct kvad_model *model) {
    double d_model = model->description.d_model, row = d_model * sizeof(float);
    if (!model->embedding) row = (double)model->head.panel_bytes / KVAD_PANEL;
    return row + d_model * sizeof(float);
}

/* Multiply-adds of one row in all layers. */
static double layer_products(const struct kvad_model *model) {
    double products = 0;
    for (size_t l = 0; l < model->description.n_layers; l++) {
        const struct kvad_layer_weights *layer = &model->layers[l];
        const struct kvad_linear_weights *all[] = {&layer->qkv, &layer->out, &layer->up,
                                                   &layer->down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            products += (double)all[i]->n * (double)all[i]->k;
    }
    return products;
}

/* Sum of the tokens that the rows [first, first + n) of a sequence see: row t sees t + 1. */
static double visible_tokens(double first, double n) {
    return n * first + n * (n + 1) / 2;
}

/* K and V that one sequence reads: each pass reads all tokens up to its last row once. */
static double kv_tokens(const struct kvad_work_step *step, size_t rows_per_pass) {
    double tokens = 0;
    for (size_t done = 0; done < step->n_rows; done += rows_per_pass)
        tokens += (double)(step->position + kvad_min_size(done + rows_per_pass, step->n_rows));
    return tokens;
}

struct kvad_work kvad_work_of(const struct kvad_model *model, const struct kvad_work_step *step) {
    const struct kvad_description *d = &model->description;
    double n_rows = (double)step->n_sequences * (double)step->n_rows;
    double n_logits = (double)step->n_sequences * (double)step->n_logits;
    size_t all_rows = step->n_sequences * step->n_rows;
    size_t n_passes = (all_rows + step->n_batch_rows - 1) / step->n_batch_rows;
    struct kvad_work work = {0};
    /* Only the passes that hold a row with logits read the head: the last one. */
    work.weight_bytes =
        (double)n_passes * kvad_work_weight_bytes(model, false) + n_rows * embedding_bytes(model);
    if (n_logits > 0)
        work.weight_bytes +=
            kvad_work_weight_bytes(model, true) - kvad_work_weight_bytes(model, false);
    work.kv_bytes = (double)step->n_sequences * (double)step->kv_bytes_per_token *
                    kv_tokens(step, step->n_batch_rows);
    work.linear_flops = 2 * (n_rows * layer_products(model) +
                             n_logits * (double)model->head.n * (double)model->head.k);
    work.attention_flops = 4.0 * d->n_layers * d->n_heads * d->head_dim *
                           (double)step->n_sequences *
                           visible_tokens((double)step->position, (double)step->n_rows);
    return work;
}
