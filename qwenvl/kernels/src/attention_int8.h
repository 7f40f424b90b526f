// Attention of few query rows, or of many, over keys and values in int8, for any instruction set. Knows pages, spans and
// whole numbers; an instruction set gives `V`, its registers.
//
// Queries become whole numbers of 16 bits, and so do the weights of a page, the scales of its values among them. Every
// sum of products is exact then, so the order of additions is free. A page has its own maximum; pages are joined in
// order.
#pragma once
#include <type_traits>

#include "attention_page.h"

namespace {

// 127 * 32767 times D, or times the tokens of a page, is below 2^31
static_assert(qk::MOST_WIDTH <= 256 && qk::PAGE <= 256 && qk::SPAN_KEYS % qk::PAGE == 0, "sums have 32 bits");

// Where element d of a head lies in the sums.
template <class V>
inline int64_t place(const int8_t*, int64_t d) {
    return V::side_by_side_place(d);
}

// work(R, r) for rows r .. r + R, in steps as large as the registers hold.
template <class V, class Work>
inline void in_steps(int64_t rows, Work work) {
    int64_t r = 0;
    for (; r + V::ROWS <= rows; r += V::ROWS) work(std::integral_constant<int, V::ROWS>(), r);
    for (; r + 2 <= rows; r += 2) work(std::integral_constant<int, 2>(), r);
    if (r < rows) work(std::integral_constant<int, 1>(), r);
}

// products[r][j] = q[r] . key[j] for R rows and N keys; the rows of `soon`, if there are any, are fetched meanwhile.
template <class V, int R, int N>
inline void multiply(const int16_t* q, const int8_t* keys, int64_t stride, const int8_t* soon, int64_t D,
                     int32_t* products) {
    typename V::Sums sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sums[r][j] = V::no_sums();
    for (int j = 0; soon && j < N; ++j) fetch(soon + j * stride, D);
    for (int64_t d = 0; d < D; d += 2 * V::WIDTH) {
        typename V::Pairs rows[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) rows[r] = V::load_pairs(q + r * D + d);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) {
            const typename V::Pairs k = V::widened_pairs(keys + j * stride + d);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][j] = V::add_pairs(sums[r][j], rows[r], k);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < N; j += 4) V::totals(sums[r] + j, products + r * qk::PAGE + j);
}

// sums[r] = sums[r] * before + now * sum over keys of weights[r][j] * value[j], for R rows and 2 C registers of
// columns; an odd last key is followed by one of weight 0, which lies in the same page.
template <class V, int R, int C>
inline void add_columns(const int16_t* weights, const Share* shares, const int8_t* values, int64_t stride,
                        int64_t count, float* sums, int64_t sums_row) {
    constexpr int64_t STEP = 2 * V::WIDTH;
    typename V::Sums whole[R][2 * C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * C; ++c) whole[r][c] = V::no_sums();
    for (int64_t j = 0; j < count; j += 2) {
        typename V::Pairs v[2 * C];
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c)
            V::side_by_side(values + j * stride + c * STEP, values + (j + 1) * stride + c * STEP, v + 2 * c);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const typename V::Pairs w = V::pair_everywhere(weights + r * qk::PAGE + j);
#pragma GCC unroll 8
            for (int c = 0; c < 2 * C; ++c) whole[r][c] = V::add_pairs(whole[r][c], v[c], w);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * C; ++c) {
            float* to = sums + r * sums_row + c * V::WIDTH;
            const typename V::Reg old = V::product(V::load(to), V::everywhere(shares[r].before));
            V::store(to, V::add_product(old, V::to_float(whole[r][c]), V::everywhere(shares[r].now)));
        }
}

