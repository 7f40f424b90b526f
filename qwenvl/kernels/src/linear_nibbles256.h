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
    static __m256i low_bytes(const uint8_t* p, Code c) {
        const __m256i two = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return bytes(_mm256_and_si256(two, _mm256_set1_epi8(15)), c);
    }
    static __m256i high_bytes(const uint8_t* p, Code c) {
        const __m256i two = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return bytes(_mm256_and_si256(_mm256_srli_epi16(two, 4), _mm256_set1_epi8(15)), c);
    }
    static void keep(uint8_t* p, __m256i bytes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes); }
    static __m256i bytes(__m256i q, Code c) { return _mm256_add_epi8(_mm256_mullo_epi16(q, c.step), c.base); }
};

}  // namespace
