// Before and behind the integer product: rows are quantised, sums become floats. Knows nothing of instruction sets:
// each of them compiles this text for itself, so everything here has internal linkage and needs no library header
// whose functions a linker could swap for another set's.
#pragma once
#include "linear.h"
#include "row_parts.h"

namespace {

// Magnitude bits of floats order like the floats, and unlike float maxima they vectorise and keep NaN.
inline float row_maximum(const float* x, int64_t K) {
    const uint32_t* bits = reinterpret_cast<const uint32_t*>(x);
    uint32_t most = 0;
    for (int64_t k = 0; k < K; ++k) {
        uint32_t magnitude = bits[k] & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    Word word;
    word.u = most;
    return word.f;
}

// Row m as it is to be quantised: where it lies, or in `room` [K] once it went through what comes before.
inline const float* row_before(const qk::Linear& task, int64_t m, float* room) {
    const float* x = task.x + m * task.x_stride;
    switch (task.before) {
        case qk::RMS_NORM: norm_row(x, task.norm, room, task.K, task.eps); return room;
        case qk::SILU_MUL: silu_mul_row(x, x + task.K, room, task.K); return room;
        default: return x;
    }
}

// One row to int8: s = max|x| / 127, round(x / s) with ties to even. Bytes up to a whole group of inputs become zero.
inline void quantise_row(const float* x, int64_t K, int8_t* row, float* scale, int32_t* sum) {
    float s = row_maximum(x, K) / 127.0f;
    if (s < 1e-30f) s = 1e-30f;
    int32_t total = 0;
    for (int64_t k = 0; k < K; ++k) {
        Word word;
        word.f = x[k] / s + 12582912.0f;  // 1.5 * 2^23: the lowest bits now hold the rounded integer
        int32_t q = static_cast<int8_t>(word.u);
        row[k] = static_cast<int8_t>(q);
        total += q;
    }
    for (int64_t k = K; k < (K + qk::GROUP - 1) / qk::GROUP * qk::GROUP; ++k) row[k] = 0;
    *scale = s;
    *sum = total;
}

// x * (1 + tanh(u)) / 2 = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
inline float gelu_tanh(float x) {
    float u2 = 1.59576912f * (x + 0.044715f * x * x * x);
    return x / (1.0f + exponential(-u2));
}

// Integer sums of one row and panel, [64] in `dots`, to their place in the output.
inline void finish_row(const qk::Linear& task, int64_t m, int64_t panel, const int32_t* dots, float row_scale,
                       int32_t row_sum) {
    const int64_t n0 = panel * qk::PANEL;
    const int64_t columns = task.N - n0 < qk::PANEL ? task.N - n0 : qk::PANEL;
    const float* scale = task.scale + n0;
    const int32_t shift = row_sum * 128;
    float y[qk::PANEL];
    for (int n = 0; n < qk::PANEL; ++n) y[n] = static_cast<float>(dots[n] - shift) * scale[n] * row_scale;
    if (task.bias)
        for (int n = 0; n < qk::PANEL; ++n) y[n] += task.bias[n0 + n];
    if (task.activation == qk::GELU_TANH)
        for (int n = 0; n < qk::PANEL; ++n) y[n] = gelu_tanh(y[n]);
    float* out = task.out + m * task.N + n0;
    const float* residual = task.residual ? task.residual + m * task.N + n0 : nullptr;
    if (columns == qk::PANEL) {
        if (residual)
            for (int n = 0; n < qk::PANEL; ++n) y[n] += residual[n];
        for (int n = 0; n < qk::PANEL; ++n) out[n] = y[n];
        return;
    }
    for (int64_t n = 0; n < columns; ++n) out[n] = residual ? y[n] + residual[n] : y[n];
}

}  // namespace
