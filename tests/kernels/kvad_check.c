/* kvad-check: every kernel of every CPU level against the portable definition, in the manner of
 * dav1d's checkasm. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const char usage[] =
    "usage: kvad-check [options]\n"
    "Compares the kernels of each CPU level with the portable definition, bit by bit.\n"
    "  --seed N         values of the cases (default: from the clock; printed)\n"
    "  --level NAME     only this level (baseline, portable, avx2, avx512,\n"
    "                   avx512-vnni, neon, neon-dotprod)\n"
    "  --op NAME        only this operation\n"
    "  --quick          few floats in the accuracy of the functions (for emulators)\n"
    "  --exhaustive     accuracy of the functions at every float of 2^-27 to 128 (minutes)\n"
    "  --bench          time the calls as well, against the ceilings; about 20 s a level,\n"
    "                   a few with --op\n"
    "  --print-golden   print the digests of the baseline for golden.h\n";

struct options {
    uint64_t seed;
    const char *level, *op;
    uint64_t accuracy_step; /* every n-th float */
    bool is_bench, is_print_golden;
};

static bool is_op(const char *name) {
    static const char *const ops[] = {
        "linear_f32",           "linear_bf16",     "linear_f16", "linear_q8", "linear_q4",
        "quantise_row",         "layer_norm",      "add",        "scale",     "divide",
        "attention_chunk",      "attention_merge",
#define OP_NAME(field, text) #field,
        KVAD_UNARY_OPS(OP_NAME)
#undef OP_NAME
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i], name) == 0) return true;
    return false;
}

/* A name that selects nothing would pass. */
static bool are_names_known(const struct options *o) {
    enum kvad_cpu_level level;
    if (o->level && !kvad_cpu_level_from_name(o->level, &level))
        fprintf(stderr, "kvad-check: there is no level '%s'\n", o->level);
    else if (o->op && !is_op(o->op))
        fprintf(stderr, "kvad-check: there is no operation '%s'\n", o->op);
    else
        return true;
    return false;
}

static bool parse_options(struct options *o, int argc, char **argv) {
    *o = (struct options){.seed = kvad_clock_ns(), .accuracy_step = 1009};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--exhaustive"))
            o->accuracy_step = 1;
        else if (!strcmp(argv[i], "--quick"))
            o->accuracy_step = 100003;
        else if (!strcmp(argv[i], "--bench"))
            o->is_bench = true;
        else if (!strcmp(argv[i], "--print-golden"))
            o->is_print_golden = true;
        else if (!strcmp(argv[i], "--seed") && value)
            o->seed = strtoull(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--level") && value)
            o->level = value, i++;
        else if (!strcmp(argv[i], "--op") && value)
            o->op = value, i++;
        else
            return false;
    }
    return are_names_known(o);
}

/* Check what the level brings beyond the last one. The first level is checked against itself: no
 * call may leave its ranges or depend on what is in the output before. */
static void check_level(struct check *c, const struct options *o, const struct kvad_kernels *ref,
                        const struct kvad_kernels *last, const struct kvad_kernels *kernels) {
#define CHECK_OP(field, function)                                                                  \
    if ((!last || last->field != kernels->field) && (!o->op || !strcmp(o->op, #field))) {          \
        size_t n_cases = c->n_cases, n_failures = c->n_failures;                                   \
        c->op = #field;                                                                            \
        function(c, ref->field, kernels->field);                                                   \
        printf("  %-16s %6zu cases %s\n", #field, c->n_cases - n_cases,                            \
               c->n_failures == n_failures ? "ok" : "FAILED");                                     \
    }
    CHECK_OP(linear_f32, check_linear)
    CHECK_OP(linear_bf16, check_linear_half)
    CHECK_OP(linear_f16, check_linear_half)
    CHECK_OP(linear_q8, check_linear_q8)
    CHECK_OP(linear_q4, check_linear_q4)
    CHECK_OP(quantise_row, check_quantise_row)
    CHECK_OP(layer_norm, check_layer_norm)
    CHECK_OP(narrow_f16, check_narrow)
    CHECK_OP(narrow_bf16, check_narrow)
    CHECK_OP(add, check_add)
    CHECK_OP(residual, check_residual)
    CHECK_OP(scale, check_scale)
    CHECK_OP(divide, check_divide)
    CHECK_OP(attention_chunk, check_attention_chunk)
    CHECK_OP(attention_merge, check_attention_merge)
#define CHECK_UNARY(field, text) CHECK_OP(field, check_unary)
    KVAD_UNARY_OPS(CHECK_UNARY)
#undef CHECK_UNARY
#undef CHECK_OP
}

/* Levels of other architectures are not worth a line. */
static bool belongs_to_this_architecture(enum kvad_cpu_level level) {
#if defined(__x86_64__)
    return level < KVAD_CPU_NEON;
#elif defined(__aarch64__)
    return level <= KVAD_CPU_PORTABLE || level >= KVAD_CPU_NEON;
#else
    return level <= KVAD_CPU_PORTABLE;
#endif
}

static void run_levels(struct check *c, const struct options *o) {
    struct kvad_kernels ref, tables[KVAD_CPU_LEVEL_COUNT], *last = NULL;
    kvad_kernels_pick(&ref, KVAD_CPU_BASELINE);
    for (int i = 0; i < KVAD_CPU_LEVEL_COUNT; i++) {
        enum kvad_cpu_level level = (enum kvad_cpu_level)i;
        const char *name = kvad_cpu_level_name(level);
        bool is_asked = o->level && !strcmp(o->level, name);
        if (!belongs_to_this_architecture(level) && !is_asked) continue;
        if (!kvad_cpu_level_supported(level)) {
            printf("%s: NOT RUN, this CPU does not have it\n", name);
            continue;
        }
        kvad_kernels_pick(&tables[i], level);
        c->level = name;
        if (!o->level || is_asked) {
            printf("%s:\n", name);
            check_level(c, o, &ref, last, &tables[i]);
            check_golden(c, &tables[i], false);
            if (o->is_bench) bench_kernels(&tables[i], level, o->op);
        }
        last = &tables[i];
    }
}

int main(int argc, char **argv) {
    struct options options;
    if (!parse_options(&options, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    struct check check = {.seed = options.seed, .level = "baseline", .op = ""};
    struct kvad_kernels best;
    if (options.is_print_golden) {
        kvad_kernels_pick(&best, KVAD_CPU_BASELINE);
        check_golden(&check, &best, true);
        return 0;
    }
    printf("seed %" PRIu64 "\n", options.seed);
    check_catch_faults(&check);
    run_levels(&check, &options);
    if (!options.op) {
        kvad_kernels_pick(&best, kvad_cpu_level_best());
        check_accuracy(&check, &best, options.accuracy_step);
    }
    size_t n_failed = check.n_failures < check.n_cases ? check.n_failures : check.n_cases;
    printf("%zu passed, %zu failed\n", check.n_cases - n_failed, n_failed);
    return check.n_failures ? 1 : 0;
}
