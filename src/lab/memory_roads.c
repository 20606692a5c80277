#include "lab/memory_roads.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/error.h"

/* Divisors of the number of heads that become roads of their own, besides one kv head. */
enum { MAX_GROUPS = 12 };

struct roads {
    struct kvad_memory_answer *answer;
    const struct kvad_memory_question *q;
    bool overflows;
};

/* ---------------------------------------------------------------- words */

static void say(char *out, size_t size, const char *format, ...) KVAD_PRINTF(3, 4);
static void say(char *out, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(out, size, format, args);
    va_end(args);
}

/* Half of n, rounded up, as "64/2" or "(65+1)/2". */
static void half_words(uint32_t n, char out[20]) {
    say(out, 20, n % 2 ? "(%u+1)/2" : "%u/2", n);
}

/* Bytes of one row of n elements, in letters and in numbers. */
static void row_words(enum kvad_memory_type type, const char *letter, uint32_t n, char words[32],
                      char numbers[32]) {
    char a[20];
    switch (type) {
    case KVAD_MEMORY_Q8:
        say(words, 32, "(%s+4)", letter);
        say(numbers, 32, "(%u+4)", n);
        return;
    case KVAD_MEMORY_Q4:
        say(words, 32, "(%s/2+4)", letter);
        half_words(n, a);
        say(numbers, 32, "(%s+4)", a);
        return;
    case KVAD_MEMORY_Q8_0:
    case KVAD_MEMORY_Q4_0:
        say(words, 32, "%d*g(%s)", type == KVAD_MEMORY_Q8_0 ? 34 : 18, letter);
        say(numbers, 32, "%d*%u", type == KVAD_MEMORY_Q8_0 ? 34 : 18, (n + 31) / 32);
        return;
    default:
        say(words, 32, "%s*e", letter);
        say(numbers, 32, "%u*%d", n, type == KVAD_MEMORY_F32 ? 4 : 2);
    }
}

/* The same of two rows of different sizes. */
static void pair_words(enum kvad_memory_type type, const char *const letters[2],
                       const uint32_t n[2], char words[32], char numbers[32]) {
    char a[20], b[20];
    switch (type) {
    case KVAD_MEMORY_Q8:
        say(words, 32, "(%s+%s+8)", letters[0], letters[1]);
        say(numbers, 32, "(%u+%u+8)", n[0], n[1]);
        return;
    case KVAD_MEMORY_Q4:
        say(words, 32, "(%s/2+%s/2+8)", letters[0], letters[1]);
        half_words(n[0], a);
        half_words(n[1], b);
        say(numbers, 32, "(%s+%s+8)", a, b);
        return;
    case KVAD_MEMORY_Q8_0:
    case KVAD_MEMORY_Q4_0:
        say(words, 32, "%d*(g(%s)+g(%s))", type == KVAD_MEMORY_Q8_0 ? 34 : 18, letters[0],
            letters[1]);
        say(numbers, 32, "%d*(%u+%u)", type == KVAD_MEMORY_Q8_0 ? 34 : 18, (n[0] + 31) / 32,
            (n[1] + 31) / 32);
        return;
    default:
        say(words, 32, "(%s+%s)*e", letters[0], letters[1]);
        say(numbers, 32, "(%u+%u)*%d", n[0], n[1], type == KVAD_MEMORY_F32 ? 4 : 2);
    }
}

/* Bytes of a token of this shape, in letters and in numbers. */
static void shape_words(const struct kvad_memory_shape *s, enum kvad_memory_type type,
                        struct kvad_memory_road *road) {
    static const char *const latent[] = {"c", "r"}, *const head[] = {"dk", "dv"};
    char words[32], numbers[32];
    size_t n = sizeof road->formula, m = sizeof road->numbers;
    if (s->latent_dim && s->rope_dim)
        pair_words(type, latent, (const uint32_t[]){s->latent_dim, s->rope_dim}, words, numbers);
    else if (s->latent_dim)
        row_words(type, "c", s->latent_dim, words, numbers);
    else if (s->k_dim != s->v_dim)
        pair_words(type, head, (const uint32_t[]){s->k_dim, s->v_dim}, words, numbers);
    else
        row_words(type, "d", s->k_dim, words, numbers);
    const char *both = s->k_dim == s->v_dim ? "2*" : "";
    if (s->latent_dim) {
        say(road->formula, n, "L*%s", words);
        say(road->numbers, m, "%u*%s", s->n_layers, numbers);
    } else {
        say(road->formula, n, "L*K*%s%s", both, words);
        say(road->numbers, m, "%u*%u*%s%s", s->n_layers, s->n_kv_heads, both, numbers);
    }
}

