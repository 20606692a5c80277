/* What the files of the forward pass share. */
#ifndef KVAD_MODEL_FORWARD_INTERNAL_H
#define KVAD_MODEL_FORWARD_INTERNAL_H

#include "base/threads.h"
#include "model/forward.h"

enum {
    /* Rows of one attention unit: enough to use a K tile several times while it is in registers. */
    FORWARD_TILE_ROWS = 16,
    /* Up to this many rows, every worker norms them for itself: cheaper than another barrier. */
    FORWARD_PRIVATE_ROWS = 4,
    /* Steps of up to this many rows may cut work finer than panels and heads, so that many workers
     * all have some. */
    FORWARD_SPLIT_ROWS = 4,
    /* Rows of logits computed in one pass over the head. */
    FORWARD_HEAD_ROWS = 32
};

/* Rows that are shared are added and quantised panel by panel, which cut panels would not allow. */
_Static_assert(FORWARD_SPLIT_ROWS <= FORWARD_PRIVATE_ROWS, "rows are either shared or cut finer");

/* One row of a step. */
struct forward_row {
    uint32_t item;
    uint32_t index; /* in the item's tokens */
};

/* A unit of attention for each kv head: consecutive rows of one item. */
struct forward_tile {
    uint32_t item, first_row, n_rows; /* first_row: row of the step */
};

/* A row that wants logits. */
struct forward_want {
    uint32_t row;
    float *logits; /* [n_vocab], the caller's */
};

/* Scratch of one worker; nobody else touches it. */
struct forward_worker {
    float *normed;        /* [FORWARD_PRIVATE_ROWS][d_stride] */
    unsigned char *quant; /* [FORWARD_PRIVATE_ROWS] rows of either stride, aligned to 64 bytes */
    float *query;         /* [n_group * FORWARD_TILE_ROWS][head_dim], scaled */
    float *o;             /* the same shape: sums so far */
    float *chunk_o;
    float *m, *l, *chunk_m, *chunk_l; /* [n_group * FORWARD_TILE_ROWS] */
    uint32_t *visible;
    /* First row found not finite: layer n_layers is the head. */
    bool is_bad;
    uint32_t bad_layer, bad_row;
    struct kvad_probe_clock *clock; /* NULL: nobody asks for times */
    unsigned char *memory;          /* all of the above */
    size_t bytes;
};

struct kvad_forward {
    const struct kvad_model *model;
    const struct kvad_kernels *kernels;
    struct kvad_threads *threads;
    struct kvad_heap *heap;
    kvad_unary_fn *activation; /* NULL: linear */
    size_t max_rows;
    size_t n_group; /* query heads of one kv head */
    /* Row strides in floats, rounded up to whole panels. */
    size_t d_stride, qkv_stride, attended_stride, ff_stride, vocab_stride;
    /* Bytes of a quantised row of d_model or n_heads * head_dim, and of d_ff; 0: weights are not
     * quantised. */
    size_t quant_stride, ff_quant_stride;
    double score_scale; /* 1 / sqrt(head_dim), or 1 */

    /* Step buffers, one row after the other. */
    float *hidden;   /* [max_rows][d_stride]    the residual stream */
    float *normed;   /* [max_rows][d_stride]    input of a linear */
    float *qkv;      /* [max_rows][qkv_stride] */
    float *attended; /* [max_rows][attended_stride] n_heads * head_dim columns */
    /* Inputs of quantised linears: [max_rows][quant_stride], [max_rows][ff_quant_stride]. */
    unsigned char *quant, *ff_quant;
    float *delta; /* [max_rows][d_stride]  what is added to the residual stream */
    float *ff;    /* [max_rows][ff_stride] */
    float *head;  /* [FORWARD_HEAD_ROWS][vocab_stride] */
    /* Partial results of steps that are cut finer; none where the workers never need it. */
    float *segments; /* [max_segments][FORWARD_SPLIT_ROWS][widest_stride] */
    float *chunks;   /* [max_chunks][FORWARD_SPLIT_ROWS][n_heads][head_dim + 2]: o, m, l */
    size_t n_segment_floats, n_chunk_floats;
    size_t widest_stride;       /* of the outputs of all linears but the head */
    struct forward_row *rows;   /* [max_rows] */
    struct forward_tile *tiles; /* [max_rows] */
    struct forward_want *wants; /* [max_rows] */
    _Atomic size_t *claims;     /* [n_layers] next unit of attention */
    struct forward_worker *workers;
    unsigned n_workers;
    const struct kvad_probe *probe; /* NULL: nobody asks for times */

