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
// All jobs of one sequence.
void add_jobs(const qk::Paged& task, int64_t sequence, int64_t out_row, std::vector<qk::Job>& jobs) {
    const int64_t T = task.rows[sequence], before = task.lengths[sequence] - T, group = task.H / task.G, D = task.D;
    const auto* keys = static_cast<const uint16_t*>(task.keys);
    const auto* values = static_cast<const uint16_t*>(task.values);
    const int64_t most = qk::JOB_ROWS / group;
    for (int64_t first = 0; first < T; first += most)
        for (int64_t g = 0; g < task.G; ++g) {
            const int64_t tokens = T - first < most ? T - first : most, row = out_row + first;
            qk::Job job{};
            job.q = task.q + row * task.q_row + g * group * task.q_head;
            job.q_row = task.q_row, job.q_head = task.q_head, job.group = group, job.rows = tokens * group;
            job.keys = keys + g * task.head, job.values = values + g * task.head;
            job.k_row = job.v_row = task.row;
            job.pages = task.pages[sequence];
            job.bfloat16 = job.causal = true;
            job.visible = before + first + 1, job.seen = before + first + tokens;
            job.out = task.out + (row * task.H + g * group) * D, job.out_row = task.H * D, job.D = D;
            jobs.push_back(job);
        }
}

void run(const std::vector<qk::Job>& jobs, int32_t threads) {
    if (jobs.empty()) return;
    auto* rooms = static_cast<char*>(buffer.at_least(static_cast<std::size_t>(qk::room_bytes(jobs[0].D) * threads)));
    qk::run_jobs(jobs.data(), static_cast<int64_t>(jobs.size()), threads, rooms);
}
#endif

void run(int32_t set, const qk::Paged& task, std::vector<qk::Span>& spans) {
    const int64_t group = task.H / task.G, partial_bytes = group * qk::partial_row(task.D);
    std::size_t floats = 0;
    for (const qk::Span& span : spans) floats += static_cast<std::size_t>(span.rows * partial_bytes);
    auto* partial = static_cast<float*>(buffer.at_least(floats * sizeof(float)));
    for (qk::Span& span : spans) {
        span.partial = partial;
        partial += span.rows * partial_bytes;
    }
    const auto count = static_cast<int64_t>(spans.size());
    switch (set) {
#ifdef QK_AVX2
        case qk::AVX2:
        case qk::AVX_VNNI: return qk::paged_rows_avx2(task, spans.data(), count);
#endif
#ifdef QK_AVX512_VNNI
        case qk::AVX512_VNNI: return qk::paged_rows_avx512(task, spans.data(), count);
#endif
        default: return qk::paged_rows_plain(task, spans.data(), count);
    }
}

}  // namespace

void qk::paged(int32_t set, const Paged& task, bool products_in_bfloat16) {
    std::vector<Span> spans;
    std::vector<Job> jobs;
    const int64_t most = SPAN_ROWS / (task.H / task.G);
    int64_t out_row = 0;
    for (int64_t b = 0; b < task.B; ++b) {
        const int64_t T = task.rows[b];
        if (T > FEW_ROWS && products_in_bfloat16 && task.bfloat16) {
#ifdef QK_AVX512_BF16
            add_jobs(task, b, out_row, jobs);
#endif
        } else {
            for (int64_t row = 0; row < T; row += most)
                add_spans(task, b, row, T - row < most ? T - row : most, out_row + row, spans);
        }
        out_row += T;
    }
    if (!spans.empty()) run(set, task, spans);
#ifdef QK_AVX512_BF16
    run(jobs, task.threads);
#endif
}

void qk::full(const Full& task) {
#ifdef QK_AVX512_BF16
    std::vector<Job> jobs;
    for (int64_t h = 0; h < task.H; ++h)
        for (int64_t first = 0; first < task.T; first += JOB_ROWS) {
            Job job{};
            job.q = task.q + first * task.q_row + h * task.q_head;
            job.q_row = task.q_row, job.group = 1;
            job.rows = task.T - first < JOB_ROWS ? task.T - first : JOB_ROWS;
            job.keys = task.k + h * task.k_head, job.values = task.v + h * task.v_head;
            job.k_row = task.k_row, job.v_row = task.v_row;
            job.seen = task.S;
            job.out = task.out + (first * task.H + h) * task.D, job.out_row = task.H * task.D, job.D = task.D;
            jobs.push_back(job);
        }
    run(jobs, task.threads);
#else
    (void)task;
#endif
}
