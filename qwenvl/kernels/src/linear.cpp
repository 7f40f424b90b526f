// An int8 product: its scratch memory, and whose instructions do it. Computes nothing.
#include "linear.h"

#include "cpu.h"

namespace {

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t rows_at_once(int32_t set, int64_t M, int32_t threads) {
    if (set == qk::PLAIN) return threads;
    return M < qk::CHUNK_ROWS ? M : qk::CHUNK_ROWS;
}

}  // namespace

int64_t qk::scratch_bytes(int32_t set, int64_t M, int64_t K, int32_t threads) {
    const int64_t rows = rows_at_once(set, M, threads);
    return aligned(rows * row_stride(K)) + 2 * aligned(rows * 4) + threads * room_of(K) * 4;
}

qk::Scratch qk::scratch_in(char* bytes, int32_t set, int64_t M, int64_t K, int32_t threads) {
    const int64_t rows = rows_at_once(set, M, threads);
    char* scales = bytes + aligned(rows * row_stride(K));
    char* sums = scales + aligned(rows * 4);
    return {reinterpret_cast<int8_t*>(bytes), reinterpret_cast<float*>(scales), reinterpret_cast<int32_t*>(sums),
            reinterpret_cast<float*>(sums + aligned(rows * 4))};
}

void qk::linear_share(int32_t set, const Linear& task, const Scratch& scratch) {
    switch (set) {
#ifdef QK_AVX2
        case AVX2: return linear_avx2(task, scratch);
#endif
#ifdef QK_AVX_VNNI
        case AVX_VNNI: return linear_avx_vnni(task, scratch);
#endif
#ifdef QK_AVX512_VNNI
        case AVX512_VNNI: return linear_avx512_vnni(task, scratch);
#endif
        default: return linear_plain(task, scratch);
    }
}
