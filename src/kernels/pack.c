/* Weights into panels. */
#include "kernels/kernels.h"

void kvad_pack_panels_f32(float *panels, const float *w, size_t n, size_t k, size_t row_stride,
                          size_t k_stride, size_t first_panel, size_t last_panel) {
    for (size_t panel = first_panel; panel < last_panel; panel++) {
        size_t row = panel * KVAD_PANEL;
        size_t n_used = row < n ? n - row : 0;
        if (n_used > KVAD_PANEL) n_used = KVAD_PANEL;
        float *out = panels + panel * k * KVAD_PANEL;
        for (size_t i = 0; i < k; i++, out += KVAD_PANEL) {
            const float *in = w + row * row_stride + i * k_stride;
            for (size_t j = 0; j < n_used; j++)
                out[j] = in[j * row_stride];
            for (size_t j = n_used; j < KVAD_PANEL; j++)
                out[j] = 0.0f;
        }
    }
}