/* ---------------------------------------------------------------- one road */

static struct kvad_memory_road *add_road(struct roads *roads, bool is_own, const char *format, ...)
    KVAD_PRINTF(3, 4);
static struct kvad_memory_road *add_road(struct roads *roads, bool is_own, const char *format,
                                         ...) {
    struct kvad_memory_road *road = &roads->answer->roads[roads->answer->n_roads++];
    road->is_own = is_own;
    va_list args;
    va_start(args, format);
    vsnprintf(road->name, sizeof road->name, format, args);
    va_end(args);
    return road;
}

static void finish(struct roads *roads, struct kvad_memory_road *road) {
    road->times = road->bytes ? (double)roads->answer->bytes / (double)road->bytes : 0;
}

/* A road that changes shape or type: its bytes follow from both, texts being whole. */
static void measure(struct roads *roads, struct kvad_memory_road *road,
                    const struct kvad_memory_shape *shape, enum kvad_memory_type type) {
    size_t text = 0;
    shape_words(shape, type, road);
    if (!kvad_memory_token_bytes(shape, type, type, &road->token_bytes) ||
        !kvad_memory_text_bytes(shape, type, type, roads->q->n_tokens, &text) ||
        !kvad_mul_size(text, roads->q->n_texts, &road->bytes))
        roads->overflows = true;
    finish(roads, road);
}

/* ---------------------------------------------------------------- fewer heads */

static void add_groups(struct roads *roads) {
    struct kvad_memory_shape s = roads->q->shape;
    uint32_t own = s.latent_dim ? 0 : s.n_kv_heads;
    s.latent_dim = s.rope_dim = 0;
    s.n_kv_heads = s.n_heads;
    struct kvad_memory_road *road =
        add_road(roads, own == s.n_heads, "%u kv heads (MHA)", s.n_heads);
    measure(roads, road, &s, roads->q->type);
    unsigned n_groups = 0;
    for (uint32_t k = s.n_heads / 2; k > 1; k--) {
        if (s.n_heads % k != 0 || (n_groups >= MAX_GROUPS && k != own)) continue;
        n_groups++;
        s.n_kv_heads = k;
        road = add_road(roads, own == k, "%u kv heads (GQA)", k);
        measure(roads, road, &s, roads->q->type);
    }
    if (s.n_heads == 1) return;
    s.n_kv_heads = 1;
    road = add_road(roads, own == 1, "1 kv head (MQA)");
    measure(roads, road, &s, roads->q->type);
}

/* A latent: the model's own, or one in the proportions of DeepSeek-V2 (table 1): c = 4 d, r = d/2.
 */
static void add_latent(struct roads *roads) {
    struct kvad_memory_shape s = roads->q->shape;
    bool is_own = s.latent_dim > 0;
    if (!is_own) {
        s.latent_dim = 4 * s.v_dim;
        s.rope_dim = (s.v_dim + 1) / 2;
    }
    struct kvad_memory_road *road =
        add_road(roads, is_own, "latent %u+%u (MLA)", s.latent_dim, s.rope_dim);
    measure(roads, road, &s, roads->q->type);
}

/* ---------------------------------------------------------------- smaller elements */

