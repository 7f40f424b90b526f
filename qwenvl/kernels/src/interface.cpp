// The C functions that Python calls: the instruction set is looked up, scratch memory found, nothing computed.
#include "attention.h"
#include "cpu.h"
#include "layers.h"
#include "linear.h"
#include "scratch.h"

namespace {

thread_local qk::Buffer buffer;

}  // namespace

#define QK_PUBLIC __attribute__((visibility("default")))

extern "C" {

// Raised whenever a function here changes its meaning: an older library is then not used.
QK_PUBLIC int32_t qk_interface() { return 5; }

// Bit s: Set s was compiled and this machine can run it.
QK_PUBLIC uint32_t qk_sets() { return qk::usable_sets(); }

QK_PUBLIC void qk_pack(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads) {
    qk::pack_panels(weight, N, K, panels, threads);
}

QK_PUBLIC void qk_pack_nibbles(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads) {
    qk::pack_nibbles(weight, N, K, panels, threads);
}

// 0, or 1 when memory ran out.
QK_PUBLIC int32_t qk_linear(int32_t set, const qk::Linear* task) try {
    const int64_t bytes = qk::scratch_bytes(set, task->M, task->K, task->threads);
    auto* start = static_cast<char*>(buffer.at_least(static_cast<std::size_t>(bytes)));
    const qk::Scratch scratch = qk::scratch_in(start, set, task->M, task->K, task->threads);
#pragma omp parallel num_threads(task->threads)
    qk::linear_share(set, *task, scratch);
    return 0;
} catch (const std::bad_alloc&) {
    return 1;
}

// 0, or 1 when memory ran out.
QK_PUBLIC int32_t qk_paged(int32_t set, const qk::Paged* task) try {
    const qk::PagedWork work(set, *task);
#pragma omp parallel num_threads(task->threads)
    work.share(*task);
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

// 0, or 1 when memory ran out.
QK_PUBLIC int32_t qk_layers(int32_t set, const qk::Layers* task) try {
    qk::layers(set, *task);
    return 0;
} catch (const std::bad_alloc&) {
    return 1;
}
}
