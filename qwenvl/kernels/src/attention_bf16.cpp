// Attention of many query rows with AVX512-BF16: pictures' patches, and the chunks of a prompt over pages. Knows
// heads, strides and pages; nothing of who sees whom beyond a number of visible keys for every row.
//
// Keys and values of a block are packed to pairs of bfloat16, once for all rows of a job. Six rows at a time meet the
// block: scores of 6 rows by 64 keys in 24 registers, an online softmax, then 6 rows by 64 columns of the result. A row
// goes through the same additions wherever it lies in the job, so its bits do not depend on how rows are cut.
#include "attention_bf16.h"

#include <immintrin.h>
#include <omp.h>

namespace {

using qk::Job;

constexpr int64_t KEYS = 512;   // of a block
constexpr int64_t TILE = 6;     // rows
constexpr int64_t PANEL = 64;   // keys, or columns, of a tile
constexpr float NOTHING = qk::NOTHING;

// What one thread works with. D is padded to whole panels in `values` and `sums`.
struct Room {
    uint32_t* keys;     // [KEYS / 64][D / 2][64]: elements 2i and 2i + 1 of a key are one pair
    uint32_t* values;   // [KEYS / 2][D]: keys 2i and 2i + 1 of a column are one pair
    uint16_t* q;        // [rows][D]
    float* sums;        // [rows][D]
    float* most;        // [rows]
    float* weight;      // [rows]
};

inline __m512bh pairs(__m512i x) { return reinterpret_cast<__m512bh>(x); }

inline __m512i everywhere(const uint16_t* pair) {
    return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(pair));
}

// 2^x for x <= 0, to 4e-6 relative.
inline __m512 power_of_two(__m512 x) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 part = _mm512_sub_ps(x, whole);
    __m512 p = _mm512_set1_ps(0.0096760371f);
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.0559220356f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.240221074f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0.693121034f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, whole);
}

// 16 elements as bfloat16, from either kind of store.
inline __m256i sixteen(const void* row, int64_t d, bool bfloat16) {
    if (bfloat16) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(row) + d));
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(static_cast<const float*>(row) + d)));
}

inline const void* row_of(const Job& job, const void* base, int64_t stride, int64_t j) {
    const int64_t row = job.pages ? job.pages[j / qk::PAGE] * qk::PAGE + j % qk::PAGE : j;
    return static_cast<const char*>(base) + row * stride * (job.bfloat16 ? 2 : 4);
}

