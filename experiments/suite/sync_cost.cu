// Kernels of barriers alone: `steps` barriers of one kind in a row. They run on both devices, built as the decode
// kernels are. The words of the barriers are where a decode kernel keeps its token ids, a line each, all zero at
// first.
#include "common/kernel/decode.cuh"

namespace sync {

DEVICE unsigned *word(const Context &c, int line) { return c.state + state_at::ids + (1 + line) * line_words; }

// No barrier: the launch alone.
struct Nothing {
  static DEVICE void meet(const Context &) {}
};

// One word that every block adds to and polls, as the barrier of a cooperative launch does.
struct Cooperative {
  static DEVICE void meet(const Context &c) { grid_barrier(c, Stage::embed, 0); }
};

// A counter and an epoch on lines of their own.
struct Counter {
  static DEVICE void meet(const Context &c) {
    epoch_barrier(c, Stage::embed, 0, [] {});
  }
};

// A flag for each block: block 0 polls all of them, a thread each, then opens the epoch. No atomic addition.
struct Flags {
  static DEVICE void meet(const Context &c) {
    __syncthreads();
    unsigned *mine = word(c, 1 + int(blockIdx.x)), *epoch = word(c, 0);
    const unsigned next = load_acquire(epoch) + 1; // cannot change before this block has arrived
    if (blockIdx.x == 0) {
      for (int b = 1 + int(threadIdx.x); b < int(gridDim.x); b += block_threads)
        wait_at_barrier(c, Stage::embed, 0, [&] { return load_acquire(word(c, 1 + b)) == next; });
      __syncthreads();
      if (threadIdx.x == 0) store_release(epoch, next);
    } else if (threadIdx.x == 0) {
      store_release(mine, next);
      wait_at_barrier(c, Stage::embed, 0, [&] { return load_acquire(epoch) == next; });
    }
    __syncthreads();
  }
};

// Blocks meet in groups of 16, and the last of each group meets the others' last.
struct TwoLevel {
  static constexpr int group = 16;
  static DEVICE void meet(const Context &c) {
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned *epoch = word(c, 0), *top = word(c, 1), *own = word(c, 2 + int(blockIdx.x) / group);
      const int groups = (int(gridDim.x) + group - 1) / group, first = int(blockIdx.x) / group * group;
      const unsigned size = int(gridDim.x) - first < group ? int(gridDim.x) - first : group;
      const unsigned now = load_acquire(epoch);
      bool last = false;
      if (add_acq_rel(own, 1) == size - 1) {
        *own = 0; // no block of the group arrives again before the epoch opens
        last = add_acq_rel(top, 1) == unsigned(groups) - 1;
      }
      if (last) {
        *top = 0;
        store_release(epoch, now + 1);
      } else {
        wait_at_barrier(c, Stage::embed, 0, [&] { return load_acquire(epoch) != now; });
      }
    }
    __syncthreads();
  }
};

// No barrier: every block adds to each counter, from one on that few other blocks begin with. Their number, `counters`,
// is written in front of this text.
struct CountedAdds {
  static DEVICE void meet(const Context &c) {
    auto *first = reinterpret_cast<unsigned long long *>(word(c, 0));
    for (int i = threadIdx.x; i < counters; i += block_threads)
      add_relaxed(first + (i + 8 * int(blockIdx.x)) % counters, 1);
  }
};

template <class Barrier> struct Meetings {
  struct Shared {};
  static DEVICE void enter(const Context &) {}
  static DEVICE void decode(const Context &c, int steps) {
    for (int step = 0; step < steps; ++step) Barrier::meet(c);
  }
};

} // namespace sync
