// Attention of few rows with AVX2.
#include <immintrin.h>

#include "attention_rows.h"

namespace {

struct Avx2 {
    using Reg = __m256;
    struct Pair {
        Reg first, second;
    };
    static constexpr int WIDTH = 8, KEYS = 4;
    static Reg zero() { return _mm256_setzero_ps(); }
    static Reg load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
    static Reg everywhere(float x) { return _mm256_set1_ps(x); }
    static Reg product(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
    static Reg add_product(Reg sum, Reg a, Reg b) { return _mm256_fmadd_ps(a, b, sum); }
    static void totals(const Reg* four, float* out) {
        const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(four[0], four[1]), _mm256_unpackhi_ps(four[0], four[1]));
        const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(four[2], four[3]), _mm256_unpackhi_ps(four[2], four[3]));
        const __m256 abcd = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
    }
    static Pair halves(const uint16_t* p) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), _mm256_castsi256_ps(_mm256_and_si256(both, high))};
    }

    using Sums = __m256i;
    using Pairs = __m256i;
    static __m128i bytes(const int8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
    static constexpr int ROWS = 2;
    static Sums no_sums() { return _mm256_setzero_si256(); }
    static Pairs load_pairs(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static Pairs widened_pairs(const int8_t* p) { return _mm256_cvtepi8_epi16(bytes(p)); }
    static Pairs pair_everywhere(const int16_t* p) {
        return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p));
    }
    static Sums add_pairs(Sums sum, Pairs a, Pairs b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
    static void totals(const Sums* four, int32_t* out) {
        const __m256i abcd = _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
        const __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256(abcd, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), sums);
    }
    static Reg to_float(Sums x) { return _mm256_cvtepi32_ps(x); }
    static void side_by_side(const int8_t* a, const int8_t* b, Pairs* two) {
        two[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes(a), bytes(b)));
        two[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(bytes(a), bytes(b)));
    }
    static int64_t side_by_side_place(int64_t d) { return d; }
};

}  // namespace

void qk::paged_rows_avx2(const Paged& task, const Span* spans, int64_t count) {
    paged_rows_of<Avx2>(task, spans, count);
}
