/* What a KV cache buys: one text, once without a cache (the whole text again for every token) and
 * once with it.
 *
 *     cache_demo MODEL [N_TOKENS]
 *
 * Both runs are greedy and go step by step. At every step the logits of both are compared byte by
 * byte. */
#include <kvad/kvad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NAIVE_SECONDS = 40, /* after that the naive run continues at the table's contexts alone */
    STEPS_PER_LINE = 5  /* median of so many steps */
};

static const size_t contexts[] = {16, 32, 64, 128, 256, 512, 768, 1000};
enum { N_CONTEXTS = sizeof contexts / sizeof contexts[0] };

struct run {
    struct kvad_engine *engine;
    struct kvad_sequence *sequence;
    float *logits;
    double ms[N_CONTEXTS][STEPS_PER_LINE];
    double total_ms;
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void check(enum kvad_status status, const struct kvad_error *err) {
    if (status == KVAD_OK) return;
    fprintf(stderr, "cache_demo: %s\n", err->text);
    exit(1);
}

static void open_run(struct run *run, struct kvad_model *model, enum kvad_cache_policy cache,
                     uint32_t n_vocab) {
    struct kvad_error err;
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.cache = cache;
    check(kvad_engine_open(model, &options, &run->engine, &err), &err);
    check(kvad_sequence_create(run->engine, &run->sequence, &err), &err);
    run->logits = calloc(n_vocab, sizeof *run->logits);
    if (!run->logits) exit(1);
}

static void close_run(struct run *run) {
    kvad_sequence_destroy(&run->sequence);
    kvad_engine_close(&run->engine);
    free(run->logits);
}

/* Logits after ids[0 .. n); tokens that the sequence has already are not sent again. Returns
 * milliseconds. */
static double step(struct run *run, const int32_t *ids, size_t n) {
    struct kvad_error err;
    size_t first = kvad_sequence_length(run->sequence);
    struct kvad_eval_item item = {.sequence = run->sequence,
                                  .tokens = ids + first,
                                  .n_tokens = n - first,
                                  .n_rows = 1,
                                  .logits = run->logits};
    double start = now_ms();
    check(kvad_eval(run->engine, &item, 1, &err), &err);
    double ms = now_ms() - start;
    run->total_ms += ms;
    return ms;
}

static int32_t best(const float *logits, size_t n) {
    size_t id = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[id]) id = i;
    return (int32_t)id;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, STEPS_PER_LINE, sizeof *values, compare_doubles);
    return values[STEPS_PER_LINE / 2];
}

/* Line of the table that a step with n tokens of context belongs to, or -1. */
static int line_of(size_t n) {
    for (int i = 0; i < N_CONTEXTS; i++)
        if (n >= contexts[i] && n < contexts[i] + STEPS_PER_LINE) return i;
    return -1;
}

static void print_table(struct run *naive, struct run *cached, size_t n_tokens,
                        uint64_t bytes_per_token) {
    printf("\n  context    naive         cached        ratio   cache holds\n");
    printf("  tokens     ms per token  ms per token\n");
    for (int i = 0; i < N_CONTEXTS && contexts[i] + STEPS_PER_LINE <= n_tokens + 1; i++) {
        double slow = median(naive->ms[i]), fast = median(cached->ms[i]);
        printf("  %7zu  %12.3f  %12.3f  %8.1fx  %9.1f KiB\n", contexts[i], slow, fast, slow / fast,
               (double)(contexts[i] * bytes_per_token) / 1024);
    }
}

/* What both runs went through. */
struct comparison {
    size_t n_steps, n_compared, n_equal;
};

/* A sign of life on a terminal: without a cache the last tokens take long. */
static void show_progress(size_t n, size_t n_tokens) {
    if (!isatty(STDERR_FILENO)) return;
    if (n < n_tokens)
        fprintf(stderr, "\r  %zu of %zu tokens ", n, n_tokens);
    else
        fputs("\r                          \r", stderr);
}

