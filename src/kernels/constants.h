/* The constants of exp, Phi, tanh and quantising, shared by every level. Derivation:
 * docs/numerics.md. */
#ifndef KVAD_KERNELS_CONSTANTS_H
#define KVAD_KERNELS_CONSTANTS_H

/* exp. Below EXP_MIN the result is +0 (the smallest result is normal), above EXP_MAX infinity. */
#define EXP_MIN      (-87.33f)
#define EXP_MAX      0x1.62e42ep+6f /* the largest x with a finite e^x */
#define EXP_LOG2E    0x1.715476p+0f
#define EXP_SHIFT    0x1.8p+23f
#define EXP_LN2_HIGH 0x1.62e430p-1f
#define EXP_LN2_LOW  (-0x1.05c610p-29f)
#define EXP_C2       0x1.000000p-1f
#define EXP_C3       0x1.555556p-3f
#define EXP_C4       0x1.5554e8p-5f
#define EXP_C5       0x1.1110e0p-7f
#define EXP_C6       0x1.6d4362p-10f
#define EXP_C7       0x1.a12528p-13f

/* tanh(x) = x + x^3 P(x^2) for |x| < TANH_SPLIT. */
#define TANH_SPLIT 0.625f
#define TANH_C0    (-0x1.555532p-2f)
#define TANH_C1    0x1.110726p-3f
#define TANH_C2    (-0x1.b83c5ap-5f)
#define TANH_C3    0x1.52269cp-6f
#define TANH_C4    (-0x1.75e1d0p-8f)

/* gelu_tanh: 2 sqrt(2/pi) and the same times 0.044715. */
#define GELU_TANH_SCALE  0x1.988454p+0f
#define GELU_TANH_CUBE   0x1.2444f2p-4f
#define QUICK_GELU_SCALE 1.702f

/* Phi, the normal distribution: Phi(x) = 1/2 + x P(x^2) for |x| < 1. */
#define PHI_C0 0x1.988454p-2f
#define PHI_C1 (-0x1.105826p-4f)
#define PHI_C2 0x1.46cc3ep-7f
#define PHI_C3 (-0x1.36d8aep-10f)
#define PHI_C4 0x1.d9c178p-14f
#define PHI_C5 (-0x1.f4d38ap-18f)
/* Phi(-a) = e^(-a^2/2) T((a - 3) / (a + 3)) for 1 <= a; +0 from PHI_MAX on. */
#define PHI_MAX 14.0f
#define PHI_T0  0x1.f1b89cp-4f
#define PHI_T1  (-0x1.a6b66ap-3f)
#define PHI_T2  0x1.f8ba94p-4f
#define PHI_T3  (-0x1.7a945ep-5f)
#define PHI_T4  0x1.922392p-8f
#define PHI_T5  0x1.7c5f72p-9f
#define PHI_T6  (-0x1.08386ap-10f)
#define PHI_T7  (-0x1.4b7f8ep-12f)
#define PHI_T8  0x1.51ba1cp-13f

/* Quantised activations: a group below 2^-100 is zero. (Its scale might be subnormal.) */
#define QUANT_SMALLEST 0x1p-100f

#endif
