/* kvad: a GPT inference engine whose heart is the KV cache.   The whole public API.
 *
 * Objects, in the order a program meets them:
 *
 *   kvad_model      immutable weights; reference counted; shared by engines and threads
 *   kvad_tokenizer  text <-> token ids; immutable; reference counted
 *   kvad_threads    a pool of workers; shareable between engines
 *   kvad_engine     owns all memory of steps and of the KV cache
 *   kvad_sequence   one text in the cache; kvad_eval() appends tokens and gives logits (low level)
 *   kvad_sampler    logits and history in, probabilities or a token out; usable alone
 *   kvad_request    prompt in, events out; kvad_engine_step() moves all requests (high level)
 *
 * Rules that hold everywhere
 *
 *   errors     functions return enum kvad_status; `err` may be NULL, else it gets one line for
 *              people. Out-parameters are written only on success. Nothing prints or aborts.
 *   options    a struct whose first field is its size: call kvad_*_options_init() first.
 *   growth     structs named options, info, stats and event get new fields at their end, and no
 *              field ever moves; all others stay as they are. Functions that fill one are inline
 *              here and pass the size that this header knows to the symbol NAME_sized (which is
 *              what other languages call): a program runs with a newer library of the same
 *              SONAME, which writes no byte beyond that size. With an older library, fields that
 *              it does not know read as zero, and it refuses options that are larger than its own.
 *   strings    UTF-8, NUL-terminated; byte ranges are (pointer, size). Inputs are borrowed for the
 *              call only.
 *   threads    a model, tokenizer and threads handle may be used from any thread. So may the
 *              requests and the cache of an engine: kvad_engine_step(), kvad_engine_get_info(),
 *              kvad_request_*() and kvad_cache_*() take turns, in the order in which they come, a
 *              step being one turn; kvad_request_poll(), _error(), _number() and _cancel() and
 *              kvad_engine_interrupt() wait for no turn. A sampler, and an engine while its
 *              sequences are used, belong to one thread at a time. Whoever destroys a handle is
 *              its last user.
 *   callbacks  (log, progress, on_logits, allocators) may read what they are given and call
 *              nothing of the engine that calls them but kvad_engine_interrupt() and
 *              kvad_request_cancel(): a call that takes a turn would wait for itself, for ever
 *              (debug builds of the library stop there).
 *   fork       a child may use handles that no other thread was using at that moment; it starts
 *              workers of its own.
 *   bits       logits do not depend on cache policy, chunks, batch, threads or CPU
 *              (docs/numerics.md).
 */
#ifndef KVAD_KVAD_H
#define KVAD_KVAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVAD_VERSION_MAJOR 0
#define KVAD_VERSION_MINOR 1
#define KVAD_VERSION_PATCH 0

#if defined(__GNUC__)
#define KVAD_API __attribute__((visibility("default")))
#else
#define KVAD_API
#endif

/* ------------------------------------------------------------------ status, errors, memory, logs
 */

/* One list gives the enum, the names and the texts. */
#define KVAD_STATUS_LIST(X)                                                                        \
    X(OK, "success")                                                                               \
    X(ERR_ARGUMENT, "invalid argument")                                                            \
    X(ERR_NO_MEMORY, "out of memory")                                                              \
    X(ERR_IO, "cannot read or write")                                                              \
    X(ERR_NOT_FOUND, "not found")                                                                  \
    X(ERR_FORMAT, "malformed file")                                                                \
    X(ERR_UNSUPPORTED, "unsupported")                                                              \
    X(ERR_NO_BLOCKS, "no free KV blocks")                                                          \
    X(ERR_CONTEXT_FULL, "context is full")                                                         \
    X(ERR_NOT_FINITE, "logits are not finite")                                                     \
    X(ERR_CANCELLED, "cancelled")

enum kvad_status {
#define KVAD_STATUS_ENUM(name, text) KVAD_##name,
    KVAD_STATUS_LIST(KVAD_STATUS_ENUM)
#undef KVAD_STATUS_ENUM
};

/** An error for people: what, where, why, what to do; one line without a newline. */
struct kvad_error {
    enum kvad_status status;
    char text[512];
};

/** Version of the library in use, "0.1.0". */
KVAD_API const char *kvad_version(void);
/** Short text of a status ("out of memory"), never NULL. */
KVAD_API const char *kvad_status_text(enum kvad_status status);

/** Where memory comes from. `allocate` returns `size` bytes aligned to `alignment` (a power of two,
 * at least 16) or NULL; `release` gets the same size. Both may be called from any thread. */
struct kvad_allocator {
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
};