// The same for all columns.
template <class V, int R>
inline void add_whole_values(const int16_t* weights, const Share* shares, const int8_t* values, int64_t stride,
                             int64_t count, int64_t D, float* sums, int64_t sums_row) {
    constexpr int C = R <= 2 ? 2 : 1;
    constexpr int64_t STEP = 2 * C * V::WIDTH;
    int64_t d = 0;
    for (; d + STEP <= D; d += STEP)
        add_columns<V, R, C>(weights, shares, values + d, stride, count, sums + d, sums_row);
    if (d < D) add_columns<V, R, 1>(weights, shares, values + d, stride, count, sums + d, sums_row);
}

// The rows of one head in whole numbers, and what a page of its keys makes of them.
struct WholeRows {
    alignas(64) int16_t q[qk::SPAN_ROWS * qk::MOST_WIDTH];
    alignas(64) int32_t products[qk::SPAN_ROWS * qk::PAGE];
    alignas(64) int16_t weights[qk::SPAN_ROWS * qk::PAGE];
    float q_scales[qk::SPAN_ROWS];
    Share shares[qk::SPAN_ROWS];
};

inline void begin_rows(const qk::Paged& task, const qk::Span& span, int64_t rows, WholeRows& whole) {
    const int64_t D = task.D, group = task.H / task.G;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D));
    for (int64_t r = 0; r < rows; ++r) {
        const float* from = task.q + (span.out_row + r / group) * task.q_row +
                            (span.kv_head * group + r % group) * task.q_head;
        whole.q_scales[r] = to_whole(from, D, MOST_WHOLE, whole.q + r * D) * scale;
        float* sums = span.partial + r * qk::partial_row(D);
        for (int64_t d = 0; d < D; ++d) sums[d] = 0;
        sums[D] = qk::NOTHING, sums[D + 1] = 0;
    }
    for (int64_t i = 0; i < rows * qk::PAGE; ++i) whole.products[i] = 0;
}

template <class V>
void one_span_int8(const qk::Paged& task, const qk::Span& span) {
    const int64_t D = task.D, group = task.H / task.G, rows = span.rows * group, partial = qk::partial_row(D);
    const auto* const keys = static_cast<const int8_t*>(task.keys) + span.kv_head * task.head;
    const auto* const values = static_cast<const int8_t*>(task.values) + span.kv_head * task.head;
    const int32_t* pages = task.pages[span.sequence];
    const int64_t before = task.lengths[span.sequence] - task.rows[span.sequence] + span.first_row + 1;
    const int64_t end = span.first_key + span.keys, stride = task.row;
    WholeRows whole;
    begin_rows(task, span, rows, whole);
    for (int64_t at = span.first_key; at < end; at += qk::PAGE) {
        const int64_t count = end - at < qk::PAGE ? end - at : qk::PAGE;
        const int64_t token = pages[at / qk::PAGE] * qk::PAGE, scales = span.kv_head * task.scale_head + token;
        const int8_t *k = keys + token * stride, *v = values + token * stride;
        in_steps<V>(rows, [&](auto R, int64_t r) {
            // the last few keys may lie behind the sequence: the rest of the page is there, and nobody looks at it
            for (int64_t j = 0; j < count; j += V::KEYS)
                multiply<V, R, V::KEYS>(whole.q + r * D, k + j * stride, stride, r ? nullptr : v + j * stride, D,
                                        whole.products + r * qk::PAGE + j);
        });
        for (int64_t r = 0; r < rows; ++r)
            whole.shares[r] = weigh_page(whole.products + r * qk::PAGE, whole.q_scales[r], task.key_scales + scales,
                                         task.value_scales + scales, before + r / group - at,
                                         span.partial + r * partial + D, whole.weights + r * qk::PAGE);
        if (const int64_t next = at + qk::PAGE; next < end) {
            const int8_t* soon = keys + pages[next / qk::PAGE] * qk::PAGE * stride;
            for (int64_t j = 0; j < qk::PAGE; ++j) fetch(soon + j * stride, D);
        }
        in_steps<V>(rows, [&](auto R, int64_t r) {
            add_whole_values<V, R>(whole.weights + r * qk::PAGE, whole.shares + r, v, stride, count, D,
                                   span.partial + r * partial, partial);
        });
    }
}

}  // namespace
