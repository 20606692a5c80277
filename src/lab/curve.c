#include "lab/curve.h"

double kvad_curve_at(const struct kvad_curve *curve, double context) {
    size_t i = 0;
    while (i < curve->n && curve->contexts[i] < context)
        i++;
    if (i == 0) return curve->ms[0];
    if (i == curve->n) return curve->ms[i - 1];
    if (curve->contexts[i] == context) return curve->ms[i]; /* to the bit */
    double left = curve->contexts[i - 1], right = curve->contexts[i];
    double share = (context - left) / (right - left);
    return curve->ms[i - 1] + share * (curve->ms[i] - curve->ms[i - 1]);
}

double kvad_curve_seconds(const struct kvad_curve *curve, size_t first, size_t n) {
    double ms = 0;
    for (size_t i = 0; i < n; i++)
        ms += kvad_curve_at(curve, (double)(first + i));
    return ms * 1e-3;
}