enum kvad_log_level { KVAD_LOG_ERROR, KVAD_LOG_WARNING, KVAD_LOG_INFO, KVAD_LOG_DEBUG };

/** Where messages go: one line without a newline. A NULL `write` (the default) is silence. */
struct kvad_log {
    void (*write)(void *user, enum kvad_log_level level, const char *text);
    void *user;
};

/** Called during long work with bytes done and in all; returning false cancels
 * (KVAD_ERR_CANCELLED). */
struct kvad_progress {
    bool (*report)(void *user, uint64_t done, uint64_t total);
    void *user;
};

/* ------------------------------------------------------------------ tokenizer */

struct kvad_tokenizer;

enum kvad_encode_flags {
    KVAD_ENCODE_SPECIAL =
        1 /* special text such as <|endoftext|> becomes its id; without it, plain text */
};

/** Open a tokenizer: a folder with tokenizer.json, or vocab.json + merges.txt, or meta.pkl, or one
 * such file. `allocator` may be NULL. The caller owns one reference. */
KVAD_API enum kvad_status kvad_tokenizer_open(const char *path,
                                              const struct kvad_allocator *allocator,
                                              struct kvad_tokenizer **out, struct kvad_error *err);
KVAD_API struct kvad_tokenizer *kvad_tokenizer_retain(struct kvad_tokenizer *tokenizer);
/** Give a reference back and write NULL; NULL is allowed. */
KVAD_API void kvad_tokenizer_release(struct kvad_tokenizer **tokenizer);
/** Number of ids: every id is in [0, size). */
KVAD_API uint32_t kvad_tokenizer_size(const struct kvad_tokenizer *tokenizer);
/** Id that ends a text (<|endoftext|>), or -1 if the vocabulary has none. */
KVAD_API int32_t kvad_tokenizer_eos(const struct kvad_tokenizer *tokenizer);
/** Text to ids. Writes at most `capacity` ids; *n_ids is the number that the text needs (call again
 * with more room). Invalid UTF-8 is kept byte for byte (byte-level BPE) or refused (character
 * vocabularies: KVAD_ERR_ARGUMENT names the character and its byte offset). After a failure what
 * `ids` holds is unspecified. Linear in `size`. */
KVAD_API enum kvad_status kvad_tokenizer_encode(const struct kvad_tokenizer *tokenizer,
                                                const char *text, size_t size, unsigned flags,
                                                int32_t *ids, size_t capacity, size_t *n_ids,
                                                struct kvad_error *err);
/** Bytes of one id, borrowed from the tokenizer, not NUL-terminated; may be part of a UTF-8
 * character. KVAD_ERR_ARGUMENT if id is outside [0, size). */
KVAD_API enum kvad_status kvad_tokenizer_piece(const struct kvad_tokenizer *tokenizer, int32_t id,
                                               const char **bytes, size_t *size,
                                               struct kvad_error *err);

/* ------------------------------------------------------------------ model */

struct kvad_model;

/* What stands after "KVAD_ACTIVATION_", and the name that people write. */
#define KVAD_ACTIVATION_LIST(X)                                                                    \
    X(GELU_TANH, "gelu-tanh")                                                                      \
    X(GELU_ERF, "gelu-erf")                                                                        \
    X(RELU, "relu")                                                                                \
    X(SILU, "silu")                                                                                \
    X(TANH, "tanh")                                                                                \
    X(SIGMOID, "sigmoid")                                                                          \
    X(QUICK_GELU, "quick-gelu")                                                                    \
    X(LINEAR, "linear")

enum kvad_activation {
    KVAD_ACTIVATION_AUTO, /* what the file says, or its family's habit */
#define KVAD_ACTIVATION_ENUM(id, name) KVAD_ACTIVATION_##id,
    KVAD_ACTIVATION_LIST(KVAD_ACTIVATION_ENUM)
#undef KVAD_ACTIVATION_ENUM
        KVAD_ACTIVATION_COUNT
};

/* How weights of linear layers lie in memory; norms, biases and positions stay float32.
 *   BF16, F16  2 bytes, rounded to nearest even
 *   Q8         int8 in groups of 32 inputs with an f16 scale (the values of Q8_0)
 *   Q4         int4 in groups of 32 inputs with an f16 scale (the values of Q4_0) */
#define KVAD_WEIGHT_TYPE_LIST(X)                                                                   \
    X(F32, "f32")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(F16, "f16")                                                                                  \
    X(Q8, "q8")                                                                                    \
    X(Q4, "q4")