    /* The step that runs now. */
    const struct kvad_forward_item *items;
    size_t n_rows, n_tiles, n_wants;
    size_t n_chunks;       /* that the longest text of the step has */
    bool splits_attention; /* units of attention are (tile, kv head, chunk) */
    const _Atomic bool *interrupt;
    bool quantises_heads; /* units of attention quantise what they give to `out` */
    bool stores_in_units; /* units of attention write K and V: no sequence has more than one tile */
    bool stop;            /* written by worker 0 before a barrier, read by all after it */
};

/* Part `index` of `count` of [0, n): [*first, *last). */
static inline void forward_part(size_t n, unsigned index, unsigned count, size_t *first,
                                size_t *last) {
    *first = n * index / count;
    *last = n * (index + 1) / count;
}

/* Whether `n` equal pieces of work leave `count` workers with much less to do than the busiest one:
 * more than a tenth of the time would be waiting. */
static inline bool forward_is_uneven(size_t n, unsigned count) {
    size_t largest = (n + count - 1) / count;
    return largest * count * 10 > n * 11;
}

/* Whether a linear is cut into (panel, segment) rather than panels: few rows, uneven panels,
 * several segments. Partial sums of segments are stored and folded in ascending order, which is the
 * definition anyway, so no cut changes a bit. */
static inline bool forward_splits_linear(size_t n_rows, size_t n_panels, size_t k, unsigned count) {
    return n_rows <= FORWARD_SPLIT_ROWS && k > KVAD_SEGMENT && forward_is_uneven(n_panels, count);
}

/* Whether attention is cut into (tile, kv head, chunk) rather than (tile, kv head). */
static inline bool forward_splits_attention(size_t n_rows, size_t n_units, size_t n_chunks,
                                            unsigned count) {
    return n_rows <= FORWARD_SPLIT_ROWS && n_chunks > 1 && forward_is_uneven(n_units, count);
}

/* The worker has finished `part`. */
static inline void forward_mark(const struct forward_worker *worker, enum kvad_part part) {
    if (worker->clock) kvad_probe_mark(worker->clock, part);
}

/* The worker has finished `part` and waits for the others. */
static inline void forward_barrier(const struct kvad_forward *f,
                                   const struct forward_worker *worker, enum kvad_part part) {
    forward_mark(worker, part);
    kvad_threads_barrier(f->threads);
    forward_mark(worker, KVAD_PART_WAIT);
}

/* Whether the step's rows are so many that they are shared among the workers, and so that those of
 * a quantised linear are quantised where they are made, while they are in the first cache. */
static inline bool forward_shares_rows(const struct kvad_forward *f) {
    return f->n_rows > FORWARD_PRIVATE_ROWS;
}

/* Panels of a linear whose outputs a worker has after it and may use without a barrier. */
struct forward_panels {
    size_t first, last;
};

/* Attention of all rows in one layer; every worker calls it and claims units until none is left.
 * Reads qkv and the cache, writes attended. */
void kvad_forward_attention(struct kvad_forward *f, struct forward_worker *worker, size_t layer);

/* The same as kvad_forward_attention() in units of chunks. Rows must be stored. */
void kvad_forward_attention_split(struct kvad_forward *f, struct forward_worker *worker,
                                  size_t layer, unsigned index, unsigned count);

/* Write the keys and values of a tile's rows and one kv head from qkv into the cache. */
void kvad_forward_store(const struct kvad_forward *f, size_t layer, const struct forward_tile *tile,
                        size_t kv_head);

/* Final norm and head of the rows that want logits; every worker calls it. */
void kvad_forward_logits(struct kvad_forward *f, struct forward_worker *worker, unsigned index,
                         unsigned count);

/* Remember that a row is not finite, if it is the first one. */
void kvad_forward_mark_bad(struct forward_worker *worker, size_t layer, size_t row);
bool kvad_forward_is_finite(const float *x, size_t n);

#endif
