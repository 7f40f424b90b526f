// A program that runs every kernel of this CPU on odd shapes, in memory of exactly the right size, and compares with
// plain loops in double. Built with address and undefined-behaviour checks, which stop it; knows no Python.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "attention.h"
#include "cpu.h"
#include "decoder.h"
#include "layers.h"
#include "linear.h"

extern "C" {
uint32_t qk_sets();
void qk_pack(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads);
void qk_pack_nibbles(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads);
int32_t qk_linear(int32_t set, const qk::Linear* task);
int32_t qk_paged(int32_t set, const qk::Paged* task);
int32_t qk_full(const qk::Full* task);
int32_t qk_layers(int32_t set, const qk::Layers* task);
void qk_place(int32_t set, const qk::Place* task);
}

namespace {

std::mt19937 generator(7);

std::vector<float> numbers(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& x : out) x = normal(generator);
    return out;
}

void check(bool right, const char* what, int set) {
    if (right) return;
    std::printf("%s is wrong in set %d\n", what, set);
    std::exit(1);
}

float rounded(float x) {  // to bfloat16, towards zero: any rounding does for a store
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits &= 0xffff0000u;
    std::memcpy(&x, &bits, 4);
    return x;
}

// Packs in 4 bits, and puts what was made of the weights in their place.
std::vector<uint8_t> nibbles_of(std::vector<int8_t>& weight, int64_t N, int64_t K) {
    const int64_t groups = (K + 31) / 32;
    std::vector<uint8_t> packed(static_cast<std::size_t>((N + 63) / 64 * groups * 17 * 64));
    qk_pack_nibbles(weight.data(), N, K, packed.data(), 2);
    for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k) {
            const uint8_t* group = packed.data() + (n / 64 * groups + k / 32) * 17 * 64;
            const int code = group[n % 64], half = static_cast<int>(k % 32 / 16);
            const int two = group[64 + (k % 16 / 4 * 64 + n % 64) * 4 + k % 4];
            const int made = ((two >> 4 * half & 15) - (code >> 4)) * ((code & 15) + 1);
            check(made >= -128 && made <= 127, "a weight in 4 bits", qk::PLAIN);
            weight[n * K + k] = static_cast<int8_t>(made);
        }
    return packed;
}

std::vector<uint8_t> bytes_of(const std::vector<int8_t>& weight, int64_t N, int64_t K) {
    std::vector<uint8_t> packed(static_cast<std::size_t>((N + 63) / 64 * ((K + 3) / 4) * 256));
    qk_pack(weight.data(), N, K, packed.data(), 2);
    return packed;
}

void try_linear(int set, int64_t M, int64_t N, int64_t K, qk::Format format) {
    const int64_t panels = (N + 63) / 64;
    std::vector<int8_t> weight(static_cast<std::size_t>(N * K));
    for (int8_t& w : weight) w = static_cast<int8_t>(static_cast<int>(generator() % 255) - 127);
    const std::vector<uint8_t> packed = format == qk::NIBBLES ? nibbles_of(weight, N, K) : bytes_of(weight, N, K);
    const std::vector<float> x = numbers(M * K), residual = numbers(M * N);
    std::vector<float> scale(static_cast<std::size_t>(panels * 64)), bias(scale.size()), out(residual.size());
    for (int64_t n = 0; n < N; ++n) {
        scale[n] = 0.01f * static_cast<float>(n % 7 + 1);
        bias[n] = static_cast<float>(n % 5);
    }
    const qk::Linear task{x.data(), K, packed.data(), scale.data(), bias.data(), residual.data(), out.data(),
                          M, N, K, qk::NO_ACTIVATION, 2, qk::AS_IS, 0.0f, nullptr, format};
    check(qk_linear(set, &task) == 0, "memory", set);
    for (int64_t m = 0; m < M; ++m) {
        float most = 0;
        for (int64_t k = 0; k < K; ++k) most = std::fmax(most, std::fabs(x[m * K + k]));
        const float s = most / 127.0f;
        for (int64_t n = 0; n < N; ++n) {
            int64_t sum = 0;
            for (int64_t k = 0; k < K; ++k)
                sum += static_cast<int64_t>(std::nearbyint(x[m * K + k] / s)) * weight[n * K + k];
            const double wanted = static_cast<double>(sum) * s * scale[n] + bias[n] + residual[m * N + n];
            check(std::fabs(out[m * N + n] - wanted) <= 1e-5 * (1 + std::fabs(wanted)), "a product", set);
        }
    }
}

