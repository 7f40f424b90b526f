// Attention with AVX512-BF16: pictures' patches, and text over pages, one new token or a whole chunk. Knows heads,
// strides and pages; nothing of who sees whom beyond a number of visible keys for every row.
//
// Keys and values are pairs of bfloat16: a store has them so, those of a picture are laid out so, a block at a time and
// once for all rows of a job. Each block gives every row a part under the block's own maximum, and parts are joined in order. A row goes through the same additions wherever
// it lies in a job and whether its blocks are shared among threads or not, so its bits do not depend on that.
#include "attention_bf16.h"

#include <omp.h>

#include "attention_tiles.h"

namespace {

// So few rows wait for keys from memory: these are fetched while others are worked on.
constexpr int64_t FEW_ROWS = 36;

// What one thread works with.
struct Room {
    uint32_t* keys;     // [panels][D / 2][64]
    uint32_t* values;   // [panels][32][D]
    uint16_t* q;        // [rows][D]
    float* sums;        // [rows][D], of all blocks so far
    float* most;        // [rows]
    float* weight;      // [rows]
    float* scores;      // [FEW_ROWS][STRIDE]
    uint16_t* weights;  // [FEW_ROWS][STRIDE]
    float* part_sums;   // [FEW_ROWS][D], of one block
    float part_most[FEW_ROWS], part_weight[FEW_ROWS];
};

// Scaled for powers of two, to bfloat16.
void pack_queries(const Job& job, const Room& room) {
    const __m512 scale = _mm512_set1_ps(1.44269504f / __builtin_sqrtf(static_cast<float>(job.D)));
    for (int64_t r = 0; r < job.rows; ++r) {
        const float* from = job.q + r / job.group * job.q_row + r % job.group * job.q_head;
        for (int64_t d = 0; d < job.D; d += 32) {
            const __m512 a = _mm512_mul_ps(_mm512_loadu_ps(from + d), scale);
            const __m512 b = _mm512_mul_ps(_mm512_loadu_ps(from + d + 16), scale);
            _mm512_store_si512(room.q + r * job.D + d, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
            _mm512_store_ps(room.sums + r * job.D + d, _mm512_setzero_ps());
            _mm512_store_ps(room.sums + r * job.D + d + 16, _mm512_setzero_ps());
        }
        room.most[r] = NOTHING;
        room.weight[r] = 0;
    }
}

// The page of keys or values that begins at token j of this job, if there is one.
Ahead page_at(const Job& job, const void* base, int64_t j) {
    if (!job.pages || j >= job.last_key) return {};
    return {reinterpret_cast<const char*>(page_of(job, base, j))};
}

// Panel p of a block's keys [D / 2][64], and of its values [32][D].
const uint32_t* key_panel(const Job& job, const Room& room, int64_t first, int64_t keys, int64_t p) {
    if (job.pages) return page_of(job, job.keys, first + p * PANEL);
    uint32_t* panel = room.keys + p * PANEL * job.D / 2;
    pack_keys(job, first + p * PANEL, keys - p * PANEL, panel);
    return panel;
}

const uint32_t* value_panel(const Job& job, const Room& room, int64_t first, int64_t keys, int64_t p) {
    uint32_t* panel = room.values + p * PANEL * job.D / 2;
    if (!job.pages) {
        pack_values(job, first + p * PANEL, keys - p * PANEL, panel);
        return panel;
    }
    const uint32_t* page = page_of(job, job.values, first + p * PANEL);
    if (keys - p * PANEL >= PANEL) return page;
    first_values(page, keys - p * PANEL, job.D, panel);
    return panel;
}

template <int LINES>
void score_some(int64_t rows, const uint16_t* q, const uint32_t* keys, int64_t D, float* scores, __m512* most,
                Ahead& ahead) {
    switch (rows) {
        case 1: return score_tile<1, LINES>(q, keys, D, scores, most, ahead);
        case 2: return score_tile<2, LINES>(q, keys, D, scores, most, ahead);
        case 3: return score_tile<3, LINES>(q, keys, D, scores, most, ahead);
        case 4: return score_tile<4, LINES>(q, keys, D, scores, most, ahead);
        case 5: return score_tile<5, LINES>(q, keys, D, scores, most, ahead);
        default: return score_tile<6, LINES>(q, keys, D, scores, most, ahead);
    }
}

// Up to six rows; what lies ahead is fetched once.
void score_rows(int64_t rows, const uint16_t* q, const uint32_t* keys, int64_t D, float* scores, __m512* most,
                Ahead& ahead) {
    if (!ahead.at) return score_some<0>(rows, q, keys, D, scores, most, ahead);
    score_some<4>(rows, q, keys, D, scores, most, ahead);
    ahead.at = nullptr;
}

template <int LINES>
void add_some(int64_t rows, const uint16_t* weights, const uint32_t* values, int64_t count, int64_t D, bool fresh,
              float* sums, Ahead& ahead) {
    switch (rows) {
        case 1: return values_of_rows<1, LINES>(weights, values, count, D, fresh, sums, ahead);
        case 2: return values_of_rows<2, LINES>(weights, values, count, D, fresh, sums, ahead);
        case 3: return values_of_rows<3, LINES>(weights, values, count, D, fresh, sums, ahead);
        case 4: return values_of_rows<4, LINES>(weights, values, count, D, fresh, sums, ahead);
        case 5: return values_of_rows<5, LINES>(weights, values, count, D, fresh, sums, ahead);
        default: return values_of_rows<6, LINES>(weights, values, count, D, fresh, sums, ahead);
    }
}

void add_rows(int64_t rows, const uint16_t* weights, const uint32_t* values, int64_t count, int64_t D, bool fresh,
              float* sums, Ahead& ahead) {
    if (!ahead.at) return add_some<0>(rows, weights, values, count, D, fresh, sums, ahead);
    add_some<4>(rows, weights, values, count, D, fresh, sums, ahead);
    ahead.at = nullptr;
}

// Scores of rows row..row + count (of the job) to weights. `at` is their place in scores, weights and parts.
void weigh_rows(const Job& job, Room& room, int64_t row, int64_t rows, int64_t at, int64_t first, int64_t keys,
                const __m512* most) {
    const int64_t padded = (keys + PANEL - 1) / PANEL * PANEL;
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t seen = job.causal ? job.visible + (row + r) / job.group - first : keys;
        float* scores = room.scores + (at + r) * STRIDE;
        const __m512 lanes = seen < padded ? hide(scores, seen < keys ? seen : keys, padded) : most[r];
        room.part_most[at + r] =
            weigh(scores, padded, lanes, room.part_weight + at + r, room.weights + (at + r) * STRIDE);
    }
}

void join_rows(const Job& job, Room& room, int64_t row, int64_t rows, int64_t at) {
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t to = row + r, from = at + r;
        join({room.sums + to * job.D, room.most + to, room.weight + to},
             {room.part_sums + from * job.D, room.part_most + from, room.part_weight + from}, job.D);
    }
}

