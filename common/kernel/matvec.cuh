// Matrix times vector, with fp32 activations and sums.
#pragma once
#include "weights.cuh"

// Bytes of shared memory for a packet of any matrix, loaded by at most 16 bytes.
constexpr int most_staged = LayerFormat::staged(16) > HeadFormat::staged(16) ? LayerFormat::staged(16)
                                                                             : HeadFormat::staged(16);

// `Matrices` matrices of one shape [rows][K] (two for gate and up) times one vector. Rows are distributed over `parts`
// blocks, by default the whole grid, of which this block is number `part`. A job exists before its vector: `x` is set
// when that may be read.
template <class Format, int Columns, int Matrices = 1> struct MatVec {
  using Row = ::Row<Format, Columns>;
  static constexpr int K = Columns, matrices = Matrices;
  Row matrix[Matrices]; // the first row of each
  int rows;
  const float *x = nullptr;
  int part = blockIdx.x, parts = gridDim.x;

  // A comparison and not an index: an index known only at run time would put the pointers in local memory.
  DEVICE Row row(int m, int r) const {
    static_assert(Matrices <= 2, "add a comparison for each further matrix");
    return (m == 0 ? matrix[0] : matrix[Matrices - 1]).below(r);
  }
};

// The dot product of a row with `x`, by one warp: each lane takes every 32nd packet. Every lane gets the sum.
template <class Self, class Row> DEVICE float dot_row(Row row, const float *x) {
  constexpr int width = Row::template width<Self::load_bytes>;
  float sum = 0;
  UNROLL
  for (int i = lane() * width; i < Row::columns; i += 32 * width)
    sum = add_products(row.template load<Self::load_bytes, Self::load_l1>(i), load_floats<width>(x + i).value, sum);
  return warp_sum(sum);
}

// One warp per row, round-robin over all warps of the job's blocks. `emit(row, sums)` is called in lane 0 of the row's
// warp. Called by all threads of a block; it does not synchronize them.
template <class Self, class Job, class Emit> DEVICE void matvec_by_warp(const Job &job, Emit emit) {
  for (int row = job.part * block_warps + warp(); row < job.rows; row += job.parts * block_warps) {
    float sums[Job::matrices];
    UNROLL
    for (int m = 0; m < Job::matrices; ++m) sums[m] = dot_row<Self>(job.row(m, row), job.x);
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
