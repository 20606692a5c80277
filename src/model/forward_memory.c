/* What a forward pass holds: sizes, the step's buffers, the scratch of each worker. All of it is
 * reserved when it is made. */
#include <string.h>

#include "base/error.h"
#include "model/forward_internal.h"

/* One of the step's buffers: where its pointer is, how many elements, of how many bytes each. */
enum { N_BUFFERS = 16, N_VALUE_BUFFERS = 11 };
struct buffer {
    void **pointer;
    size_t count, size;
};

/* All but the scratch of the workers (forward_worker.memory): for making, freeing and counting. The
 * first N_VALUE_BUFFERS hold what a step computes, the others how it goes about it. */
static void list_buffers(struct kvad_forward *f, struct buffer list[N_BUFFERS]) {
    size_t n_layers = f->model->description.n_layers, rows = f->max_rows;
    const struct buffer buffers[N_BUFFERS] = {
        {(void **)&f->hidden, rows * f->d_stride, sizeof(float)},
        {(void **)&f->normed, rows * f->d_stride, sizeof(float)},
        {(void **)&f->qkv, rows * f->qkv_stride, sizeof(float)},
        {(void **)&f->attended, rows * f->attended_stride, sizeof(float)},
        {(void **)&f->quant, rows * f->quant_stride, 1},
        {(void **)&f->ff_quant, rows * f->ff_quant_stride, 1},
        {(void **)&f->delta, rows * f->d_stride, sizeof(float)},
        {(void **)&f->ff, rows * f->ff_stride, sizeof(float)},
        {(void **)&f->head, kvad_min_size(rows, FORWARD_HEAD_ROWS) * f->vocab_stride,
         sizeof(float)},
        {(void **)&f->segments, f->n_segment_floats, sizeof(float)},
        {(void **)&f->chunks, f->n_chunk_floats, sizeof(float)},
        {(void **)&f->rows, rows, sizeof *f->rows},
        {(void **)&f->tiles, rows, sizeof *f->tiles},
        {(void **)&f->wants, rows, sizeof *f->wants},
        {(void **)&f->claims, n_layers, sizeof *f->claims},
        {(void **)&f->workers, f->n_workers, sizeof *f->workers},
    };
    memcpy(list, buffers, sizeof buffers);
}

/* One piece of memory for a worker, cut into its arrays. */
static enum kvad_status worker_init(struct kvad_forward *f, struct forward_worker *w,
                                    struct kvad_error *err) {
    size_t head_dim = f->model->description.head_dim;
    size_t n = f->n_group * FORWARD_TILE_ROWS, n_wide = n * head_dim;
    size_t n_normed = FORWARD_PRIVATE_ROWS * f->d_stride;
    size_t quant_bytes =
        FORWARD_PRIVATE_ROWS *
        (f->quant_stride > f->ff_quant_stride ? f->quant_stride : f->ff_quant_stride);
    w->bytes = quant_bytes + (n_normed + 3 * n_wide + 4 * n + n) * sizeof(float);
    w->memory = kvad_alloc_zero(f->heap, w->bytes, 1);
    if (!w->memory) return kvad_fail_memory(err, "worker scratch", w->bytes);
    w->quant = w->memory; /* first, for its alignment */
    w->normed = (float *)(void *)(w->quant + quant_bytes);
    w->query = w->normed + n_normed;
    w->o = w->query + n_wide;
    w->chunk_o = w->o + n_wide;
    w->m = w->chunk_o + n_wide;
    w->l = w->m + n;
    w->chunk_m = w->l + n;
    w->chunk_l = w->chunk_m + n;
    w->visible = (uint32_t *)(void *)(w->chunk_l + n);
    return KVAD_OK;
}

static kvad_unary_fn *activation_kernel(const struct kvad_kernels *k, enum kvad_activation which) {
    switch (which) {
    case KVAD_ACTIVATION_GELU_TANH: return k->gelu_tanh;
    case KVAD_ACTIVATION_GELU_ERF: return k->gelu_erf;
    case KVAD_ACTIVATION_RELU: return k->relu;
    case KVAD_ACTIVATION_SILU: return k->silu;
    case KVAD_ACTIVATION_TANH: return k->tanh;
    case KVAD_ACTIVATION_SIGMOID: return k->sigmoid;
    case KVAD_ACTIVATION_QUICK_GELU: return k->quick_gelu;
    case KVAD_ACTIVATION_AUTO: /* decided by the loader */
    case KVAD_ACTIVATION_LINEAR:
    case KVAD_ACTIVATION_COUNT: break;
    }
    return NULL;
}

/* Most inputs that any linear has. */
static size_t widest_input(const struct kvad_description *d) {
    size_t widest = (size_t)d->n_heads * d->head_dim;
    if (d->d_model > widest) widest = d->d_model;
    return d->d_ff > widest ? d->d_ff : widest;
}

static size_t panels_of(size_t columns) {
    return (columns + KVAD_PANEL - 1) / KVAD_PANEL;
}

