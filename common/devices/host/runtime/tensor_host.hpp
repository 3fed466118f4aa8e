// Host implementation of tensor_port.cuh: all lanes of a warp meet, and each computes what it gets.
#pragma once
#include "machine.hpp"

namespace port {

inline int thread_anew() { return thread(); }

// Inlined, so that the return address of the runtime's function tells the place.
#define PLACED [[gnu::always_inline]] inline

// A kernel has millions of these: a vector has the products of every eighth column.
template <int N, int M>
PLACED Products<M> multiply_add(const Packet<16> *a, const Packet<16> *b, host::Site site = host::here()) {
  using Floats [[gnu::vector_size(16)]] = float;
  using Words [[gnu::vector_size(16)]] = uint32_t;
  constexpr int most = 8 / (2 + M);                             // packets of b that lanes meet with at once
  const int g = thread() % 32 / 4, column = 2 * (thread() % 4); // lanes 4 g + q have row g, or column g
  const auto low = [](Words w) { return Floats(w << 16); };
  const auto high = [](Words w) { return Floats(w & 0xffff0000u); };
  Floats sums[M][4] = {};
  for (int first = 0; first < N; first += most) {
    const int count = N - first < most ? N - first : most;
    Packet<16> own[8];
    static_assert(sizeof own <= sizeof(host::LaneWords));
    for (int n = 0; n < count; ++n) {
      const auto &p = a[2 * (first + n)].word, &next = a[2 * (first + n) + 1].word;
      own[(2 + M) * n] = {{p[0], p[2], next[0], next[2]}}; // of row g, then of row g + 8
      own[(2 + M) * n + 1] = {{p[1], p[3], next[1], next[3]}};
      for (int m = 0; m < M; ++m) own[(2 + M) * n + 2 + m] = b[m * N + first + n];
    }
    const auto *words = host::together(own, (2 + M) * 16 * count, site);
    const auto packet = [&](int lane, int i) {
      Words w;
      memcpy(&w, words[lane] + 4 * i, 16);
      return w;
    };
    for (int n = 0; n < count; ++n)
      for (int q = 0; q < 4; ++q) {
        const Words upper = packet(4 * g + q, (2 + M) * n), lower = packet(4 * g + q, (2 + M) * n + 1);
        for (int m = 0; m < M; ++m)
          for (int j = 0; j < 2; ++j) {
            const Words right = packet(4 * (column + j) + q, (2 + M) * n + 2 + m);
            sums[m][j] += low(upper) * low(right) + high(upper) * high(right);
            sums[m][2 + j] += low(lower) * low(right) + high(lower) * high(right);
          }
      }
  }
  Products<M> all;
  for (int m = 0; m < M; ++m)
    for (int j = 0; j < 4; ++j) all.sums[m][j] = sums[m][j][0] + sums[m][j][1] + sums[m][j][2] + sums[m][j][3];
  return all;
}

#undef PLACED

} // namespace port