enum kvad_weight_type {
#define KVAD_WEIGHT_TYPE_ENUM(id, name) KVAD_WEIGHTS_##id,
    KVAD_WEIGHT_TYPE_LIST(KVAD_WEIGHT_TYPE_ENUM)
#undef KVAD_WEIGHT_TYPE_ENUM
        KVAD_WEIGHT_TYPE_COUNT,
    KVAD_WEIGHTS_AUTO = KVAD_WEIGHT_TYPE_COUNT /* as a packed file has them; else F32 */
};

/** Names of the values ("gelu-tanh", "bf16"); "auto" for AUTO, "unknown" for what is none. */
KVAD_API const char *kvad_activation_name(enum kvad_activation activation);
KVAD_API const char *kvad_weight_type_name(enum kvad_weight_type type);

struct kvad_model_options {
    size_t struct_size;
    struct kvad_allocator allocator; /* allocate NULL: malloc */
    struct kvad_log log;
    struct kvad_progress progress;
    const char *tokenizer_path;      /* NULL: look beside the model, then in local caches */
    enum kvad_activation activation; /* overrides the file */
    uint32_t n_heads;                /* 0: from the file; needed for files that do not say */
    bool no_tokenizer;               /* do not look for one */
    bool verify; /* of a packed file, check the checksum of all weights: reads the whole file */
    enum kvad_weight_type weights; /* converted at load; AUTO by default */
    bool no_map;                   /* read a packed file into memory instead of mapping it */
    /* The workers that convert the weights and write their memory first, best those of the engine.
     * Borrowed for the call, as one of their runs: steps of engines with this pool wait for its
     * end, for ever if `progress` asks for one. NULL: a pool of n_threads, for the call alone. */
    struct kvad_threads *threads;
    unsigned n_threads; /* 0: automatic */
};

struct kvad_model_info {
    char family[32]; /* "gpt2", "nanogpt", "mingpt", ... */
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff;
    uint32_t n_vocab;  /* rows of the head: length of a logits row */
    uint32_t n_tokens; /* ids that may be sampled: tokenizer size, at most n_vocab */
    uint32_t n_ctx;    /* length of the position table */
    enum kvad_activation activation;
    float norm_eps;
    bool head_tied, has_bias;
    bool is_packed; /* from a file of kvad_model_pack() */
    int32_t eos;    /* -1: none */
    uint64_t n_parameters;
    uint64_t weight_bytes;         /* in memory, packed */
    uint64_t kv_bytes_per_token;   /* all layers, K and V, float32 */
    enum kvad_weight_type weights; /* in memory */
    bool has_tokenizer;            /* found with the model, or named */
};

KVAD_API void kvad_model_options_init_sized(struct kvad_model_options *options, size_t size);
static inline void kvad_model_options_init(struct kvad_model_options *options) {
    kvad_model_options_init_sized(options, sizeof *options);
}
/** Load a model: a folder, a file (ckpt.pt, model.safetensors, pytorch_model.bin, ...index.json) or
 * a name in the local Hugging Face cache ("gpt2"). Every parameter is set from the file or the load
 * is refused by name. A packed file stays mapped as long as the model lives: who makes it shorter
 * in that time ends the process with SIGBUS, and who overwrites it changes the weights. Replace
 * such a file by renaming another one over it, as kvad_model_pack() does, or set no_map. */
KVAD_API enum kvad_status kvad_model_load(const char *path,
                                          const struct kvad_model_options *options,
                                          struct kvad_model **out, struct kvad_error *err);
/** The same from one file's bytes (safetensors or torch). `config_json` is the text of config.json,
 * or NULL for files that carry their configuration. The bytes are not needed after the call. */
KVAD_API enum kvad_status kvad_model_load_memory(const void *data, size_t size,
                                                 const char *config_json,
                                                 const struct kvad_model_options *options,
                                                 struct kvad_model **out, struct kvad_error *err);
/** What loading `path` would give and cost; reads headers only, allocates no weights. */
KVAD_API enum kvad_status kvad_model_inspect_sized(const char *path,
                                                   const struct kvad_model_options *options,
                                                   struct kvad_model_info *info, size_t size,
                                                   struct kvad_error *err);
static inline enum kvad_status kvad_model_inspect(const char *path,
                                                  const struct kvad_model_options *options,
                                                  struct kvad_model_info *info,
                                                  struct kvad_error *err) {
    return kvad_model_inspect_sized(path, options, info, sizeof *info, err);
}
/** Write a model to `path` as it lies in memory: weights in their type, configuration and tokenizer
 * in one file, which kvad_model_load() maps in milliseconds. Replaces an existing file only when
 * all is written; a process that is killed before leaves nothing (docs/formats.md).
 * KVAD_ERR_UNSUPPORTED for a model that came from such a file (copy it). */
