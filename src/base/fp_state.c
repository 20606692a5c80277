#include "base/fp_state.h"

#include "base/compiler.h"

#if defined(__x86_64__)

/* Intel SDM volume 1, 10.2.3: all exceptions masked, round to nearest, FTZ and DAZ off, no flag
 * set. The x87 unit takes no part in float and double arithmetic on x86-64. */
enum { MXCSR_DEFAULT = 0x1f80 };

struct kvad_fp_state kvad_fp_enter(void) {
    struct kvad_fp_state state = {_mm_getcsr(), 0};
    _mm_setcsr(MXCSR_DEFAULT);
    return state;
}

void kvad_fp_leave(struct kvad_fp_state state) {
    _mm_setcsr((unsigned)state.control);
}

#elif defined(__aarch64__)

/* Arm ARM, FPCR: all zero is round to nearest, no FZ, no FZ16, no default NaN, no traps. */
struct kvad_fp_state kvad_fp_enter(void) {
    struct kvad_fp_state state = {kvad_fpcr_read(), kvad_fpsr_read()};
    kvad_fpcr_write(0);
    return state;
}

void kvad_fp_leave(struct kvad_fp_state state) {
    kvad_fpcr_write(state.control);
    kvad_fpsr_write(state.status);
}

#else

#include <fenv.h>

/* ISO C knows the rounding direction only. */
struct kvad_fp_state kvad_fp_enter(void) {
    struct kvad_fp_state state = {(uint64_t)fegetround(), 0};
    fesetround(FE_TONEAREST);
    return state;
}

void kvad_fp_leave(struct kvad_fp_state state) {
    fesetround((int)state.control);
}

#endif
