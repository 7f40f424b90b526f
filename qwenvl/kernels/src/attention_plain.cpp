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
};

}  // namespace

void qk::paged_rows_plain(const Paged& task, const Span* spans, int64_t count) {
    paged_rows_of<Plain>(task, spans, count);
}
