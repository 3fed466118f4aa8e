// Idea        weights pass through shared memory, copied asynchronously some tiles ahead of the multiplication
// Hypothesis  copies in flight hold no registers, so more bytes can be in flight; but each byte is also written to and
//             read from shared memory, which plain loads that are issued early enough avoid
// Overrides   matvec
// Run         python -m experiments variant=cp_async stages=4 tile=2
#include "common/kernel/decode.cuh"

template <class Base> struct CpAsync : Base {
  using Self = typename Base::Self;
  static constexpr int stages = knob::cp_async::stages, tile = knob::cp_async::tile;

  struct Shared : Base::Shared {
    alignas(16) unsigned char tiles[block_warps][stages][tile * 32 * most_staged];
  };

  // A warp's work is one sequence of tiles: by row, then matrix, then columns. Every lane copies the packets that it
  // multiplies, so its own wait is sufficient synchronization.
  template <class Job, class Emit> static DEVICE void matvec(const Context &c, const Job &job, Emit emit) {
    using Staged = typename Job::Row::template Staged<Self::load_bytes>;
    constexpr int width = Job::Row::template width<Self::load_bytes>, columns = 32 * width * tile;
    // equivalent: - -> +: a tile beyond the last column is neither copied nor multiplied
    constexpr int per_matrix = (Job::K + columns - 1) / columns, per_row = per_matrix * Job::matrices;
    const int first = job.part * block_warps + warp(), stride = job.parts * block_warps;
    // equivalent: 0 -> (-1): a warp without rows has no items, whatever their number below one
    const int rows = first < job.rows ? (job.rows - first + stride - 1) / stride : 0, items = rows * per_row;

    const auto column = [&](int item, int t) { return item % per_matrix * columns + (t * 32 + lane()) * width; };
    const auto slot = [&](int item, int t) -> Staged {
      return {shared<Self>(c).tiles[warp()][item % stages] + (t * 32 + lane()) * Staged::bytes};
    };
    const auto issue = [&](int item) {
      if (item < items) {
        const int row = first + item / per_row * stride, m = item % per_row / per_matrix;
        UNROLL
        for (int t = 0; t < tile; ++t)
          if (column(item, t) < Job::K) job.row(m, row).copy(slot(item, t), column(item, t));
      }
      copy_commit(); // also an empty group: the wait below counts groups
    };

    for (int item = 0; item < stages - 1; ++item) issue(item);
    float sums[Job::matrices] = {};
    for (int item = 0; item < items; ++item) {
      issue(item + stages - 1);
      // equivalent: 1 -> 2: it waits for a group more than is read
      copy_wait<stages - 1>();                          // all groups but the newest are complete
      const bool second = item % per_row >= per_matrix; // an index would put the sums in local memory
      float sum = second ? sums[Job::matrices - 1] : sums[0];
      UNROLL
      for (int t = 0; t < tile; ++t)
        if (column(item, t) < Job::K)
          sum =
              add_products(slot(item, t).load(column(item, t)), load_floats<width>(job.x + column(item, t)).value, sum);
      sums[Job::matrices - 1] = second ? sum : sums[Job::matrices - 1];
      sums[0] = second ? sums[0] : sum;
      if (item % per_row != per_row - 1) continue;
      UNROLL
      for (int i = 0; i < Job::matrices; ++i) sums[i] = warp_sum(sums[i]);
      if (lane() == 0) emit(first + item / per_row * stride, sums);
      UNROLL
      for (int i = 0; i < Job::matrices; ++i) sums[i] = 0;
    }
    copy_wait<0>(); // equivalent: synchronization dropped: only empty groups can be left
  }
};
