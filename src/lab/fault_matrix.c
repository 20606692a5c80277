/* Compiled only with KVAD_FAULTS=ON. */
#include "lab/fault_matrix.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu_count.h"
#include "base/error.h"
#include "base/faults.h"
#include "lab/synthetic.h"

enum {
    MAX_JOBS = 16,
    TRIAL_SECONDS = 60, /* far more than any check takes on this model */
    /* Memory that nobody wrote: 3.0 as a float, 2.1 as a half, 64 as a quantised number. */
    FRESH_BYTE = 0x40,
    MODEL_SEED = 1
};

/* What a child says of a trial. */
struct verdict {
    uint32_t check;
    enum kvad_trial trial;
    uint64_t reached;
};

/* A child process that works on a row. */
struct job {
    struct kvad_matrix_row *row; /* NULL: none */
    enum kvad_fault fault;
    pid_t pid;
    int pipe;          /* verdicts come here */
    uint32_t next;     /* check whose verdict is awaited */
    uint64_t deadline; /* of that verdict, clock of kvad_clock_ns() */
};

struct runner {
    const struct kvad_matrix_options *options;
    uint64_t trial_ns;
    struct kvad_model *model;
    struct kvad_matrix *matrix;
    struct job jobs[MAX_JOBS];
    unsigned n_jobs;
    struct kvad_error *err;
};

/* ---------------------------------------------------------------- a child */

static void *allocate_full(void *user, size_t size, size_t alignment) {
    (void)user;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
    memset(memory, FRESH_BYTE, size);
    return memory;
}

static void release_full(void *user, void *memory, size_t size) {
    (void)user;
    (void)size;
    free(memory);
}

static enum kvad_trial trial_of(enum kvad_status status, enum kvad_verdict verdict, bool is_reached,
                                bool was_reached) {
    if (status != KVAD_OK) return KVAD_TRIAL_CRASHED;
    switch (verdict) {
    case KVAD_VERDICT_SKIP: return KVAD_TRIAL_SKIPPED;
    case KVAD_VERDICT_PASS: return is_reached ? KVAD_TRIAL_MISSED : KVAD_TRIAL_UNREACHED;
    case KVAD_VERDICT_FAIL: break;
    }
    /* What an earlier check computed for all of them is wrong too. Without any fault there is no
     * place to come to, and every failure counts. */
    return is_reached || was_reached ? KVAD_TRIAL_CAUGHT : KVAD_TRIAL_CRASHED;
}

/* The checks from `first` on; never returns. */
static void run_child(const struct runner *runner, const struct job *job, int out) {
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    kvad_fault_set(job->fault);
    struct kvad_verify_options options = {.level = KVAD_VERIFY_QUICK,
                                          .seed = 1,
                                          .kv = job->row->kv,
                                          .n_threads = 1,
                                          .hook = {allocate_full, release_full, NULL}};
    struct kvad_verify *verify = NULL;
    struct kvad_error err;
    enum kvad_status status = kvad_verify_open(runner->model, &options, &verify, &err);
    for (uint32_t i = job->next; i < runner->matrix->n_checks; i++) {
        struct kvad_verify_result result = {.verdict = KVAD_VERDICT_FAIL};
        uint64_t before = kvad_fault_reached(job->fault);
        if (job->row->name && runner->options->before)
            runner->options->before(job->row->name, runner->matrix->checks[i]->name);
        if (verify) status = kvad_verify_run(verify, runner->matrix->checks[i], &result, &err);
        uint64_t reached = kvad_fault_reached(job->fault) - before;
        bool is_clean = job->fault == KVAD_FAULT_NONE;
        struct verdict verdict = {
            i, trial_of(status, result.verdict, reached > 0, before > 0 || is_clean), reached};
        kvad_verify_result_deinit(&result);
        if (write(out, &verdict, sizeof verdict) != (ssize_t)sizeof verdict) _exit(1);
    }
    _exit(0);
}

/* Start a child for the checks of a job from job->next on. */
static enum kvad_status start(struct runner *runner, struct job *job) {
    int ends[2];
    if (pipe(ends) != 0)
        return kvad_fail(runner->err, KVAD_ERR_IO, "no pipe for a trial: %s", strerror(errno));
    job->pid = fork();
    if (job->pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return kvad_fail(runner->err, KVAD_ERR_IO, "no process for a trial: %s", strerror(errno));
    }
    if (job->pid == 0) {
        close(ends[0]);
        run_child(runner, job, ends[1]);
    }
    close(ends[1]);
    job->pipe = ends[0];
    job->deadline = kvad_clock_ns() + runner->trial_ns;
    return KVAD_OK;
}

