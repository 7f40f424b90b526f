// Keys and values as products of bfloat16 pairs take them: found in a page, or laid out. Knows rows, pages and
// shuffles, nothing of attention.
#pragma once
#include <immintrin.h>

#include "attention_bf16.h"

namespace {

using qk::Job;

constexpr int64_t PANEL = 64;  // keys, or columns, side by side in four registers

// A page to be asked for while something else is computed, if any.
struct Ahead {
    const char* at = nullptr;
};

// Page of a store of PAIRS that holds key j, the first of it.
inline const uint32_t* page_of(const Job& job, const void* base, int64_t j) {
    return static_cast<const uint32_t*>(base) + job.pages[j / qk::PAGE] * qk::PAGE * (job.D / 2);
}

// 32 elements of a row as bfloat16.
inline __m512i load32(const float* x) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)));
}

// 16 registers of 16 numbers: rows become columns.
inline void transpose(__m512i (&x)[16]) {
    __m512i y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    // x[4 g + c] has in its 128-bit lane l the column 4 l + c of rows 4 g .. 4 g + 3
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i even0 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
        const __m512i even1 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
        const __m512i odd0 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
        const __m512i odd1 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
        y[c] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        y[8 + c] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        y[4 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        y[12 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) x[i] = y[i];
}

// 64 rows of float32 keys from `first` on, of which `count` are there, as a page of PAIRS has them.
inline void pack_keys(const Job& job, int64_t first, int64_t count, uint32_t* panel) {
    const float* keys = static_cast<const float*>(job.keys) + first * job.k_row;
    for (int64_t j = 0; j < PANEL; j += 16)
        for (int64_t d = 0; d < job.D; d += 32) {
            __m512i x[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i)
                x[i] = j + i < count ? load32(keys + (j + i) * job.k_row + d) : _mm512_setzero_si512();
            transpose(x);
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) _mm512_store_si512(panel + (d / 2 + i) * PANEL + j, x[i]);
        }
}

// The same of values.
inline void pack_values(const Job& job, int64_t first, int64_t count, uint32_t* panel) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const float* values = static_cast<const float*>(job.values) + first * job.v_row;
    for (int64_t j = 0; j < PANEL; j += 2, panel += job.D)
        for (int64_t d = 0; d < job.D; d += 32) {
            const float* row = values + j * job.v_row + d;
            const __m512i a = j < count ? load32(row) : _mm512_setzero_si512();
            const __m512i b = j + 1 < count ? load32(row + job.v_row) : _mm512_setzero_si512();
            _mm512_store_si512(panel + d, _mm512_permutex2var_epi16(a, low, b));
            _mm512_store_si512(panel + d + 16, _mm512_permutex2var_epi16(a, high, b));
        }
}

// The first `count` values of a page of PAIRS, and zeros: what lies behind them may be no number at all.
inline void first_values(const uint32_t* page, int64_t count, int64_t D, uint32_t* panel) {
    for (int64_t j = 0; j < PANEL; j += 2, page += D, panel += D)
        for (int64_t d = 0; d < D; d += 16) {
            const __m512i seen = _mm512_set1_epi32(j + 1 < count ? -1 : j < count ? 0xffff : 0);
            _mm512_store_si512(panel + d, _mm512_and_si512(_mm512_loadu_si512(page + d), seen));
        }
}

}  // namespace
