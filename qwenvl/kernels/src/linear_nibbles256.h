// How 4-bit weights become unsigned bytes in registers of 256 bits; see linear_nibbles.h.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct Nibbles256 {
    struct Code {
        __m256i step, base;
    };
    static constexpr int NIBBLE_SUMS = 8;
    static Code code(const uint8_t* p) {
        const __m256i each = _mm256_set_epi64x(0x0707070706060606, 0x0505050504040404, 0x0303030302020202,
                                               0x0101010100000000);
        const __m256i codes = _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
        const __m256i four = _mm256_shuffle_epi8(codes, each);
        const __m256i step = _mm256_add_epi16(_mm256_and_si256(four, _mm256_set1_epi16(15)), _mm256_set1_epi16(1));
        const __m256i zero = _mm256_and_si256(_mm256_srli_epi16(four, 4), _mm256_set1_epi8(15));
        return {step, _mm256_sub_epi8(_mm256_set1_epi8(-128), _mm256_mullo_epi16(zero, step))};
    }
    static __m256i low_bytes(const uint8_t* p, Code c) { return bytes(raw_low_bytes(p), c); }
    static __m256i high_bytes(const uint8_t* p, Code c) { return bytes(raw_high_bytes(p), c); }
    struct Grid {
        __m256i step, zero;
    };
    static Grid grid(const uint8_t* p) {
        const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
        const __m256i step = _mm256_add_epi32(_mm256_and_si256(code, _mm256_set1_epi32(15)), _mm256_set1_epi32(1));
        return {step, _mm256_srli_epi32(code, 4)};
    }
    static __m256i raw_low_bytes(const uint8_t* p) {
        return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi8(15));
    }
    static __m256i raw_high_bytes(const uint8_t* p) {
        const __m256i two = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return _mm256_and_si256(_mm256_srli_epi16(two, 4), _mm256_set1_epi8(15));
    }
    static __m256i zero() { return _mm256_setzero_si256(); }
    static __m256i scaled(__m256i sum, __m256i raw, Grid grid, __m256i inputs) {
        const __m256i centred = _mm256_sub_epi32(raw, _mm256_madd_epi16(grid.zero, inputs));
        return _mm256_add_epi32(sum, _mm256_mullo_epi32(grid.step, centred));
    }
    static void keep(uint8_t* p, __m256i bytes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes); }
    static __m256i bytes(__m256i q, Code c) { return _mm256_add_epi8(_mm256_mullo_epi16(q, c.step), c.base); }
};

}  // namespace