static void stop(struct job *job) {
    if (job->pid <= 0) return;
    (void)kill(job->pid, SIGKILL);
    while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(job->pipe);
    job->pid = 0;
}

/* ---------------------------------------------------------------- rows */

static void note(struct kvad_matrix_row *row, uint32_t check, enum kvad_trial trial) {
    row->trials[check] = trial;
    row->n_caught += trial == KVAD_TRIAL_CAUGHT;
    row->n_broken += trial == KVAD_TRIAL_CRASHED || trial == KVAD_TRIAL_TIMED_OUT;
}

/* The child ended or is too late: its check has no verdict; another child does the rest. */
static enum kvad_status go_on_after(struct runner *runner, struct job *job, enum kvad_trial trial) {
    stop(job);
    if (job->next < runner->matrix->n_checks) note(job->row, job->next++, trial);
    if (job->next < runner->matrix->n_checks) return start(runner, job);
    job->row = NULL;
    return KVAD_OK;
}

static enum kvad_status read_verdict(struct runner *runner, struct job *job) {
    struct verdict verdict;
    ssize_t n = read(job->pipe, &verdict, sizeof verdict);
    if (n < 0 && errno == EINTR) return KVAD_OK;
    if (n != (ssize_t)sizeof verdict) return go_on_after(runner, job, KVAD_TRIAL_CRASHED);
    job->row->reached += verdict.reached;
    note(job->row, verdict.check, verdict.trial);
    job->next = verdict.check + 1;
    job->deadline = kvad_clock_ns() + runner->trial_ns;
    if (job->next < runner->matrix->n_checks) return KVAD_OK;
    stop(job);
    job->row = NULL;
    return KVAD_OK;
}

/* Wait up to half a second for verdicts and take those that came. */
static enum kvad_status take_verdicts(struct runner *runner) {
    struct pollfd polls[MAX_JOBS];
    for (unsigned i = 0; i < runner->n_jobs; i++)
        polls[i] = (struct pollfd){runner->jobs[i].row ? runner->jobs[i].pipe : -1, POLLIN, 0};
    int n = poll(polls, runner->n_jobs, 500);
    if (n < 0 && errno != EINTR)
        return kvad_fail(runner->err, KVAD_ERR_IO, "waiting for trials: %s", strerror(errno));
    for (unsigned i = 0; i < runner->n_jobs; i++) {
        struct job *job = &runner->jobs[i];
        if (!job->row) continue;
        if (n > 0 && polls[i].revents)
            KVAD_TRY(read_verdict(runner, job));
        else if (kvad_clock_ns() > job->deadline)
            KVAD_TRY(go_on_after(runner, job, KVAD_TRIAL_TIMED_OUT));
    }
    return KVAD_OK;
}

static enum kvad_status run_rows(struct runner *runner, struct kvad_matrix_row *rows,
                                 const enum kvad_fault *faults, size_t n) {
    const struct kvad_matrix_options *options = runner->options;
    for (size_t n_started = 0;;) {
        size_t n_busy = 0;
        for (unsigned i = 0; i < runner->n_jobs; i++) {
            struct job *job = &runner->jobs[i];
            if (!job->row && n_started < n) {
                *job = (struct job){.row = &rows[n_started], .fault = faults[n_started]};
                n_started++;
                KVAD_TRY(start(runner, job));
            }
            n_busy += job->row != NULL;
        }
        if (options->report && !options->report(options->user, n_started - n_busy, n))
            return kvad_fail(runner->err, KVAD_ERR_CANCELLED, "interrupted");
        if (n_busy == 0) return KVAD_OK;
        KVAD_TRY(take_verdicts(runner));
    }
}

/* ---------------------------------------------------------------- the matrix */

/* What the cache holds when a fault is tried: the type that it is about. */
static enum kvad_kv_type type_of(enum kvad_fault fault) {
    switch (fault) {
    case KVAD_FAULT_Q8_SCALE_OF_NEIGHBOUR:
    case KVAD_FAULT_Q8_SCALE_FLOORED:
    case KVAD_FAULT_Q8_V_WITH_K_SCALES:
    case KVAD_FAULT_Q8_NOT_TRIMMED: return KVAD_KV_Q8;
    case KVAD_FAULT_HALF_OF_OTHER_KIND: return KVAD_KV_F16;
    default: return KVAD_KV_F32;
    }
}