KVAD_API enum kvad_status kvad_model_pack(const struct kvad_model *model, const char *path,
                                          struct kvad_error *err);
KVAD_API struct kvad_model *kvad_model_retain(struct kvad_model *model);
KVAD_API void kvad_model_release(struct kvad_model **model);
KVAD_API void kvad_model_get_info_sized(const struct kvad_model *model,
                                        struct kvad_model_info *info, size_t size);
static inline void kvad_model_get_info(const struct kvad_model *model,
                                       struct kvad_model_info *info) {
    kvad_model_get_info_sized(model, info, sizeof *info);
}
/** The tokenizer found with the model, borrowed, or NULL (token ids still work). */
KVAD_API struct kvad_tokenizer *kvad_model_tokenizer(const struct kvad_model *model);

/* ------------------------------------------------------------------ threads */

struct kvad_threads;

/** A pool of `n` workers including the caller; 0 means min(physical cores, affinity, cgroup quota),
 * or fewer where no more threads can start, which is KVAD_ERR_NO_MEMORY for any other `n`. */
KVAD_API enum kvad_status kvad_threads_create(unsigned n, const struct kvad_allocator *allocator,
                                              struct kvad_threads **out, struct kvad_error *err);
KVAD_API struct kvad_threads *kvad_threads_retain(struct kvad_threads *threads);
KVAD_API void kvad_threads_release(struct kvad_threads **threads);
KVAD_API unsigned kvad_threads_count(const struct kvad_threads *threads);

/* ------------------------------------------------------------------ engine, sequences, eval */

struct kvad_engine;
struct kvad_sequence;

/* Where the rows of a growing cache live (docs/architecture.md). Every policy gives the same bits.
 *   PAGED   blocks of a pool, a table per sequence
 *   STATIC  one reservation of the whole context per sequence
 *   GROW    a fresh area and a full copy per append: what torch.cat does
 *   NONE    nothing is kept: requests send the whole window again at every token */
#define KVAD_CACHE_POLICY_LIST(X)                                                                  \
    X(PAGED, "paged")                                                                              \
    X(STATIC, "static")                                                                            \
    X(GROW, "grow")                                                                                \
    X(NONE, "none")

enum kvad_cache_policy {
#define KVAD_CACHE_POLICY_ENUM(id, name) KVAD_CACHE_##id,
    KVAD_CACHE_POLICY_LIST(KVAD_CACHE_POLICY_ENUM)
#undef KVAD_CACHE_POLICY_ENUM
        KVAD_CACHE_POLICY_COUNT
};

/* How keys and values lie in the cache. Every type is lossy in the same way on every path.
 *   F16, BF16  rounded to nearest even
 *   Q8         int8 and one float32 scale per token, head, and K or V */
#define KVAD_KV_TYPE_LIST(X)                                                                       \
    X(F32, "f32")                                                                                  \
    X(F16, "f16")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(Q8, "q8")

enum kvad_kv_type {
#define KVAD_KV_TYPE_ENUM(id, name) KVAD_KV_##id,
    KVAD_KV_TYPE_LIST(KVAD_KV_TYPE_ENUM)
#undef KVAD_KV_TYPE_ENUM
        KVAD_KV_TYPE_COUNT
};

/** Names of the values ("paged", "f16"); "unknown" for what is none. */
KVAD_API const char *kvad_cache_policy_name(enum kvad_cache_policy policy);
KVAD_API const char *kvad_kv_type_name(enum kvad_kv_type type);

struct kvad_engine_options {
    size_t struct_size;
    struct kvad_allocator allocator;
    struct kvad_log log;
    struct kvad_threads
        *threads;       /* borrowed reference is retained; NULL: a pool of n_threads is made */
    unsigned n_threads; /* 0: automatic */
    enum kvad_cache_policy cache;
    uint32_t n_ctx;          /* longest sequence; 0: the model's */
    uint32_t n_sequences;    /* sequences that can be alive at once; 0: 1 */
    uint32_t n_batch_tokens; /* rows computed at once, larger inputs are cut; 0: 512 */
    uint32_t block_tokens;   /* tokens per KV block: 16, 32, 64, 128, 256; 0: 16 */
    uint64_t kv_bytes; /* memory of the cache: the pool of paged and none, reserved at open; what
                                sequences of static and grow may hold; 0: enough for n_sequences of
                                n_ctx tokens */
    enum kvad_kv_type k_type, v_type; /* of the cache; 0: float32 */
    const char *cpu;      /* "portable", "avx2", ...: highest kernel level used; NULL: the best */
    bool no_prefix_cache; /* requests do not start with the blocks of earlier ones (paged only) */
};

