/* Times of the kernels at the sizes of GPT-2 124M, against the ceilings of the machine: what the
 * kernel's work is bound by. Ceilings and kernels are measured in turn, on the same memory, so that
 * a busy machine slows both. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"
#include "lab/ceiling_ops.h"

enum {
    D_MODEL = 768,
    D_FF = 3072,
    HEAD_DIM = 64,
    VOCABULARY_PANELS = 3142, /* 50257 outputs: 154 MB of weights, more than a cache */
    N_ROWS = 512,
    N_SEQUENCES = 16,
    AREA = VOCABULARY_PANELS * KVAD_PANEL * D_MODEL * 4, /* bytes of weights */
    N_ROUNDS = 9
};

struct bench {
    const struct kvad_kernels *kernels;
    float *weights;       /* [VOCABULARY_PANELS][D_MODEL][16]; also read as K and V */
    uint16_t *narrow;     /* AREA bytes of the other types, K and V too: halves of ordinary size */
    float *x, *y;         /* [N_ROWS][D_FF] and room for one row of logits */
    unsigned char *quant; /* [N_ROWS] quantised rows of D_MODEL inputs */
    const struct ceiling_ops *ceiling;
    struct ceiling_operands operands;
    unsigned read_way; /* the fastest */
    volatile float sink;
};

/* What one run moved and computed. */
struct work {
    double bytes, flops, elements;
};

static struct work run_linear(struct bench *b, size_t n_rows, size_t k, size_t n_panels) {
    struct kvad_linear_f32_args args = {.y = b->y,
                                        .y_stride = n_panels * KVAD_PANEL,
                                        .x = b->x,
                                        .x_stride = k,
                                        .n_rows = n_rows,
                                        .k = k,
                                        .w = b->weights,
                                        .n_panels = n_panels};
    b->kernels->linear_f32(&args);
    double n_weights = (double)(n_panels * KVAD_PANEL * k);
    return (struct work){.bytes = 4.0 * n_weights, .flops = 2.0 * n_weights * (double)n_rows};
}

static struct work run_ceiling_read(struct bench *b) {
    b->sink = (float)b->ceiling->read((const unsigned char *)b->weights, AREA, b->read_way);
    return (struct work){.bytes = AREA};
}
static struct work run_ceiling_fma(struct bench *b) {
    struct work work = {0};
    b->sink = b->ceiling->fma(&b->operands, 2000000, &work.flops);
    return work;
}
static struct work run_ceiling_dot(struct bench *b) {
    struct work work = {0};
    b->sink = (float)b->ceiling->dot(&b->operands, 2000000, &work.flops);
    return work;
}
static struct work run_decode_head(struct bench *b) {
    return run_linear(b, 1, D_MODEL, VOCABULARY_PANELS);
}
static struct work run_decode_down(struct bench *b) {
    return run_linear(b, 1, D_FF, (size_t)VOCABULARY_PANELS / 4);
}
static struct work run_batch_4(struct bench *b) {
    return run_linear(b, 4, D_MODEL, VOCABULARY_PANELS);
}
static struct work run_prefill_qkv(struct bench *b) {
    return run_linear(b, N_ROWS, D_MODEL, 3 * D_MODEL / KVAD_PANEL);
}
static struct work run_prefill_down(struct bench *b) {
    return run_linear(b, N_ROWS, D_FF, D_MODEL / KVAD_PANEL);
}

/* Weights of another type: as many panels as fill the area, or those of qkv. */
static struct work run_narrow(struct bench *b, enum kvad_weight_type type, size_t n_rows,
                              bool is_qkv) {
    const struct kvad_kernels *k = b->kernels;
    size_t panel_bytes = kvad_panel_bytes(type, D_MODEL), row_bytes = kvad_quant_row_bytes(D_MODEL);
    size_t n_panels = is_qkv ? 3 * D_MODEL / KVAD_PANEL : AREA / panel_bytes;
    size_t n = n_panels * KVAD_PANEL, y_stride = is_qkv || n_rows == 1 ? n : D_MODEL;
    /* Many rows of a whole area overlap in y: no room for them is needed. */
    if (type == KVAD_WEIGHTS_BF16 || type == KVAD_WEIGHTS_F16)
        (type == KVAD_WEIGHTS_BF16 ? k->linear_bf16 : k->linear_f16)(
            &(struct kvad_linear_half_args){b->y, y_stride, b->x, D_MODEL, n_rows, D_MODEL,
                                            b->narrow, n_panels, NULL});
    else
        (type == KVAD_WEIGHTS_Q8 ? k->linear_q8 : k->linear_q4)(
            &(struct kvad_linear_quant_args){b->y, y_stride, b->quant, row_bytes, n_rows, D_MODEL,
                                             (unsigned char *)b->narrow, n_panels, NULL});
    return (struct work){.bytes = (double)(n_panels * panel_bytes),
                         .flops = 2.0 * (double)n * D_MODEL * (double)n_rows};
}
#define NARROW_TYPES(X) X(bf16, BF16) X(f16, F16) X(q8, Q8) X(q4, Q4)
#define DEFINE_NARROW(name, type)                                                                  \
    static struct work run_decode_##name(struct bench *b) {                                        \
        return run_narrow(b, KVAD_WEIGHTS_##type, 1, false);                                       \
    }                                                                                              \
    static struct work run_batch_##name(struct bench *b) {                                         \
        return run_narrow(b, KVAD_WEIGHTS_##type, N_SEQUENCES, false);                             \
    }                                                                                              \
    static struct work run_prefill_##name(struct bench *b) {                                       \
        return run_narrow(b, KVAD_WEIGHTS_##type, N_ROWS, true);                                   \
    }
