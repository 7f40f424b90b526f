// Which instruction sets this machine can run: the CPU has them and the operating system keeps their registers.
// Knows nothing of kernels.
#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

namespace {

struct Registers {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned part) {
    Registers r;
    if (!__get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
    return r;
}

// What the operating system saves when it switches threads; 0 when it does not say.
unsigned saved_state() {
    if (!(cpuid(1, 0).ecx >> 27 & 1)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool all(unsigned value, std::initializer_list<int> bits) {
    for (int bit : bits)
        if (!(value >> bit & 1)) return false;
    return true;
}

}  // namespace

uint32_t qk::cpu_sets() {
    const Registers basic = cpuid(1, 0), more = cpuid(7, 0), late = cpuid(7, 1);
    const unsigned saved = saved_state();
    uint32_t sets = 1u << PLAIN;
    const bool ymm = all(saved, {1, 2}), zmm = ymm && all(saved, {5, 6, 7});
    const bool avx2 = ymm && all(basic.ecx, {12, 28, 29}) && all(more.ebx, {5});  // FMA, AVX, F16C; AVX2
    if (avx2) sets |= 1u << AVX2;
    if (avx2 && all(late.eax, {4})) sets |= 1u << AVX_VNNI;
    // AVX512 F, DQ, BW, VL; VNNI
    const bool avx512 = zmm && avx2 && all(more.ebx, {16, 17, 30, 31}) && all(more.ecx, {11});
    if (avx512) sets |= 1u << AVX512_VNNI;
    if (avx512 && all(late.eax, {5})) sets |= 1u << AVX512_BF16;
    return sets;
}

#else

uint32_t qk::cpu_sets() { return 1u << PLAIN; }

#endif

namespace {

uint32_t compiled_sets() {
    uint32_t sets = 1u << qk::PLAIN;
#ifdef QK_AVX2
    sets |= 1u << qk::AVX2;
#endif
#ifdef QK_AVX_VNNI
    sets |= 1u << qk::AVX_VNNI;
#endif
#ifdef QK_AVX512_VNNI
    sets |= 1u << qk::AVX512_VNNI;
#endif
#ifdef QK_AVX512_BF16
    sets |= 1u << qk::AVX512_BF16;
#endif
    return sets;
}

}  // namespace

uint32_t qk::usable_sets() {
    static const uint32_t sets = compiled_sets() & cpu_sets();  // asking a virtual CPU takes microseconds
    return sets;
}
