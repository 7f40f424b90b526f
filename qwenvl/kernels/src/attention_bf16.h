// What attention in bfloat16 is asked to do. Knows addresses and strides.
#pragma once
#include <cstdint>

#include "attention.h"

namespace qk {

// Keys whose weights are found under one maximum. The cuts are part of a row's bits, so each use has its own: few
// rows have to be shared among threads, pictures have rows enough.
constexpr int64_t PAGED_BLOCK = 256, FULL_BLOCK = 512;
// Of one job: what keeps its queries and sums in the L2 cache.
inline int64_t job_rows(int64_t D) { return 98304 / D; }

// Rows of one head (or of the heads that share keys: row r is token r / group, head r % group) against its keys.
struct Job {
    const float* q;
    int64_t q_row, q_head, group, rows;
    const void* keys;      // of PAIRS with `pages`; else float32, key j in row j
    const void* values;
    int64_t k_row, v_row;  // of float32
    const int32_t* pages;  // or null
    bool causal;           // then row r sees `visible` + r / group keys, else all
    int64_t visible;
    int64_t block;
    int64_t first_key, last_key;  // of this job, from a block's first on
    float* partial;        // or null: then the job has all keys, and its result goes to `out`
    int64_t parts;         // jobs with the same rows, their partials behind each other; the first one has first_key 0
    float* out;
    int64_t out_row;       // head after head, D apart
    int64_t D;
};

// Bytes that each thread needs.
int64_t room_bytes(int64_t D);

// By how many words of a store the jobs' keys and values lie elsewhere: in another layer.
struct Shift {
    int64_t keys = 0, values = 0;
};

// A thread's share of some jobs: every thread of a team calls it. `rooms` has room_bytes for each thread, aligned to 64.
void share_jobs(const Job* jobs, int64_t count, char* rooms, const Shift& shift);

}  // namespace qk
