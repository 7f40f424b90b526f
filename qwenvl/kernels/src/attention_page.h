// From products of whole numbers to weights in whole numbers, for one row and one page of keys. Knows neither keys nor
// values but their scales.
#pragma once
#include "attention_weights.h"

namespace {

constexpr float MOST_WHOLE = 32767.0f;
constexpr int64_t PAGE_LANES = 16;  // a fixed order of additions that vectorises

// What a row has of the pages so far is multiplied by `before`, what this page adds to it by `now`.
struct Share {
    float before, now;
};

inline float largest_of(const float* x) {
    float lanes[PAGE_LANES];
    for (int64_t i = 0; i < PAGE_LANES; ++i) lanes[i] = x[i];
    for (int64_t j = PAGE_LANES; j < qk::PAGE; j += PAGE_LANES)
        for (int64_t i = 0; i < PAGE_LANES; ++i) lanes[i] = x[j + i] > lanes[i] ? x[j + i] : lanes[i];
    float most = lanes[0];
    for (int64_t i = 1; i < PAGE_LANES; ++i) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

inline float sum_of(const float* x) {
    float lanes[PAGE_LANES];
    for (int64_t i = 0; i < PAGE_LANES; ++i) lanes[i] = x[i];
    for (int64_t j = PAGE_LANES; j < qk::PAGE; j += PAGE_LANES)
        for (int64_t i = 0; i < PAGE_LANES; ++i) lanes[i] += x[j + i];
    for (int64_t half = PAGE_LANES / 2; half; half /= 2)
        for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

// `row` is the maximum and the sum of weights so far. Keys from `visible` on are none of this row's, and their scales
// may be anything.
inline Share weigh_page(const int32_t* products, float q_scale, const float* key_scales, const float* value_scales,
                        int64_t visible, float* row, int16_t* weights) {
    const int32_t seen = visible < 0 ? 0 : visible > qk::PAGE ? qk::PAGE : static_cast<int32_t>(visible);
    alignas(64) float scores[qk::PAGE], scales[qk::PAGE];
    for (int32_t j = 0; j < qk::PAGE; ++j) {
        const float score = static_cast<float>(products[j]) * (q_scale * key_scales[j]);
        scores[j] = j < seen ? score : qk::NOTHING;
        scales[j] = j < seen ? value_scales[j] : 0.0f;
    }
    const float most = largest_of(scores), joint = most > row[0] ? most : row[0];
    if (most == qk::NOTHING) {
        for (int64_t j = 0; j < qk::PAGE; ++j) weights[j] = 0;
        return {1.0f, 0.0f};
    }
    for (int64_t j = 0; j < qk::PAGE; ++j) scores[j] = exponential(scores[j] - most);
    const Share share{exponential(row[0] - joint), exponential(most - joint)};
    row[0] = joint;
    row[1] = row[1] * share.before + sum_of(scores) * share.now;
    // no weight is over 1, so none is over the largest scale of a value that is seen
    const Whole whole = whole_of(scales, qk::PAGE, MOST_WHOLE);
    for (int64_t j = 0; j < qk::PAGE; ++j)
        weights[j] = static_cast<int16_t>(nearest(scores[j] * scales[j] * whole.up));
    return {share.before, share.now * whole.down};
}

}  // namespace