NARROW_TYPES(DEFINE_NARROW)
#undef DEFINE_NARROW

static struct work run_quantise_row(struct bench *b) {
    for (size_t r = 0; r < N_ROWS; r++)
        b->kernels->quantise_row(b->quant + r * kvad_quant_row_bytes(D_MODEL), D_MODEL, 0,
                                 b->x + r * D_MODEL, D_MODEL);
    return (struct work){.elements = (double)N_ROWS * D_MODEL};
}

static size_t kv_element_bytes(enum kvad_kv_type type) {
    return type == KVAD_KV_F32 ? 4 : type == KVAD_KV_Q8 ? 1 : 2;
}

/* One chunk of one head, its tokens in blocks of 16. */
static void run_chunk(struct bench *b, enum kvad_kv_type type, size_t chunk, size_t n_rows) {
    struct kvad_kv_span spans[KVAD_CHUNK / KVAD_KV_TILE];
    uint32_t visible[KVAD_CHUNK];
    float m[KVAD_CHUNK], l[KVAD_CHUNK];
    const unsigned char *memory = (const unsigned char *)b->weights;
    if (type != KVAD_KV_F32) memory = (const unsigned char *)b->narrow;
    size_t piece = KVAD_KV_TILE * HEAD_DIM * kv_element_bytes(type); /* K or V of a tile */
    for (size_t i = 0; i < KVAD_CHUNK / KVAD_KV_TILE; i++) {
        const unsigned char *k = memory + (chunk * KVAD_CHUNK / KVAD_KV_TILE + i) * 2 * piece;
        spans[i] = (struct kvad_kv_span){
            .k = k, .v = k + piece, .k_scales = b->x, .v_scales = b->x, .n_tokens = KVAD_KV_TILE};
    }
    for (size_t r = 0; r < n_rows; r++)
        visible[r] = KVAD_CHUNK;
    struct kvad_attention_args args = {.q = b->x,
                                       .q_stride = HEAD_DIM,
                                       .n_rows = n_rows,
                                       .head_dim = HEAD_DIM,
                                       .k_type = type,
                                       .v_type = type,
                                       .spans = spans,
                                       .n_spans = KVAD_CHUNK / KVAD_KV_TILE,
                                       .visible = visible,
                                       .o = b->y,
                                       .o_stride = HEAD_DIM,
                                       .m = m,
                                       .l = l};
    b->kernels->attention_chunk(&args);
}
/* One row over as many tokens as fill the area. */
static struct work run_long_attention(struct bench *b, enum kvad_kv_type type) {
    size_t token = 2 * HEAD_DIM * kv_element_bytes(type), n_chunks = AREA / KVAD_CHUNK / token;
    for (size_t chunk = 0; chunk < n_chunks; chunk++)
        run_chunk(b, type, chunk, 1);
    double n = (double)n_chunks * KVAD_CHUNK;
    return (struct work){.bytes = n * (double)token, .flops = 4.0 * HEAD_DIM * n};
}
#define KV_TYPES(X) X(f32, F32) X(f16, F16) X(bf16, BF16) X(q8, Q8)
#define DEFINE_ATTENTION(name, type)                                                               \
    static struct work run_attention_decode_##name(struct bench *b) {                              \
        return run_long_attention(b, KVAD_KV_##type);                                              \
    }
