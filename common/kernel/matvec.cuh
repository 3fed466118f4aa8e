// Matrix times vector: bf16 rows, fp32 activations and sums. These reads are nearly all bytes of a decode step.
#pragma once
#include "reduce.cuh"

// `Matrices` matrices of the same shape [rows][K], multiplied by one vector row by row; gate and up go together. The
// rows are distributed round-robin over `parts` blocks; this block is number `part` of them. By default these are
// all blocks of the grid. A job is known before its vector is; `x` is set once the vector may be read.
template <int Columns, int Matrices = 1> struct MatVec {
  static constexpr int K = Columns, matrices = Matrices;
  const bf16 *matrix[Matrices];
  int rows;
  const float *x = nullptr;
  int part = port::block(), parts = port::blocks();

  // A comparison and not an index: an index known only at run time would put the pointers in local memory.
  DEVICE const bf16 *row(int m, int r) const {
    static_assert(Matrices <= 2, "add a comparison for each further matrix");
    return (m == 0 ? matrix[0] : matrix[Matrices - 1]) + size_t(r) * Columns;
  }
};

// sum += weights . x for `Width` neighbouring columns, from left to right.
template <int Width> DEVICE float dot_packet(const Packet<2 * Width> &weights, const float *x, float sum) {
  const auto a = load_floats<Width>(x);
  UNROLL
  for (int j = 0; j < Width; j += 2) {
    sum = fmaf(bf16_low(weights.word[j / 2]), a.value[j], sum);
    sum = fmaf(bf16_high(weights.word[j / 2]), a.value[j + 1], sum);
  }
  return sum;
}

// The dot product of one row with `x`, by one warp: each lane takes every 32nd packet. Every lane gets the sum.
template <class Self, int K> DEVICE float dot_row(const bf16 *row, const float *x) {
  constexpr int width = Self::load_bytes / 2;
  float sum = 0;
  UNROLL
  for (int i = lane() * width; i < K; i += 32 * width)
    sum = dot_packet<width>(port::load_weights<Self::load_bytes, Self::load_l1>(row + i), x + i, sum);
  return warp_sum(sum);
}

// One warp per row, round-robin over all warps of the job's blocks. `emit(row, sums)` is called in lane 0 of the row's
// warp. Called by all threads of a block; it does not synchronize them.
template <class Self, class Job, class Emit> DEVICE void matvec_by_warp(const Job &job, Emit emit) {
  for (int row = job.part * block_warps + warp(); row < job.rows; row += job.parts * block_warps) {
    float sums[Job::matrices];
    UNROLL
    for (int m = 0; m < Job::matrices; ++m) sums[m] = dot_row<Self, Job::K>(job.row(m, row), job.x);
    if (lane() == 0) emit(row, sums);
  }
}

// The stage whose result stage `s` multiplies its matrices by.
constexpr Stage input_of(Stage s) {
  return s == Stage::qkv       ? Stage::input_norm
         : s == Stage::o_proj  ? Stage::attention
         : s == Stage::gate_up ? Stage::post_norm
         : s == Stage::down    ? Stage::gate_up
                               : Stage::final_norm;
}

// The job of stage S with its vector. Called by all threads of a block.
template <class Self, Stage S> DEVICE auto with_input(const Context &c, int layer) {
  const float *x = Self::template activations<input_of(S)>(c, layer);
  auto job = Self::template job<S>(c, layer);
  job.x = x;
  return job;
}
