// The rows of decoder.h, in plain loops that each instruction set compiles for itself. Sums are of 16 lanes in a fixed
// order, so a row's bits are the same whoever is beside it.
#pragma once
#include "decoder.h"
#include "floats.h"

namespace {

constexpr int64_t LANES = 16;
constexpr int64_t WORTH_THREADS = 16;  // rows; fewer are done before a second thread has woken up

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

// The two halves of a head are one complex number each.
inline void rotate_head(float* x, const float* cos, const float* sin, int64_t D) {
    for (int64_t d = 0; d < D / 2; ++d) {
        const float a = x[d], b = x[d + D / 2];
        x[d] = a * cos[d] - b * sin[d];
        x[d + D / 2] = b * cos[d + D / 2] + a * sin[d + D / 2];
    }
}

// To the nearest bfloat16, ties to even, NaN stays NaN.
inline uint16_t to_bfloat16(float x) {
    Word word;
    word.f = x;
    const uint32_t rounded = word.u + 0x7fffu + (word.u >> 16 & 1u);
    return static_cast<uint16_t>((x != x ? word.u | 0x400000u : rounded) >> 16);
}

inline void keep_head(const float* x, void* store, int64_t at, int64_t D, bool bfloat16) {
    if (bfloat16) {
        uint16_t* out = static_cast<uint16_t*>(store) + at;
        for (int64_t d = 0; d < D; ++d) out[d] = to_bfloat16(x[d]);
    } else {
        float* out = static_cast<float*>(store) + at;
        for (int64_t d = 0; d < D; ++d) out[d] = x[d];
    }
}

inline void place_row(const qk::Place& task, int64_t m) {
    const int64_t H = task.H, G = task.G, D = task.D;
    const float* row = task.qkv + m * (H + 2 * G) * D;
    const float *cos = task.cos + m * D, *sin = task.sin + m * D;
    for (int64_t h = 0; h < H; ++h) {
        float* q = task.q + (m * H + h) * D;
        norm_row(row + h * D, task.q_norm, q, D, task.eps);
        rotate_head(q, cos, sin, D);
    }
    float key[512];
    for (int64_t g = 0; g < G; ++g) {
        const int64_t at = g * task.head + task.slots[m] * D;
        norm_row(row + (H + g) * D, task.k_norm, key, D, task.eps);
        rotate_head(key, cos, sin, D);
        keep_head(key, task.keys, at, D, task.bfloat16);
        keep_head(row + (H + G + g) * D, task.values, at, D, task.bfloat16);
    }
}

inline void rms_norm_rows(const qk::RmsNorm& task) {
#pragma omp parallel for num_threads(task.threads) if (task.M >= WORTH_THREADS)
    for (int64_t m = 0; m < task.M; ++m)
        norm_row(task.x + m * task.K, task.weight, task.out + m * task.K, task.K, task.eps);
}

// By value: a bound that a store might change keeps a loop from being vectorised.
inline void silu_mul_row(const float* gate, const float* up, float* out, int64_t I) {
    for (int64_t i = 0; i < I; ++i) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

inline void silu_mul_rows(const qk::SiluMul& task) {
    const int64_t I = task.I;
#pragma omp parallel for num_threads(task.threads) if (task.M >= WORTH_THREADS)
    for (int64_t m = 0; m < task.M; ++m)
        silu_mul_row(task.gate_up + m * 2 * I, task.gate_up + (m * 2 + 1) * I, task.out + m * I, I);
}

inline void place_rows(const qk::Place& task) {
#pragma omp parallel for num_threads(task.threads) if (task.M >= WORTH_THREADS)
    for (int64_t m = 0; m < task.M; ++m) place_row(task, m);
}

}  // namespace
