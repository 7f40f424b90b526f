// The rows of decoder.h, in plain loops that each instruction set compiles for itself.
#pragma once
#include "decoder.h"
#include "row_parts.h"

namespace {

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

// One row of a page of PAIRS: `words` is the page, `at` its token there.
inline void keep_key_pairs(const float* x, uint32_t* words, int64_t at, int64_t D) {
    for (int64_t i = 0; i < D / 2; ++i)
        words[i * qk::PAGE + at] = to_bfloat16(x[2 * i]) | static_cast<uint32_t>(to_bfloat16(x[2 * i + 1])) << 16;
}

inline void keep_value_pairs(const float* x, uint16_t* halves, int64_t at, int64_t D) {
    for (int64_t d = 0; d < D; ++d) halves[(at / 2 * D + d) * 2 + at % 2] = to_bfloat16(x[d]);
}

// One row of one head to the store; `scale` is its own, if it has one.
inline void keep_head(const float* x, void* store, int64_t at, int64_t D, int32_t kind, float* scale) {
    if (kind == qk::INT8) {
        *scale = to_whole(x, D, 127.0f, static_cast<int8_t*>(store) + at);
    } else if (kind == qk::BFLOAT16) {
        uint16_t* out = static_cast<uint16_t*>(store) + at;
        for (int64_t d = 0; d < D; ++d) out[d] = to_bfloat16(x[d]);
    } else {
        float* out = static_cast<float*>(store) + at;
        for (int64_t d = 0; d < D; ++d) out[d] = x[d];
    }
}

inline void place_query(const qk::Place& task, int64_t m, int64_t h) {
    const int64_t D = task.D;
    float* q = task.q + (m * task.H + h) * D;
    norm_row(task.qkv + (m * (task.H + 2 * task.G) + h) * D, task.q_norm, q, D, task.eps);
    rotate_head(q, task.cos + m * D, task.sin + m * D, D);
}

inline void place_key_and_value(const qk::Place& task, int64_t m, int64_t g) {
    const int64_t H = task.H, G = task.G, D = task.D, at = g * task.head + task.slots[m] * D;
    const float* row = task.qkv + (m * (H + 2 * G) + H + g) * D;
    float key[qk::MOST_PLACED];
    norm_row(row, task.k_norm, key, D, task.eps);
    rotate_head(key, task.cos + m * D, task.sin + m * D, D);
    if (task.kind == qk::PAIRS) {
        const int64_t slot = task.slots[m], page = g * task.head + slot / qk::PAGE * qk::PAGE * (D / 2);
        keep_key_pairs(key, static_cast<uint32_t*>(task.keys) + page, slot % qk::PAGE, D);
        keep_value_pairs(row + G * D, reinterpret_cast<uint16_t*>(static_cast<uint32_t*>(task.values) + page),
                         slot % qk::PAGE, D);
        return;
    }
    const bool scaled = task.kind == qk::INT8;
    const int64_t scale = g * task.scale_head + task.slots[m];
    keep_head(key, task.keys, at, D, task.kind, scaled ? task.key_scales + scale : nullptr);
    keep_head(row + G * D, task.values, at, D, task.kind, scaled ? task.value_scales + scale : nullptr);
}

// A thread's share: every thread of a team calls it.
inline void place_rows(const qk::Place& task) {
    const int64_t heads = task.H + task.G;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < task.M * heads; ++i) {
        const int64_t m = i / heads, h = i % heads;
        if (h < task.H)
            place_query(task, m, h);
        else
            place_key_and_value(task, m, h - task.H);
    }
}

inline void rms_norm_rows(const qk::RmsNorm& task) {
#pragma omp parallel for num_threads(task.threads) if (task.M >= qk::WORTH_THREADS)
    for (int64_t m = 0; m < task.M; ++m)
        norm_row(task.x + m * task.K, task.weight, task.out + m * task.K, task.K, task.eps);
}

inline void silu_mul_rows(const qk::SiluMul& task) {
    const int64_t I = task.I;
#pragma omp parallel for num_threads(task.threads) if (task.M >= qk::WORTH_THREADS)
    for (int64_t m = 0; m < task.M; ++m)
        silu_mul_row(task.gate_up + m * 2 * I, task.gate_up + (m * 2 + 1) * I, task.out + m * I, I);
}

}  // namespace
