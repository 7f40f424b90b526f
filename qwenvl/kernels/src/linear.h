// What one int8 product is asked to do. Knows bytes and strides, nothing of instruction sets or of models.
//
// Legend: M rows, N outputs, K inputs, P = ceil(N / 64) panels, K4 = ceil(K / 4).
// Panels are uint8 [P][K4][64][4]: weight (output n, input k) + 128 lies at panel n / 64, group k / 4, column n % 64,
// byte k % 4. Unsigned, because the dot product of these CPUs takes one unsigned and one signed operand, and the
// activation, being broadcast from memory, has to be the signed one. What the 128 adds is 128 * (sum of the row).
//
// The same int8 weights in 4 bits, 4.25 with what belongs to them: uint8 [P][ceil(K / 32)][17][64]. A group of 32 inputs
// of a panel's outputs is a line of codes and 16 lines of weights. The code of output n holds its step s - 1 in the low
// half, its zero z in the high one: weight = (q - z) * s, a whole number from -128 to 127, whatever q a group uses. The
// weights are [4][64][4]: byte i of output n in j holds q of input 4 j + i in its low half and of input 16 + 4 j + i in
// the high one. So s and z turn them into two pieces of what stands above, all sums stay integers, and a product reads
// a group from its first byte to its last.
#pragma once
#include <cstdint>

namespace qk {

constexpr int64_t PANEL = 64;

enum Format : int32_t { BYTES = 0, NIBBLES = 1 };

// Of the nibbles: inputs and bytes of a group.
constexpr int64_t GROUP = 32, GROUP_BYTES = 17 * 64;

enum Activation : int32_t { NO_ACTIVATION = 0, GELU_TANH = 1 };

// What a row goes through before it is quantised.
enum Before : int32_t {
    AS_IS = 0,
    RMS_NORM = 1,  // x / rms(x) * norm
    SILU_MUL = 2,  // x is [M, 2 K]: silu of the first half times the second
};

struct Linear {
    const float* x;         // [M, K], row stride x_stride
    int64_t x_stride;
    const uint8_t* panels;  // any alignment
    const float* scale;     // [P * 64], zeros behind N
    const float* bias;      // [P * 64], or null
    const float* residual;  // [M, N], row stride N, added last; or null
    float* out;             // [M, N], row stride N
    int64_t M, N, K;
    Activation activation;
    int32_t threads;
    Before before;
    float eps;              // of the norm
    const float* norm;      // [K]
    Format format;          // of the panels
};

// Rows quantised at once: bounds the scratch memory (int8 rows, their scales and sums), not the speed.
constexpr int64_t CHUNK_ROWS = 1024;
struct Scratch {
    int8_t* rows;    // [CHUNK_ROWS, row_stride(K)]; in plain C++ one for each thread
    float* scales;   // [CHUNK_ROWS]
    int32_t* sums;   // [CHUNK_ROWS]
    float* before;   // [threads, room_of(K)]: a row before it is quantised
};

// Floats between the threads' rooms: whole cache lines.
inline int64_t room_of(int64_t K) { return (K + 15) / 16 * 16; }

// Bytes of scratch for M rows of K inputs, and scratch in so many bytes, aligned to 64.
int64_t scratch_bytes(int32_t set, int64_t M, int64_t K, int32_t threads);
Scratch scratch_in(char* bytes, int32_t set, int64_t M, int64_t K, int32_t threads);

// One cache line more than needed: rows 4 KiB apart would fight for the same few places in the L1 cache.
inline int64_t row_stride(int64_t K) { return (K + 63) / 64 * 64 + 64; }

// A thread's share of the product, in the instructions of `set`, which this CPU has. Every thread of a team calls it;
// when it returns in one of them the product is done.
void linear_share(int32_t set, const Linear& task, const Scratch& scratch);

// The same for each set.
void linear_plain(const Linear& task, const Scratch& scratch);
void linear_avx2(const Linear& task, const Scratch& scratch);
void linear_avx_vnni(const Linear& task, const Scratch& scratch);
void linear_avx512_vnni(const Linear& task, const Scratch& scratch);

// int8 [N, K] -> panels, padded with zero weights.
void pack_panels(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads);

// int8 [N, K] -> nibbles, the step and the zero of every group those of the least squared error.
void pack_nibbles(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads);

}  // namespace qk