// Many rows: every panel is found first, then six rows at a time go through the whole block.
void block_of_many(const Job& job, Room& room, int64_t first, int64_t keys) {
    const int64_t D = job.D, panels = (keys + PANEL - 1) / PANEL;
    const uint32_t *k[STRIDE / PANEL], *v[STRIDE / PANEL];
    for (int64_t p = 0; p < panels; ++p)
        k[p] = key_panel(job, room, first, keys, p), v[p] = value_panel(job, room, first, keys, p);
    Ahead none;
    for (int64_t row = 0; row < job.rows; row += TILE) {
        const int64_t rows = job.rows - row < TILE ? job.rows - row : TILE;
        // the last of these rows sees the most
        if (job.causal && job.visible + (row + rows - 1) / job.group <= first) continue;
        __m512 most[TILE];
        for (auto& m : most) m = _mm512_set1_ps(NOTHING);
        for (int64_t p = 0; p < panels; ++p)
            score_rows(rows, room.q + row * D, k[p], D, room.scores + p * PANEL, most, none);
        weigh_rows(job, room, row, rows, 0, first, keys, most);
        // panels that lie one behind the other are one
        for (int64_t p = 0, next; p < panels; p = next) {
            for (next = p + 1; next < panels && v[next] == v[next - 1] + PANEL * D / 2;) ++next;
            add_rows(rows, room.weights + p * PANEL, v[p], (next - p) * PANEL, D, p == 0, room.part_sums, none);
        }
        join_rows(job, room, row, rows, 0);
    }
}

