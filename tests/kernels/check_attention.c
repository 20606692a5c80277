/* attention_chunk and attention_merge. */
#include "check.h"

#include <math.h>
#include <string.h>

enum { MAX_ROWS = 32, MAX_SPANS = KVAD_CHUNK / KVAD_KV_TILE };

struct shape {
    size_t head_dim, n_tokens, n_rows;
};

/* Cut n_tokens into spans at random multiples of 16; the last one holds the rest. */
static size_t cut_spans(struct check *c, struct kvad_kv_span *spans, size_t n_tokens,
                        size_t head_dim, enum check_pattern pattern) {
    size_t n_spans = 0;
    for (size_t start = 0; start < n_tokens; start += spans[n_spans++].n_tokens) {
        size_t left = n_tokens - start;
        size_t n = (1 + check_random_below(c, 4)) * KVAD_KV_TILE;
        if (n >= left || c->n_buffers + 6 > CHECK_MAX_BUFFERS) n = left;
        size_t n_tiles = (n + KVAD_KV_TILE - 1) / KVAD_KV_TILE;
        spans[n_spans].n_tokens = n;
        spans[n_spans].k = check_input(c, n_tiles * KVAD_KV_TILE * head_dim, pattern);
        spans[n_spans].v = check_input(c, n * head_dim, pattern);
    }
    return n_spans;
}

/* NaN in every lane of K and every row of V that no row sees: nothing may come of it. */
static void poison_unseen(struct kvad_kv_span *spans, size_t n_spans, size_t head_dim,
                          size_t n_seen) {
    size_t start = 0;
    for (size_t i = 0; i < n_spans; start += spans[i++].n_tokens) {
        size_t n_lanes = (spans[i].n_tokens + KVAD_KV_TILE - 1) / KVAD_KV_TILE * KVAD_KV_TILE;
        float *k = (float *)(uintptr_t)spans[i].k, *v = (float *)(uintptr_t)spans[i].v;
        for (size_t t = 0; t < n_lanes; t++) {
            if (start + t < n_seen) continue;
            for (size_t d = 0; d < head_dim; d++) {
                k[(t / KVAD_KV_TILE * head_dim + d) * KVAD_KV_TILE + t % KVAD_KV_TILE] = NAN;
                if (t < spans[i].n_tokens) v[t * head_dim + d] = NAN;
            }
        }
    }
}

static void check_shape(struct check *c, kvad_attention_chunk_fn *ref,
                        kvad_attention_chunk_fn *new_fn, struct shape shape,
                        enum check_pattern pattern) {
    struct kvad_kv_span spans[MAX_SPANS];
    uint32_t visible[MAX_ROWS], n_seen = 0;
    size_t q_stride = shape.head_dim + check_random_below(c, 3);
    size_t o_stride = shape.head_dim + check_random_below(c, 3);
    check_case(c, "head_dim=%zu tokens=%zu rows=%zu pattern %d", shape.head_dim, shape.n_tokens,
               shape.n_rows, (int)pattern);
    const float *q = check_input(c, (shape.n_rows - 1) * q_stride + shape.head_dim,
                                 pattern == PATTERN_WIDE ? PATTERN_PLAIN : pattern);
    size_t n_spans = cut_spans(c, spans, shape.n_tokens, shape.head_dim, pattern);
    for (size_t r = 0; r < shape.n_rows; r++) {
        bool sees_all = check_random_below(c, 4) == 0;
        visible[r] =
            (uint32_t)(sees_all ? shape.n_tokens : check_random_below(c, shape.n_tokens + 1));
        if (visible[r] > n_seen) n_seen = visible[r];
    }
    poison_unseen(spans, n_spans, shape.head_dim, n_seen);
    /* A scale for each token that some row sees, and not a float more. */
    bool has_k_scales = check_random_below(c, 2), has_v_scales = check_random_below(c, 2);
    const float *scales = check_input(c, n_seen ? n_seen : 1, pattern);
    check_freeze(c);
    struct check_output o = check_output(c, (shape.n_rows - 1) * o_stride + shape.head_dim);
    struct check_output m = check_output(c, shape.n_rows), l = check_output(c, shape.n_rows);
    struct kvad_attention_args args = {.q = q,
                                       .q_stride = q_stride,
                                       .n_rows = shape.n_rows,
                                       .head_dim = shape.head_dim,
                                       .spans = spans,
                                       .n_spans = n_spans,
                                       .visible = visible,
                                       .o = o.want,
                                       .o_stride = o_stride,
                                       .m = m.want,
                                       .l = l.want,
                                       .k_scales = has_k_scales ? scales : NULL,
                                       .v_scales = has_v_scales ? scales : NULL};
    ref(&args);
    args.o = o.got, args.m = m.got, args.l = l.got;
    new_fn(&args);
    check_equal(c, &o);
    check_equal(c, &m);
    check_equal(c, &l);
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
    check_freeze(c);
    struct check_output o = check_output(c, HEAD_DIM), m = check_output(c, 1),
                        l = check_output(c, 1);
    struct kvad_kv_span span = {k, v, N_TOKENS};
    struct kvad_attention_args args = {.q = q,
                                       .q_stride = HEAD_DIM,
                                       .n_rows = 1,
                                       .head_dim = HEAD_DIM,
                                       .spans = &span,
                                       .n_spans = 1,
                                       .visible = &visible,
                                       .o = o.want,
                                       .o_stride = HEAD_DIM,
                                       .m = m.want,
                                       .l = l.want};
    ref(&args);
    args.o = o.got, args.m = m.got, args.l = l.got;
    new_fn(&args);
    check_equal(c, &o);
    check_equal(c, &m);
    check_equal(c, &l);
    if (!same_bits(*m.got, 0.0f)) check_fail(c, "the maximum is %a", (double)*m.got);
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
    check_end(c);
}

/* Every bit pattern of each type, and every length round the vectors. */
void check_widen(struct check *c, kvad_widen_fn *ref, kvad_widen_fn *new_fn) {
    enum { ALL = 1 << 16 };
    static const enum kvad_kv_type types[] = {KVAD_KV_F16, KVAD_KV_BF16, KVAD_KV_Q8};
    static uint16_t all[ALL];
    for (size_t i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    for (size_t i = 0; i < 3; i++)
        for (size_t index = 0, n = 0; index == 0 || n != ALL; index++) {
            n = check_size(index) ? check_size(index) : ALL;
            size_t bytes = n * (types[i] == KVAD_KV_Q8 ? 1 : 2);
            c->side = (enum check_side)(c->n_cases % SIDE_COUNT);
            check_case(c, "type %d n=%zu", (int)types[i], n);
            /* Input buffers are whole floats: the bytes lie at the end of theirs. */
            unsigned char *in =
                (unsigned char *)check_input(c, (bytes + 3) / sizeof(float), PATTERN_PLAIN);
            size_t skipped = (bytes + 3) / sizeof(float) * sizeof(float) - bytes;
            memcpy(in + skipped, (const unsigned char *)all + (n == ALL ? 0 : 3 * index % 256),
                   bytes);
            check_freeze(c);
            struct check_output out = check_output(c, n);
            ref(out.want, in + skipped, types[i], n);
            new_fn(out.got, in + skipped, types[i], n);
            check_equal(c, &out);
        }
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
