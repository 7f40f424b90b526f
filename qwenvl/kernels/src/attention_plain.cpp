// Attention of few rows in plain C++: the reference that the others are compared with.
#include "attention_rows.h"

namespace {

struct Plain {
    using Reg = float;
    struct Pair {
        Reg first, second;
    };
    static constexpr int WIDTH = 1, KEYS = 4;
    static Reg zero() { return 0; }
    static Reg load(const float* p) { return *p; }
    static void store(float* p, Reg x) { *p = x; }
    static Reg everywhere(float x) { return x; }
    static Reg product(Reg a, Reg b) { return a * b; }
    static Reg add_product(Reg sum, Reg a, Reg b) { return sum + a * b; }
    static void totals(const Reg* four, float* out) {
        for (int i = 0; i < 4; ++i) out[i] = four[i];
    }
    static float widened(uint16_t x) {
        Word word;
        word.u = static_cast<uint32_t>(x) << 16;
        return word.f;
    }
    static Pair halves(const uint16_t* p) { return {widened(p[0]), widened(p[1])}; }

    using Sums = int32_t;
    struct Pairs {
        int32_t first, second;
    };
    static constexpr int ROWS = 2;
    static Sums no_sums() { return 0; }
    static Pairs load_pairs(const int16_t* p) { return {p[0], p[1]}; }
    static Pairs widened_pairs(const int8_t* p) { return {p[0], p[1]}; }
    static Pairs pair_everywhere(const int16_t* p) { return {p[0], p[1]}; }
    static Sums add_pairs(Sums sum, Pairs a, Pairs b) { return sum + a.first * b.first + a.second * b.second; }
    static void totals(const Sums* four, int32_t* out) {
        for (int i = 0; i < 4; ++i) out[i] = four[i];
    }
    static Reg to_float(Sums x) { return static_cast<float>(x); }
    static void side_by_side(const int8_t* a, const int8_t* b, Pairs* two) {
        two[0] = {a[0], b[0]}, two[1] = {a[1], b[1]};
    }
    static int64_t side_by_side_place(int64_t d) { return d; }
};

}  // namespace

void qk::paged_rows_plain(const Paged& task, const Span* spans, int64_t count) {
    paged_rows_of<Plain>(task, spans, count);
}