struct Head {  // one query row and the keys it sees, as plain pointers
    const float* q;
    std::vector<const float*> keys, values;
};

// The largest difference from softmax(q . k / sqrt(D)) v.
double difference(const Head& head, int64_t D, const float* out) {
    std::vector<double> weights(head.keys.size()), wanted(static_cast<std::size_t>(D));
    double most = -1e300, sum = 0, worst = 0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
        for (int64_t d = 0; d < D; ++d) weights[j] += static_cast<double>(head.q[d]) * head.keys[j][d];
        weights[j] /= std::sqrt(static_cast<double>(D));
        most = std::fmax(most, weights[j]);
    }
    for (double& w : weights) sum += w = std::exp(w - most);
    for (std::size_t j = 0; j < weights.size(); ++j)
        for (int64_t d = 0; d < D; ++d) wanted[d] += weights[j] / sum * head.values[j][d];
    for (int64_t d = 0; d < D; ++d) worst = std::fmax(worst, std::fabs(wanted[d] - out[d]));
    return worst;
}

// Keys or values as a store has them in each kind, and the numbers that these stand for.
struct Store {
    std::vector<float> numbers, scales;
    std::vector<uint16_t> halves;
    std::vector<int8_t> bytes;

    Store(int64_t rows, int64_t D, int kind) : numbers(::numbers(rows * D)), scales(::numbers(rows)) {
        for (float& scale : scales) scale = std::fabs(scale) / 40;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            float& x = numbers[i];
            if (kind == qk::INT8) {
                bytes.push_back(static_cast<int8_t>(std::fmax(-127.0f, std::fmin(127.0f, x * 40))));
                x = scales[i / static_cast<std::size_t>(D)] * bytes.back();
                continue;
            }
            x = rounded(x);
            uint32_t bits;
            std::memcpy(&bits, &x, 4);
            halves.push_back(static_cast<uint16_t>(bits >> 16));
        }
    }

    // Keys as PAIRS have them, or values: page by page.
    void pair(bool of_values, int64_t D) {
        const std::vector<uint16_t> rows = halves;
        for (int64_t i = 0; i < static_cast<int64_t>(rows.size()); ++i) {
            const int64_t page = i / D / qk::PAGE * qk::PAGE * D, j = i / D % qk::PAGE, d = i % D;
            const int64_t at = of_values ? (j / 2 * D + d) * 2 + j % 2 : (d / 2 * qk::PAGE + j) * 2 + d % 2;
            halves[static_cast<std::size_t>(page + at)] = rows[static_cast<std::size_t>(i)];
        }
    }

    const void* data(int kind) const {
        if (kind == qk::INT8) return bytes.data();
        return kind == qk::FLOAT32 ? static_cast<const void*>(numbers.data()) : halves.data();
    }
};

void try_paged(int set, int64_t S, int64_t T, int64_t G, int64_t group, int64_t D, int kind, int threads) {
    const int64_t pages = (S + 63) / 64, rows = pages * 64, H = G * group;
    const std::vector<float> q = numbers(T * H * D);
    Store keys(G * rows, D, kind), values(G * rows, D, kind);
    if (kind == qk::PAIRS) keys.pair(false, D), values.pair(true, D);
    const int64_t width = kind == qk::PAIRS ? D / 2 : D;  // elements of a row
    std::vector<int32_t> table;
    for (int64_t page = pages; page--;) table.push_back(static_cast<int32_t>(page));  // last page first
    const int32_t* tables[] = {table.data()};
    std::vector<float> out(q.size());
    const qk::Paged task{q.data(), H * D, D, keys.data(kind), values.data(kind), rows * width, width, kind, threads, tables,
                         &S, &T, out.data(), 1, H, G, D, keys.scales.data(), values.scales.data(), rows};
    check(qk_paged(set, &task) == 0, "memory", set);
    for (int64_t t = 0; t < T; ++t)
        for (int64_t h = 0; h < H; ++h) {
            Head head{q.data() + (t * H + h) * D, {}, {}};
            for (int64_t j = 0; j < S - T + t + 1; ++j) {
                const int64_t at = (h / group * rows + table[j / 64] * 64 + j % 64) * D;
                head.keys.push_back(keys.numbers.data() + at), head.values.push_back(values.numbers.data() + at);
            }
            const double limit = kind == qk::PAIRS ? 3e-2 : kind == qk::INT8 ? 1e-3 : 1e-4;
            check(difference(head, D, out.data() + (t * H + h) * D) < limit, "attention over pages", set);
        }
}

