// A product with weights in 4 bits, for any instruction set: they are unpacked to the unsigned bytes of the int8 product
// on the way, in registers where rows are few, a slab at a time into the L1 cache where they are many. Knows how a panel
// of nibbles is laid out (linear.h); an instruction set gives, beside what linear_blocks.h asks for, how a register of
// them is unpacked.
//
// weight + 128 = q * s + (128 - z * s), four outputs' bytes at a time: q * s is at most 15 * 16 and fits a byte, so a
// 16-bit multiplication does two bytes at once. What is added may wrap; it never does for a q that a group uses.
#pragma once
#include "linear_blocks.h"

namespace {

// Rows that share one unpacking in registers. More than these are multiplied by the int8 tiles, ROWS_TOGETHER at most
// for each unpacking of a slab, so that their sums stay in the L1 cache too.
constexpr int NIBBLE_ROWS = 8;
// So few are multiplied with the nibbles as they are, and every group's sums are put in place afterwards.
constexpr int RAW_ROWS = 2;
constexpr int64_t SLAB_GROUPS = 8, ROWS_TOGETHER = 96;
// How far ahead weights are fetched into the L2 cache, as in FETCH_BYTES; where slabs take turns, it is the next slab.
constexpr int64_t FETCH_GROUPS = 4;

// Bytes of outputs n on, inputs 4 j on and 16 + 4 j on, within a group.
inline int64_t line_of(int64_t n, int64_t j) { return 64 + (j * qk::PANEL + n) * 4; }

// Adds groups of inputs to the sums [R][64] of C registers of outputs in `dots`; fetches LINES lines ahead in each.
template <class V, int R, int C, int LINES>
inline void nibble_tile(const uint8_t* group, int64_t n, int64_t groups, const int8_t* rows, int64_t stride,
                        const uint8_t* ahead, int32_t* dots) {
    typename V::Sum sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[r][c] = V::load(dots + r * qk::PANEL + n + c * V::WIDTH);
    for (int64_t g = 0; g < groups; ++g) {
        typename V::Code codes[C];
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) codes[c] = V::code(group + n + c * V::WIDTH);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 8
            for (int line = j * LINES / 4; line < (j + 1) * LINES / 4; ++line)
                __builtin_prefetch(ahead + line * 64, 0, 2);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                typename V::Weights w[C];
#pragma GCC unroll 8
                for (int c = 0; c < C; ++c) {
                    const uint8_t* line = group + line_of(n + c * V::WIDTH, j);
                    w[c] = half ? V::high(line, codes[c]) : V::low(line, codes[c]);
                }
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const typename V::Input a = V::input(rows + r * stride + j * 4 + half * 16);
#pragma GCC unroll 8
                    for (int c = 0; c < C; ++c) sums[r][c] = V::dot(sums[r][c], w[c], a);
                }
            }
        }
        group += qk::GROUP_BYTES, ahead += qk::GROUP_BYTES, rows += qk::GROUP;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) V::store(dots + r * qk::PANEL + n + c * V::WIDTH, sums[r][c]);
}

// The same for rows so few that unpacking would be most of the work: what a group adds is s * (q . a - z * sum of a).
// The sums are of weights, not of weight + 128.
template <class V, int R, int C, int LINES>
inline void raw_nibble_tile(const uint8_t* group, int64_t n, int64_t groups, const int8_t* rows, int64_t stride,
                            const uint8_t* ahead, int32_t* dots) {
    typename V::Sum sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[r][c] = V::load(dots + r * qk::PANEL + n + c * V::WIDTH);
    for (int64_t g = 0; g < groups; ++g) {
        typename V::Sum raw[R][C], inputs[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            inputs[r] = V::zero();
#pragma GCC unroll 8
            for (int c = 0; c < C; ++c) raw[r][c] = V::zero();
        }
#pragma GCC unroll 8
        for (int step = 0; step < 8; ++step) {
            const int j = step / 2, half = step % 2;
#pragma GCC unroll 8
            for (int line = step * LINES / 8; line < (step + 1) * LINES / 8; ++line)
                __builtin_prefetch(ahead + line * 64, 0, 2);
            typename V::Input a[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                a[r] = V::input(rows + r * stride + j * 4 + half * 16);
                inputs[r] = V::dot(inputs[r], V::ones(), a[r]);
            }
#pragma GCC unroll 8
            for (int c = 0; c < C; ++c) {
                const uint8_t* line = group + line_of(n + c * V::WIDTH, j);
                const typename V::Weights w = half ? V::raw_high(line) : V::raw_low(line);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) raw[r][c] = V::dot(raw[r][c], w, a[r]);
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
            const typename V::Grid grid = V::grid(group + n + c * V::WIDTH);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][c] = V::scaled(sums[r][c], raw[r][c], grid, inputs[r]);
        }
        group += qk::GROUP_BYTES, ahead += qk::GROUP_BYTES, rows += qk::GROUP;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) V::store(dots + r * qk::PANEL + n + c * V::WIDTH, sums[r][c]);
}