/** One sequence's part of a step. Results go to memory of the caller. */
struct kvad_eval_item {
    struct kvad_sequence *sequence;
    const int32_t *tokens; /* [n_tokens] appended to the sequence */
    size_t n_tokens;
    const size_t
        *rows;     /* ascending rows of `tokens` whose logits are wanted; NULL: the last n_rows */
    size_t n_rows; /* 0: no logits */
    float *logits; /* [n_rows][n_vocab] */
    float *hidden; /* NULL, or [n_layers + 1][n_tokens][d_model]: embedding, then after each layer;
                      the last one after the final norm */
};

struct kvad_engine_info {
    char cpu[16]; /* kernel level in use */
    unsigned n_threads;
    uint32_t n_ctx, block_tokens, n_blocks;
    enum kvad_kv_type k_type, v_type;
    uint64_t kv_bytes_per_token; /* all layers, K and V, in these types */
    uint64_t step_bytes;         /* reserved at open for a step */
    uint64_t kv_pool_bytes;      /* reserved at open for the pool of paged and none; else 0 */
    uint64_t kv_bytes;           /* cache memory that sequences hold now: their blocks or areas */
    uint64_t kv_bytes_peak;      /* most they ever held */
};

/** Name of the index-th kernel level that this CPU can run ("portable"), lowest first; NULL after
 * the last. */
KVAD_API const char *kvad_cpu_supported(unsigned index);
/** Cache bytes of one token: n_layers * n_kv_heads * (row(K) + row(V)), where a row of head_dim
 * elements takes 4, 2 or 1 byte an element and Q8 a scale of 4 bytes. */
KVAD_API uint64_t kvad_kv_bytes_per_token(const struct kvad_model_info *info,
                                          enum kvad_kv_type k_type, enum kvad_kv_type v_type);
KVAD_API void kvad_engine_options_init_sized(struct kvad_engine_options *options, size_t size);
static inline void kvad_engine_options_init(struct kvad_engine_options *options) {
    kvad_engine_options_init_sized(options, sizeof *options);
}
KVAD_API enum kvad_status kvad_engine_open(struct kvad_model *model,
                                           const struct kvad_engine_options *options,
                                           struct kvad_engine **out, struct kvad_error *err);
/** Close and write NULL. Sequences and requests of this engine must be gone. */
KVAD_API void kvad_engine_close(struct kvad_engine **engine);
KVAD_API void kvad_engine_get_info_sized(const struct kvad_engine *engine,
                                         struct kvad_engine_info *info, size_t size);
static inline void kvad_engine_get_info(const struct kvad_engine *engine,
                                        struct kvad_engine_info *info) {
    kvad_engine_get_info_sized(engine, info, sizeof *info);
}

KVAD_API enum kvad_status kvad_sequence_create(struct kvad_engine *engine,
                                               struct kvad_sequence **out, struct kvad_error *err);
KVAD_API void kvad_sequence_destroy(struct kvad_sequence **sequence);
KVAD_API size_t kvad_sequence_length(const struct kvad_sequence *sequence);
/** Forget all tokens from `length` on; length <= current length. Memory goes back at once. */
KVAD_API enum kvad_status kvad_sequence_truncate(struct kvad_sequence *sequence, size_t length,
                                                 struct kvad_error *err);
/** A second sequence with the same tokens. Shares all memory with the first; whichever goes on
 * first copies one block, at most. KVAD_ERR_UNSUPPORTED unless the cache is paged;
 * KVAD_ERR_ARGUMENT when all n_sequences are in use. */
KVAD_API enum kvad_status kvad_sequence_fork(const struct kvad_sequence *sequence,
                                             struct kvad_sequence **out, struct kvad_error *err);
/** For beam search: sequences[i] becomes what sequences[sources[i]] was, all at once; a source may
 * be named any number of times. No rows are copied. On failure nothing has changed. */
KVAD_API enum kvad_status kvad_sequence_reorder(struct kvad_sequence *const *sequences,
                                                const size_t *sources, size_t n,
                                                struct kvad_error *err);
/** Copy cached rows out for inspection: K and V, each [n_kv_heads][n][head_dim], of tokens [first,
 * first + n). */
KVAD_API enum kvad_status kvad_sequence_read_kv(const struct kvad_sequence *sequence,
                                                uint32_t layer, size_t first, size_t n, float *k,
                                                float *v, struct kvad_error *err);

/** One step: append each item's tokens to its sequence and compute the wanted logits. Items name
 * different sequences. On failure no sequence has changed (KVAD_ERR_CONTEXT_FULL,
 * KVAD_ERR_NO_BLOCKS, KVAD_ERR_ARGUMENT for an id outside the vocabulary, KVAD_ERR_NOT_FINITE with
 * layer and position, KVAD_ERR_CANCELLED after an interrupt). */
