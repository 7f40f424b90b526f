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
    static Reg product(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
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

    using Sums = __m512i;
    using Pairs = __m512i;
    static __m256i bytes(const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static constexpr int ROWS = 6;
    static Sums no_sums() { return _mm512_setzero_si512(); }
    static Pairs load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
    static Pairs widened_pairs(const int8_t* p) { return _mm512_cvtepi8_epi16(bytes(p)); }
    static Pairs pair_everywhere(const int16_t* p) {
        return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
    }
    static Sums add_pairs(Sums sum, Pairs a, Pairs b) { return _mm512_dpwssd_epi32(sum, a, b); }
    static void totals(const Sums* four, int32_t* out) {
        const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(four[0], four[1]),
                                            _mm512_unpackhi_epi32(four[0], four[1]));
        const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(four[2], four[3]),
                                            _mm512_unpackhi_epi32(four[2], four[3]));
        const __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(abcd), _mm512_extracti64x4_epi64(abcd, 1));
        const __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), sums);
    }
    static Reg to_float(Sums x) { return _mm512_cvtepi32_ps(x); }
    // bytes of both side by side, eight of the lower half and eight of the upper half of each in a register
    static void side_by_side(const int8_t* a, const int8_t* b, Pairs* two) {
        two[0] = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(bytes(a), bytes(b)));
        two[1] = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(bytes(a), bytes(b)));
    }
    static int64_t side_by_side_place(int64_t d) {
        const int64_t eights = d % 32 / 8;  // 0 1 2 3 lie at 0 2 1 3
        return d - d % 32 + (eights % 2 * 2 + eights / 2) * 8 + d % 8;
    }
};

}  // namespace

void qk::paged_rows_avx512(const Paged& task, const Span* spans, int64_t count) {
    paged_rows_of<Avx512>(task, spans, count);
}