// R rows times a whole panel. As many registers of outputs at a time as have room for their sums; where that is not
// the panel, slabs of it take turns, so that each line comes from memory once.
template <class V, int R>
inline void nibbles_of_rows(const uint8_t* panel, int64_t groups, const int8_t* rows, int64_t stride, int32_t* dots) {
    constexpr int C = V::NIBBLE_SUMS / (R <= 4 ? 4 : 8), PARTS = qk::PANEL / V::WIDTH / C;
    constexpr int LINES = (17 + PARTS - 1) / PARTS;
    const int64_t slab = PARTS == 1 ? groups : SLAB_GROUPS, ahead = PARTS == 1 ? FETCH_GROUPS : SLAB_GROUPS;
    for (int64_t g = 0; g < groups; g += slab) {
        const int64_t some = g + slab < groups ? slab : groups - g;
        const uint8_t* here = panel + g * qk::GROUP_BYTES;
        for (int part = 0; part < PARTS; ++part) {
            constexpr auto tile = R <= RAW_ROWS ? raw_nibble_tile<V, R, C, LINES> : nibble_tile<V, R, C, LINES>;
            tile(here, part * C * V::WIDTH, some, rows + g * qk::GROUP, stride,
                 here + ahead * qk::GROUP_BYTES + part * LINES * 64, dots);
        }
    }
}

template <class V>
inline void few_nibble_rows(int64_t count, const uint8_t* panel, int64_t groups, const int8_t* rows, int64_t stride,
                            int32_t* dots) {
    switch (count) {
        case 1: return nibbles_of_rows<V, 1>(panel, groups, rows, stride, dots);
        case 2: return nibbles_of_rows<V, 2>(panel, groups, rows, stride, dots);
        case 3: return nibbles_of_rows<V, 3>(panel, groups, rows, stride, dots);
        case 4: return nibbles_of_rows<V, 4>(panel, groups, rows, stride, dots);
        case 5: return nibbles_of_rows<V, 5>(panel, groups, rows, stride, dots);
        case 6: return nibbles_of_rows<V, 6>(panel, groups, rows, stride, dots);
        case 7: return nibbles_of_rows<V, 7>(panel, groups, rows, stride, dots);
        default: return nibbles_of_rows<V, 8>(panel, groups, rows, stride, dots);
    }
}

// Groups of a panel to bytes [8 * groups][64][4].
template <class V>
inline void unpack(const uint8_t* group, int64_t groups, uint8_t* bytes) {
    for (int64_t g = 0; g < groups; ++g, group += qk::GROUP_BYTES, bytes += qk::GROUP * qk::PANEL) {
        for (int line = 0; line < 17; ++line)
            __builtin_prefetch(group + FETCH_GROUPS * qk::GROUP_BYTES + line * 64, 0, 2);
        for (int64_t n = 0; n < qk::PANEL; n += V::WIDTH) {
            const typename V::Code code = V::code(group + n);
            for (int64_t j = 0; j < 4; ++j) {
                V::keep(bytes + j * qk::PANEL * 4 + n * 4, V::low_bytes(group + line_of(n, j), code));
                V::keep(bytes + (4 + j) * qk::PANEL * 4 + n * 4, V::high_bytes(group + line_of(n, j), code));
            }
        }
    }
}

// Not inlined: where the compiler sees that the bytes lie in a buffer of its own, it moves sums about in every step.
template <class V>
__attribute__((noinline)) void unpacked_rows(int64_t count, const uint8_t* bytes, int64_t K4, const int8_t* rows,
                                             int64_t stride, int32_t* dots) {
    for (int64_t r = 0; r < count; r += V::ROWS)
        some_rows<V>(count - r, bytes, K4, rows + r * stride, stride, Ahead{bytes, 0}, dots + r * qk::PANEL);
}

template <class V>
inline void many_nibble_rows(int64_t count, const uint8_t* panel, int64_t groups, const int8_t* rows, int64_t stride,
                             int32_t* dots) {
    alignas(64) uint8_t bytes[SLAB_GROUPS * qk::GROUP * qk::PANEL];
    for (int64_t g = 0; g < groups; g += SLAB_GROUPS) {
        const int64_t some = g + SLAB_GROUPS < groups ? SLAB_GROUPS : groups - g, K4 = some * qk::GROUP / 4;
        unpack<V>(panel + g * qk::GROUP_BYTES, some, bytes);
        unpacked_rows<V>(count, bytes, K4, rows + g * qk::GROUP, stride, dots);
    }
}

template <class V>
void nibbles_times_panel(const qk::Linear& task, const qk::Scratch& scratch, int64_t chunk, int64_t first,
                         int64_t count, int64_t panel) {
    const int64_t groups = (task.K + qk::GROUP - 1) / qk::GROUP, stride = qk::row_stride(task.K);
    const uint8_t* start = task.panels + panel * groups * qk::GROUP_BYTES;
    alignas(64) int32_t dots[ROWS_TOGETHER * qk::PANEL];
    for (int64_t m = 0; m < count; m += ROWS_TOGETHER) {
        const int64_t part = count - m < ROWS_TOGETHER ? count - m : ROWS_TOGETHER;
        for (int64_t i = 0; i < part * qk::PANEL; ++i)
            dots[i] = part <= RAW_ROWS ? scratch.sums[first + m + i / qk::PANEL] * 128 : 0;
        const int8_t* rows = scratch.rows + (first + m) * stride;
        const auto multiply = part <= NIBBLE_ROWS ? few_nibble_rows<V> : many_nibble_rows<V>;
        multiply(part, start, groups, rows, stride, dots);
        for (int64_t r = 0; r < part; ++r)
            finish_row(task, chunk + first + m + r, panel, dots + r * qk::PANEL, scratch.scales[first + m + r],
                       scratch.sums[first + m + r]);
    }
}

}  // namespace