KV_TYPES(DEFINE_ATTENTION)
#undef DEFINE_ATTENTION
static struct work run_attention_prefill(struct bench *b) {
    for (size_t chunk = 0; chunk < 8; chunk++)
        run_chunk(b, KVAD_KV_F32, chunk, KVAD_CHUNK);
    return (struct work){.flops = 8.0 * 4.0 * KVAD_CHUNK * KVAD_CHUNK * HEAD_DIM};
}
static struct work run_attention_merge(struct bench *b) {
    float m = 0, l = 1;
    for (size_t r = 0; r < N_ROWS; r++)
        b->kernels->attention_merge(b->y + r * HEAD_DIM, &m, &l, b->x + r * HEAD_DIM, 0, 1,
                                    HEAD_DIM);
    b->sink = l;
    return (struct work){.elements = (double)N_ROWS * HEAD_DIM};
}
static struct work run_layer_norm(struct bench *b) {
    for (size_t r = 0; r < N_ROWS; r++)
        b->kernels->layer_norm(b->y + r * D_MODEL, b->x + r * D_MODEL, b->weights, b->weights,
                               D_MODEL, 1e-5f);
    return (struct work){.elements = (double)N_ROWS * D_MODEL};
}
#define DEFINE_RUN(name, ...)                                                                      \
    static struct work run_##name(struct bench *b) {                                               \
        for (size_t r = 0; r < N_ROWS; r++)                                                        \
            b->kernels->name(b->y + r * D_FF, b->x + r * D_FF, __VA_ARGS__);                       \
        return (struct work){.elements = (double)N_ROWS * D_FF};                                   \
    }
#define DEFINE_UNARY(name, text) DEFINE_RUN(name, D_FF)
DEFINE_RUN(add, D_FF)
DEFINE_RUN(scale, 0.125f, D_FF)
DEFINE_RUN(divide, 3.0f, D_FF)
KVAD_UNARY_OPS(DEFINE_UNARY)
#undef DEFINE_UNARY
#undef DEFINE_RUN

enum limit { LIMIT_NONE, LIMIT_BYTES, LIMIT_FLOPS, LIMIT_DOT /* FLOPS where a level has none */ };

struct item {
    const char *op, *name; /* op NULL: a ceiling */
    enum limit limit;      /* what it is held against */
    struct work (*run)(struct bench *b);
    struct work work;
    double seconds[N_ROUNDS], percent[N_ROUNDS]; /* percent of the ceiling */
};

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double timed(struct bench *b, struct work (*run)(struct bench *b), struct work *work) {
    double start = thread_seconds();
    *work = run(b);
    return thread_seconds() - start;
}

/* Which way of reading is the fastest depends on the machine's prefetchers. */
static void find_read_way(struct bench *b) {
    unsigned best = 0;
    double least = 0;
    for (unsigned i = 0; i < 2 * CEILING_WAYS; i++) {
        struct work work;
        b->read_way = i % CEILING_WAYS;
        double seconds = timed(b, run_ceiling_read, &work);
        if (i > 0 && seconds >= least) continue;
        least = seconds;
        best = b->read_way;
    }
    b->read_way = best;
}

/* The ceiling that limits an item; NULL: none. */
static struct work (*ceiling_of(const struct bench *b, const struct item *item))(struct bench *) {
    switch (item->limit) {
    case LIMIT_BYTES: return run_ceiling_read;
    case LIMIT_DOT: return b->ceiling->dot ? run_ceiling_dot : run_ceiling_fma;
    case LIMIT_FLOPS: return run_ceiling_fma;
    case LIMIT_NONE: break;
    }
    return NULL;
}

