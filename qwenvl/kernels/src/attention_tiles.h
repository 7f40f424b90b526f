// The products of attention in bfloat16: tiles of up to 6 rows by 64 keys, or 64 columns, held in registers. Knows
// packed panels and rows; nothing of heads or pages.
#pragma once
#include "attention_pack.h"

namespace {

constexpr int64_t TILE = 6;        // rows
constexpr int64_t STRIDE = 512;    // scores and weights of a row: the longest block
constexpr float NOTHING = qk::NOTHING;

inline __m512bh pairs(__m512i x) { return reinterpret_cast<__m512bh>(x); }

inline __m512bh everywhere(const uint16_t* pair) {
    return pairs(_mm512_set1_epi32(*reinterpret_cast<const int32_t*>(pair)));
}

// 2^x for x <= 0, to 4e-6 relative; exactly 1 at 0.
inline __m512 power_of_two(__m512 x) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 part = _mm512_sub_ps(x, whole);
    __m512 p = _mm512_set1_ps(0.0096760371f);
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.0559220356f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.240221074f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.693121034f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, whole);
}

inline float power_of_two(float x) { return _mm512_cvtss_f32(power_of_two(_mm512_set1_ps(x))); }

// scores[R][64] of a panel of keys, and the largest of each row so far in each of 16 lanes.
template <int R, int LINES>
inline void score_tile(const uint16_t* q, const uint32_t* keys, int64_t D, float* scores, __m512* most, Ahead& ahead) {
    __m512 sums[R][4];
    const char* soon = ahead.at;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_ps();
    for (int64_t i = 0; i < D / 2; ++i, keys += PANEL) {
        __m512bh k[4];
#pragma GCC unroll 4
        for (int c = 0; c < LINES; ++c) __builtin_prefetch(soon + c * 64, 0, 2);
        soon += LINES * 64;
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) k[c] = pairs(_mm512_loadu_si512(keys + c * 16));
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const __m512bh a = everywhere(q + r * D + 2 * i);
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_dpbf16_ps(sums[r][c], k[c], a);
        }
    }
    if (LINES) ahead.at = soon;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) _mm512_store_ps(scores + r * STRIDE + c * 16, sums[r][c]);
        most[r] = _mm512_max_ps(most[r], _mm512_max_ps(_mm512_max_ps(sums[r][0], sums[r][1]),
                                                       _mm512_max_ps(sums[r][2], sums[r][3])));
    }
}

// sums[R][D] += weights[R] . values for C * 16 columns and `count` keys; `fresh` sums begin at zero.
template <int R, int C, int LINES>
inline void value_tile(const uint16_t* weights, const uint32_t* values, int64_t count, int64_t D, bool fresh,
                       float* sums, Ahead& ahead) {
    __m512 s[R][C];
    const char* soon = ahead.at;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) s[r][c] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * D + c * 16);
    for (int64_t j = 0; j < count; j += 2, values += D) {
        __m512bh v[C];
#pragma GCC unroll 4
        for (int c = 0; c < LINES; ++c) __builtin_prefetch(soon + c * 64, 0, 2);
        soon += LINES * 64;
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) v[c] = pairs(_mm512_loadu_si512(values + c * 16));
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const __m512bh w = everywhere(weights + r * STRIDE + j);
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) s[r][c] = _mm512_dpbf16_ps(s[r][c], v[c], w);
        }
    }
    if (LINES) ahead.at = soon;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) _mm512_store_ps(sums + r * D + c * 16, s[r][c]);
}

// The same for all columns.
template <int R, int LINES>
inline void values_of_rows(const uint16_t* weights, const uint32_t* values, int64_t count, int64_t D, bool fresh,
                           float* sums, Ahead& ahead) {
    int64_t d = 0;
    for (; d + PANEL <= D; d += PANEL)
        value_tile<R, 4, LINES>(weights, values + d, count, D, fresh, sums + d, ahead);
    if (d < D) value_tile<R, 2, LINES>(weights, values + d, count, D, fresh, sums + d, ahead);
}

// Keys from `visible` on are none of this row's; its largest score is looked for again.
inline __m512 hide(float* scores, int64_t visible, int64_t count) {
    __m512 most = _mm512_set1_ps(NOTHING);
    for (int64_t j = 0; j < count; j += 16) {
        const int64_t left = visible - j;
        const __mmask16 seen = left >= 16 ? 0xffff : left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
        const __m512 x = _mm512_mask_blend_ps(seen, _mm512_set1_ps(NOTHING), _mm512_load_ps(scores + j));
        _mm512_store_ps(scores + j, x);
        most = _mm512_max_ps(most, x);
    }
    return most;
}

// One row's scores to weights in bfloat16, under the largest score of the block (which comes back), and their sum.
inline float weigh(const float* scores, int64_t count, __m512 lanes, float* weight, uint16_t* weights) {
    const float most = _mm512_reduce_max_ps(lanes);
    if (most == NOTHING) {
        for (int64_t j = 0; j < count; ++j) weights[j] = 0;
        *weight = 0;
        return most;
    }
    const __m512 base = _mm512_set1_ps(most);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    for (int64_t j = 0; j < count; j += 32) {
        const __m512 p0 = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + j), base));
        const __m512 p1 = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + j + 16), base));
        sum0 = _mm512_add_ps(sum0, p0);
        sum1 = _mm512_add_ps(sum1, p1);
        _mm512_store_si512(weights + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p1, p0)));
    }
    *weight = _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
    return most;
}

// What a row has over some keys: weighted sums of values [D], under a maximum, and the sum of weights.
struct Part {
    float* sums;
    float *most, *weight;
};

// Add a block's part to a row's. The first one passes unchanged, one over no visible keys changes nothing.
inline void join(const Part& row, const Part& block, int64_t D) {
    const float most = *block.most > *row.most ? *block.most : *row.most;
    const float a = power_of_two(*row.most - most), b = power_of_two(*block.most - most);
    for (int64_t d = 0; d < D; d += 16) {
        const __m512 old = _mm512_mul_ps(_mm512_load_ps(row.sums + d), _mm512_set1_ps(a));
        _mm512_store_ps(row.sums + d, _mm512_fmadd_ps(_mm512_load_ps(block.sums + d), _mm512_set1_ps(b), old));
    }
    *row.weight = *row.weight * a + *block.weight * b;
    *row.most = most;
}

}  // namespace
