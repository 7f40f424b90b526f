// The C functions that Python calls: the instruction set is looked up, scratch memory found, nothing computed.
#include "attention.h"
#include "cpu.h"
#include "linear.h"
#include "scratch.h"

namespace {

thread_local qk::Buffer buffer;

uint32_t find_sets() {
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
    return sets & qk::cpu_sets();
}

}  // namespace

#define QK_PUBLIC __attribute__((visibility("default")))

extern "C" {

// Raised whenever a function here changes its meaning: an older library is then not used.
QK_PUBLIC int32_t qk_interface() { return 2; }

// Bit s: Set s was compiled and this machine can run it.
QK_PUBLIC uint32_t qk_sets() {
    static const uint32_t sets = find_sets();  // asking a virtual CPU takes microseconds
    return sets;
}

QK_PUBLIC void qk_pack(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads) {
    qk::pack_panels(weight, N, K, panels, threads);
}

// 0, or 1 when memory ran out.
QK_PUBLIC int32_t qk_linear(int32_t set, const qk::Linear* task) try {
    int64_t rows = task->M < qk::CHUNK_ROWS ? task->M : qk::CHUNK_ROWS;
    if (set == qk::PLAIN) rows = task->threads;
    const std::size_t bytes = static_cast<std::size_t>(rows * qk::row_stride(task->K));
    auto* start = static_cast<int8_t*>(buffer.at_least(bytes + qk::CHUNK_ROWS * 8));
    auto* scales = reinterpret_cast<float*>(start + bytes);
    const qk::Scratch scratch{start, scales, reinterpret_cast<int32_t*>(scales + qk::CHUNK_ROWS)};
    switch (set) {
#ifdef QK_AVX2
        case qk::AVX2: qk::linear_avx2(*task, scratch); return 0;
#endif
#ifdef QK_AVX_VNNI
        case qk::AVX_VNNI: qk::linear_avx_vnni(*task, scratch); return 0;
#endif
#ifdef QK_AVX512_VNNI
        case qk::AVX512_VNNI: qk::linear_avx512_vnni(*task, scratch); return 0;
#endif
        default: qk::linear_plain(*task, scratch); return 0;
    }
} catch (const std::bad_alloc&) {
    return 1;
}

// 0, or 1 when memory ran out.
QK_PUBLIC int32_t qk_paged(int32_t set, const qk::Paged* task) try {
    qk::paged(set, *task, set == qk::AVX512_VNNI && (qk_sets() >> qk::AVX512_BF16 & 1));
    return 0;
} catch (const std::bad_alloc&) {
    return 1;
}

// 0, or 1 when memory ran out. Only where qk_sets has AVX512_BF16.
QK_PUBLIC int32_t qk_full(const qk::Full* task) try {
    qk::full(*task);
    return 0;
} catch (const std::bad_alloc&) {
    return 1;
}
}
