// The int8 product with AVX512-VNNI: a tile of 6 rows by 64 outputs takes 24 of the 32 registers.
#include <immintrin.h>

#include "linear_blocks.h"
#include "linear_nibbles.h"

namespace {

struct Avx512Vnni {
    using Sum = __m512i;
    using Weights = __m512i;
    using Input = __m512i;
    static constexpr int ROWS = 6, VECTORS = 4, WIDTH = 16;
    static Sum load(const int32_t* p) { return _mm512_load_si512(p); }
    static Weights weights(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static Input input(const int8_t* p) { return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p)); }
    static Sum dot(Sum sum, Weights w, Input a) { return _mm512_dpbusd_epi32(sum, w, a); }
    static void store(int32_t* p, Sum sum) { _mm512_store_si512(p, sum); }

    // weights in 4 bits: see linear_nibbles.h
    struct Code {
        __m512i step, base;
    };
    static constexpr int NIBBLE_SUMS = 16;
    static Code code(const uint8_t* p) {
        const __m512i each = _mm512_set_epi64(0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a,
                                              0x0909090908080808, 0x0707070706060606, 0x0505050504040404,
                                              0x0303030302020202, 0x0101010100000000);
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        const __m512i four = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), each);
        const __m512i step = _mm512_add_epi16(_mm512_and_si512(four, _mm512_set1_epi16(15)), _mm512_set1_epi16(1));
        const __m512i zero = _mm512_and_si512(_mm512_srli_epi16(four, 4), _mm512_set1_epi8(15));
        return {step, _mm512_sub_epi8(_mm512_set1_epi8(-128), _mm512_mullo_epi16(zero, step))};
    }
    static __m512i low_bytes(const uint8_t* p, Code c) {
        return _mm512_add_epi8(_mm512_mullo_epi16(raw_low(p), c.step), c.base);
    }
    static __m512i high_bytes(const uint8_t* p, Code c) {
        return _mm512_add_epi8(_mm512_mullo_epi16(raw_high(p), c.step), c.base);
    }
    static Weights low(const uint8_t* p, Code c) { return low_bytes(p, c); }
    static Weights high(const uint8_t* p, Code c) { return high_bytes(p, c); }
    struct Grid {
        __m512i step, zero;
    };
    static Grid grid(const uint8_t* p) {
        const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        const __m512i step = _mm512_add_epi32(_mm512_and_si512(code, _mm512_set1_epi32(15)), _mm512_set1_epi32(1));
        return {step, _mm512_srli_epi32(code, 4)};
    }
    static Weights raw_low(const uint8_t* p) {
        return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
    }
    static Weights raw_high(const uint8_t* p) {
        return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(p), 4), _mm512_set1_epi8(15));
    }
    static Weights ones() { return _mm512_set1_epi8(1); }
    static Sum zero() { return _mm512_setzero_si512(); }
    static Sum scaled(Sum sum, Sum raw, Grid grid, Sum inputs) {
        const __m512i centred = _mm512_sub_epi32(raw, _mm512_madd_epi16(grid.zero, inputs));
        return _mm512_add_epi32(sum, _mm512_mullo_epi32(grid.step, centred));
    }
    static void keep(uint8_t* p, __m512i bytes) { _mm512_storeu_si512(p, bytes); }
};

}  // namespace

void qk::linear_avx512_vnni(const Linear& task, const Scratch& scratch) { linear<Avx512Vnni>(task, scratch); }
