// The int8 product with AVX512-VNNI: a tile of 6 rows by 64 outputs takes 24 of the 32 registers.
#include <immintrin.h>

#include "linear_blocks.h"

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
};

}  // namespace

void qk::linear_avx512_vnni(const Linear& task, const Scratch& scratch) { linear<Avx512Vnni>(task, scratch); }