KVAD_API enum kvad_status kvad_eval(struct kvad_engine *engine, const struct kvad_eval_item *items,
                                    size_t n_items, struct kvad_error *err);
/** Make a running or the next kvad_eval()/kvad_engine_step() return KVAD_ERR_CANCELLED soon, once.
 *  Any thread; also from a signal handler. */
KVAD_API void kvad_engine_interrupt(struct kvad_engine *engine);

/* ------------------------------------------------------------------ sampler */

struct kvad_sampler;

enum kvad_sampler_stage { /* steps of the chain; `order` of the options lists them */
                          KVAD_STAGE_END,
                          KVAD_STAGE_BIAS, /* logit_bias, min_tokens, ids that must not be sampled
                                            */
                          KVAD_STAGE_PENALTIES, /* repetition, presence, frequency */
                          KVAD_STAGE_NGRAM,
                          KVAD_STAGE_TEMPERATURE,
                          KVAD_STAGE_TOP_K,
                          KVAD_STAGE_TYPICAL,
                          KVAD_STAGE_TOP_P,
                          KVAD_STAGE_MIN_P,
                          KVAD_STAGE_COUNT
};

enum kvad_top_k_rule {
    KVAD_TOP_K_RANK, /* exactly k survive; ties at the edge go to the lowest ids */
    KVAD_TOP_K_VALUE /* everything not below the k-th value survives: nanoGPT's and Hugging Face's
                        rule */
};

struct kvad_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY excludes the id */
};

struct kvad_sampler_options {
    size_t struct_size;
    double temperature; /* 0 (and below 1e-6): greedy */
    uint32_t top_k;     /* 0: off */
    enum kvad_top_k_rule top_k_rule;
    double top_p;                               /* 1: off; 0: greedy */
    double min_p;                               /* 0: off */
    double typical_p;                           /* 1: off */
    double repetition_penalty;                  /* 1: off */
    double presence_penalty, frequency_penalty; /* 0: off; OpenAI's formula */
    uint32_t penalty_window;  /* last ids of the history that penalties see; 0: all */
    uint32_t no_repeat_ngram; /* 0: off */
    const struct kvad_logit_bias *logit_bias; /* copied */
    size_t n_logit_bias;
    uint32_t n_tokens; /* ids at or above are never sampled; 0: n_vocab */
    uint64_t seed;
    uint64_t sample_index; /* which of n samples from one prompt: another stream of the same seed */
    unsigned char order[KVAD_STAGE_COUNT]; /* kvad_sampler_stage, ended by KVAD_STAGE_END; all zero:
                                              the default order */
};

/** Temperature 1 and everything else off: the model's own distribution. */
KVAD_API void kvad_sampler_options_init_sized(struct kvad_sampler_options *options, size_t size);
static inline void kvad_sampler_options_init(struct kvad_sampler_options *options) {
    kvad_sampler_options_init_sized(options, sizeof *options);
}
/** All values are checked here; KVAD_ERR_ARGUMENT names the field, its value and its range. */
KVAD_API enum kvad_status kvad_sampler_create(const struct kvad_sampler_options *options,
                                              uint32_t n_vocab,
                                              const struct kvad_allocator *allocator,
                                              struct kvad_sampler **out, struct kvad_error *err);
KVAD_API void kvad_sampler_destroy(struct kvad_sampler **sampler);
/** Final probabilities [n_vocab] (sum 1, exclusions exactly 0) after the whole chain. `history`:
 * prompt and output ids; may be NULL when n_history is 0. `banned`: ids excluded at this step (end
 * ids before min_tokens); may be NULL. */
KVAD_API enum kvad_status kvad_sampler_probabilities(struct kvad_sampler *sampler,
                                                     const float *logits, const int32_t *history,
                                                     size_t n_history, const int32_t *banned,
                                                     size_t n_banned, double *probabilities,
                                                     struct kvad_error *err);
/** Draw a token. The random number is a function of (seed, sample_index, output_index) alone. */
KVAD_API enum kvad_status kvad_sampler_draw(struct kvad_sampler *sampler, const float *logits,
                                            const int32_t *history, size_t n_history,
                                            const int32_t *banned, size_t n_banned,
                                            uint64_t output_index, int32_t *token,
                                            struct kvad_error *err);

/* ------------------------------------------------------------------ requests */

struct kvad_request;

enum kvad_overflow {
    KVAD_OVERFLOW_STOP,      /* finish with reason "length" when the context is full */
    KVAD_OVERFLOW_RECOMPUTE, /* slide as nanoGPT does: positions are learned, so every further token
                                recomputes the window */
    KVAD_OVERFLOW_ERROR      /* finish with KVAD_FINISH_ERROR */
};