static void set_sizes(struct kvad_forward *f) {
    const struct kvad_description *d = &f->model->description;
    size_t n_attended = (size_t)d->n_heads * d->head_dim;
    size_t n_kv = (size_t)d->n_kv_heads * d->head_dim;
    f->n_group = d->n_heads / d->n_kv_heads;
    f->d_stride = panels_of(d->d_model) * KVAD_PANEL;
    f->attended_stride = panels_of(n_attended) * KVAD_PANEL;
    f->qkv_stride = panels_of(n_attended + 2 * n_kv) * KVAD_PANEL;
    f->ff_stride = panels_of(d->d_ff) * KVAD_PANEL;
    f->vocab_stride = panels_of(d->n_vocab) * KVAD_PANEL;
    if (f->model->weights == KVAD_WEIGHTS_Q8 || f->model->weights == KVAD_WEIGHTS_Q4) {
        f->quant_stride = kvad_quant_row_bytes(n_attended > d->d_model ? n_attended : d->d_model);
        f->ff_quant_stride = kvad_quant_row_bytes(d->d_ff);
    }
    f->score_scale = d->scale_attn ? 1.0 / __builtin_sqrt((double)d->head_dim) : 1.0;
}

/* Room for partial results, where this number of workers ever cuts finer than panels and heads. */
static void set_split_sizes(struct kvad_forward *f) {
    const struct kvad_description *d = &f->model->description;
    size_t widest = widest_input(d), n_chunks = (d->n_ctx + KVAD_CHUNK - 1) / KVAD_CHUNK;
    f->widest_stride = f->qkv_stride > f->ff_stride ? f->qkv_stride : f->ff_stride;
    if (f->d_stride > f->widest_stride) f->widest_stride = f->d_stride;
    bool is_uneven = forward_is_uneven(f->d_stride / KVAD_PANEL, f->n_workers) ||
                     forward_is_uneven(f->qkv_stride / KVAD_PANEL, f->n_workers) ||
                     forward_is_uneven(f->ff_stride / KVAD_PANEL, f->n_workers);
    if (is_uneven && widest > KVAD_SEGMENT)
        f->n_segment_floats =
            (widest + KVAD_SEGMENT - 1) / KVAD_SEGMENT * FORWARD_SPLIT_ROWS * f->widest_stride;
    if (f->n_workers > 1 && n_chunks > 1)
        f->n_chunk_floats = n_chunks * FORWARD_SPLIT_ROWS * d->n_heads * (d->head_dim + 2);
}

enum kvad_status kvad_forward_create(const struct kvad_model *model,
                                     const struct kvad_kernels *kernels,
                                     struct kvad_threads *threads, size_t n_rows,
                                     struct kvad_heap *heap, struct kvad_forward **out,
                                     struct kvad_error *err) {
    struct kvad_forward *f = kvad_alloc_zero(heap, 1, sizeof *f);
    if (!f) return kvad_fail_memory(err, "forward pass", sizeof *f);
    *f = (struct kvad_forward){.model = model,
                               .kernels = kernels,
                               .threads = threads,
                               .heap = heap,
                               .max_rows = n_rows,
                               .n_workers = kvad_threads_count(threads)};
    f->activation = activation_kernel(kernels, model->description.activation);
    set_sizes(f);
    set_split_sizes(f);
    struct buffer list[N_BUFFERS];
    list_buffers(f, list);
    enum kvad_status status = KVAD_OK;
    for (size_t i = 0; i < N_BUFFERS && status == KVAD_OK; i++) {
        *list[i].pointer = kvad_alloc_zero(heap, list[i].count, list[i].size);
        if (!*list[i].pointer) status = kvad_fail_memory(err, "step", list[i].count * list[i].size);
    }
    for (unsigned i = 0; i < f->n_workers && status == KVAD_OK; i++)
        status = worker_init(f, &f->workers[i], err);
    if (status != KVAD_OK) {
        kvad_forward_destroy(&f);
        return status;
    }
    *out = f;
    return KVAD_OK;
}

void kvad_forward_destroy(struct kvad_forward **forward) {
    struct kvad_forward *f = *forward;
    if (!f) return;
    *forward = NULL;
    for (unsigned i = 0; f->workers && i < f->n_workers; i++)
        kvad_free(f->heap, f->workers[i].memory, f->workers[i].bytes);
    struct buffer list[N_BUFFERS];
    list_buffers(f, list);
    for (size_t i = 0; i < N_BUFFERS; i++)
        kvad_free(f->heap, *list[i].pointer, list[i].count * list[i].size);
    kvad_free(f->heap, f, sizeof *f);
}

void kvad_forward_visit_memory(const struct kvad_forward *forward,
                               void (*visit)(void *user, const void *memory, size_t bytes),
                               void *user) {
    struct kvad_forward copy = *forward; /* the list points into a forward pass that it may fill */
    struct buffer list[N_BUFFERS];
    list_buffers(&copy, list);
    visit(user, forward, sizeof *forward);
    for (size_t i = 0; i < N_BUFFERS; i++)
        visit(user, *list[i].pointer, list[i].count * list[i].size);
    for (unsigned i = 0; i < forward->n_workers; i++)
        visit(user, forward->workers[i].memory, forward->workers[i].bytes);
}

static void fill(void *values, size_t bytes, float value) {
    float *floats = values;
    for (size_t i = 0; i < bytes / sizeof value; i++)
        floats[i] = value;
}

void kvad_forward_fill(struct kvad_forward *forward, float value) {
    struct buffer list[N_BUFFERS];
    list_buffers(forward, list);
    for (size_t i = 0; i < N_VALUE_BUFFERS; i++)
        fill(*list[i].pointer, list[i].count * list[i].size, value);
    for (unsigned i = 0; i < forward->n_workers; i++)
        fill(forward->workers[i].memory, forward->workers[i].bytes, value);
}
