// What attention of many rows in bfloat16 is asked to do. Knows addresses and strides.
#pragma once
#include <cstdint>

#include "attention.h"

namespace qk {

constexpr int64_t JOB_ROWS = 768;  // query rows of a job at most, those of all heads that share keys

// Rows of one head (or of the heads that share keys: row r is token r / group, head r % group) against its keys.
struct Job {
    const float* q;
    int64_t q_row, q_head, group, rows;
    const void* keys;
    const void* values;
    int64_t k_row, v_row;
    const int32_t* pages;  // or null: key j lies in row j
    bool bfloat16;         // what keys and values are; else float32
    bool causal;           // then row r sees `visible` + r / group keys, else all
    int64_t visible;
    int64_t seen;          // keys that the last row sees
    float* out;
    int64_t out_row;       // head after head, D apart
    int64_t D;
};

// Bytes that each thread needs.
int64_t room_bytes(int64_t D);

// `rooms` has room_bytes for each thread, aligned to 64.
void run_jobs(const Job* jobs, int64_t count, int32_t threads, char* rooms);

}  // namespace qk
