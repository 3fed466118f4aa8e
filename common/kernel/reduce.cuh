// Wide loads, and sums and maxima over a warp and over a block. Every reduction has one fixed order, so a run repeats
// bit for bit.
#pragma once
#include "params.cuh"

// Offset of a thread's j-th element, where elements are in runs of `Run` neighbours that begin `Apart` elements apart.
template <int Run, int Apart> DEVICE constexpr int in_runs(int j) { return j / Run * Apart + j % Run; }

// `N` activations in 128-bit loads, in runs (in_runs); by default one run.
template <int N> struct Floats {
  float value[N];
};
template <int N, int Run = N, int Apart = N> DEVICE Floats<N> load_floats(const float *from) {
  Floats<N> f;
  UNROLL
  for (int i = 0; i < N; i += 4) {
    const auto p = load_packet<16>(from + in_runs<Run, Apart>(i));
    UNROLL
    for (int j = 0; j < 4; ++j) f.value[i + j] = __uint_as_float(p.word[j]);
  }
  return f;
}

// Sum over groups of `Lanes` neighbouring lanes; every lane gets the sum of its group. Called by all lanes of a warp.
template <int Lanes = 32> DEVICE float warp_sum(float value) {
  UNROLL
  for (int mask = Lanes / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(all_lanes, value, mask);
  return value;
}

// Sum over the block; every thread gets it. `partial` has one float per warp and is in use until the block's next
// barrier. Called by all threads of the block.
DEVICE float block_sum(float value, float *partial) {
  value = warp_sum(value);
  if (lane() == 0) partial[warp()] = value;
  block_barrier();
  float sum = 0;
  for (int w = 0; w < block_warps; ++w) sum += partial[w];
  return sum;
}

// A candidate for argmax. The larger value is better; of equal values the lower index is better.
struct Best {
  float value;
  int index;
};

DEVICE float negative_infinity() { return __uint_as_float(0xff800000u); }

DEVICE Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a; }

DEVICE Best warp_best(Best best) {
  UNROLL
  // equivalent: 16 -> 17: lanes 17, 8, 4, 2 and 1 apart reach every lane, and a maximum may be taken twice
  for (int mask = 16; mask > 0; mask /= 2)
    best = better(best, {__shfl_xor_sync(all_lanes, best.value, mask), __shfl_xor_sync(all_lanes, best.index, mask)});
  return best;
}

// The block's best, in thread 0; other threads get their warp's. `partial` has one entry per warp. Called by all
// threads of the block.
DEVICE Best block_best(Best best, Best *partial) {
  best = warp_best(best);
  if (lane() == 0) partial[warp()] = best;
  block_barrier();
  if (threadIdx.x == 0)
    for (int w = 1; w < block_warps; ++w) best = better(best, partial[w]);
  return best;
}
