// Idea        128-bit loads of weights, cache and norm vectors in place of 64-bit loads
// Hypothesis  half as many load instructions for the same bytes, and twice the bytes in flight per load; weights are
//             read once, so they need not evict other lines from L1
// Overrides   load_bytes, load_l1
// Run         python -m experiments variant=vec128 l1=no_allocate
#include "common/kernel/decode.cuh"

template <class Base> struct Vec128 : Base {
  static constexpr int load_bytes = 16;
  static constexpr L1 load_l1 = knob::vec128::l1_is_no_allocate ? L1::no_allocate : L1::allocate;
};