// Keys and values first..first + count, the rest of the last panel zeros.
void pack_block(const Job& job, int64_t first, int64_t count, const Room& room) {
    const int64_t D = job.D, panels = (count + PANEL - 1) / PANEL;
    alignas(64) uint32_t line[qk::MOST_WIDTH / 2];
    for (int64_t j = 0; j < panels * PANEL; ++j) {
        uint32_t* to = room.keys + j / PANEL * (D / 2) * PANEL + j % PANEL;
        const void* row = j < count ? row_of(job, job.keys, job.k_row, first + j) : nullptr;
        for (int64_t d = 0; d < D; d += 16) {
            const __m256i part = row ? sixteen(row, d, job.bfloat16) : _mm256_setzero_si256();
            _mm256_store_si256(reinterpret_cast<__m256i*>(line + d / 2), part);
        }
        for (int64_t i = 0; i < D / 2; ++i) to[i * PANEL] = line[i];
    }
    for (int64_t j = 0; j < panels * PANEL; j += 2) {
        const void* even = j < count ? row_of(job, job.values, job.v_row, first + j) : nullptr;
        const void* odd = j + 1 < count ? row_of(job, job.values, job.v_row, first + j + 1) : nullptr;
        for (int64_t d = 0; d < D; d += 16) {
            const __m256i a = even ? sixteen(even, d, job.bfloat16) : _mm256_setzero_si256();
            const __m256i b = odd ? sixteen(odd, d, job.bfloat16) : _mm256_setzero_si256();
            const __m512i both = _mm512_or_si512(_mm512_cvtepu16_epi32(a),
                                                 _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
            _mm512_storeu_si512(room.values + j / 2 * D + d, both);
        }
    }
}

// Scaled for powers of two, to bfloat16; rows up to a whole tile are zeros.
void pack_queries(const Job& job, const Room& room) {
    const int64_t D = job.D, tiles = (job.rows + TILE - 1) / TILE;
    const __m512 scale = _mm512_set1_ps(1.44269504f / __builtin_sqrtf(static_cast<float>(D)));
    for (int64_t r = 0; r < tiles * TILE; ++r) {
        const float* from = job.q + r / job.group * job.q_row + r % job.group * job.q_head;
        for (int64_t d = 0; d < D; d += 16) {
            const __m512 x = r < job.rows ? _mm512_mul_ps(_mm512_loadu_ps(from + d), scale) : _mm512_setzero_ps();
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(room.q + r * D + d),
                                reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
            _mm512_storeu_ps(room.sums + r * D + d, _mm512_setzero_ps());
        }
        room.most[r] = NOTHING;
        room.weight[r] = 0;
    }
}

// scores[6][KEYS], 64 of each row, and the largest of each row so far in each of 16 lanes.
inline void score_tile(const uint16_t* q, const uint32_t* keys, int64_t D, float* scores, __m512* most) {
    __m512 sums[TILE][4];
#pragma GCC unroll 6
    for (int r = 0; r < TILE; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_ps();
    for (int64_t i = 0; i < D / 2; ++i, keys += PANEL) {
        __m512bh k[4];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) k[c] = pairs(_mm512_loadu_si512(keys + c * 16));
#pragma GCC unroll 6
        for (int r = 0; r < TILE; ++r) {
            const __m512bh a = pairs(everywhere(q + r * D + 2 * i));
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_dpbf16_ps(sums[r][c], k[c], a);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < TILE; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) _mm512_store_ps(scores + r * KEYS + c * 16, sums[r][c]);
        most[r] = _mm512_max_ps(most[r], _mm512_max_ps(_mm512_max_ps(sums[r][0], sums[r][1]),
                                                       _mm512_max_ps(sums[r][2], sums[r][3])));
    }
}

// sums[6][D] = shrink * sums + weights[6][KEYS] . values, C * 16 columns.
template <int C>
inline void value_tile(const uint16_t* weights, const uint32_t* values, int64_t count, int64_t D, const float* shrink,
                       float* sums) {
    __m512 s[TILE][C];
#pragma GCC unroll 6
    for (int r = 0; r < TILE; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c)
            s[r][c] = _mm512_mul_ps(_mm512_loadu_ps(sums + r * D + c * 16), _mm512_set1_ps(shrink[r]));
    for (int64_t j = 0; j < count; j += 2, values += D) {
        __m512bh v[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) v[c] = pairs(_mm512_loadu_si512(values + c * 16));
#pragma GCC unroll 6
        for (int r = 0; r < TILE; ++r) {
            const __m512bh w = pairs(everywhere(weights + r * KEYS + j));
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) s[r][c] = _mm512_dpbf16_ps(s[r][c], v[c], w);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < TILE; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) _mm512_storeu_ps(sums + r * D + c * 16, s[r][c]);
}

// Keys from `visible` on are none of this row's; its largest score is looked for again.
inline __m512 hide(float* scores, int64_t visible, int64_t count) {
    __m512 most = _mm512_set1_ps(NOTHING);
    for (int64_t j = 0; j < count; j += 16) {
        const int64_t left = visible - j;
        const __mmask16 seen = left >= 16 ? 0xffff : left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
        const __m512 x = _mm512_mask_blend_ps(seen, _mm512_set1_ps(NOTHING), _mm512_load_ps(scores + j));
        _mm512_store_ps(scores + j, x);
        most = _mm512_max_ps(most, x);
    }
    return most;
}

// One row's scores to weights in bfloat16, under its running maximum; what its earlier sums shrink by.
inline float weigh(const float* scores, int64_t count, __m512 lanes, float* most, float* weight, uint16_t* weights) {
    const float before = *most, found = _mm512_reduce_max_ps(lanes), now = found > before ? found : before;
    const __m512 base = _mm512_set1_ps(now);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    for (int64_t j = 0; j < count; j += 32) {
        const __m512 p0 = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + j), base));
        const __m512 p1 = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + j + 16), base));
        sum0 = _mm512_add_ps(sum0, p0);
        sum1 = _mm512_add_ps(sum1, p1);
        _mm512_store_si512(weights + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p1, p0)));
    }
    const float shrink = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps(before - now)));
    *weight = *weight * shrink + _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
    *most = now;
    return shrink;
}

