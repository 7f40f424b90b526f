// The int8 product with AVX2. Exact: bytes are widened to 16 bits first, because the instruction that multiplies them
// directly adds two products in 16 bits and saturates.
#include <immintrin.h>

#include "linear_blocks.h"
#include "linear_nibbles.h"
#include "linear_nibbles256.h"

namespace {

struct Avx2 : Nibbles256 {
    // even and odd bytes of each 32-bit group, as 16-bit numbers
    struct Pair {
        __m256i even, odd;
    };
    using Sum = __m256i;
    using Weights = Pair;
    using Input = Pair;
    static constexpr int ROWS = 4, VECTORS = 2, WIDTH = 8;
    static Sum load(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
    static Weights split(__m256i w) {
        return {_mm256_and_si256(w, _mm256_set1_epi16(255)), _mm256_srli_epi16(w, 8)};
    }
    static Weights weights(const uint8_t* p) {
        return split(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static Weights raw_low(const uint8_t* p) { return split(raw_low_bytes(p)); }
    static Weights raw_high(const uint8_t* p) { return split(raw_high_bytes(p)); }
    static Weights ones() { return split(_mm256_set1_epi8(1)); }
    static Weights low(const uint8_t* p, Code c) { return split(low_bytes(p, c)); }
    static Weights high(const uint8_t* p, Code c) { return split(high_bytes(p, c)); }
    static Input input(const int8_t* p) {
        __m256i a = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p));
        return {_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8), _mm256_srai_epi16(a, 8)};
    }
    static Sum dot(Sum sum, Weights w, Input a) {
        __m256i even = _mm256_madd_epi16(w.even, a.even), odd = _mm256_madd_epi16(w.odd, a.odd);
        return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
    }
    static void store(int32_t* p, Sum sum) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), sum); }
};

}  // namespace

void qk::linear_avx2(const Linear& task, const Scratch& scratch) { linear<Avx2>(task, scratch); }
