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

}  // namespace
