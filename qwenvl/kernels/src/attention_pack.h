// Keys and values laid out for products of bfloat16 pairs. Knows rows, pages and shuffles, nothing of attention.
#pragma once
#include <immintrin.h>

#include "attention_bf16.h"

namespace {

using qk::Job;

constexpr int64_t PANEL = 64;  // keys, or columns, side by side in four registers

// Memory to be asked for while something else is computed: a page of rows that lie one behind the other.
struct Ahead {
    const char* at = nullptr;

    void fetch(int64_t lines) {
        if (!at) return;
        for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + i * 64, 0, 2);
        at += lines * 64;
    }
};

inline const void* row_of(const Job& job, const void* base, int64_t stride, int64_t j) {
    const int64_t row = job.pages ? job.pages[j / qk::PAGE] * qk::PAGE + j % qk::PAGE : j;
    return static_cast<const char*>(base) + row * stride * (job.bfloat16 ? 2 : 4);
}

// 32 elements of a row as bfloat16, from either kind of store.
inline __m512i load32(const Job& job, const void* row, int64_t d) {
    if (job.bfloat16) return _mm512_loadu_si512(static_cast<const uint16_t*>(row) + d);
    const float* x = static_cast<const float*>(row) + d;
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

// 64 keys from `first` on, of which `count` are there: panel[D / 2][64] of the pairs of elements 2i and 2i + 1.
inline void pack_keys(const Job& job, int64_t first, int64_t count, uint32_t* panel, Ahead& ahead) {
    for (int64_t j = 0; j < PANEL; j += 16) {
        const void* rows[16];
        for (int64_t i = 0; i < 16; ++i)
            rows[i] = j + i < count ? row_of(job, job.keys, job.k_row, first + j + i) : nullptr;
        for (int64_t d = 0; d < job.D; d += 32) {
            __m512i x[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) x[i] = rows[i] ? load32(job, rows[i], d) : _mm512_setzero_si512();
            transpose(x);
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) _mm512_store_si512(panel + (d / 2 + i) * PANEL + j, x[i]);
            ahead.fetch(8);
        }
    }
}

// 64 values from `first` on, of which `count` are there: panel[32][D] of the pairs of values 2j and 2j + 1.
inline void pack_values(const Job& job, int64_t first, int64_t count, uint32_t* panel, Ahead& ahead) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t j = 0; j < PANEL; j += 2, panel += job.D) {
        const void* even = j < count ? row_of(job, job.values, job.v_row, first + j) : nullptr;
        const void* odd = j + 1 < count ? row_of(job, job.values, job.v_row, first + j + 1) : nullptr;
        for (int64_t d = 0; d < job.D; d += 32) {
            const __m512i a = even ? load32(job, even, d) : _mm512_setzero_si512();
            const __m512i b = odd ? load32(job, odd, d) : _mm512_setzero_si512();
            _mm512_store_si512(panel + d, _mm512_permutex2var_epi16(a, low, b));
            _mm512_store_si512(panel + d + 16, _mm512_permutex2var_epi16(a, high, b));
            ahead.fetch(1);
        }
    }
}

}  // namespace
