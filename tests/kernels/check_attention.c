/* attention_chunk and attention_merge. */
#include "check.h"

#include <math.h>

#include "base/alloc.h"
#include "base/bytes.h"

enum { MAX_ROWS = 32, MAX_SPANS = KVAD_CHUNK / KVAD_KV_TILE };

struct shape {
    size_t head_dim, n_tokens, n_rows;
};

static size_t element_bytes(enum kvad_kv_type type) {
    return type == KVAD_KV_F32 ? 4 : type == KVAD_KV_Q8 ? 1 : 2;
}

/* n elements of a type against a guard page. Q8 holds any byte. */
static void *typed_input(struct check *c, enum kvad_kv_type type, size_t n,
                         enum check_pattern pattern) {
    size_t bytes = n * element_bytes(type), n_floats = (bytes + 3) / sizeof(float);
    unsigned char *data = (unsigned char *)check_input(c, n_floats, pattern);
    if (type == KVAD_KV_F32) return data;
    if (c->side == SIDE_END) data += n_floats * sizeof(float) - bytes;
    for (size_t i = 0; i < n; i++) {
        if (type == KVAD_KV_F16)
            ((uint16_t *)(void *)data)[i] = kvad_f16_from_float(check_float(c, pattern));
        else if (type == KVAD_KV_BF16)
            ((uint16_t *)(void *)data)[i] = kvad_bf16_from_float(check_float(c, pattern));
        else
            data[i] = (unsigned char)check_random(c);
    }
    return data;
}

/* Cut n_tokens into spans at random multiples of 16; the last one holds the rest. Scales are there
 * for the first n_seen tokens, and not a float more. */
static size_t cut_spans(struct check *c, const struct kvad_attention_args *a,
                        struct kvad_kv_span *spans, size_t n_tokens, size_t n_seen,
                        enum check_pattern pattern) {
    size_t n_spans = 0, head_dim = a->head_dim;
    for (size_t start = 0; start < n_tokens; start += spans[n_spans++].n_tokens) {
        struct kvad_kv_span *span = &spans[n_spans];
        size_t left = n_tokens - start, seen = n_seen > start ? n_seen - start : 0;
        size_t n = (1 + check_random_below(c, 4)) * KVAD_KV_TILE;
        if (n >= left || c->n_buffers + 12 > CHECK_MAX_BUFFERS) n = left;
        size_t n_tiles = (n + KVAD_KV_TILE - 1) / KVAD_KV_TILE;
        size_t n_scales = seen == 0 ? 1 : kvad_min_size(seen, n);
        span->n_tokens = n;
        span->k = typed_input(c, a->k_type, n_tiles * KVAD_KV_TILE * head_dim, pattern);
        span->v = typed_input(c, a->v_type, n * head_dim, pattern);
        span->k_scales = check_input(c, n_scales, pattern);
        span->v_scales = check_input(c, n_scales, pattern);
    }
    return n_spans;
}

static void poison(void *data, enum kvad_kv_type type, size_t i) {
    if (type == KVAD_KV_F32) ((float *)data)[i] = NAN;
    if (type == KVAD_KV_F16 || type == KVAD_KV_BF16) ((uint16_t *)data)[i] = 0x7fff;
}

/* NaN in every lane of K and every row of V that no row sees: nothing may come of it. */
static void poison_unseen(const struct kvad_attention_args *a, size_t n_seen) {
    size_t start = 0;
    for (size_t i = 0; i < a->n_spans; start += a->spans[i++].n_tokens) {
        const struct kvad_kv_span *span = &a->spans[i];
        size_t n_lanes = (span->n_tokens + KVAD_KV_TILE - 1) / KVAD_KV_TILE * KVAD_KV_TILE;
        void *k = (void *)(uintptr_t)span->k, *v = (void *)(uintptr_t)span->v;
        for (size_t t = 0; t < n_lanes; t++) {
            if (start + t < n_seen) continue;
            for (size_t d = 0; d < a->head_dim; d++) {
                size_t at = (t / KVAD_KV_TILE * a->head_dim + d) * KVAD_KV_TILE;
                poison(k, a->k_type, at + t % KVAD_KV_TILE);
                if (t < span->n_tokens) poison(v, a->v_type, t * a->head_dim + d);
            }
        }
    }
}