enum kvad_finish {
    KVAD_FINISH_NONE,
    KVAD_FINISH_LENGTH,
    KVAD_FINISH_STOP,
    KVAD_FINISH_CANCELLED,
    KVAD_FINISH_ERROR
};

struct kvad_request_options {
    size_t struct_size;
    const int32_t *prompt; /* [n_prompt], at least one id; copied */
    size_t n_prompt;
    size_t max_tokens; /* SIZE_MAX (the default): until the context is full */
    size_t min_tokens; /* end ids are banned before; stop strings are not */
    enum kvad_overflow on_overflow;
    bool ignore_eos;
    bool logprobs;           /* fill kvad_event.logprob (one pass over the vocabulary a token) */
    const int32_t *stop_ids; /* besides the model's end id; copied */
    size_t n_stop_ids;
    const char *const *stop_strings; /* copied; need a tokenizer */
    size_t n_stop_strings;
    const struct kvad_sampler_options *sampler; /* NULL: greedy */
    void (*on_logits)(void *user, size_t output_index, const float *logits,
                      size_t n_vocab); /* may be NULL */
    void *user;
    int32_t priority;       /* higher runs first and is preempted last; 0: ordinary */
    bool no_prefix_cache;   /* neither use blocks of other requests nor leave any */
    const char *cache_salt; /* only requests with the same salt share blocks, and those without one;
                               "" is a salt; copied */
};

struct kvad_event {
    int32_t token;    /* the id, or -1 where `text` alone is new (held-back text at the end) */
    double logprob;   /* natural log of the model's own softmax at this id; 0 unless asked for */
    const char *text; /* whole UTF-8 characters that are certain now; valid until the next poll of
                         this request; not NUL-terminated */
    size_t text_size;
    enum kvad_finish finish; /* not NONE: the last event of this request */
};

KVAD_API void kvad_request_options_init_sized(struct kvad_request_options *options, size_t size);
static inline void kvad_request_options_init(struct kvad_request_options *options) {
    kvad_request_options_init_sized(options, sizeof *options);
}
/** Queue a request. What can be refused is refused here, by name: a wrong option, an id outside the
 * vocabulary, a prompt beyond the context (KVAD_ERR_CONTEXT_FULL), one that can never fit the cache
 * (KVAD_ERR_NO_BLOCKS). Destroy it before the engine. */
KVAD_API enum kvad_status kvad_request_submit(struct kvad_engine *engine,
                                              const struct kvad_request_options *options,
                                              struct kvad_request **out, struct kvad_error *err);
/** Run one step over all requests: decoding ones first, then prompt chunks up to n_batch_tokens.
 *  *n_active: requests not finished after it. A failing request ends with KVAD_FINISH_ERROR; others
 * go on. */
KVAD_API enum kvad_status kvad_engine_step(struct kvad_engine *engine, size_t *n_active,
                                           struct kvad_error *err);
/** Take the next event; false: none now. Waits for no step: what the last one gave is there while
 * the next one runs. */
KVAD_API bool kvad_request_poll_sized(struct kvad_request *request, struct kvad_event *event,
                                      size_t size);
static inline bool kvad_request_poll(struct kvad_request *request, struct kvad_event *event) {
    return kvad_request_poll_sized(request, event, sizeof *event);
}
/** Why a prompt did not find more of itself in the cache. */
enum kvad_cache_miss {
    KVAD_MISS_NONE,    /* it found all */
    KVAD_MISS_OFF,     /* it does not share, or the cache is not paged */
    KVAD_MISS_COLD,    /* nothing is cached under its salt */
    KVAD_MISS_DIFFERS, /* no cached text goes on with its token number n_cached_tokens */
    KVAD_MISS_EVICTED, /* what follows was cached, and had to make room evicted_steps ago */
    KVAD_MISS_SALT     /* cached with another salt only, or with one where it has none */
};

/* No request: whoever took a block was a sequence of kvad_sequence_create() or
 * kvad_cache_clear(). */
#define KVAD_NO_REQUEST UINT64_MAX

/** Why a prompt did not find more of itself, in full. For whoever runs the engine: it tells about
 * other requests, those with another salt too. */
struct kvad_miss_info {
    enum kvad_cache_miss miss;
    size_t position; /* of the first token that was not found, in the prompt */
    int32_t wanted;  /* that token; -1: it found all */
    int32_t cached;  /* what the most similar cached text has there; -1: it ends there, or there is
                        none */
    uint64_t evicted_steps; /* before the request began */
    uint64_t evicted_for;   /* number of the request that took the block, or KVAD_NO_REQUEST */
};