/* Nothing means anything unless every check passes on the engine as it is, in all these types. */
static enum kvad_status run_clean(struct runner *runner) {
    static const enum kvad_fault none[] = {KVAD_FAULT_NONE, KVAD_FAULT_NONE, KVAD_FAULT_NONE};
    struct kvad_matrix_row rows[] = {{.kv = KVAD_KV_F32}, {.kv = KVAD_KV_F16}, {.kv = KVAD_KV_Q8}};
    static const char *const names[] = {
        [KVAD_KV_F32] = "f32", [KVAD_KV_F16] = "f16", [KVAD_KV_Q8] = "q8"};
    struct kvad_matrix *matrix = runner->matrix;
    KVAD_TRY(run_rows(runner, rows, none, 3));
    for (size_t i = 0; i < 3; i++)
        for (size_t c = 0; c < matrix->n_checks && !matrix->is_void; c++) {
            if (rows[i].trials[c] < KVAD_TRIAL_CAUGHT) continue;
            matrix->is_void = true;
            snprintf(matrix->void_why, sizeof matrix->void_why,
                     "the check \"%s\" fails without any fault (keys and values in %s)",
                     matrix->checks[c]->name, names[rows[i].kv]);
        }
    return KVAD_OK;
}

static enum kvad_status run_faults(struct runner *runner) {
    enum kvad_fault faults[KVAD_FAULT_COUNT];
    struct kvad_matrix *matrix = runner->matrix;
    for (size_t i = 0; i < matrix->n_rows; i++) {
        enum kvad_fault fault = faults[i] = (enum kvad_fault)(i + 1);
        matrix->rows[i] = (struct kvad_matrix_row){.name = kvad_fault_name(fault),
                                                   .area = kvad_fault_area(fault),
                                                   .meaning = kvad_fault_meaning(fault),
                                                   .report = kvad_fault_report(fault),
                                                   .kv = type_of(fault)};
    }
    return run_rows(runner, matrix->rows, faults, matrix->n_rows);
}

enum kvad_status kvad_matrix_run(const struct kvad_matrix_options *options,
                                 struct kvad_matrix *matrix, struct kvad_error *err) {
    *matrix = (struct kvad_matrix){.hook = options->hook, .n_rows = KVAD_FAULT_COUNT - 1};
    if (options->n_faults > 0 && options->n_faults < matrix->n_rows)
        matrix->n_rows = options->n_faults;
    struct kvad_heap heap;
    kvad_heap_init(&heap, &options->hook);
    uint64_t begin = kvad_clock_ns();
    unsigned seconds = options->trial_seconds ? options->trial_seconds : TRIAL_SECONDS;
    struct runner runner = {.options = options,
                            .trial_ns = seconds * UINT64_C(1000000000),
                            .matrix = matrix,
                            .err = err,
                            .n_jobs = options->n_jobs};
    if (runner.n_jobs == 0) runner.n_jobs = kvad_cpu_count_allowed();
    if (runner.n_jobs > MAX_JOBS) runner.n_jobs = MAX_JOBS;
    const struct kvad_verify_check *check;
    while ((check = kvad_verify_check((unsigned)matrix->n_checks)))
        matrix->checks[matrix->n_checks++] = check;
    matrix->rows = kvad_alloc_zero(&heap, matrix->n_rows, sizeof *matrix->rows);
    if (!matrix->rows)
        return kvad_fail_memory(err, "matrix", matrix->n_rows * sizeof *matrix->rows);
    KVAD_TRY(kvad_synthetic_build("odd", MODEL_SEED, NULL, &runner.model, err));
    enum kvad_status status = run_clean(&runner);
    if (status == KVAD_OK && !matrix->is_void) status = run_faults(&runner);
    for (unsigned i = 0; i < runner.n_jobs; i++)
        stop(&runner.jobs[i]);
    kvad_model_release(&runner.model);
    matrix->seconds = (double)(kvad_clock_ns() - begin) * 1e-9;
    return status;
}

void kvad_matrix_deinit(struct kvad_matrix *matrix) {
    struct kvad_heap heap;
    kvad_heap_init(&heap, &matrix->hook);
    kvad_free(&heap, matrix->rows, matrix->n_rows * sizeof *matrix->rows);
    *matrix = (struct kvad_matrix){0};
}

bool kvad_matrix_row_is_good(const struct kvad_matrix_row *row) {
    return row->reached > 0 && row->n_caught >= KVAD_MATRIX_ENOUGH && row->n_broken == 0;
}

size_t kvad_matrix_column(const struct kvad_matrix *matrix, const char *check) {
    size_t i = 0;
    while (i < matrix->n_checks && strcmp(matrix->checks[i]->name, check) != 0)
        i++;
    return i;
}
