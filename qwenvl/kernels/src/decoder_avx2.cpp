// What stands between the products of a decoder layer, with AVX2.
#include "decoder_rows.h"

void qk::rms_norm_avx2(const RmsNorm& task) { rms_norm_rows(task); }
void qk::silu_mul_avx2(const SiluMul& task) { silu_mul_rows(task); }
void qk::place_share_avx2(const Place& task) { place_rows(task); }
