// Kernels of barriers alone: `steps` barriers of one kind in a row. They run on both devices, built as the decode
// kernels are.
#include "common/kernel/decode.cuh"

namespace sync {

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

template <class Barrier> struct Meetings {
  struct Shared {};
  static DEVICE void enter(const Context &) {}
  static DEVICE void decode(const Context &c, int steps) {
    for (int step = 0; step < steps; ++step) Barrier::meet(c);
  }
};

} // namespace sync
