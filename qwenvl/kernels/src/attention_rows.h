// Attention of few query rows over many keys, for any instruction set: reading keys and values once, at the speed of
// memory, is all that counts. Knows pages, spans and float arithmetic; an instruction set gives `V`, its registers.
//
// Keys are cut in spans of fixed places, each done by one thread with a running maximum, and joined in order: a row's
// bits depend neither on the threads nor on who else is in the batch. Query heads that share keys are rows like any.
#pragma once
#include <type_traits>

#include "attention_int8.h"

namespace {

// bfloat16 pairs give the even and the odd elements of 2 * WIDTH; float32 the first and the second half.
template <class V>
inline typename V::Pair load_pair(const uint16_t* p) {
    return V::halves(p);
}
template <class V>
inline typename V::Pair load_pair(const float* p) {
    return {V::load(p), V::load(p + V::WIDTH)};
}

// Where element d of a head lies once it is loaded in pairs.
template <class V>
inline int64_t place(const uint16_t*, int64_t d) {
    const int64_t within = d % (2 * V::WIDTH);
    return d - within + within % 2 * V::WIDTH + within / 2;
}
template <class V>
inline int64_t place(const float*, int64_t d) {
    return d;
}

// scores[r][j] = q[r] . key[j] for R rows and N keys; the rows of `soon` are fetched meanwhile.
template <class V, int R, int N, class T>
inline void score(const float* q, const T* keys, int64_t stride, const T* soon, int64_t D, float* scores) {
    typename V::Reg sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sums[r][j] = V::zero();
    for (int j = 0; j < N; ++j) fetch(soon + j * stride, D * sizeof(T));
    for (int64_t d = 0; d < D; d += 2 * V::WIDTH) {
        typename V::Reg q0[R], q1[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) q0[r] = V::load(q + r * D + d), q1[r] = V::load(q + r * D + d + V::WIDTH);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) {
            const typename V::Pair k = load_pair<V>(keys + j * stride + d);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                sums[r][j] = V::add_product(sums[r][j], q0[r], k.first);
                sums[r][j] = V::add_product(sums[r][j], q1[r], k.second);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < N; j += 4) V::totals(sums[r] + j, scores + r * BLOCK + j);
}

// A whole block, even where the sequence ends within it: the rest of the page is there, and `weigh` ignores it.
template <class V, int R, int N, class T>
inline void score_block(const float* q, const T* keys, int64_t stride, const T* soon, int64_t D, float* scores) {
    for (int64_t j = 0; j < BLOCK; j += N)
        score<V, R, N>(q, keys + j * stride, stride, soon + j * stride, D, scores + j);
}

// sums[r] += sum over keys of weights[r][j] * value[j], R rows at once.
template <class V, int R, class T>
inline void add_values(const float* weights, const T* values, int64_t stride, int64_t count, int64_t D, float* sums,
                       int64_t sums_row) {
    for (int64_t d = 0; d < D; d += 2 * V::WIDTH) {
        typename V::Reg first[R], second[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            first[r] = V::load(sums + r * sums_row + d);
            second[r] = V::load(sums + r * sums_row + d + V::WIDTH);
        }
        for (int64_t j = 0; j < count; ++j) {
            const typename V::Pair v = load_pair<V>(values + j * stride + d);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const typename V::Reg w = V::everywhere(weights[r * BLOCK + j]);
                first[r] = V::add_product(first[r], w, v.first);
                second[r] = V::add_product(second[r], w, v.second);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            V::store(sums + r * sums_row + d, first[r]);
            V::store(sums + r * sums_row + d + V::WIDTH, second[r]);
        }
    }
}

template <class V, class T>
void one_span(const qk::Paged& task, const qk::Span& span) {
    const int64_t D = task.D, group = task.H / task.G, rows = span.rows * group, partial = qk::partial_row(D);
    const T* const keys = static_cast<const T*>(task.keys) + span.kv_head * task.head;
    const T* const values = static_cast<const T*>(task.values) + span.kv_head * task.head;
    const int32_t* pages = task.pages[span.sequence];
    const int64_t before = task.lengths[span.sequence] - task.rows[span.sequence] + span.first_row + 1;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(D));
    alignas(64) float q[qk::SPAN_ROWS * qk::MOST_WIDTH], scores[qk::SPAN_ROWS * BLOCK];
    for (int64_t r = 0; r < rows; ++r) {
        const float* from = task.q + (span.out_row + r / group) * task.q_row +
                            (span.kv_head * group + r % group) * task.q_head;
        for (int64_t d = 0; d < D; ++d) q[r * D + place<V>(keys, d)] = from[d] * scale;
        float* sums = span.partial + r * partial;
        for (int64_t d = 0; d < D; ++d) sums[d] = 0;
        sums[D] = qk::NOTHING, sums[D + 1] = 0;
    }
    const int64_t end = span.first_key + span.keys;
    for (int64_t at = span.first_key; at < end; at += BLOCK) {
        const int64_t count = end - at < BLOCK ? end - at : BLOCK;
        const int64_t here = (pages[at / qk::PAGE] * qk::PAGE + at % qk::PAGE) * task.row;
        const T *k = keys + here, *v = values + here;
        int64_t r = 0;
        for (; r + 4 <= rows; r += 4) score_block<V, 4, V::KEYS>(q + r * D, k, task.row, v, D, scores + r * BLOCK);
        for (; r + 2 <= rows; r += 2) score_block<V, 2, V::KEYS>(q + r * D, k, task.row, v, D, scores + r * BLOCK);
        if (r < rows) score_block<V, 1, V::KEYS>(q + r * D, k, task.row, v, D, scores + r * BLOCK);
        for (r = 0; r < rows; ++r)
            weigh(scores + r * BLOCK, before + r / group - at, span.partial + r * partial, D);
        if (const int64_t next = at + BLOCK; next < end) {
            const T* soon = keys + (pages[next / qk::PAGE] * qk::PAGE + next % qk::PAGE) * task.row;
            for (int64_t j = 0; j < BLOCK; ++j) fetch(soon + j * task.row, D * sizeof(T));
        }
        for (r = 0; r + 4 <= rows; r += 4)
            add_values<V, 4>(scores + r * BLOCK, v, task.row, count, D, span.partial + r * partial, partial);
        for (; r + 2 <= rows; r += 2)
            add_values<V, 2>(scores + r * BLOCK, v, task.row, count, D, span.partial + r * partial, partial);
        if (r < rows) add_values<V, 1>(scores + r * BLOCK, v, task.row, count, D, span.partial + r * partial, partial);
    }
}