/* Both kernels on the same arguments; o has room for the rows. */
static void check_args(struct check *c, kvad_attention_chunk_fn *ref,
                       kvad_attention_chunk_fn *new_fn, struct kvad_attention_args *args) {
    size_t n_rows = args->n_rows;
    check_freeze(c);
    struct check_output o = check_output(c, (n_rows - 1) * args->o_stride + args->head_dim);
    struct check_output m = check_output(c, n_rows), l = check_output(c, n_rows);
    args->o = o.want, args->m = m.want, args->l = l.want;
    ref(args);
    args->o = o.got, args->m = m.got, args->l = l.got;
    new_fn(args);
    check_equal(c, &o);
    check_equal(c, &m);
    check_equal(c, &l);
}

static void check_shape(struct check *c, kvad_attention_chunk_fn *ref,
                        kvad_attention_chunk_fn *new_fn, struct shape shape,
                        enum check_pattern pattern) {
    struct kvad_kv_span spans[MAX_SPANS];
    uint32_t visible[MAX_ROWS], n_seen = 0;
    struct kvad_attention_args args = {
        .q_stride = shape.head_dim + check_random_below(c, 3),
        .n_rows = shape.n_rows,
        .head_dim = shape.head_dim,
        .k_type = (enum kvad_kv_type)check_random_below(c, KVAD_KV_TYPE_COUNT),
        .v_type = (enum kvad_kv_type)check_random_below(c, KVAD_KV_TYPE_COUNT),
        .spans = spans,
        .visible = visible,
        .o_stride = shape.head_dim + check_random_below(c, 3)};
    check_case(c, "head_dim=%zu tokens=%zu rows=%zu types %d %d pattern %d", shape.head_dim,
               shape.n_tokens, shape.n_rows, (int)args.k_type, (int)args.v_type, (int)pattern);
    args.q = check_input(c, (shape.n_rows - 1) * args.q_stride + shape.head_dim,
                         pattern == PATTERN_WIDE ? PATTERN_PLAIN : pattern);
    for (size_t r = 0; r < shape.n_rows; r++) {
        bool sees_all = check_random_below(c, 4) == 0;
        visible[r] =
            (uint32_t)(sees_all ? shape.n_tokens : check_random_below(c, shape.n_tokens + 1));
        if (visible[r] > n_seen) n_seen = visible[r];
    }
    args.n_spans = cut_spans(c, &args, spans, shape.n_tokens, n_seen, pattern);
    poison_unseen(&args, n_seen);
    check_args(c, ref, new_fn, &args);
}

/* One token has the weight 1, so that the result is its widened value: all 65,536 halves and all
 * bytes come back. */
static void check_every_element(struct check *c, kvad_attention_chunk_fn *ref,
                                kvad_attention_chunk_fn *new_fn, enum kvad_kv_type type) {
    enum { HEAD_DIM = 256 };
    static const float zeros[HEAD_DIM * KVAD_KV_TILE], one = 1;
    const uint32_t visible = 1;
    size_t n_cases = type == KVAD_KV_Q8 ? 1 : 256;
    for (size_t high = 0; high < n_cases; high++) {
        check_case(c, "elements %zu of type %d", high * HEAD_DIM, (int)type);
        void *v = typed_input(c, type, HEAD_DIM, PATTERN_PLAIN);
        for (size_t i = 0; i < HEAD_DIM; i++)
            if (type == KVAD_KV_Q8)
                ((unsigned char *)v)[i] = (unsigned char)i;
            else
                ((uint16_t *)v)[i] = (uint16_t)(high * HEAD_DIM + i);
        struct kvad_kv_span span = {zeros, v, NULL, &one, 1};
        struct kvad_attention_args args = {.q = zeros,
                                           .q_stride = HEAD_DIM,
                                           .n_rows = 1,
                                           .head_dim = HEAD_DIM,
                                           .v_type = type,
                                           .spans = &span,
                                           .n_spans = 1,
                                           .visible = &visible,
                                           .o_stride = HEAD_DIM};
        check_args(c, ref, new_fn, &args);
    }
}