/** What a request got from the cache and paid for it. */
struct kvad_request_info {
    size_t n_prompt_tokens, n_output_tokens;
    size_t n_cached_tokens; /* of the prompt, that were in the cache when it began */
    enum kvad_cache_miss miss;
    uint64_t evicted_steps;
    size_t n_preemptions;       /* times that it had to give its blocks back */
    size_t n_recomputed_tokens; /* rows computed again after that */
    uint64_t bytes_held;        /* of the cache, shared blocks as a whole */
    uint64_t bytes_saved;       /* of these, in blocks that another one holds too */
    bool is_running;            /* not queued and not finished */
};

/** Where the bytes of the cache are. The first five add up to what was allocated for it: blocks,
 * within kv_bytes to the byte, and beside them the tables. */
struct kvad_cache_stats {
    uint64_t live_bytes;   /* blocks with one holder */
    uint64_t shared_bytes; /* blocks with two holders and more, each counted once */
    uint64_t idle_bytes;   /* blocks that nobody holds, kept for a prompt that begins like them */
    uint64_t free_bytes;   /* blocks that hold nothing */
    uint64_t table_bytes;  /* beside the blocks: their states, the index, salts, pins, sequences */
    uint64_t n_prompt_tokens, n_hit_tokens; /* of all requests that began; found in the cache */
    uint64_t n_evictions, n_copies;         /* blocks */
    uint64_t n_preemptions, n_recomputed_tokens;
    size_t n_running, n_waiting; /* requests */
};

/** What it got and paid so far. */
KVAD_API void kvad_request_get_info_sized(const struct kvad_request *request,
                                          struct kvad_request_info *info, size_t size);
static inline void kvad_request_get_info(const struct kvad_request *request,
                                         struct kvad_request_info *info) {
    kvad_request_get_info_sized(request, info, sizeof *info);
}
/** Why its prompt found no more in the cache; known once it has begun. */
KVAD_API void kvad_request_get_miss_sized(const struct kvad_request *request,
                                          struct kvad_miss_info *info, size_t size);
static inline void kvad_request_get_miss(const struct kvad_request *request,
                                         struct kvad_miss_info *info) {
    kvad_request_get_miss_sized(request, info, sizeof *info);
}
/** Its number, from 0, in the order of submission: as the log and kvad_miss_info name it. */
KVAD_API uint64_t kvad_request_number(const struct kvad_request *request);
/** Of this moment: between two steps, for whoever asks from another thread. */
KVAD_API void kvad_cache_get_stats_sized(const struct kvad_engine *engine,
                                         struct kvad_cache_stats *stats, size_t size);
static inline void kvad_cache_get_stats(const struct kvad_engine *engine,
                                        struct kvad_cache_stats *stats) {
    kvad_cache_get_stats_sized(engine, stats, sizeof *stats);
}
/** One character per block into text[capacity], ended by NUL: '.' free, 'o' idle, '1' held by one,
 * '2' to '9' by as many, '+' by more. Returns the number of blocks. */
KVAD_API size_t kvad_cache_map(const struct kvad_engine *engine, char *text, size_t capacity);
/** Keep the whole blocks that are cached of a prompt, *n_pinned tokens, from being evicted for
 * `ttl_ms` milliseconds (0: until it is unpinned). A pin gives way, the oldest first, before a
 * request would fail for lack of memory. KVAD_ERR_UNSUPPORTED without a prefix cache. */
KVAD_API enum kvad_status kvad_cache_pin(struct kvad_engine *engine, const int32_t *tokens,
                                         size_t n_tokens, const char *salt, uint64_t ttl_ms,
                                         uint64_t *id, size_t *n_pinned, struct kvad_error *err);
/** Drop a pin; nothing happens if it is gone already. */
KVAD_API void kvad_cache_unpin(struct kvad_engine *engine, uint64_t id);
/** Forget all blocks that nobody holds. */
KVAD_API void kvad_cache_clear(struct kvad_engine *engine);
/** The error of a request that finished with KVAD_FINISH_ERROR; KVAD_OK otherwise. */
KVAD_API enum kvad_status kvad_request_error(const struct kvad_request *request,
                                             struct kvad_error *err);
/** End a request early, at the next step at the latest; its last event says CANCELLED. */
KVAD_API void kvad_request_cancel(struct kvad_request *request);
/** Give all of it back, in whatever state it is, and write NULL; NULL is allowed. */
KVAD_API void kvad_request_destroy(struct kvad_request **request);

#ifdef __cplusplus
}
#endif
#endif
