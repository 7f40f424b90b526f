// int8 weights to 4 bits, a group of 32 inputs of one output at a time. Plain C++ for every CPU: it runs once a model.
#include "linear.h"

namespace {

constexpr int GROUP = qk::GROUP, LANES = 8;
// Steps that are tried: from one more than covers the whole range, so that the zero need not fit it exactly, down to this
// part of it, which cuts off the largest.
constexpr float SMALLEST_STEP = 0.6f;

struct Group {
    float weights[GROUP];
    float least = 0, most = 0;
};

struct Choice {
    int step = 1, zero = 0;
    float error = 0;
    bool made = false;
};

inline float rounded(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: ties to even
    return (x + magic) - magic;
}

inline float within(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

// What q - z may be: q within 4 bits, and the weight within 8.
struct Bounds {
    float least, most;
    Bounds(int step, int zero) {
        least = static_cast<float>(zero < 128 / step ? -zero : -(128 / step));
        most = static_cast<float>(15 - zero < 127 / step ? 15 - zero : 127 / step);
    }
};

float error_of(const Group& group, int step, int zero) {
    const Bounds bounds(step, zero);
    const float s = static_cast<float>(step), part = 1.0f / s;
    float sums[LANES] = {};
    for (int k = 0; k < GROUP; k += LANES)
        for (int i = 0; i < LANES; ++i) {
            const float q = within(rounded(group.weights[k + i] * part), bounds.least, bounds.most);
            const float off = group.weights[k + i] - q * s;
            sums[i] += off * off;
        }
    float sum = 0;
    for (float lane : sums) sum += lane;
    return sum;
}

Choice best_of(const Group& group) {
    int widest = static_cast<int>((group.most - group.least + 14.0f) / 15.0f);
    const int narrowest = static_cast<int>(static_cast<float>(widest) * SMALLEST_STEP);
    widest = widest < 16 ? widest + 1 : 16;
    Choice best;
    for (int step = widest; step >= (narrowest < 1 ? 1 : narrowest); --step) {
        // with the least weight at 0, and with the largest at 15: between those something is cut off on both sides
        const int high = static_cast<int>(-group.least / static_cast<float>(step) + 0.5f);
        const int low = 15 - static_cast<int>(group.most / static_cast<float>(step) + 0.5f);
        const int first = (low < high ? low : high) - 1, last = (low < high ? high : low) + 1;
        for (int zero = first < 0 ? 0 : first; zero <= last && zero < 16; ++zero) {
            const float error = error_of(group, step, zero);
            if (!best.made || error < best.error) best = {step, zero, error, true};
        }
    }
    return best;
}

Group read_group(const int8_t* weights, int64_t count) {
    Group group;
    for (int64_t k = 0; k < GROUP; ++k) {
        const float w = k < count ? weights[k] : 0.0f;
        group.weights[k] = w;
        group.least = w < group.least ? w : group.least;
        group.most = w > group.most ? w : group.most;
    }
    return group;
}

void write_group(const Group& group, Choice choice, int64_t n, uint8_t* out) {
    const Bounds bounds(choice.step, choice.zero);
    out[n] = static_cast<uint8_t>((choice.step - 1) | choice.zero << 4);
    uint8_t* fours = out + 64 + n * 4;
    const float part = 1.0f / static_cast<float>(choice.step);
    for (int k = 0; k < 16; ++k) {
        int q[2];
        for (int half = 0; half < 2; ++half) {
            const float x = rounded(group.weights[k + 16 * half] * part);
            q[half] = static_cast<int>(within(x, bounds.least, bounds.most)) + choice.zero;
        }
        fours[k / 4 * qk::PANEL * 4 + k % 4] = static_cast<uint8_t>(q[0] | q[1] << 4);
    }
}

}  // namespace

void qk::pack_nibbles(const int8_t* weight, int64_t N, int64_t K, uint8_t* panels, int32_t threads) {
    const int64_t groups = (K + GROUP - 1) / GROUP, padded = (N + PANEL - 1) / PANEL * PANEL;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < padded; ++n)
        for (int64_t g = 0; g < groups; ++g) {
            // outputs behind the last are zeros
            const int64_t k = g * GROUP, left = n < N ? K - k : 0, start = n < N ? n * K + k : 0;
            const Group group = read_group(weight + start, left);
            write_group(group, best_of(group), n % PANEL, panels + (n / PANEL * groups + g) * GROUP_BYTES);
        }
}
