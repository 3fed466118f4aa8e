// Host implementation of tensor_port.cuh: all lanes of a warp meet, and each computes what it gets.
#pragma once
#include "machine.hpp"

namespace port {

inline int thread_anew() { return thread(); }

// Inlined, so that the return address of the runtime's function tells the place.
#define PLACED [[gnu::always_inline]] inline

// A kernel has millions of these: a vector has the four sums of a lane.
template <int N> PLACED Sums multiply_add(const void *row, const Packet<8> *b, Sums s, host::Site site = host::here()) {
  using Floats [[gnu::vector_size(16)]] = float;
  using Words [[gnu::vector_size(16)]] = uint32_t;
  host::check_aligned(row, 16, site);
  host::check_buffer("multiply_add", row, host::of_shared, site);
  host::count_load<16>("multiply_add", static_cast<int>(Data::weights), row, site);
  uint32_t own[4 + 2 * N];
  memcpy(own, row, 16);
  memcpy(own + 4, b, 8 * N);
  const auto *words = host::together(own, sizeof own, site);
  const int g = thread() % 32 / 4, column = 8 * (thread() % 4); // the first lane that has the first of its columns
  Floats total = {s.value[0], s.value[1], s.value[2], s.value[3]};
  for (int n = N - 1; n >= 0; --n)
    for (int half = 0; half < 2; ++half) // columns 0 to 7 of a, then 8 to 15
      for (int pair = 0; pair < 4; ++pair) {
        const uint32_t upper = words[16 * half + g][pair], lower = words[16 * half + 8 + g][pair];
        const int word = 4 + 2 * n + half;
        const uint32_t b0 = words[column + pair][word], b1 = words[column + 4 + pair][word];
        const Words left = {upper, upper, lower, lower}, right = {b0, b1, b0, b1};
        total += Floats(left << 16) * Floats(right << 16) + Floats(left & 0xffff0000u) * Floats(right & 0xffff0000u);
      }
  return {{total[0], total[1], total[2], total[3]}};
}

#undef PLACED

} // namespace port