// Six rows against the packed block of keys first..first + count.
void tile_of_rows(const Job& job, const Room& room, int64_t row, int64_t first, int64_t count) {
    const int64_t D = job.D, panels = (count + PANEL - 1) / PANEL, padded = panels * PANEL;
    alignas(64) float scores[TILE * KEYS];
    alignas(64) uint16_t weights[TILE * KEYS];
    __m512 most[TILE];
    float shrink[TILE];
    for (auto& m : most) m = _mm512_set1_ps(NOTHING);
    for (int64_t p = 0; p < panels; ++p)
        score_tile(room.q + row * D, room.keys + p * (D / 2) * PANEL, D, scores + p * PANEL, most);
    for (int64_t r = 0; r < TILE; ++r) {
        const int64_t visible = job.causal ? job.visible + (row + r) / job.group - first : count;
        if (visible < padded) most[r] = hide(scores + r * KEYS, visible < count ? visible : count, padded);
        shrink[r] = weigh(scores + r * KEYS, padded, most[r], room.most + row + r, room.weight + row + r,
                          weights + r * KEYS);
    }
    float* sums = room.sums + row * D;
    int64_t d = 0;
    for (; d + PANEL <= D; d += PANEL) value_tile<4>(weights, room.values + d, padded, D, shrink, sums + d);
    if (d < D) value_tile<2>(weights, room.values + d, padded, D, shrink, sums + d);
}

void one_job(const Job& job, const Room& room) {
    const int64_t D = job.D;
    pack_queries(job, room);
    for (int64_t first = 0; first < job.seen; first += KEYS) {
        const int64_t count = job.seen - first < KEYS ? job.seen - first : KEYS;
        pack_block(job, first, count, room);
        for (int64_t row = 0; row < job.rows; row += TILE) {
            // the last of these rows sees the most
            if (job.causal && job.visible + (row + TILE - 1) / job.group <= first) continue;
            tile_of_rows(job, room, row, first, count);
        }
    }
    for (int64_t r = 0; r < job.rows; ++r) {
        float* out = job.out + r / job.group * job.out_row + r % job.group * D;
        const __m512 weight = _mm512_set1_ps(room.weight[r]);
        for (int64_t d = 0; d < D; d += 16)
            _mm512_storeu_ps(out + d, _mm512_div_ps(_mm512_loadu_ps(room.sums + r * D + d), weight));
    }
}

inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

int64_t qk::room_bytes(int64_t D) {
    const int64_t rows = JOB_ROWS + TILE;
    return 2 * aligned(KEYS * D * 2) + aligned(rows * D * 2) + aligned(rows * D * 4) + 2 * aligned(rows * 4) + 4096;
}

void qk::run_jobs(const Job* jobs, int64_t count, int32_t threads, char* rooms) {
#pragma omp parallel num_threads(threads)
    {
        const int64_t D = jobs[0].D, rows = JOB_ROWS + TILE;
        char* at = rooms + omp_get_thread_num() * room_bytes(D);
        const auto take = [&at](int64_t bytes) {
            char* here = at;
            at += aligned(bytes);
            return static_cast<void*>(here);
        };
        Room room;
        room.keys = static_cast<uint32_t*>(take(KEYS * D * 2));
        room.values = static_cast<uint32_t*>(take(KEYS * D * 2));
        room.q = static_cast<uint16_t*>(take(rows * D * 2));
        room.sums = static_cast<float*>(take(rows * D * 4));
        room.most = static_cast<float*>(take(rows * 4));
        room.weight = static_cast<float*>(take(rows * 4));
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < count; ++i) one_job(jobs[i], room);
    }
}
