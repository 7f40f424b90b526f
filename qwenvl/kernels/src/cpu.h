// The instruction sets that kernels are written for, in the order in which they are preferred (last = best).
#pragma once
#include <cstdint>
#include <initializer_list>

namespace qk {

enum Set : int32_t { PLAIN = 0, AVX2 = 1, AVX_VNNI = 2, AVX512_VNNI = 3, AVX512_BF16 = 4 };

// Bit s is set when this machine can run Set s. AVX512_BF16 is no choice of its own: it is what attention looks for
// where AVX512_VNNI is chosen.
uint32_t cpu_sets();

// Those of them that are compiled.
uint32_t usable_sets();

}  // namespace qk
