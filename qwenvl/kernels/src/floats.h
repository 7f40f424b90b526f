// Float arithmetic that each instruction set compiles for itself, so everything here has internal linkage.
#pragma once
#include <cstdint>

namespace {

union Word {
    float f;
    uint32_t u;
};

// e^x to about 1e-7 relative, exactly 1 at 0 and exactly 0 below -87: 2^n times a polynomial on [-ln2/2, ln2/2].
inline float exponential(float x) {
    const float bounded = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    Word n;
    n.f = bounded * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the lowest bits now hold the rounded integer
    const float whole = n.f - 12582912.0f;
    float r = bounded - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Word power;
    power.u = (n.u + 127u) << 23;  // the magic number's own bits leave on the left
    return x < -87.0f ? 0.0f : p * power.f;
}

// The nearest whole number, ties to even, to anything below 2^22 in size; of other numbers something, never an error.
inline int32_t nearest(float x) {
    Word word;
    word.f = x + 12582912.0f;
    return static_cast<int32_t>(word.u - 0x4b400000u);
}

// How numbers become whole ones of at most a certain size, and numbers again: `up` and `down` multiply. `down` is NaN
// where a number is not finite, and both are 0 where all are below 1e-30.
struct Whole {
    float up, down;
};

inline Whole whole_of(const float* x, int64_t count, float most) {
    int32_t largest = 0;  // sizes as integers have the order of the floats, and NaN is above all
    for (int64_t i = 0; i < count; ++i) {
        Word word;
        word.f = x[i];
        const auto size = static_cast<int32_t>(word.u & 0x7fffffffu);
        largest = size > largest ? size : largest;
    }
    Word top;
    top.u = static_cast<uint32_t>(largest);
    if (largest >= 0x7f800000) return {0.0f, __builtin_nanf("")};
    if (top.f < 1e-30f) return {0.0f, 0.0f};
    return {most / top.f, top.f / most};
}

// x [count] in whole numbers; what they have to be multiplied with to be numbers again.
template <class T>
inline float to_whole(const float* x, int64_t count, float most, T* out) {
    const Whole whole = whole_of(x, count, most);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(nearest(x[i] * whole.up));
    return whole.down;
}

}  // namespace
