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

PLACED Sums multiply_add(const Packet<16> &a, const Packet<8> &b, const Sums &sums, host::Site site = host::here()) {
  const uint32_t own[host::together_words] = {a.word[0], a.word[1], a.word[2], a.word[3], b.word[0], b.word[1]};
  const auto *words = host::together(own, site);
  const int lane = thread() % 32;
  const auto value = [](uint32_t pair, int k) { return as_float(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u); };
  Sums got;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4, column = 2 * (lane % 4) + i % 2;
    float total = sums.value[i];
    for (int k = 0; k < 16; ++k) {
      const int holder = k % 8 / 2, half = k / 8; // lane of a row of a, or of a column of b; columns 8 to 15
      total =
          total + value(words[4 * row + holder][2 * half + i / 2], k) * value(words[4 * column + holder][4 + half], k);
    }
    got.value[i] = total;
  }
  return got;
}

#undef PLACED

} // namespace port