/* One round: the ceiling that limits the item, then the item. */
static void run_round(struct bench *b, struct item *item, size_t round) {
    struct work ceiling = {0}, (*run_ceiling)(struct bench *) = ceiling_of(b, item);
    double ceiling_seconds = run_ceiling ? timed(b, run_ceiling, &ceiling) : 1;
    double seconds = timed(b, item->run, &item->work);
    item->seconds[round] = seconds;
    bool is_read = item->limit == LIMIT_BYTES;
    double rate = (is_read ? item->work.bytes : item->work.flops) / seconds;
    item->percent[round] =
        100 * rate / ((is_read ? ceiling.bytes : ceiling.flops) / ceiling_seconds);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_item(struct item *item) {
    qsort(item->seconds, N_ROUNDS, sizeof *item->seconds, compare_doubles);
    qsort(item->percent, N_ROUNDS, sizeof *item->percent, compare_doubles);
    double seconds = item->seconds[N_ROUNDS / 2];
    double spread = (item->seconds[N_ROUNDS * 3 / 4] - item->seconds[N_ROUNDS / 4]) / seconds;
    printf("  %-21s %9.3f ms +-%3.0f %%", item->name, seconds * 1e3, spread * 50);
    if (item->limit == LIMIT_BYTES) printf("  %8.2f GB/s", item->work.bytes / seconds * 1e-9);
    if (item->limit == LIMIT_FLOPS) printf("  %8.2f GFLOP/s", item->work.flops / seconds * 1e-9);
    if (item->limit == LIMIT_DOT) printf("  %8.2f GOP/s  ", item->work.flops / seconds * 1e-9);
    if (item->limit == LIMIT_NONE)
        printf("  %8.3f ns/element", seconds * 1e9 / item->work.elements);
    else
        printf("  %3.0f %% of the ceiling", item->percent[N_ROUNDS / 2]);
    printf("\n");
}

/* All of them, or those of one operation with the ceilings before them. */
static void run_items(struct bench *b, const char *op) {
    struct item items[] = {
        {NULL, "read ceiling", LIMIT_BYTES, .run = run_ceiling_read},
        {NULL, "fma ceiling", LIMIT_FLOPS, .run = run_ceiling_fma},
        {NULL, "int8 ceiling", LIMIT_DOT, .run = run_ceiling_dot},
        {"linear_f32", "decode 1x768x50272", LIMIT_BYTES, .run = run_decode_head},
        {"linear_f32", "decode 1x3072x12560", LIMIT_BYTES, .run = run_decode_down},
        {"linear_f32", "batch 4x768x50272", LIMIT_BYTES, .run = run_batch_4},
        {"linear_f32", "prefill 512x768x2304", LIMIT_FLOPS, .run = run_prefill_qkv},
        {"linear_f32", "prefill 512x3072x768", LIMIT_FLOPS, .run = run_prefill_down},
#define LINEAR(field, compute)                                                                     \
    {"linear_" #field, "decode " #field, LIMIT_BYTES, .run = run_decode_##field},                  \
        {"linear_" #field, "batch 16 " #field, compute, .run = run_batch_##field},                 \
        {"linear_" #field, "prefill 512 " #field, compute, .run = run_prefill_##field}
        LINEAR(bf16, LIMIT_FLOPS),
        LINEAR(f16, LIMIT_FLOPS),
        LINEAR(q8, LIMIT_DOT),
        LINEAR(q4, LIMIT_DOT),
#undef LINEAR
#define ATTENTION(field, type)                                                                     \
    {"attention_chunk", "attention decode " #field, LIMIT_BYTES,                                   \
     .run = run_attention_decode_##field},
        KV_TYPES(ATTENTION)
#undef ATTENTION
            {"attention_chunk", "attention prefill", LIMIT_FLOPS, .run = run_attention_prefill},
#define ITEM(field, text) {#field, #field, LIMIT_NONE, .run = run_##field},
        ITEM(attention_merge, ) ITEM(quantise_row, ) ITEM(layer_norm, ) ITEM(add, ) ITEM(scale, )
            ITEM(divide, ) KVAD_UNARY_OPS(ITEM)
#undef ITEM
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        if (items[i].op ? op && strcmp(op, items[i].op) != 0
                        : items[i].run == run_ceiling_dot && !b->ceiling->dot)
            continue;
        items[n++] = items[i];
    }
    for (size_t i = 0; i < n; i++)
        run_round(b, &items[i], 0); /* warms up */
    for (size_t round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < n; i++)
            run_round(b, &items[i], round);
    for (size_t i = 0; i < n; i++)
        print_item(&items[i]);
}

/* In huge pages, as the engine asks for them: 4 KiB pages cost a quarter of the read bandwidth. */
static float *new_values(size_t n) {
    const size_t huge = (size_t)2 << 20;
    size_t bytes = (n * sizeof(float) + huge - 1) / huge * huge;
    float *values = aligned_alloc(huge, bytes);
    if (!values) {
        perror("bench");
        exit(2);
    }
#if defined(MADV_HUGEPAGE)
    madvise(values, bytes, MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(i * 2654435761u % 2001) * 1e-3f - 1.0f;
    return values;
}

/* From 2^-4 to 2^-3 as f16, small as bf16, any quants. */
static uint16_t *new_halves(size_t n) {
    uint16_t *halves = (uint16_t *)(void *)new_values(n / 2);
    for (size_t i = 0; i < n; i++)
        halves[i] = (uint16_t)((i * 2654435761u >> 9 & 0x83ffu) | 0x2c00u);
    return halves;
}

void bench_kernels(const struct kvad_kernels *kernels, enum kvad_cpu_level level, const char *op) {
    struct bench b = {.kernels = kernels, .ceiling = ceiling_ops_of(level)};
    b.weights = new_values((size_t)VOCABULARY_PANELS * KVAD_PANEL * D_MODEL);
    b.x = new_values((size_t)N_ROWS * D_FF);
    b.y = new_values((size_t)N_ROWS * D_FF);
    b.narrow = new_halves(AREA / sizeof *b.narrow);
    b.quant = (unsigned char *)new_values(N_ROWS * kvad_quant_row_bytes(D_MODEL) / sizeof(float));
    ceiling_operands_init(&b.operands);
    run_quantise_row(&b);
    find_read_way(&b);
    run_items(&b, op);
    free(b.weights);
    free(b.x);
    free(b.y);
    free(b.narrow);
    free(b.quant);
}
