// Decoder layers in one team of threads: they meet at the end of each step, and nobody starts them anew.
#include "layers.h"

#include <algorithm>

#include "decoder.h"
#include "scratch.h"

namespace {

thread_local qk::Buffer buffer;

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// What lies between the steps of a layer, for all rows.
struct Room {
    float* qkv;       // [M, (H + 2 G) D]
    float* q;         // [M, H D]
    float* attended;  // [M, H D]
    float* gate_up;   // [M, 2 I]
    qk::Scratch scratch;
};

int64_t widest(const qk::Layer& layer) {
    return std::max({layer.qkv.K, layer.out.K, layer.gate_up.K, layer.down.K});
}

Room room_for(int32_t set, const qk::Layers& task) {
    const qk::Layer& layer = task.layers[0];
    const qk::Paged& a = task.attention;
    const int64_t heads = aligned(task.M * a.H * a.D * 4);
    const int64_t qkv = aligned(task.M * layer.qkv.N * 4), gate_up = aligned(task.M * layer.gate_up.N * 4);
    const int64_t scratch = qk::scratch_bytes(set, task.M, widest(layer), a.threads);
    auto* at = static_cast<char*>(buffer.at_least(static_cast<std::size_t>(qkv + 2 * heads + gate_up + scratch)));
    Room room{};
    room.qkv = reinterpret_cast<float*>(at);
    room.q = reinterpret_cast<float*>(at + qkv);
    room.attended = reinterpret_cast<float*>(at + qkv + heads);
    room.gate_up = reinterpret_cast<float*>(at + qkv + 2 * heads);
    room.scratch = qk::scratch_in(at + qkv + 2 * heads + gate_up, set, task.M, widest(layer), a.threads);
    return room;
}

class Team {
public:
    Team(int32_t set, const qk::Layers& task) : set_(set), task_(task), room_(room_for(set, task)) {}

    // A thread's share of one layer.
    void share(const qk::Layer& layer, const qk::PagedWork& work, const qk::Paged& attention) const {
        multiply(layer.qkv, task_.x, layer.qkv.K, room_.qkv, qk::RMS_NORM, layer.norm1, layer.norm_eps);
        qk::place_share(set_, placed(layer, attention));
        work.share(attention);
        multiply(layer.out, room_.attended, layer.out.K, task_.x);
        multiply(layer.gate_up, task_.x, layer.gate_up.K, room_.gate_up, qk::RMS_NORM, layer.norm2, layer.norm_eps);
        multiply(layer.down, room_.gate_up, 2 * layer.down.K, task_.x, qk::SILU_MUL);
    }

    qk::Paged attention(int64_t layer) const {
        qk::Paged attention = task_.attention;
        attention.q = room_.q, attention.q_row = attention.H * attention.D, attention.q_head = attention.D;
        attention.out = room_.attended;
        attention.keys = static_cast<const char*>(attention.keys) + layer * task_.layer_bytes;
        attention.values = static_cast<const char*>(attention.values) + layer * task_.layer_bytes;
        if (attention.kind != qk::INT8) return attention;
        attention.key_scales += layer * task_.scale_layer;
        attention.value_scales += layer * task_.scale_layer;
        return attention;
    }

private:
    // What is added to the rows of `x` is all that writes there.
    void multiply(qk::Linear product, const float* from, int64_t stride, float* to, qk::Before before = qk::AS_IS,
                  const float* norm = nullptr, float eps = 0) const {
        product.x = from, product.x_stride = stride, product.out = to;
        product.residual = to == task_.x ? to : nullptr;
        product.M = task_.M, product.threads = task_.attention.threads;
        product.before = before, product.norm = norm, product.eps = eps;
        qk::linear_share(set_, product, room_.scratch);
    }

    qk::Place placed(const qk::Layer& layer, const qk::Paged& a) const {
        qk::Place place{};
        place.qkv = room_.qkv, place.q_norm = layer.q_norm, place.k_norm = layer.k_norm;
        place.cos = task_.cos, place.sin = task_.sin, place.slots = task_.slots, place.q = room_.q;
        place.keys = const_cast<void*>(a.keys), place.values = const_cast<void*>(a.values);
        place.head = a.head, place.M = task_.M, place.H = a.H, place.G = a.G, place.D = a.D;
        place.eps = layer.head_eps, place.kind = a.kind, place.threads = a.threads;
        place.key_scales = const_cast<float*>(a.key_scales), place.value_scales = const_cast<float*>(a.value_scales);
        place.scale_head = a.scale_head;
        return place;
    }

    int32_t set_;
    const qk::Layers& task_;
    Room room_;
};

}  // namespace

void qk::layers(int32_t set, const Layers& task) {
    const Team team(set, task);
    const PagedWork work(set, team.attention(0));
#pragma omp parallel num_threads(task.attention.threads)
    for (int64_t layer = 0; layer < task.count; ++layer) team.share(task.layers[layer], work, team.attention(layer));
}