// One token's keys and values, in whole numbers, in the last row of a store that ends right behind it.
void try_place_int8(int set, int64_t M, int64_t H, int64_t G, int64_t D) {
    const std::vector<float> qkv = numbers(M * (H + 2 * G) * D), ones(static_cast<std::size_t>(D), 1.0f);
    const std::vector<float> cos(static_cast<std::size_t>(M * D), 1.0f), sin(cos.size());
    std::vector<float> q(static_cast<std::size_t>(M * H * D)), scales(static_cast<std::size_t>(2 * G * M));
    std::vector<int8_t> store(static_cast<std::size_t>(2 * G * M * D));
    std::vector<int64_t> slots;
    for (int64_t m = M; m--;) slots.push_back(m);
    const qk::Place task{qkv.data(), ones.data(), ones.data(), cos.data(), sin.data(), slots.data(), q.data(),
                         store.data(), store.data() + G * M * D, M * D, M, H, G, D, 1e-6f, qk::INT8, 2,
                         scales.data(), scales.data() + G * M, M};
    qk_place(set, &task);
    for (int64_t m = 0; m < M; ++m)
        for (int64_t g = 0; g < G; ++g) {
            const int64_t row = G * M + g * M + slots[static_cast<std::size_t>(m)];
            for (int64_t d = 0; d < D; ++d) {
                const float off = scales[row] * store[row * D + d] - qkv[(m * (H + 2 * G) + H + G + g) * D + d];
                check(std::fabs(off) <= 0.501f * scales[row], "a value kept in int8", set);
            }
        }
}

void try_full(int64_t T, int64_t S, int64_t H, int64_t D) {
    const std::vector<float> q = numbers(T * H * D), k = numbers(S * H * D), v = numbers(S * H * D);
    std::vector<float> out(q.size());
    const qk::Full task{q.data(), k.data(), v.data(), H * D, D, H * D, D, H * D, D, out.data(), T, S, H, D, 2};
    check(qk_full(&task) == 0, "memory", qk::AVX512_BF16);
    for (int64_t t = 0; t < T; ++t)
        for (int64_t h = 0; h < H; ++h) {
            Head head{q.data() + (t * H + h) * D, {}, {}};
            for (int64_t j = 0; j < S; ++j)
                head.keys.push_back(k.data() + (j * H + h) * D), head.values.push_back(v.data() + (j * H + h) * D);
            check(difference(head, D, out.data() + (t * H + h) * D) < 3e-2, "attention", qk::AVX512_BF16);
        }
}

// Owns the weights of one product.
struct Product {
    std::vector<uint8_t> panels;
    std::vector<float> scale;
    qk::Linear task{};
    Product(int64_t N, int64_t K) : panels(static_cast<std::size_t>((N + 63) / 64 * ((K + 3) / 4) * 256)) {
        std::vector<int8_t> weight(static_cast<std::size_t>(N * K));
        for (int8_t& w : weight) w = static_cast<int8_t>(static_cast<int>(generator() % 255) - 127);
        qk_pack(weight.data(), N, K, panels.data(), 2);
        scale.resize(static_cast<std::size_t>((N + 63) / 64 * 64), 0.001f);
        task.panels = panels.data(), task.scale = scale.data(), task.N = N, task.K = K;
    }
};

