// Host implementation of scaled_port.cuh.
#pragma once
#include "machine.hpp"

namespace port {

// Rounded to fp32 and cut off to bf16: for sums that bf16 has exactly.
inline unsigned multiply_add_pair(unsigned a, unsigned b, unsigned c) {
  const float low = fmaf(as_float(a << 16), as_float(b << 16), as_float(c << 16));
  const float high = fmaf(as_float(a & 0xffff0000u), as_float(b & 0xffff0000u), as_float(c & 0xffff0000u));
  return as_bits(low) >> 16 | (as_bits(high) & 0xffff0000u);
}

inline unsigned permute(unsigned a, unsigned b, unsigned bytes) {
  const unsigned long long all = static_cast<unsigned long long>(b) << 32 | a;
  unsigned chosen = 0;
  for (int i = 0; i < 4; ++i) chosen |= unsigned(all >> (bytes >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return chosen;
}

} // namespace port
