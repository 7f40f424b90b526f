// What numbers keys and values are kept in. Knows nothing of where they lie.
#pragma once
#include <cstdint>

namespace qk {

// INT8 has a float32 scale beside every row of a head: number = whole number * scale.
// PAIRS are bfloat16, two to a word, a page of 64 tokens in the order in which products of pairs take them: of keys
// uint32 [D / 2][64], elements 2 i and 2 i + 1 of each token; of values uint32 [32][D], each element of tokens 2 j and
// 2 j + 1. Strides count words.
enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, PAIRS = 3 };

constexpr int64_t PAGE = 64;  // tokens

}  // namespace qk
