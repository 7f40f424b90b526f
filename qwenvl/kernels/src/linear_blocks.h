// How a product is cut into tiles and shared among threads, for any instruction set. Knows caches; an instruction
// set gives `V`: its registers, how many rows a tile has, and what a dot product is.
//
// A tile is up to V::ROWS rows by V::VECTORS registers of outputs, its sums held in registers over the whole of K;
// rows are cut in blocks whose int8 form stays in the L2 cache while panel after panel passes.
#pragma once
#include <omp.h>

#include "linear_rows.h"

namespace {

constexpr int64_t BLOCK_BYTES = 384 * 1024;
// So few tiles wait for weights from memory: they take turns on slabs of K, so that each weight is fetched into the
// L1 cache once, and each tile asks for its share of the next slab, so that memory is never idle.
constexpr int64_t FEW_TILES = 4, SLAB = 32;
constexpr int64_t SLAB_BYTES = SLAB * qk::PANEL * 4;
// How far ahead of a tile that is alone weights are fetched into the L2 cache. Twice as far costs a tenth of the speed
// where two cores read 85 GB/s, nothing that can be told from noise where they read 50.
constexpr int64_t FETCH_BYTES = 4096;

// Where the weights lie that will be wanted soon, and how many cache lines of them to fetch at each group of inputs.
struct Ahead {
    const uint8_t* from;
    int64_t lines;
};

// Adds K4 groups of inputs to the sums [R][64] in `dots`, and fetches LINES cache lines for each group from `ahead` on.
template <class V, int R, int LINES>
inline void tile(const uint8_t* panel, int64_t K4, const int8_t* rows, int64_t stride, const uint8_t* ahead,
                 int32_t* dots) {
    typename V::Sum sums[R][V::VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < V::VECTORS; ++c) sums[r][c] = V::load(dots + r * qk::PANEL + c * V::WIDTH);
    for (int64_t k = 0; k < K4; ++k) {
        typename V::Weights w[V::VECTORS];
#pragma GCC unroll 4
        for (int line = 0; line < LINES; ++line) __builtin_prefetch(ahead + line * 64, 0, 2);  // L2 only
        ahead += LINES * 64;
#pragma GCC unroll 8
        for (int c = 0; c < V::VECTORS; ++c) w[c] = V::weights(panel + c * V::WIDTH * 4);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            typename V::Input a = V::input(rows + r * stride + k * 4);
#pragma GCC unroll 8
            for (int c = 0; c < V::VECTORS; ++c) sums[r][c] = V::dot(sums[r][c], w[c], a);
        }
        panel += qk::PANEL * 4;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < V::VECTORS; ++c) V::store(dots + r * qk::PANEL + c * V::WIDTH, sums[r][c]);
}

template <class V, int R>
inline void panel_of_rows(const uint8_t* panel, int64_t K4, const int8_t* rows, int64_t stride, Ahead ahead,
                          int32_t* dots) {
    constexpr int64_t STEP = V::WIDTH * V::VECTORS;
    for (int64_t n = 0; n < qk::PANEL; n += STEP) {
        const uint8_t* from = ahead.from + n / STEP * (ahead.lines * 64 * K4 * STEP / qk::PANEL);
        switch (ahead.lines * STEP / qk::PANEL) {
            case 4: tile<V, R, 4>(panel + n * 4, K4, rows, stride, from, dots + n); break;
            case 2: tile<V, R, 2>(panel + n * 4, K4, rows, stride, from, dots + n); break;
            default: tile<V, R, 1>(panel + n * 4, K4, rows, stride, from, dots + n);
        }
    }
}

template <class V>
inline void some_rows(int64_t count, const uint8_t* panel, int64_t K4, const int8_t* rows, int64_t stride,
                      Ahead ahead, int32_t* dots) {
    switch (count < V::ROWS ? count : V::ROWS) {
        case 1: return panel_of_rows<V, 1>(panel, K4, rows, stride, ahead, dots);
        case 2: return panel_of_rows<V, 2>(panel, K4, rows, stride, ahead, dots);
        case 3: return panel_of_rows<V, 3>(panel, K4, rows, stride, ahead, dots);
        case 4: return panel_of_rows<V, 4>(panel, K4, rows, stride, ahead, dots);
        case 5: return panel_of_rows<V, 5>(panel, K4, rows, stride, ahead, dots);
        default: return panel_of_rows<V, 6>(panel, K4, rows, stride, ahead, dots);
    }
}

