// What stands between the products of a decoder layer, in plain C++: the reference that the others are compared with.
#include "decoder_rows.h"

void qk::rms_norm_plain(const RmsNorm& task) { rms_norm_rows(task); }
void qk::silu_mul_plain(const SiluMul& task) { silu_mul_rows(task); }
void qk::place_share_plain(const Place& task) { place_rows(task); }
