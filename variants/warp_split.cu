// Idea        P producer warps load weights ahead into shared memory, C consumer warps multiply
// Hypothesis  a warp that only loads never waits for arithmetic, and a warp that only multiplies never waits for DRAM;
//             but a warp that loads does not multiply, and each tile costs two named barriers
// Overrides   matvec
// Run         python -m experiments variant=warp_split ratio=2:6
#include "common/kernel/decode.cuh"

template <class Base> struct WarpSplit : Base {
  using Self = typename Base::Self;
  static constexpr int producers = knob::warp_split::producers, consumers = knob::warp_split::consumers;
  // equivalent: 2 -> 1 or 2 -> 3: their number decides the time; a producer waits for the one that it fills
  static constexpr int slots = 2, packets = 4;      // per lane in one tile
  static constexpr int full = 1, empty = 1 + slots; // numbers of the named barriers, one for each slot

  struct Shared : Base::Shared {
    alignas(16) unsigned char tiles[producers == 0 ? 1 : slots][consumers][packets * 32 * most_staged];
  };

  template <class Job, class Emit> static DEVICE void matvec(const Context &c, const Job &job, Emit emit) {
    if constexpr (producers == 0)
      Base::matvec(c, job, emit);
    else if (warp() < producers)
      produce(c, job);
    else
      consume(c, job, emit);
  }

  // The sequence of items, the same for producers and consumers: `consumers` rows at a time, one tile of each per item.
  template <class Job> struct Walk {
    using Staged = typename Job::Row::template Staged<Self::load_bytes>;
    static constexpr int width = Job::Row::template width<Self::load_bytes>, columns = 32 * width * packets;
    static constexpr int per_matrix = (Job::K + columns - 1) / columns, per_row = per_matrix * Job::matrices;
    const int first, stride, items;
    DEVICE explicit Walk(const Job &job)
        : first(job.part * consumers), stride(job.parts * consumers),
          // equivalent: 0 -> 1 or 0 -> (-1): an item without rows is neither loaded nor multiplied
          // not executed: only grids with more blocks than a matrix has rows leave a block without one
          items(first < job.rows ? (job.rows - first + stride - 1) / stride * per_row : 0) {}
    DEVICE int row(int item, int consumer) const { return first + item / per_row * stride + consumer; }
    static DEVICE int matrix(int item) { return item % per_row / per_matrix; }
    static DEVICE int column(int item, int p) { return item % per_matrix * columns + (p * 32 + lane()) * width; }
    static DEVICE Staged at(const Context &c, int item, int consumer, int p) {
      return {shared<Self>(c).tiles[item % slots][consumer] + (p * 32 + lane()) * Staged::bytes};
    }
  };

  template <class Job> static DEVICE void produce(const Context &c, const Job &job) {
    const Walk<Job> walk(job);
    for (int item = 0; item < walk.items; ++item) {
      if (item >= slots) named_sync(empty + item % slots, block_threads);
      for (int consumer = warp(); consumer < consumers; consumer += producers) {
        if (walk.row(item, consumer) >= job.rows) continue;
        const auto row = job.row(walk.matrix(item), walk.row(item, consumer));
        UNROLL
        for (int p = 0; p < packets; ++p)
          if (walk.column(item, p) < Job::K)
            walk.at(c, item, consumer, p)
                .store(row.template load<Self::load_bytes, Self::load_l1>(walk.column(item, p)));
      }
      named_arrive(full + item % slots, block_threads);
    }
    // Waits until the last tiles are read: another product may follow without a barrier and overwrite them.
    for (int item = walk.items < slots ? 0 : walk.items - slots; item < walk.items; ++item)
      named_sync(empty + item % slots, block_threads);
  }

  template <class Job, class Emit> static DEVICE void consume(const Context &c, const Job &job, Emit emit) {
    const Walk<Job> walk(job);
    const int consumer = warp() - producers;
    float sums[Job::matrices] = {};
    for (int item = 0; item < walk.items; ++item) {
      named_sync(full + item % slots, block_threads);
      const bool here = walk.row(item, consumer) < job.rows;
      UNROLL
      for (int m = 0; m < Job::matrices; ++m) {
        if (!here || m != walk.matrix(item)) continue;
        UNROLL
        for (int p = 0; p < packets; ++p)
          if (walk.column(item, p) < Job::K)
            sums[m] = add_products(walk.at(c, item, consumer, p).load(walk.column(item, p)),
                                   load_floats<walk.width>(job.x + walk.column(item, p)).value, sums[m]);
      }
      named_arrive(empty + item % slots, block_threads);
      if (!here || item % walk.per_row != walk.per_row - 1) continue;
      UNROLL
      for (int m = 0; m < Job::matrices; ++m) sums[m] = warp_sum(sums[m]);
      if (lane() == 0) emit(walk.row(item, consumer), sums);
      UNROLL
      for (int m = 0; m < Job::matrices; ++m) sums[m] = 0;
    }
  }
};
