// What attention is asked to do. Knows addresses and strides, nothing of instruction sets or of models.
//
// Legend: H query heads, G key/value heads (H a multiple of G), D head width (a multiple of 32), B sequences,
// S tokens of a sequence, T its query rows: the last T of the S.
#pragma once
#include <cstdint>
#include <vector>

#include "kinds.h"

namespace qk {

constexpr int64_t SPAN_KEYS = 256;   // keys of a span
constexpr int64_t SPAN_ROWS = 32;    // query rows of a span at most, those of all heads that share keys
constexpr int64_t MOST_WIDTH = 256;  // D
constexpr float NOTHING = -3.0e38f;  // a maximum over no keys

struct Paged {
    const float* q;      // [all T, H, D]
    int64_t q_row, q_head;  // strides in elements, as all strides here
    const void* keys;    // [G, C, D]
    const void* values;
    int64_t head, row;   // strides of both
    int32_t kind;        // what keys and values are: a Kind
    int32_t threads;
    const int32_t* const* pages;  // [B]: token j of a sequence lies in row pages[j / 64] * 64 + j % 64
    const int64_t* lengths;       // [B]: S
    const int64_t* rows;          // [B]: T
    float* out;          // [all T, H, D], contiguous
    int64_t B, H, G, D;
    const float* key_scales;  // of INT8: [G, C], `scale_head` between heads
    const float* value_scales;
    int64_t scale_head;
};

struct Full {
    const float* q;  // [T, H, D]
    const float* k;  // [S, H, D]
    const float* v;
    int64_t q_row, q_head, k_row, k_head, v_row, v_head;
    float* out;      // [T, H, D], contiguous
    int64_t T, S, H, D;
    int32_t threads;
};

// One piece of work over the pages: some query rows of one sequence and kv head against one span of its keys.
struct Span {
    int64_t sequence, kv_head;
    int64_t first_row, rows;     // of the sequence's T
    int64_t out_row;             // of the first of them in q and out
    int64_t first_key, keys;
    float* partial;              // [rows * H / G][D + 16]: weighted sum of values, maximum, sum of weights
    int64_t spans;               // how many the same rows have: their partials lie one behind the other
};

// Floats of one partial row: whole cache lines.
inline int64_t partial_row(int64_t D) { return D + 16; }

// Everybody sees everybody. Only where AVX512_BF16 is there. Throws std::bad_alloc.
void full(const Full& task);

struct Job;

// Attention of any number of rows over pages, cut into pieces that a team of threads shares. The cuts depend on lengths
// alone, so every layer of a decoder has the same ones.
class PagedWork {
public:
    // In the instruction set `set`, which for PAIRS has to multiply bfloat16. One thread makes it, and its memory is
    // that thread's until it makes another one. Throws std::bad_alloc.
    PagedWork(int32_t set, const Paged& task);
    ~PagedWork();

    // A thread's share: every thread of a team calls it. `task` is the one it was made with, but for where keys and
    // values lie.
    void share(const Paged& task) const;

private:
    void cut_spans(const Paged& task);
    void cut_jobs(const Paged& task);

    int32_t set_;
    std::vector<Span> spans_;
    std::vector<Job> jobs_;
    char* rooms_ = nullptr;
    const void* keys_;
    const void* values_;
};

// A thread's share of some spans.
void paged_rows_plain(const Paged& task, const Span* spans, int64_t count);
void paged_rows_avx2(const Paged& task, const Span* spans, int64_t count);
void paged_rows_avx512(const Paged& task, const Span* spans, int64_t count);

}  // namespace qk
