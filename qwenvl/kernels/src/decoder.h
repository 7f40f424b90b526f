// What stands between the products of a decoder layer, for rows of any sequences: tasks as Python fills them in.
// M rows; H query heads, G key/value heads, D head width; L tokens of room in the store.
#pragma once
#include <cstdint>

#include "kinds.h"

namespace qk {

constexpr int64_t MOST_PLACED = 512;  // D
constexpr int64_t WORTH_THREADS = 16;  // rows; fewer are done before a second thread has woken up

// out[m] = x[m] / rms(x[m]) * weight
struct RmsNorm {
    const float* x;
    const float* weight;
    float* out;
    int64_t M, K;
    float eps;
    int32_t threads;
};

// out[m] = silu(gate_up[m][:I]) * gate_up[m][I:]
struct SiluMul {
    const float* gate_up;
    float* out;
    int64_t M, I;
    int32_t threads;
};

// qkv [M, H + 2 G, D]: queries and keys are normalised and rotated, keys and values go to rows `slots` of the store.
struct Place {
    const float* qkv;
    const float* q_norm;
    const float* k_norm;
    const float* cos;  // [M, D]
    const float* sin;
    const int64_t* slots;  // [M]
    float* q;              // [M, H, D]
    void* keys;            // [G, L, D], `head` elements between heads
    void* values;
    int64_t head, M, H, G, D;
    float eps;
    int32_t kind, threads;  // kind: what keys and values become, a Kind
    float* key_scales;      // of INT8: [G, L], `scale_head` between heads
    float* value_scales;
    int64_t scale_head;
};

// A thread's share of the work: every thread of a team calls it.
void place_share(int32_t set, const Place& task);

void rms_norm_plain(const RmsNorm& task);
void silu_mul_plain(const SiluMul& task);
void place_share_plain(const Place& task);
void rms_norm_avx2(const RmsNorm& task);
void silu_mul_avx2(const SiluMul& task);
void place_share_avx2(const Place& task);
void rms_norm_avx512(const RmsNorm& task);
void silu_mul_avx512(const SiluMul& task);
void place_share_avx512(const Place& task);

}  // namespace qk