// Few rows: a panel of keys at a time, while the values of the same tokens are fetched, and then the other way round.
void block_of_few(const Job& job, Room& room, int64_t first, int64_t keys) {
    const int64_t D = job.D, panels = (keys + PANEL - 1) / PANEL;
    __m512 most[FEW_ROWS];
    for (auto& m : most) m = _mm512_set1_ps(NOTHING);
    for (int64_t p = 0; p < panels; ++p) {
        Ahead soon = page_at(job, job.values, first + p * PANEL);
        const uint32_t* k = key_panel(job, room, first, keys, p);
        for (int64_t row = 0; row < job.rows; row += TILE)
            score_rows(job.rows - row, room.q + row * D, k, D, room.scores + row * STRIDE + p * PANEL, most + row,
                       soon);
    }
    weigh_rows(job, room, 0, job.rows, 0, first, keys, most);
    for (int64_t p = 0; p < panels; ++p) {
        Ahead soon = page_at(job, job.keys, first + job.block + p * PANEL);
        const uint32_t* v = value_panel(job, room, first, keys, p);
        for (int64_t row = 0; row < job.rows; row += TILE)
            add_rows(job.rows - row, room.weights + row * STRIDE + p * PANEL, v, PANEL, D, p == 0,
                     room.part_sums + row * D, soon);
    }
    join_rows(job, room, 0, job.rows, 0);
}

void finish(const Job& job, int64_t r, const Part& row) {
    float* out = job.out + r / job.group * job.out_row + r % job.group * job.D;
    const __m512 weight = _mm512_set1_ps(*row.weight);
    for (int64_t d = 0; d < job.D; d += 16)
        _mm512_storeu_ps(out + d, _mm512_div_ps(_mm512_load_ps(row.sums + d), weight));
}

Part partial_of(const Job& job, int64_t part, int64_t r) {
    float* at = job.partial + (part * job.rows + r) * qk::partial_row(job.D);
    return {at, at + job.D, at + job.D + 1};
}

void one_job(const Job& job, Room& room) {
    pack_queries(job, room);
    for (int64_t first = job.first_key; first < job.last_key; first += job.block) {
        const int64_t left = job.last_key - first, keys = left < job.block ? left : job.block;
        if (job.rows <= FEW_ROWS)
            block_of_few(job, room, first, keys);
        else
            block_of_many(job, room, first, keys);
    }
    for (int64_t r = 0; r < job.rows; ++r) {
        const Part row{room.sums + r * job.D, room.most + r, room.weight + r};
        if (!job.partial) {
            finish(job, r, row);
            continue;
        }
        const Part to = partial_of(job, 0, r);
        for (int64_t d = 0; d < job.D; ++d) to.sums[d] = row.sums[d];
        *to.most = *row.most, *to.weight = *row.weight;
    }
}

// The parts of a row that several jobs have, joined to the first one's.
void join_jobs(const Job& job) {
    for (int64_t r = 0; r < job.rows; ++r) {
        const Part row = partial_of(job, 0, r);
        for (int64_t part = 1; part < job.parts; ++part) join(row, partial_of(job, part, r), job.D);
        finish(job, r, row);
    }
}

inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Cuts a room out of memory; without memory it finds out how much is needed.
class Cutter {
public:
    explicit Cutter(char* at) : at_(at) {}
    template <class T>
    T* take(int64_t count) {
        char* here = at_ ? at_ + used : nullptr;
        used += aligned(count * static_cast<int64_t>(sizeof(T)));
        return reinterpret_cast<T*>(here);
    }
    int64_t used = 0;

private:
    char* at_;
};

Room room_in(Cutter& cutter, int64_t D) {
    const int64_t rows = qk::job_rows(D);
    Room room{};
    room.keys = cutter.take<uint32_t>(qk::FULL_BLOCK * D / 2);
    room.values = cutter.take<uint32_t>(qk::FULL_BLOCK * D / 2);
    room.q = cutter.take<uint16_t>(rows * D);
    room.sums = cutter.take<float>(rows * D);
    room.most = cutter.take<float>(rows);
    room.weight = cutter.take<float>(rows);
    room.scores = cutter.take<float>(FEW_ROWS * STRIDE);
    room.weights = cutter.take<uint16_t>(FEW_ROWS * STRIDE);
    room.part_sums = cutter.take<float>(FEW_ROWS * D);
    return room;
}

}  // namespace

int64_t qk::room_bytes(int64_t D) {
    Cutter cutter(nullptr);
    room_in(cutter, D);
    return cutter.used;
}

void qk::share_jobs(const Job* jobs, int64_t count, char* rooms, const Shift& shift) {
    Cutter cutter(rooms + omp_get_thread_num() * room_bytes(jobs[0].D));
    Room room = room_in(cutter, jobs[0].D);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) {
        Job job = jobs[i];
        if (job.pages) {
            job.keys = static_cast<const uint32_t*>(job.keys) + shift.keys;
            job.values = static_cast<const uint32_t*>(job.values) + shift.values;
        }
        one_job(job, room);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i)
        if (jobs[i].partial && jobs[i].first_key == 0) join_jobs(jobs[i]);
}
