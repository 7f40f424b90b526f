// What a row goes through before a product, in plain loops that each instruction set compiles for itself. Sums are of
// 16 lanes in a fixed order, so a row's bits are the same whoever is beside it.
#pragma once
#include "floats.h"

namespace {

constexpr int64_t LANES = 16;

inline float sum_of_squares(const float* x, int64_t K) {
    float lanes[LANES] = {};
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES)
        for (int64_t i = 0; i < LANES; ++i) lanes[i] += x[k + i] * x[k + i];
    float total = 0;
    for (int64_t i = 0; i < LANES; ++i) total += lanes[i];
    for (; k < K; ++k) total += x[k] * x[k];
    return total;
}

inline void norm_row(const float* x, const float* weight, float* out, int64_t K, float eps) {
    const float scale = 1.0f / __builtin_sqrtf(sum_of_squares(x, K) / static_cast<float>(K) + eps);
    for (int64_t k = 0; k < K; ++k) out[k] = x[k] * scale * weight[k];
}

// By value: a bound that a store might change keeps a loop from being vectorised.
inline void silu_mul_row(const float* gate, const float* up, float* out, int64_t I) {
    for (int64_t i = 0; i < I; ++i) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

}  // namespace