/* Scores that are zeros of either sign, by underflow: the maximum is +0 whichever came first. */
static void check_zero_scores(struct check *c, kvad_attention_chunk_fn *ref,
                              kvad_attention_chunk_fn *new_fn) {
    enum { HEAD_DIM = 16, N_TOKENS = 48 };
    const uint32_t visible = N_TOKENS;
    check_case(c, "scores of +0 and -0");
    float *q = check_input(c, HEAD_DIM, PATTERN_PLAIN);
    float *k = check_input(c, N_TOKENS * HEAD_DIM, PATTERN_PLAIN);
    const float *v = check_input(c, N_TOKENS * HEAD_DIM, PATTERN_PLAIN);
    /* Terms of -0 keep a sum of -0, and one of +0. */
    for (size_t d = 0; d < HEAD_DIM; d++)
        q[d] = d ? -0.0f : -0x1p-80f;
    for (size_t i = 0; i < N_TOKENS * HEAD_DIM; i++)
        k[i] = check_random_below(c, 2) ? 0x1p-80f : 0.0f;
    struct kvad_kv_span span = {.k = k, .v = v, .n_tokens = N_TOKENS};
    struct kvad_attention_args args = {.q = q,
                                       .q_stride = HEAD_DIM,
                                       .n_rows = 1,
                                       .head_dim = HEAD_DIM,
                                       .spans = &span,
                                       .n_spans = 1,
                                       .visible = &visible,
                                       .o_stride = HEAD_DIM};
    check_args(c, ref, new_fn, &args);
    if (!same_bits(*args.m, 0.0f)) check_fail(c, "the maximum is %a", (double)*args.m);
}

void check_attention_chunk(struct check *c, kvad_attention_chunk_fn *ref,
                           kvad_attention_chunk_fn *new_fn) {
    static const size_t tokens[] = {1,  2,  3,  7,  8,   15,  16,  17,  31,  32, 33,
                                    47, 64, 65, 96, 127, 128, 200, 255, 256, 0};
    static const size_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 0};
    static const size_t head_dims[] = {40, 48, 64, 80, 96, 128, 192, 256, 0};
    for (size_t head_dim = 1; head_dim <= 33; head_dim++)
        for (size_t i = 0; tokens[i]; i += 2) {
            c->side = (enum check_side)(c->n_cases % SIDE_COUNT);
            struct shape shape = {head_dim, tokens[i], 1 + check_random_below(c, 5)};
            check_shape(c, ref, new_fn, shape,
                        (enum check_pattern)(c->n_cases / 2 % PATTERN_COUNT));
        }
    for (size_t i = 0; tokens[i]; i++)
        for (size_t j = 0; rows[j]; j++) {
            c->side = (enum check_side)(c->n_cases % SIDE_COUNT);
            struct shape shape = {64, tokens[i], rows[j]};
            check_shape(c, ref, new_fn, shape,
                        (enum check_pattern)(c->n_cases / 2 % PATTERN_COUNT));
        }
    for (size_t i = 0; head_dims[i]; i++)
        for (size_t j = 0; j < 4; j++) {
            c->side = (enum check_side)(c->n_cases % SIDE_COUNT);
            struct shape shape = {head_dims[i], 1 + check_random_below(c, KVAD_CHUNK), 4};
            check_shape(c, ref, new_fn, shape,
                        (enum check_pattern)(c->n_cases / 2 % PATTERN_COUNT));
        }
    for (size_t i = 0; i < 16; i++)
        check_zero_scores(c, ref, new_fn);
    for (enum kvad_kv_type type = KVAD_KV_F16; type < KVAD_KV_TYPE_COUNT; type++)
        check_every_element(c, ref, new_fn, type);
    check_end(c);
}

void check_attention_merge(struct check *c, kvad_attention_merge_fn *ref,
                           kvad_attention_merge_fn *new_fn) {
    for (size_t index = 0, n = 0; (n = check_size(index)) != 0; index++)
        for (enum check_pattern pattern = 0; pattern < PATTERN_COUNT; pattern++) {
            c->side = (enum check_side)(c->n_cases % SIDE_COUNT);
            check_case(c, "head_dim=%zu pattern %d", n, (int)pattern);
            const float *oc = check_input(c, n, pattern), *first = check_input(c, n, pattern);
            check_freeze(c);
            struct check_output o = check_output(c, n), ml = check_output(c, 2);
            check_output_set(&o, first, n);
            bool is_special = pattern == PATTERN_SPECIAL;
            float mc = is_special ? check_special(c) : check_float(c, pattern),
                  lc = check_float(c, PATTERN_PLAIN) + 2;
            float start[2] = {is_special ? check_special(c) : check_float(c, pattern),
                              check_float(c, PATTERN_PLAIN) + 2};
            check_output_set(&ml, start, 2);
            ref(o.want, ml.want, ml.want + 1, oc, mc, lc, n);
            new_fn(o.got, ml.got, ml.got + 1, oc, mc, lc, n);
            check_equal(c, &o);
            check_equal(c, &ml);
        }
    check_end(c);
}