// Two layers on M rows of one sequence, by one thread and by two: the same bits, and numbers at all.
void try_layers(int set, int64_t M, int kind) {
    constexpr int64_t H = 4, G = 2, D = 32, W = 70, I = 37, L = 2, ROOM = 192;
    const Product qkv((H + 2 * G) * D, W), out(W, H * D), gate_up(2 * I, W), down(W, I);
    const std::vector<float> norm = numbers(W), head_norm = numbers(D), x = numbers(M * W), angles = numbers(M * D);
    const qk::Layer layer{norm.data(), head_norm.data(), head_norm.data(), norm.data(), qkv.task, out.task,
                          gate_up.task, down.task, 1e-6f, 1e-6f};
    const qk::Layer layers[L] = {layer, layer};
    std::vector<int64_t> slots;
    for (int64_t m = 0; m < M; ++m) slots.push_back(m);
    const int32_t table[] = {0, 1, 2};
    const int32_t* pages[] = {table};
    std::vector<float> results[2] = {x, x};
    for (int threads : {1, 2}) {
        const int64_t bytes = kind == qk::INT8 ? 1 : kind == qk::FLOAT32 ? 4 : 2, width = kind == qk::PAIRS ? D / 2 : D;
        std::vector<int8_t> keys(static_cast<std::size_t>(L * G * ROOM * D * bytes)), values(keys.size());
        std::vector<float> scales(static_cast<std::size_t>(2 * L * G * ROOM));
        qk::Layers task{layers, L, results[threads - 1].data(), M, angles.data(), angles.data(), slots.data(),
                        G * ROOM * D * bytes, {}, G * ROOM};
        task.attention.keys = keys.data(), task.attention.values = values.data();
        task.attention.head = ROOM * width, task.attention.row = width, task.attention.kind = kind;
        task.attention.key_scales = scales.data(), task.attention.value_scales = scales.data() + L * G * ROOM;
        task.attention.scale_head = ROOM;
        task.attention.threads = threads, task.attention.pages = pages;
        task.attention.lengths = &M, task.attention.rows = &M;
        task.attention.B = 1, task.attention.H = H, task.attention.G = G, task.attention.D = D;
        check(qk_layers(set, &task) == 0, "memory", set);
    }
    for (float y : results[0]) check(std::isfinite(y), "a layer", set);
    check(results[0] == results[1] && results[0] != x, "a layer", set);
}

}  // namespace

int main() {
    for (int set = qk::PLAIN; set <= qk::AVX512_VNNI; ++set) {
        if (!(qk_sets() >> set & 1)) continue;
        const int64_t shapes[][3] = {{1, 64, 64}, {1, 1, 1}, {7, 65, 130}, {13, 200, 103}, {25, 63, 5}, {1030, 70, 33},
                                     {3, 128, 600}, {8, 64, 300}};
        for (const auto& [M, N, K] : shapes)
            for (qk::Format format : {qk::BYTES, qk::NIBBLES}) try_linear(set, M, N, K, format);
        std::vector<int> kinds{qk::FLOAT32, qk::BFLOAT16, qk::INT8};
        if (set == qk::AVX512_VNNI && qk_sets() >> qk::AVX512_BF16 & 1) kinds.push_back(qk::PAIRS);
        for (int kind : kinds)
            for (int threads : {1, 2}) {
                try_paged(set, 1, 1, 1, 1, 32, kind, threads);
                try_paged(set, 65, 8, 2, 2, 64, kind, threads);
                try_paged(set, 300, 1, 1, 4, 128, kind, threads);
                try_paged(set, 130, 70, 3, 3, 96, kind, threads);
                try_paged(set, 77, 3, 1, 7, 256, kind, threads);
            }
        for (int kind : kinds)
            for (int64_t M : {1, 5, 130}) try_layers(set, M, kind);
        try_place_int8(set, 1, 2, 1, 32);
        try_place_int8(set, 19, 3, 2, 70);
        std::printf("set %d: right\n", set);
    }
    if (qk_sets() >> qk::AVX512_BF16 & 1) {
        try_full(1, 1, 1, 32);
        try_full(70, 131, 2, 64);
        try_full(9, 600, 1, 96);
        std::printf("bfloat16: right\n");
    }
}
