// Attention of few rows with AVX512.
#include <immintrin.h>

#include "attention_rows.h"

namespace {

struct Avx512 {
    using Reg = __m512;
    struct Pair {
        Reg first, second;
    };
    static constexpr int WIDTH = 16, KEYS = 4;
    static Reg zero() { return _mm512_setzero_ps(); }
    static Reg load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, Reg x) { _mm512_storeu_ps(p, x); }
    static Reg everywhere(float x) { return _mm512_set1_ps(x); }
    static Reg add_product(Reg sum, Reg a, Reg b) { return _mm512_fmadd_ps(a, b, sum); }
    static void totals(const Reg* four, float* out) {
        const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1]));
        const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(four[2], four[3]), _mm512_unpackhi_ps(four[2], four[3]));
        const __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
        const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
    }
    static Pair halves(const uint16_t* p) {
        const __m512i both = _mm512_loadu_si512(p);
        const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)), _mm512_castsi512_ps(_mm512_and_si512(both, high))};
    }
};

}  // namespace

void qk::paged_rows_avx512(const Paged& task, const Span* spans, int64_t count) {
    paged_rows_of<Avx512>(task, spans, count);
}
