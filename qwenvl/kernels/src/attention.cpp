// Attention cut into spans or jobs and handed to the instruction set. Knows lengths, computes nothing.
#include "attention.h"

#include <vector>

#include "attention_bf16.h"
#include "cpu.h"
#include "scratch.h"

namespace {

thread_local qk::Buffer buffer;

// All spans of some rows of one sequence, which end with the key that the last of these rows sees.
void add_spans(const qk::Paged& task, int64_t sequence, int64_t first_row, int64_t rows, int64_t out_row,
               std::vector<qk::Span>& spans) {
    const int64_t end = task.lengths[sequence] - task.rows[sequence] + first_row + rows;
    for (int64_t g = 0; g < task.G; ++g)
        for (int64_t key = 0; key < end; key += qk::SPAN_KEYS) {
            const int64_t keys = end - key < qk::SPAN_KEYS ? end - key : qk::SPAN_KEYS;
            spans.push_back({sequence, g, first_row, rows, out_row, key, keys, nullptr,
                             (end + qk::SPAN_KEYS - 1) / qk::SPAN_KEYS});
        }
}

#ifdef QK_AVX512_BF16
// What is common to all jobs of one head of keys of one sequence: `rows` rows from `first` on.
qk::Job job_of(const qk::Paged& task, int64_t sequence, int64_t out_row, int64_t first, int64_t rows, int64_t g) {
    const int64_t group = task.H / task.G, row = out_row + first;
    qk::Job job{};
    job.q = task.q + row * task.q_row + g * group * task.q_head;
    job.q_row = task.q_row, job.q_head = task.q_head, job.group = group, job.rows = rows * group;
    job.keys = static_cast<const uint32_t*>(task.keys) + g * task.head;
    job.values = static_cast<const uint32_t*>(task.values) + g * task.head;
    job.pages = task.pages[sequence];
    job.causal = true;
    job.visible = task.lengths[sequence] - task.rows[sequence] + first + 1;
    job.block = qk::PAGED_BLOCK, job.last_key = job.visible + rows - 1;
    job.out = task.out + (row * task.H + g * group) * task.D, job.out_row = task.H * task.D, job.D = task.D;
    return job;
}

// A job's keys block by block, each in a job of its own.
void split(const qk::Job& whole, std::vector<qk::Job>& jobs) {
    const int64_t parts = (whole.last_key + whole.block - 1) / whole.block;
    for (int64_t part = 0; part < parts; ++part) {
        qk::Job job = whole;
        job.first_key = part * job.block, job.parts = parts;
        if (part + 1 < parts) job.last_key = job.first_key + job.block;
        jobs.push_back(job);
    }
}
#endif

}  // namespace

qk::PagedWork::PagedWork(int32_t set, const Paged& task) : set_(set), keys_(task.keys), values_(task.values) {
    if (task.kind == PAIRS)
        cut_jobs(task);
    else
        cut_spans(task);
}

qk::PagedWork::~PagedWork() = default;

void qk::PagedWork::cut_spans(const Paged& task) {
    const int64_t most = SPAN_ROWS / (task.H / task.G), floats_a_row = task.H / task.G * partial_row(task.D);
    int64_t out_row = 0, floats = 0;
    for (int64_t b = 0; b < task.B; out_row += task.rows[b], ++b)
        for (int64_t row = 0; row < task.rows[b]; row += most) {
            const int64_t left = task.rows[b] - row;
            add_spans(task, b, row, left < most ? left : most, out_row + row, spans_);
        }
    for (const Span& span : spans_) floats += span.rows * floats_a_row;
    auto* partial = static_cast<float*>(buffer.at_least(static_cast<std::size_t>(floats) * sizeof(float)));
    for (Span& span : spans_) {
        span.partial = partial;
        partial += span.rows * floats_a_row;
    }
}

void qk::PagedWork::cut_jobs(const Paged& task) {
#ifdef QK_AVX512_BF16
    const int64_t most = job_rows(task.D) / (task.H / task.G), rooms = room_bytes(task.D) * task.threads;
    int64_t out_row = 0, floats = 0;
    for (int64_t b = 0; b < task.B; out_row += task.rows[b], ++b)
        for (int64_t first = 0; first < task.rows[b]; first += most)
            for (int64_t g = 0; g < task.G; ++g) {
                const int64_t left = task.rows[b] - first;
                jobs_.push_back(job_of(task, b, out_row, first, left < most ? left : most, g));
            }
    // too few to keep every thread busy to the end: their keys are shared, with the same bits
    if (static_cast<int64_t>(jobs_.size()) < 4 * task.threads) {
        std::vector<Job> parts;
        for (const Job& job : jobs_) split(job, parts);
        jobs_.swap(parts);
        for (const Job& job : jobs_) floats += job.rows * partial_row(task.D);
    }
    rooms_ = static_cast<char*>(buffer.at_least(static_cast<std::size_t>(rooms + floats * 4)));
    auto* partial = reinterpret_cast<float*>(rooms_ + rooms);
    for (Job& job : jobs_) {
        if (!floats) break;
        job.partial = partial;
        partial += job.rows * partial_row(task.D);
    }
#else
    (void)task;
#endif
}

void qk::PagedWork::share(const Paged& task) const {
    if (spans_.empty() && jobs_.empty()) return;
    const auto count = static_cast<int64_t>(spans_.size());
#ifdef QK_AVX512_BF16
    if (rooms_) {
        const auto* keys = static_cast<const uint32_t*>(task.keys);
        const auto* values = static_cast<const uint32_t*>(task.values);
        return share_jobs(jobs_.data(), static_cast<int64_t>(jobs_.size()), rooms_,
                          {keys - static_cast<const uint32_t*>(keys_), values - static_cast<const uint32_t*>(values_)});
    }
#endif
    switch (set_) {
#ifdef QK_AVX2
        case AVX2:
        case AVX_VNNI: return paged_rows_avx2(task, spans_.data(), count);
#endif
#ifdef QK_AVX512_VNNI
        case AVX512_VNNI: return paged_rows_avx512(task, spans_.data(), count);
#endif
        default: return paged_rows_plain(task, spans_.data(), count);
    }
}

void qk::full(const Full& task) {
#ifdef QK_AVX512_BF16
    if (!task.T || !task.H) return;
    std::vector<Job> jobs;
    const int64_t most = job_rows(task.D);
    for (int64_t h = 0; h < task.H; ++h)
        for (int64_t first = 0; first < task.T; first += most) {
            Job job{};
            job.q = task.q + first * task.q_row + h * task.q_head;
            job.q_row = task.q_row, job.group = 1;
            job.rows = task.T - first < most ? task.T - first : most;
            job.keys = task.k + h * task.k_head, job.values = task.v + h * task.v_head;
            job.k_row = task.k_row, job.v_row = task.v_row;
            job.block = FULL_BLOCK, job.last_key = task.S;
            job.out = task.out + (first * task.H + h) * task.D, job.out_row = task.H * task.D, job.D = task.D;
            jobs.push_back(job);
        }
    auto* rooms = static_cast<char*>(buffer.at_least(static_cast<std::size_t>(room_bytes(task.D) * task.threads)));
#pragma omp parallel num_threads(task.threads)
    share_jobs(jobs.data(), static_cast<int64_t>(jobs.size()), rooms, {});
#else
    (void)task;
#endif
}
