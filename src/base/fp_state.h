/* The floating-point environment in which every result is defined: round to nearest even, no
 * flush to zero, no denormals-are-zero, no traps. Hosts (audio code, -ffast-math libraries) change
 * it for their threads; a step sets its own and gives theirs back. */
#ifndef KVAD_BASE_FP_STATE_H
#define KVAD_BASE_FP_STATE_H

#include <stdint.h>

/* What kvad_fp_enter() found: MXCSR on x86-64, FPCR and FPSR on aarch64. */
struct kvad_fp_state {
    uint64_t control, status;
};

/** Set the environment of the calling thread to the defined one; returns the one before. These are
 * calls, not inline code, so that the compiler moves no arithmetic across them. */
struct kvad_fp_state kvad_fp_enter(void);
/** Put back what kvad_fp_enter() returned, sticky exception flags included. */
void kvad_fp_leave(struct kvad_fp_state state);

#endif
