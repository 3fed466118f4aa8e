// Idea        a persistent kernel with a plain launch and its own grid barrier
// Hypothesis  a plain launch costs less than a cooperative one; arrivals and polls on separate cache lines delay each
//             other less than on one word
// Overrides   barrier
// Run         python -m experiments variant=atomic_barrier blocks_per_sm=2
#include "common/kernel/decode.cuh"

template <class Base> struct AtomicBarrier : Base {
  using Self = typename Base::Self;

  template <Stage S> static DEVICE void barrier(const Context &c, int layer) {
    // equivalent: statement deleted: only prefetches are done while waiting
    epoch_barrier(c, S, layer, [&] { Self::template while_waiting<S>(c, layer); });
  }
};
