// Host implementation of tensor_port.cuh: all lanes of a warp meet, and each computes what it gets.
#pragma once
#include "machine.hpp"

namespace port {

// Inlined, so that the return address of the runtime's function tells the place.
#define PLACED [[gnu::always_inline]] inline

PLACED Packet<16> load_matrices(const void *row, host::Site site = host::here()) {
  host::check_aligned(row, 16, site);
  host::check_buffer("load_matrices", row, host::of_shared, site);
  host::count_load<16>("load_matrices", static_cast<int>(Data::weights), row, site);
  uint32_t own[host::together_words];
  memcpy(own, row, 16);
  const auto *rows = host::together(own, site);
  const int lane = thread() % 32;
  Packet<16> got;
  for (int m = 0; m < 4; ++m) got.word[m] = rows[8 * m + lane / 4][lane % 4];
  return got;
}

// A kernel has millions of these. A vector has the four sums of a lane, which are added from k = 0 to 15.
PLACED Sums multiply_add(const Packet<16> &a, const Packet<8> &b, const Sums &sums, host::Site site = host::here()) {
  using Floats [[gnu::vector_size(16)]] = float;
  using Words [[gnu::vector_size(16)]] = uint32_t;
  const uint32_t own[host::together_words] = {a.word[0], a.word[1], a.word[2], a.word[3], b.word[0], b.word[1]};
  const auto *words = host::together(own, site);
  const int row = 4 * (thread() % 32 / 4), column = 8 * (thread() % 4); // the first lanes that have them
  Floats total = {sums.value[0], sums.value[1], sums.value[2], sums.value[3]};
  for (int half = 0; half < 2; ++half) // columns 0 to 7 of a, then 8 to 15
    for (int holder = 0; holder < 4; ++holder) {
      const uint32_t *rows = words[row + holder] + 2 * half;
      const uint32_t b0 = words[column + holder][4 + half], b1 = words[column + 4 + holder][4 + half];
      const Words left = {rows[0], rows[0], rows[1], rows[1]}, right = {b0, b1, b0, b1};
      total += Floats(left << 16) * Floats(right << 16);
      total += Floats(left & 0xffff0000u) * Floats(right & 0xffff0000u);
    }
  return {{total[0], total[1], total[2], total[3]}};
}

#undef PLACED

} // namespace port
