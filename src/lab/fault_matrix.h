/* Which checks catch which faults: every check of lab/verify.h on a model of its own, as it is and
 * with each mistake of base/faults.def. In builds with KVAD_FAULTS alone.
 *
 * A trial is one check with one fault. Trials run in child processes, because a broken engine may
 * do anything: one that crashes or does not end has caught nothing. Neither has one that fails
 * without having come to the fault's place. All memory of the engines starts full of one number
 * that is not small, so that rows which nobody wrote give the same wrong results every time. */
#ifndef KVAD_LAB_FAULT_MATRIX_H
#define KVAD_LAB_FAULT_MATRIX_H

#include "lab/verify.h"

enum {
    /* Checks that must catch a fault: one alone could lose it with its next change. */
    KVAD_MATRIX_ENOUGH = 2
};

enum kvad_trial {
    KVAD_TRIAL_SKIPPED,   /* not applicable */
    KVAD_TRIAL_UNREACHED, /* the check passed and never came to the fault's place */
    KVAD_TRIAL_MISSED,    /* it came there and passed */
    KVAD_TRIAL_CAUGHT,    /* it came there and failed */
    KVAD_TRIAL_CRASHED,   /* the process ended in the middle, or there was no verdict */
    KVAD_TRIAL_TIMED_OUT,
    KVAD_TRIAL_COUNT
};

struct kvad_matrix_row {
    const char *name, *area, *meaning, *report; /* of the fault (base/faults.h) */
    enum kvad_kv_type kv;                       /* of the cache in these trials */
    uint64_t reached;                           /* passes of the fault's place, all checks */
    enum kvad_trial trials[KVAD_VERIFY_CHECKS];
    unsigned n_caught, n_broken; /* broken: crashed or timed out */
};

struct kvad_matrix {
    size_t n_checks, n_rows;
    const struct kvad_verify_check *checks[KVAD_VERIFY_CHECKS];
    struct kvad_matrix_row *rows; /* [n_rows] in the order of base/faults.def */
    struct kvad_allocator hook;   /* that they come from */
    double seconds;
    bool is_void; /* a check fails without any fault: no row means anything */
    char void_why[256];
};

struct kvad_matrix_options {
    unsigned n_jobs;            /* child processes at once; 0: as many as there are CPUs */
    unsigned trial_seconds;     /* a trial that takes longer has timed out; 0: 60 */
    size_t n_faults;            /* the first ones alone; 0: all */
    struct kvad_allocator hook; /* allocate NULL: malloc */
    /* Called at least once a second; false cancels (KVAD_ERR_CANCELLED). May be NULL. */
    bool (*report)(void *user, size_t n_done, size_t n_rows);
    /* Called in the child before each trial with a fault. May be NULL. */
    void (*before)(const char *fault, const char *check);
    void *user;
};

/** Run all trials; kvad_matrix_deinit() follows in any case. The calling process must have one
 * thread. KVAD_ERR_NO_MEMORY, KVAD_ERR_CANCELLED, KVAD_ERR_IO (no process, no pipe). */
enum kvad_status kvad_matrix_run(const struct kvad_matrix_options *options,
                                 struct kvad_matrix *matrix, struct kvad_error *err);
/** A zeroed matrix is allowed. */
void kvad_matrix_deinit(struct kvad_matrix *matrix);

/** Whether a row is as it must be: reached, caught by KVAD_MATRIX_ENOUGH checks, nothing broken. */
bool kvad_matrix_row_is_good(const struct kvad_matrix_row *row);
/** Index of the check of this name, or n_checks. */
size_t kvad_matrix_column(const struct kvad_matrix *matrix, const char *check);

#endif
