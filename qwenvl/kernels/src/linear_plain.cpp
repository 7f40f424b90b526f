// The int8 product in plain C++: the reference that the others are compared with, and the packing of panels.
#include <omp.h>

#include "linear_rows.h"

namespace {

void dots_of_panel(const uint8_t* panel, int64_t K4, const int8_t* row, int32_t* dots) {
    for (int n = 0; n < qk::PANEL; ++n) dots[n] = 0;
    for (int64_t k = 0; k < K4; ++k, panel += qk::PANEL * 4)
        for (int n = 0; n < qk::PANEL; ++n)
            for (int i = 0; i < 4; ++i) dots[n] += panel[n * 4 + i] * row[k * 4 + i];
}

// weight = (q - z) * s, as in linear.h
void dots_of_nibbles(const uint8_t* group, int64_t groups, const int8_t* row, int32_t* dots) {
    for (int n = 0; n < qk::PANEL; ++n) dots[n] = 0;
    for (int64_t g = 0; g < groups; ++g, group += qk::GROUP_BYTES, row += qk::GROUP)
        for (int n = 0; n < qk::PANEL; ++n) {
            const int s = (group[n] & 15) + 1, z = group[n] >> 4;
            const uint8_t* fours = group + 64 + n * 4;
            for (int k = 0; k < 16; ++k) {
                const uint8_t two = fours[k / 4 * qk::PANEL * 4 + k % 4];
                dots[n] += ((two & 15) - z) * s * row[k] + ((two >> 4) - z) * s * row[k + 16];
            }
        }
}

// Sums over weight + 128, in whatever form the weights are.
void dots_of(const qk::Linear& task, int64_t panel, const int8_t* row, int32_t row_sum, int32_t* dots) {
    const int64_t K4 = (task.K + 3) / 4, groups = (task.K + qk::GROUP - 1) / qk::GROUP;
    if (task.format == qk::BYTES) return dots_of_panel(task.panels + panel * K4 * qk::PANEL * 4, K4, row, dots);
    dots_of_nibbles(task.panels + panel * groups * qk::GROUP_BYTES, groups, row, dots);
    for (int n = 0; n < qk::PANEL; ++n) dots[n] += row_sum * 128;
}

}  // namespace

void qk::linear_plain(const Linear& task, const Scratch& scratch) {
    const int64_t panels = (task.N + PANEL - 1) / PANEL;
#pragma omp for schedule(static)
    for (int64_t m = 0; m < task.M; ++m) {
        // every row is done from beginning to end by one thread, which needs room for one
        const int thread = omp_get_thread_num();
        int8_t* row = scratch.rows + thread * row_stride(task.K);
        float* room = scratch.before + thread * qk::room_of(task.K);
        float scale;
        int32_t sum, dots[PANEL];
        quantise_row(row_before(task, m, room), task.K, row, &scale, &sum);
        for (int64_t p = 0; p < panels; ++p) {
            dots_of(task, p, row, sum, dots);
            finish_row(task, m, p, dots, scale, sum);
        }
    }
}

void qk::pack_panels(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads) {
    const int64_t K4 = (K + 3) / 4, count = (N + PANEL - 1) / PANEL;
    // 64 bytes of each of the panel's rows at a time: a cache line read is used up before the next one
    constexpr int64_t GROUPS = 16;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t p = 0; p < count; ++p)
        for (int64_t k0 = 0; k0 < K4; k0 += GROUPS)
            for (int64_t n = p * PANEL; n < (p + 1) * PANEL; ++n)
                for (int64_t k = k0; k < K4 && k < k0 + GROUPS; ++k) {
                    const int64_t left = n < N ? K - k * 4 : 0;
                    uint32_t four = 0;
                    __builtin_memcpy(&four, weight + (left > 0 ? n * K + k * 4 : 0), left > 3 ? 4 : left);
                    four ^= 0x80808080u;  // + 128 in each byte
                    __builtin_memcpy(panels + (p * K4 + k) * PANEL * 4 + n % PANEL * 4, &four, 4);
                }
}
