/* What each CPU level brings to the table. Each function overwrites the fields that its level has;
 * only kvad_kernels_pick() calls them. */
#ifndef KVAD_KERNELS_LEVELS_H
#define KVAD_KERNELS_LEVELS_H

#include "kernels/kernels.h"

void kvad_kernels_baseline(struct kvad_kernels *kernels);
void kvad_kernels_portable(struct kvad_kernels *kernels);
#if defined(__x86_64__)
void kvad_kernels_avx2(struct kvad_kernels *kernels);
void kvad_kernels_avx2_quant(struct kvad_kernels *kernels);
void kvad_kernels_avx512(struct kvad_kernels *kernels);
void kvad_kernels_avx512_quant(struct kvad_kernels *kernels);
void kvad_kernels_avx512_vnni(struct kvad_kernels *kernels);
#elif defined(__aarch64__)
void kvad_kernels_neon(struct kvad_kernels *kernels);
void kvad_kernels_neon_quant(struct kvad_kernels *kernels);
void kvad_kernels_neon_dotprod(struct kvad_kernels *kernels);
#endif

#endif