/* Both runs, token by token; ids[0 .. n_prompt) are there, the others are filled in. */
static struct comparison compare(struct run *naive, struct run *cached, int32_t *ids,
                                 size_t n_prompt, size_t n_tokens,
                                 const struct kvad_model_info *info) {
    struct kvad_error err;
    struct comparison result = {0};
    for (size_t n = n_prompt; n <= n_tokens; n++, result.n_steps++) {
        int line = line_of(n);
        double fast = step(cached, ids, n);
        if (line >= 0) cached->ms[line][n - contexts[line]] = fast;
        if (line >= 0 || naive->total_ms < NAIVE_SECONDS * 1e3) {
            check(kvad_sequence_truncate(naive->sequence, 0, &err), &err);
            double slow = step(naive, ids, n);
            if (line >= 0) naive->ms[line][n - contexts[line]] = slow;
            result.n_compared++;
            result.n_equal +=
                memcmp(naive->logits, cached->logits, info->n_vocab * sizeof(float)) == 0;
        }
        ids[n] = best(cached->logits, info->n_tokens);
        show_progress(n, n_tokens);
    }
    return result;
}

static void print_whole(const struct run *naive, const struct run *cached,
                        const struct comparison *result, uint64_t bytes_per_token) {
    struct kvad_engine_info engine;
    kvad_engine_get_info(cached->engine, &engine);
    printf("\n  whole run: naive %.2f s, cached %.2f s; cache %llu bytes a token, %.1f MiB at the "
           "end\n",
           naive->total_ms / 1e3, cached->total_ms / 1e3, (unsigned long long)bytes_per_token,
           (double)engine.kv_bytes / (1024 * 1024));
    if (result->n_compared < result->n_steps)
        printf("  (after %d s the naive run went on at the contexts of the table alone)\n",
               NAIVE_SECONDS);
    printf("  logits of %zu of %zu steps compared byte by byte: %s\n", result->n_compared,
           result->n_steps,
           result->n_equal == result->n_compared ? "every one the same" : "DIFFERENT");
}

/* Ids of the prompt; without a tokenizer, id 0. */
static size_t make_prompt(struct kvad_model *model, int32_t *ids, size_t capacity) {
    static const char prompt[] = "ROMEO:";
    struct kvad_error err;
    size_t n = 0;
    struct kvad_tokenizer *tokenizer = kvad_model_tokenizer(model);
    if (tokenizer)
        check(kvad_tokenizer_encode(tokenizer, prompt, strlen(prompt), 0, ids, capacity, &n, &err),
              &err);
    return n && n <= capacity ? n : 1;
}

int main(int argc, char **argv) {
    struct kvad_error err;
    struct kvad_model *model = NULL;
    struct kvad_model_info info;
    check(kvad_model_load(argc > 1 ? argv[1] : "models/shakespeare-char", NULL, &model, &err),
          &err);
    kvad_model_get_info(model, &info);
    size_t n_tokens = argc > 2 ? strtoul(argv[2], NULL, 10) : 1004;
    if (n_tokens > info.n_ctx) n_tokens = info.n_ctx;
    int32_t *ids = calloc(n_tokens + 1, sizeof *ids);
    if (!ids) return 1;
    size_t n_prompt = make_prompt(model, ids, n_tokens);

    struct run naive = {0}, cached = {0};
    open_run(&naive, model, KVAD_CACHE_NONE, info.n_vocab);
    open_run(&cached, model, KVAD_CACHE_PAGED, info.n_vocab);
    struct kvad_engine_info engine;
    kvad_engine_get_info(cached.engine, &engine);
    printf("\nThe same %zu tokens without and with a KV cache (%s kernels, %u threads)\n", n_tokens,
           engine.cpu, engine.n_threads);
    struct comparison result = compare(&naive, &cached, ids, n_prompt, n_tokens, &info);
    print_table(&naive, &cached, n_tokens, info.kv_bytes_per_token);
    print_whole(&naive, &cached, &result, info.kv_bytes_per_token);
    close_run(&naive);
    close_run(&cached);
    free(ids);
    kvad_model_release(&model);
    return result.n_equal == result.n_compared ? 0 : 1;
}
