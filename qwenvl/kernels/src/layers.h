// Decoder layers one after another in one call, without a way back to Python between them. Knows addresses; what a
// layer is made of is written in linear.h, decoder.h and attention.h.
//
// M rows of any sequences, W width, H query heads, G key/value heads, D head width.
#pragma once
#include "attention.h"
#include "linear.h"

namespace qk {

// Weights: what does not change from call to call. Of the products only panels, scale, bias, N and K are read.
struct Layer {
    const float* norm1;   // [W]
    const float* q_norm;  // [D]
    const float* k_norm;
    const float* norm2;   // [W]
    Linear qkv, out, gate_up, down;
    float norm_eps, head_eps;
};

struct Layers {
    const Layer* layers;  // [count]
    int64_t count;
    float* x;             // [M, W]: in and out
    int64_t M;
    const float* cos;     // [M, D]
    const float* sin;
    const int64_t* slots; // [M]: rows of the store where keys and values go
    int64_t layer_bytes;  // of the store's keys, and of its values, from one layer to the next
    Paged attention;      // q and out are ignored; keys, values and scales are the first layer's
    int64_t scale_layer;  // from the scales of one layer to those of the next
};

// Throws std::bad_alloc.
void layers(int32_t set, const Layers& task);

}  // namespace qk
