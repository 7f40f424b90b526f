// From scores to weights, a block of keys at a time, for any kind of keys. Knows neither keys nor values.
#pragma once
#include "attention.h"
#include "floats.h"

namespace {

constexpr int64_t BLOCK = 32;  // keys whose weights are found before their values are added; divides a page

inline void fetch(const void* row, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at, 0, 2);
}

// Scores of one row to weights, under its running maximum; what was summed so far is scaled down to a new one.
// `row` is [D] sums, maximum, sum of weights. Keys from `visible` on are none of this row's.
inline void weigh(float* scores, int64_t visible, float* row, int64_t D) {
    for (int64_t j = visible < 0 ? 0 : visible; j < BLOCK; ++j) scores[j] = qk::NOTHING;
    float lanes[8];
    for (int64_t i = 0; i < 8; ++i) lanes[i] = row[D];
    for (int64_t j = 0; j < BLOCK; j += 8)
        for (int64_t i = 0; i < 8; ++i) lanes[i] = scores[j + i] > lanes[i] ? scores[j + i] : lanes[i];
    float most = row[D];
    for (int64_t i = 0; i < 8; ++i) most = lanes[i] > most ? lanes[i] : most;
    if (most == qk::NOTHING) {
        for (int64_t j = 0; j < BLOCK; ++j) scores[j] = 0;
        return;
    }
    if (most != row[D]) {
        const float shrink = exponential(row[D] - most);
        for (int64_t d = 0; d < D; ++d) row[d] *= shrink;
        row[D + 1] *= shrink;
        row[D] = most;
    }
    for (int64_t j = 0; j < BLOCK; ++j) scores[j] = exponential(scores[j] - most);
    for (int64_t i = 0; i < 8; ++i) lanes[i] = 0;  // a fixed order of additions that still vectorises
    for (int64_t j = 0; j < BLOCK; j += 8)
        for (int64_t i = 0; i < 8; ++i) lanes[i] += scores[j + i];
    for (int64_t i = 0; i < 8; ++i) row[D + 1] += lanes[i];
}

}  // namespace
