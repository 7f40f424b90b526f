// The int8 product with AVX-VNNI: the dot product of AVX512-VNNI in registers of half the width, half as many.
#include <immintrin.h>

#include "linear_blocks.h"
#include "linear_nibbles.h"
#include "linear_nibbles256.h"

namespace {

struct AvxVnni : Nibbles256 {
    using Sum = __m256i;
    using Weights = __m256i;
    using Input = __m256i;
    static constexpr int ROWS = 6, VECTORS = 2, WIDTH = 8;
    static Sum load(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
    static Weights weights(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static Input input(const int8_t* p) { return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p)); }
    static Sum dot(Sum sum, Weights w, Input a) { return _mm256_dpbusd_avx_epi32(sum, w, a); }
    static Weights raw_low(const uint8_t* p) { return raw_low_bytes(p); }
    static Weights raw_high(const uint8_t* p) { return raw_high_bytes(p); }
    static Weights ones() { return _mm256_set1_epi8(1); }
    static Weights low(const uint8_t* p, Code c) { return low_bytes(p, c); }
    static Weights high(const uint8_t* p, Code c) { return high_bytes(p, c); }
    static void store(int32_t* p, Sum sum) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), sum); }
};

}  // namespace

void qk::linear_avx_vnni(const Linear& task, const Scratch& scratch) { linear<AvxVnni>(task, scratch); }