// The same as below for weights in 4 bits: linear_nibbles.h.
template <class V>
void nibbles_times_panel(const qk::Linear& task, const qk::Scratch& scratch, int64_t chunk, int64_t first,
                         int64_t count, int64_t panel);

// Rows first..first + count (of the chunk that begins at row `chunk`) times one panel.
template <class V>
inline void block_times_panel(const qk::Linear& task, const qk::Scratch& scratch, int64_t chunk, int64_t first,
                              int64_t count, int64_t panel) {
    if (task.format == qk::NIBBLES) return nibbles_times_panel<V>(task, scratch, chunk, first, count, panel);
    const int64_t K4 = (task.K + 3) / 4, stride = qk::row_stride(task.K);
    const uint8_t* bytes = task.panels + panel * K4 * qk::PANEL * 4;
    const int8_t* rows = scratch.rows + first * stride;
    alignas(64) int32_t dots[FEW_TILES * V::ROWS * qk::PANEL];
    const bool few = count <= FEW_TILES * V::ROWS;
    const int64_t together = few ? FEW_TILES * V::ROWS : V::ROWS, slab = few && count > V::ROWS ? SLAB : K4;
    const int64_t lines = !few ? 1 : count <= V::ROWS ? 4 : count <= 2 * V::ROWS ? 2 : 1;
    for (int64_t m = 0; m < count; m += together) {
        const int64_t part = count - m < together ? count - m : together;
        for (int64_t i = 0; i < part * qk::PANEL; ++i) dots[i] = 0;
        for (int64_t k = 0; k < K4; k += slab)
            for (int64_t r = 0; r < part; r += V::ROWS) {
                const uint8_t* here = bytes + k * qk::PANEL * 4;
                const uint8_t* soon = here + (count <= V::ROWS ? FETCH_BYTES : SLAB_BYTES);
                const Ahead ahead{soon + r / V::ROWS * SLAB * lines * 64, lines};
                some_rows<V>(part - r, here, k + slab < K4 ? slab : K4 - k, rows + (m + r) * stride + k * 4, stride,
                             ahead, dots + r * qk::PANEL);
            }
        for (int64_t r = 0; r < part; ++r)
            finish_row(task, chunk + first + m + r, panel, dots + r * qk::PANEL, scratch.scales[first + m + r],
                       scratch.sums[first + m + r]);
    }
}

// A thread's share of the product.
template <class V>
void linear(const qk::Linear& task, const qk::Scratch& scratch) {
    const int64_t stride = qk::row_stride(task.K), panels = (task.N + qk::PANEL - 1) / qk::PANEL;
    int64_t block = BLOCK_BYTES / stride / V::ROWS * V::ROWS;
    if (block < V::ROWS) block = V::ROWS;
    float* room = scratch.before + omp_get_thread_num() * qk::room_of(task.K);
    for (int64_t chunk = 0; chunk < task.M; chunk += qk::CHUNK_ROWS) {
        const int64_t left = task.M - chunk, rows = left < qk::CHUNK_ROWS ? left : qk::CHUNK_ROWS;
        const int64_t blocks = (rows + block - 1) / block;
#pragma omp for schedule(static)
        for (int64_t m = 0; m < rows; ++m)
            quantise_row(row_before(task, chunk + m, room), task.K, scratch.rows + m * stride, scratch.scales + m,
                         scratch.sums + m);
        if (rows <= FEW_TILES * V::ROWS) {
            // memory bound: neighbouring panels in one thread, so that what is fetched ahead is its own
#pragma omp for schedule(static)
            for (int64_t panel = 0; panel < panels; ++panel)
                block_times_panel<V>(task, scratch, chunk, 0, rows, panel);
            continue;
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t unit = 0; unit < blocks * panels; ++unit) {
            const int64_t first = unit / panels * block, rest = rows - first;
            block_times_panel<V>(task, scratch, chunk, first, rest < block ? rest : block, unit % panels);
        }
    }
}

}  // namespace