static void add_types(struct roads *roads) {
    static const char *const names[] = {"f32",
                                        "f16 or bf16",
                                        NULL,
                                        "q8, a scale per row",
                                        "q4, a scale per row",
                                        "q8_0, groups of 32",
                                        "q4_0, groups of 32"};
    enum kvad_memory_type own =
        roads->q->type == KVAD_MEMORY_BF16 ? KVAD_MEMORY_F16 : roads->q->type;
    for (int i = 0; i < KVAD_MEMORY_TYPES; i++) {
        enum kvad_memory_type type = (enum kvad_memory_type)i;
        if (!names[i]) continue;
        measure(roads, add_road(roads, type == own, "%s", names[i]), &roads->q->shape, type);
    }
}

/* ---------------------------------------------------------------- fewer tokens */

/* Texts with room for `rows` tokens each. */
static void set_rows(struct roads *roads, struct kvad_memory_road *road, size_t rows) {
    const struct kvad_memory_question *q = roads->q;
    size_t text = 0;
    if (!kvad_memory_text_bytes(&q->shape, q->type, q->type, rows, &text) ||
        !kvad_mul_size(text, q->n_texts, &road->bytes))
        roads->overflows = true;
    finish(roads, road);
}

static void add_window(struct roads *roads) {
    struct kvad_memory_shape s = roads->q->shape;
    uint32_t n_tokens = roads->q->n_tokens;
    bool is_own = s.window > 0;
    if (!is_own) {
        s.n_window_layers = s.n_layers;
        s.window = n_tokens > 8192 ? 4096 : (n_tokens + 3) / 4;
    }
    struct kvad_memory_road *road = add_road(roads, is_own, "window %u in %u/%u layers", s.window,
                                             s.n_window_layers, s.n_layers);
    size_t text = 0;
    if (!kvad_memory_text_bytes(&s, roads->q->type, roads->q->type, n_tokens, &text) ||
        !kvad_mul_size(text, roads->q->n_texts, &road->bytes))
        roads->overflows = true;
    say(road->formula, sizeof road->formula, "(L-Lw)*T+Lw*min(T,W)");
    say(road->numbers, sizeof road->numbers, "%u*%u+%u*%u", s.n_layers - s.n_window_layers,
        n_tokens, s.n_window_layers, s.window < n_tokens ? s.window : n_tokens);
    finish(roads, road);
}

/* Tokens of room that texts of 1, 2, ... T tokens take in blocks of B, all together, where a layer
 * keeps `window` of them at most. */
static double paged_sum(double n_tokens, double block, double window) {
    double paged = window - (double)((size_t)window % (size_t)block); /* longest below the window */
    double n = n_tokens < paged ? n_tokens : paged;
    double full = (double)((size_t)n / (size_t)block), rest = n - full * block;
    return full * (full + 1) / 2 * block * block + rest * (full + 1) * block +
           (n_tokens - n) * window;
}

/* The mean of all lengths up to T: what a server sees whose texts are anything between. */
static void add_paged_mean(struct roads *roads) {
    const struct kvad_memory_question *q = roads->q;
    double n = q->n_tokens, block = q->block_tokens, window = q->shape.window;
    double n_window = window > 0 ? q->shape.n_window_layers : 0;
    double whole = paged_sum(n, block, n + block) / n;
    double windowed = window > 0 ? paged_sum(n, block, window) / n : 0;
    struct kvad_memory_road *road = add_road(roads, false, "paged, mean of 1..T tokens");
    say(road->formula, sizeof road->formula, "mean of ceil(t/B)*B");
    say(road->numbers, sizeof road->numbers, "%.8g", whole);
    double layers = (q->shape.n_layers - n_window) * whole + n_window * windowed;
    double layer_bytes = (double)roads->answer->token_bytes / q->shape.n_layers;
    road->bytes = (size_t)(layers * layer_bytes * q->n_texts + 0.5);
    finish(roads, road);
}

/* What reservation costs and paging spares. */
static void add_paging(struct roads *roads) {
    size_t n_tokens = roads->q->n_tokens, block = roads->q->block_tokens;
    size_t reserved = roads->q->shape.n_ctx > n_tokens ? roads->q->shape.n_ctx : n_tokens;
    struct kvad_memory_road *road = add_road(roads, false, "reserved for the longest");
    say(road->formula, sizeof road->formula, "max(T, context)");
    say(road->numbers, sizeof road->numbers, "%zu", reserved);
    set_rows(roads, road, reserved);
    size_t rows = (n_tokens + block - 1) / block * block;
    road = add_road(roads, false, "paged, T tokens");
    say(road->formula, sizeof road->formula, "ceil(T/B)*B");
    say(road->numbers, sizeof road->numbers, "%zu*%zu", rows / block, block);
    set_rows(roads, road, rows);
    if (!roads->overflows) add_paged_mean(roads);
}