// The partials of one query row, span after span, to its output.
template <class V, class T>
void join(const qk::Paged& task, const qk::Span& span, int64_t r) {
    const int64_t D = task.D, group = task.H / task.G, partial = qk::partial_row(D);
    const int64_t step = span.rows * group * partial;
    const float* first = span.partial + r * partial;
    float most = qk::NOTHING, weight = 0, sums[qk::MOST_WIDTH];
    for (int64_t s = 0; s < span.spans; ++s) most = first[s * step + D] > most ? first[s * step + D] : most;
    for (int64_t d = 0; d < D; ++d) sums[d] = 0;
    for (int64_t s = 0; s < span.spans; ++s) {
        const float* part = first + s * step;
        if (part[D] == qk::NOTHING) continue;
        const float share = exponential(part[D] - most);
        for (int64_t d = 0; d < D; ++d) sums[d] += part[d] * share;
        weight += part[D + 1] * share;
    }
    float* out = task.out + ((span.out_row + r / group) * task.H + span.kv_head * group + r % group) * D;
    for (int64_t d = 0; d < D; ++d) out[d] = sums[place<V>(static_cast<const T*>(nullptr), d)] / weight;
}

// A thread's share.
template <class V, class T>
void paged_rows(const qk::Paged& task, const qk::Span* spans, int64_t count) {
    const int64_t group = task.H / task.G;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i)
        if constexpr (std::is_same_v<T, int8_t>)
            one_span_int8<V>(task, spans[i]);
        else
            one_span<V, T>(task, spans[i]);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i) {
        if (spans[i].first_key) continue;
        for (int64_t r = 0; r < spans[i].rows * group; ++r) join<V, T>(task, spans[i], r);
    }
}

template <class V>
void paged_rows_of(const qk::Paged& task, const qk::Span* spans, int64_t count) {
    switch (task.kind) {
        case qk::INT8: return paged_rows<V, int8_t>(task, spans, count);
        case qk::BFLOAT16: return paged_rows<V, uint16_t>(task, spans, count);
        default: return paged_rows<V, float>(task, spans, count);
    }
}

}  // namespace
