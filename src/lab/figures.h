/* Numbers as people read them: three significant digits with a unit that fits, which does not part
 * from its number at the end of a line (U+00A0). */
#ifndef KVAD_LAB_FIGURES_H
#define KVAD_LAB_FIGURES_H

#include <stddef.h>

enum kvad_figure {
    KVAD_FIGURE_NUMBER,  /* 0.0312, 4.56, 1,230 */
    KVAD_FIGURE_COUNT,   /* 1,016 */
    KVAD_FIGURE_ERROR,   /* 3.1e-06; 0 */
    KVAD_FIGURE_BYTES,   /* 512 bytes, 72 KiB, 18.4 MiB */
    KVAD_FIGURE_MS,      /* 480 µs, 3.12 ms, 14.7 s */
    KVAD_FIGURE_RATIO,   /* 6.31× */
    KVAD_FIGURE_PERCENT, /* 96.4 % */
    KVAD_FIGURE_FLOPS,   /* 5.73 MFLOP */
    KVAD_FIGURE_GB_S,    /* 12.3 GB/s */
    KVAD_FIGURE_GFLOP_S  /* 81.2 GFLOP/s */
};

/** `value` into `out`; "–" where it is not finite. Returns `out`. UTF-8. */
enum { KVAD_FIGURE_SIZE = 40 };
const char *kvad_figure(enum kvad_figure kind, double value, char out[KVAD_FIGURE_SIZE]);

/** The same for the marks of an axis: without zeros at the end of a fraction, errors as 1e-07. */
const char *kvad_figure_short(enum kvad_figure kind, double value, char out[KVAD_FIGURE_SIZE]);

/** The shortest digits that read back as the same double, for files: "0.1", "1e-05". */
void kvad_figure_exact(double value, char out[KVAD_FIGURE_SIZE]);

#endif