/* ---------------------------------------------------------------- all of them */

enum kvad_status kvad_memory_compute(const struct kvad_memory_question *question,
                                     struct kvad_memory_answer *answer, struct kvad_error *err) {
    *answer = (struct kvad_memory_answer){.question = *question};
    struct kvad_memory_question *q = &answer->question;
    if (!q->n_tokens) q->n_tokens = q->shape.n_ctx;
    if (!q->n_texts) q->n_texts = 1;
    if (!q->block_tokens) q->block_tokens = 16;
    if (!q->n_tokens)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "%s does not say how long a text can be: give a context (--ctx)",
                         q->shape.name);
    struct roads roads = {answer, q, false};
    size_t text = 0;
    if (!kvad_memory_token_bytes(&q->shape, q->type, q->type, &answer->token_bytes) ||
        !kvad_memory_text_bytes(&q->shape, q->type, q->type, q->n_tokens, &text) ||
        !kvad_mul_size(text, q->n_texts, &answer->bytes))
        roads.overflows = true;
    if (!roads.overflows) {
        add_groups(&roads);
        add_latent(&roads);
        add_types(&roads);
        add_window(&roads);
        add_paging(&roads);
    }
    if (!roads.overflows) return KVAD_OK;
    return kvad_fail(
        err, KVAD_ERR_ARGUMENT,
        "%s: %u texts of %u tokens in %u layers take more bytes than 64 bits can count",
        q->shape.name, q->n_texts, q->n_tokens, q->shape.n_layers);
}

/* ---------------------------------------------------------------- JSON */

static json_t *integer(size_t value) {
    return json_integer((json_int_t)value);
}

static json_t *road_json(const struct kvad_memory_road *road) {
    return json_pack("{s:s, s:b, s:s, s:s, s:o, s:o, s:f}", "name", road->name, "is_own",
                     (int)road->is_own, "formula", road->formula, "numbers", road->numbers,
                     "bytes_per_token",
                     road->token_bytes ? integer(road->token_bytes) : json_null(), "bytes",
                     integer(road->bytes), "times_smaller", road->times);
}

static json_t *shape_json(const struct kvad_memory_shape *s) {
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     s->name, "source", s->source, "n_layers", (json_int_t)s->n_layers, "n_heads",
                     (json_int_t)s->n_heads, "n_kv_heads", (json_int_t)s->n_kv_heads, "k_dim",
                     (json_int_t)s->k_dim, "v_dim", (json_int_t)s->v_dim, "latent_dim",
                     (json_int_t)s->latent_dim, "rope_dim", (json_int_t)s->rope_dim, "n_ctx",
                     (json_int_t)s->n_ctx, "window", (json_int_t)s->window, "n_window_layers",
                     (json_int_t)s->n_window_layers);
}

json_t *kvad_memory_answer_json(const struct kvad_memory_answer *answer) {
    const struct kvad_memory_question *q = &answer->question;
    json_t *roads = json_array();
    int failed = !roads;
    for (unsigned i = 0; i < answer->n_roads && !failed; i++)
        failed |= json_array_append_new(roads, road_json(&answer->roads[i]));
    json_t *object =
        json_pack("{s:i, s:o, s:I, s:I, s:I, s:s, s:o, s:o, s:o}", "schema", 1, "shape",
                  shape_json(&q->shape), "ctx", (json_int_t)q->n_tokens, "batch",
                  (json_int_t)q->n_texts, "block", (json_int_t)q->block_tokens, "kv",
                  kvad_memory_type_name(q->type), "bytes_per_token", integer(answer->token_bytes),
                  "bytes", integer(answer->bytes), "roads", roads);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
