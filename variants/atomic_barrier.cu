// Idea        a persistent kernel under a plain launch, with a grid barrier of its own
// Hypothesis  a plain launch costs less than a cooperative one, and arrivals and polls on lines of their own
//             disturb each other less than on one word; safe only while all blocks are co-resident: the lab checks
// Overrides   the grid barrier and the launch
// Knobs       blocks_per_sm: 1 .. 4
// Run         python -m experiments variant=atomic_barrier blocks_per_sm=2
#include "common/device/decode.cuh"

template <class Base> struct AtomicBarrier : Base {
  using Self = typename Base::Self;

  template <Stage S> static DEVICE void barrier(const Context &c, int layer) {
    epoch_barrier(c, S, layer, [&] { Self::template while_waiting<S>(c, layer); });
  }
};
