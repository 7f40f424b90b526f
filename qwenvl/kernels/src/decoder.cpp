// The C functions of decoder.h: the instruction set is looked up, nothing computed.
#include "decoder.h"

#include "cpu.h"

#define QK_PUBLIC __attribute__((visibility("default")))

// set -> the function compiled for it; AVX-VNNI machines have AVX2's floats
#ifdef QK_AVX512_VNNI
#define QK_AVX512(name, task) \
    if (set == qk::AVX512_VNNI) return qk::name##_avx512(task);
#else
#define QK_AVX512(name, task)
#endif
#ifdef QK_AVX2
#define QK_AVX256(name, task) \
    if (set == qk::AVX2 || set == qk::AVX_VNNI) return qk::name##_avx2(task);
#else
#define QK_AVX256(name, task)
#endif
#define QK_DISPATCH(name, task) \
    QK_AVX512(name, task)       \
    QK_AVX256(name, task)       \
    qk::name##_plain(task)

void qk::place_share(int32_t set, const Place& task) { QK_DISPATCH(place_share, task); }

extern "C" {

QK_PUBLIC void qk_rms_norm(int32_t set, const qk::RmsNorm* task) { QK_DISPATCH(rms_norm, *task); }
QK_PUBLIC void qk_silu_mul(int32_t set, const qk::SiluMul* task) { QK_DISPATCH(silu_mul, *task); }
QK_PUBLIC void qk_place(int32_t set, const qk::Place* task) {
    const bool few = task->M < qk::WORTH_THREADS;
#pragma omp parallel num_threads(few ? 1 : task->threads)
    qk::place_share(set, *task);
}
}
