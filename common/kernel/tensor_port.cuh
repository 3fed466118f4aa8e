// The operations of tensor cores, as in port.cuh.
#pragma once
#include "port.cuh"

// The four fp32 sums that a lane has of each of `M` products.
template <int M> struct Products {
  float sums[M][4];
};

namespace port {

// As thread(), read again in each call. A compiler computes what follows from thread() once and keeps it for the whole
// launch, which is too many registers where a stage has dozens of indices.
DEVICE int thread_anew() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// Products of a bf16 matrix `a`, 16 x 32 N, and `M` others, 32 N x 8, by all lanes of a warp. With g = lane / 4 and
// q = lane % 4, a lane gives of every 32 columns of a, which are as many rows of the others, the eight from 8 q on, two
// to a word: for a in two packets, in which words of row g and of row g + 8 take turns; for `b` in one packet, of
// column g. It gets columns 2 q and 2 q + 1 of row g, then of row g + 8.
// Products are exact. In which order they are added, and how sums are rounded, is a GPU's own. sm_80.
template <int N, int M> DEVICE Products<M> multiply_add(const Packet<16> *a, const Packet<16> *b) {
  Products<M> all;
  UNROLL
  for (int m = 0; m < M; ++m) {
    constexpr int apart = M == 1 ? 2 : 1; // sums at once: no instruction waits for the one right before it
    float sum[2][4] = {};
    UNROLL
    for (int i = 0; i < 2 * N; ++i) {
      float (&s)[4] = sum[i % apart];
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
          : "r"(a[i].word[0]), "r"(a[i].word[1]), "r"(a[i].word[2]), "r"(a[i].word[3]),
            "r"(b[m * N + i / 2].word[i % 2 * 2]), "r"(b[m * N + i / 2].word[i % 2 * 2 + 1]));
    }
    UNROLL
    for (int j = 0; j < 4; ++j) all.sums[m][j] = apart == 1 ? sum[0][j] : sum[0][j] + sum[1][j];
  }
  return all;
}

} // namespace port
