// What numbers keys and values are kept in. Knows nothing of where they lie.
#pragma once
#include <cstdint>

namespace qk {

// INT8 has a float32 scale beside every row of a head: number = whole number * scale.
enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

}  // namespace qk
