/* How weights and quantised activations lie in memory, and the way into that layout.
 *
 * Weights are panels of KVAD_PANEL outputs, [n/16][k][16]: one layout for every number of rows. */
#ifndef KVAD_KERNELS_WEIGHTS_H
#define KVAD_KERNELS_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "kvad/kvad.h"

enum { KVAD_PANEL = 16 }; /* outputs of one weight panel, side by side */

/* Quantised weights and activations in groups of KVAD_GROUP along k; the last group may be short:
 * its missing quants are 0.
 *
 * A panel is a row of superblocks of two groups (of the second one nothing counts when the number
 * of groups is odd):
 *   uint16_t scale[2][16]          f16, of output j in group 0 and 1
 *   q8: uint8_t quant[2][8][16][4] quant + 128 of input 4 * quad + i; quad, output, i
 *   q4: uint8_t quant[2][4][16][4] quant + 8; byte (c, output, i): input 8 * c + i in its low half,
 *                                  8 * c + 4 + i in its high half
 * Four inputs of one output lie side by side for integer dot products, and no group crosses more
 * cache lines than it must.
 *
 * A quantised activation row, every quant from -127 to 127:
 *   int8_t quant[32 * groups]
 *   float scale[groups]
 *   int32_t offset[groups]         -8 * the sum of the group's quants
 * The offset undoes the 8 that is added to the quants of q4; 16 times it undoes the 128 of q8. */
enum { KVAD_GROUP = 32, KVAD_Q8_SUPERBLOCK = 64 + 1024, KVAD_Q4_SUPERBLOCK = 64 + 512 };

static inline size_t kvad_quant_groups(size_t k) {
    return (k + KVAD_GROUP - 1) / KVAD_GROUP;
}
/** Bytes from one quantised activation row to the next: a multiple of 64. */
static inline size_t kvad_quant_row_bytes(size_t k) {
    return (kvad_quant_groups(k) * (KVAD_GROUP + 8) + 63) / 64 * 64;
}

/** Weights [n][k] (row n at w + n * row_stride, element k at + k * k_stride, in floats) into panels
 * [ceil(n/16)][k][16] for the panels [first, last); columns beyond n are +0. */
void kvad_pack_panels_f32(float *panels, const float *w, size_t n, size_t k, size_t row_stride,
                          size_t k_stride, size_t first_panel, size_t last_panel);

/** Bytes of one panel of weights with k inputs: a multiple of 64 but for f32, bf16 and f16 with odd
 * k. */
size_t kvad_panel_bytes(enum kvad_weight_type type, size_t k);
/** A panel of floats [k][16] to another type's panel. The same bits on every CPU. */
void kvad_convert_panel(enum kvad_weight_type type, void *out, const float *panel, size_t k);
/** Row `lane` (0 to 15) of a panel as floats, exactly: what the panel's quants and scales mean. */
void kvad_panel_row(enum kvad_weight_type type, const void *panel, size_t lane, size_t k,
                    float *out);

#endif
